"""Lookups come in two epochs; a change waits for the older one."""

from amaranth.hdl import Cat, Module, Signal

from rtl.arbiter.seam import Arbiter, fresh_guarantees
from rtl.config import TableConfig
from rtl.monitor import Guarantee


class TwoEpochs(Arbiter):
    """Applies, begins a new epoch, and completes when the lookups of the old one are gone.

    Each lookup carries the epoch of its admission. The epoch changes in the cycle after A, so a
    lookup that is admitted at A itself still belongs to the old one: it read the old entry. C is
    granted in the first cycle without a lookup of the old epoch, at best in the cycle after A. A
    waits for the same, since the name of the old epoch is needed again.

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
                Guarantee.LOSSLESS,
            }
        )

    @classmethod
    def token_width(cls, config: TableConfig) -> int:
        return 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        epoch = Signal()
        drained = Signal()

        for admit in self.admit:
            m.d.comb += [admit.grant.eq(1), admit.token.eq(epoch)]
        old = Cat(slot.occupied & (slot.token != epoch) for slot in self.slot)
        m.d.comb += drained.eq(~old.any())
        for change in self.change:
            m.d.comb += [change.apply.eq(drained), change.complete.eq(drained)]
            with m.If(change.applied):
                m.d.sync += epoch.eq(~epoch)
        return m
