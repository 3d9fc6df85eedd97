"""The negative control."""

from amaranth.hdl import Module

from rtl.arbiter.seam import Arbiter
from rtl.config import TableConfig
from rtl.monitor import Guarantee


class ApplyNow(Arbiter):
    """Applies and completes at once, whatever is in flight. Combinational.

    Lookups never wait, and finish on the copy of the entry that they took with them, while their
    translations are removed under them and their memory is given to others.

    Parameters
    ----------
    config : TableConfig
    """

    choices = ()

    @classmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        broken = {Guarantee.UNTORN, Guarantee.FRESH_ANSWER, Guarantee.FRESH_DMA}
        return frozenset(Guarantee) - broken

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for admit in self.admit:
            m.d.comb += admit.grant.eq(1)
        for change in self.change:
            m.d.comb += [change.apply.eq(1), change.complete.eq(1)]
        return m
