"""Lookups that may have to start anew."""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from rtl.admission import admitted_layout
from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import LookupStatus, is_refusal
from rtl.monitor import WatchedKeptSignature

DEPTH = 4
"""Lookups between admission and the offer of their first beat: one in each of the three stages,
and the one that is admitted in the cycle in which the first of them is offered."""


class ReplayBuffer(Component):
    """Remembers the lookups in the pipeline until nothing of them can be replayed any more.

    Lookups pass in the cycle in which they come. After ``rewind``, those that were issued and not
    ``settled`` are issued again in their order, from the next cycle on and before any new one.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    admitted : In(stream.Signature(admitted_layout))
    issued : Out(stream.Signature(admitted_layout))
    settled : In(1)
        The oldest lookup has offered its first beat.
    rewind : In(1)
        Never together with ``settled``.
    watched : Out(WatchedKeptSignature).array(DEPTH)
        What is kept, from the oldest on.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "admitted": In(stream.Signature(admitted_layout(config))),
                "issued": Out(stream.Signature(admitted_layout(config))),
                "settled": In(1),
                "rewind": In(1),
                "watched": Out(WatchedKeptSignature(config)).array(DEPTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = admitted_layout(self._config)
        kept = [Signal(layout, name=f"kept_{place}") for place in range(DEPTH)]
        oldest = Signal(range(DEPTH))
        count = Signal(range(DEPTH + 1))
        # Of those that are kept, how many of the youngest are to be issued again.
        again = Signal(range(DEPTH + 1))

        newest = (oldest + count)[: len(oldest)]
        next_again = (oldest + count - again)[: len(oldest)]
        passes = self.issued.valid & self.issued.ready
        takes = self.admitted.valid & self.admitted.ready
        replayed = data.View(layout, Array(Value.cast(item) for item in kept)[next_again])
        m.d.comb += [
            Value.cast(self.issued.payload).eq(
                Mux(again != 0, Value.cast(replayed), Value.cast(self.admitted.payload))
            ),
            self.issued.valid.eq(~self.rewind & (self.admitted.valid | (again != 0))),
            self.admitted.ready.eq(~self.rewind & (again == 0) & self.issued.ready),
        ]
        with m.Switch(newest):
            for place, item in enumerate(kept):
                with m.Case(place), m.If(takes):
                    m.d.sync += item.eq(self.admitted.payload)
        m.d.sync += count.eq(count + takes - self.settled)
        with m.If(self.settled):
            m.d.sync += oldest.eq(oldest + 1)
        with m.If(self.rewind):
            m.d.sync += again.eq(count)
        with m.Elif(passes & (again != 0)):
            m.d.sync += again.eq(again - 1)
        for place, seen in enumerate(self.watched):
            which = (oldest + place)[: len(oldest)]
            item = data.View(layout, Array(Value.cast(item) for item in kept)[which])
            m.d.comb += [
                # If more were to be issued again than are kept, it would show in all places.
                seen.valid.eq((place < count) | (again > count)),
                seen.again.eq(place + again >= count),
                seen.admitted.eq(item.verdict == LookupStatus.OK),
                seen.refused.eq(is_refusal(item.verdict)),
                seen.port.eq(item.port),
                seen.tag.eq(item.lookup.tag),
                seen.index.eq(item.lookup.key.index),
            ]
        return m
