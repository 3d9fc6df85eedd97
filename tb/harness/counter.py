"""A counter with everything that makes names hard: structures, submodules, a memory."""

from pathlib import Path
from typing import Any

from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from sim.netlist import Design, source_hash

STEP = data.StructLayout({"by": 4, "more": data.StructLayout({"twice": 1, "pad": 3})})


class Inner(wiring.Component):
    """Counts by what it is told, and remembers the last four counts.

    Parameters
    ----------
    width : int
        Bits of the count.
    """

    step: Any
    count: Any

    def __init__(self, width: int):
        super().__init__({"step": In(stream.Signature(STEP)), "count": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.history = history = memory.Memory(shape=self.count.shape(), depth=4, init=[])
        port = history.write_port()
        # The name of a field and the name of another signal, equal once the dot is gone.
        step = Signal(STEP, name="now")
        by = Signal(5, name="now_by")
        m.d.comb += [
            self.step.ready.eq(1),
            step.eq(self.step.payload),
            by.eq(step.by << step.more.twice),
            port.addr.eq(self.count),
            port.data.eq(self.count),
            port.en.eq(self.step.valid),
        ]
        with m.If(self.step.valid):
            m.d.sync += self.count.eq(self.count + by)
        m.d.sync += Assert(~self.step.valid | (step.by != 15), "steps of fifteen are forbidden")
        return m


class Counter(wiring.Component):
    """Passes steps on to :class:`Inner`.

    Parameters
    ----------
    width : int
        Bits of the count.
    """

    step: Any
    count: Any

    def __init__(self, width: int = 8):
        super().__init__({"step": In(stream.Signature(STEP)), "count": Out(width)})
        self.width = width

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Inner(self.width)
        wiring.connect(m, wiring.flipped(self.step), inner.step)
        m.d.comb += self.count.eq(inner.count)
        return m


def counter_design(width: int = 8) -> Design:
    """The counter as a :class:`~sim.netlist.Design`."""
    return Design("counter", lambda: Counter(width), f"{source_hash([Path(__file__)])} {width}")
