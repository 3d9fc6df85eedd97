"""Whoever saw the old entry is stopped."""

from amaranth.hdl import Module, Mux, Signal

from rtl.arbiter.seam import Arbiter, fresh_guarantees
from rtl.config import TableConfig
from rtl.monitor import Guarantee


class Squash(Arbiter):
    """Applies at once, kills the lookups that were in flight at A, and waits until they are gone.

    The kill begins in the cycle after A. What was offered or issued before can't be taken back, so
    C still waits for it: for beats that are on offer, and in scope ``dma`` for the DMA engine to
    return the tag.

    Parameters
    ----------
    config : TableConfig
    """

    choices = ()

    @classmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        return frozenset(
            fresh_guarantees(config)
            | {
                Guarantee.LOOKUP_NEVER_WAITS,
                Guarantee.ISOLATED_LOOKUPS,
                Guarantee.ISOLATED_INVALIDATION,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slots = self.config.slots
        killed = Signal(slots)
        found = [Signal(slots, name=f"found_{source}") for source in range(len(self.change))]

        for admit in self.admit:
            m.d.comb += admit.grant.eq(1)
        # A slot that empties forgets that it was killed.
        surviving = killed & self.occupied
        for newly in found:
            surviving = surviving | newly
        m.d.comb += self.kill.eq(surviving)
        m.d.sync += killed.eq(self.kill)
        for source, (change, match) in enumerate(zip(self.change, self.match, strict=True)):
            after_apply = Signal(name=f"after_apply_{source}")
            m.d.sync += after_apply.eq(change.applied)
            m.d.comb += [
                found[source].eq(Mux(after_apply, match, 0)),
                change.apply.eq(1),
                change.complete.eq(~(match & self.kill).any()),
            ]
        return m
