"""A record that sticks: how often something was violated, and when and where first."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig


class ViolationSignature(wiring.Signature):
    """Sticky record of the violations of one guarantee.

    ``count`` saturates. ``cycle`` (0 is the first in which the table is ready) and ``port`` are
    those of the first violation; for the guarantees in :data:`rtl.monitor.OF_CHANGES` ``port`` is
    the command source whose change is concerned.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "seen": Out(1),
                "count": Out(32),
                "cycle": Out(40),
                "port": Out(max(2, config.port_bits)),
            }
        )


class Violation(Component):
    """Counts violations and keeps the first. It is seen in the next cycle.

    Parameters
    ----------
    config : TableConfig
    width : int
        Places where the guarantee can be violated in one cycle.

    Members
    -------
    cycle : In(40)
    hits : In(width)
        The guarantee is violated there in this cycle.
    record : Out(ViolationSignature)
    """

    def __init__(self, config: TableConfig, width: int):
        self._width = width
        super().__init__(
            {"cycle": In(40), "hits": In(width), "record": Out(ViolationSignature(config))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        record = self.record
        # A bit of its own, although the count would tell: a proof needs nothing else.
        with m.If(self.hits.any()):
            m.d.sync += record.seen.eq(1)
        total = Signal(range((1 << len(record.count)) + self._width))
        m.d.comb += total.eq(record.count + sum(self.hits[i] for i in range(self._width)))
        m.d.sync += record.count.eq(
            Mux(total >> len(record.count), (1 << len(record.count)) - 1, total)
        )
        with m.If(self.hits.any() & ~record.seen):
            m.d.sync += record.cycle.eq(self.cycle)
            for i in reversed(range(self._width)):
                with m.If(self.hits[i]):
                    m.d.sync += record.port.eq(i)
        return m
