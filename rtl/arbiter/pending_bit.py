"""One bit an entry."""

from amaranth.hdl import Module, Signal

from rtl.arbiter.seam import Arbiter, fresh_guarantees
from rtl.config import OnPending, TableConfig
from rtl.monitor import Guarantee


class PendingBit(Arbiter):
    """Marks the entry, waits until no lookup of it is in flight, then applies.

    The bit is set in the cycle after R and cleared in the cycle after A. Every lookup of every
    entry reads the bit of its entry when it is admitted; while the bit is set, ``on_pending`` says
    what happens to it. C waits for nothing but A.

    As many entries can be pending at once as there are command sources.

    Parameters
    ----------
    config : TableConfig
    """

    choices = ("on_pending",)

    @classmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        given = fresh_guarantees(config) | {Guarantee.ISOLATED_INVALIDATION, Guarantee.LOSSLESS}
        if config.on_pending is OnPending.REFUSE:
            # A lookup that is stalled blocks whatever is behind it.
            given.add(Guarantee.ISOLATED_LOOKUPS)
        return frozenset(given)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pending = Signal(self.config.entries)

        for port, admit in enumerate(self.admit):
            self.hold_back(m, port, pending.bit_select(admit.index, 1))

        for change, match in zip(self.change, self.match, strict=True):
            mine = pending.bit_select(change.index, 1)
            m.d.comb += [
                change.apply.eq(mine & ~match.any()),
                change.complete.eq(1),
            ]
            with m.If(change.applied):
                m.d.sync += mine.eq(0)
            with m.Elif(change.request):
                m.d.sync += mine.eq(1)
        return m
