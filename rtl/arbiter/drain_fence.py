"""One fence for the whole table."""

from amaranth.hdl import Module, Mux, Signal

from rtl.arbiter.seam import Arbiter, fresh_guarantees
from rtl.config import FenceSpan, OnPending, TableConfig
from rtl.monitor import Guarantee
from rtl.turns import Turns


class DrainFence(Arbiter):
    """Holds back the lookups inside its span, waits until none is in flight, then applies.

    There is one fence. It is raised in the cycle after R, or two cycles after the A of the command
    that has it, whichever comes later, and lowered in the cycle after A. While it is up,
    ``on_pending`` says what happens to a lookup inside its span. C waits for nothing but A.

    Parameters
    ----------
    config : TableConfig
        ``span`` says which lookups the fence holds back: those of one entry, or all.
    """

    choices = ("span", "on_pending")

    @classmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        given = fresh_guarantees(config) | {Guarantee.LOSSLESS}
        if config.span is FenceSpan.ENTRY:
            if config.on_pending is OnPending.REFUSE:
                # A lookup that is stalled blocks whatever is behind it.
                given.add(Guarantee.ISOLATED_LOOKUPS)
            if config.sources == 1:
                # A second change has to wait until the fence is free.
                given.add(Guarantee.ISOLATED_INVALIDATION)
        return frozenset(given)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        owner = Signal(config.sources)
        index = Signal(config.index_bits)

        m.submodules.next_owner = next_owner = Turns(config.sources)
        for source, change in enumerate(self.change):
            m.d.comb += [
                next_owner.requests[source].eq(change.request),
                change.complete.eq(1),
            ]
            inside = self.occupied if config.span is FenceSpan.ALL else self.match[source]
            m.d.comb += change.apply.eq(owner[source] & ~inside.any())
            with m.If(owner[source] & change.applied):
                m.d.sync += owner.eq(0)
            with m.If(~owner.any() & next_owner.grant[source]):
                m.d.comb += next_owner.served.eq(1)
                m.d.sync += [owner.eq(next_owner.grant), index.eq(change.index)]

        for port, admit in enumerate(self.admit):
            same = 1 if config.span is FenceSpan.ALL else admit.index == index
            self.hold_back(m, port, Mux(owner.any(), same, 0))
        return m
