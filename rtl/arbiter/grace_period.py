"""The old copy is good until its last reader is gone."""

from amaranth.hdl import Module, Mux, Signal

from rtl.arbiter.seam import Arbiter, fresh_guarantees
from rtl.config import FenceSpan, TableConfig
from rtl.monitor import Guarantee


class GracePeriod(Arbiter):
    """Applies at once, and completes when the lookups that were in flight at A have retired.

    No lookup ever waits: the old ones finish on the old entry, the new ones see the new entry. In
    the cycle after A each change takes a snapshot of the slots to wait for, and C is granted in
    the first cycle in which all of them have been empty once, at best in that same cycle. As many
    changes as there are command sources can wait at once, each for its own snapshot.

    Parameters
    ----------
    config : TableConfig
        ``span`` says which lookups a change waits for: those of its entry, or all.
    """

    choices = ("span",)

    @classmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        given = fresh_guarantees(config) | {
            Guarantee.LOOKUP_NEVER_WAITS,
            Guarantee.ISOLATED_LOOKUPS,
            Guarantee.LOSSLESS,
        }
        if config.span is FenceSpan.ENTRY:
            given.add(Guarantee.ISOLATED_INVALIDATION)
        return frozenset(given)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for admit in self.admit:
            m.d.comb += admit.grant.eq(1)
        for source, change in enumerate(self.change):
            after_apply = Signal(name=f"after_apply_{source}")
            snapshot = Signal(self.config.slots, name=f"snapshot_{source}")
            remaining = Signal(self.config.slots, name=f"remaining_{source}")
            inside = self.occupied if self.config.span is FenceSpan.ALL else self.match[source]
            # A slot is empty for a cycle before another lookup has it, so `occupied` tells the two
            # apart, and an index that was the same would not.
            m.d.comb += [
                remaining.eq(Mux(after_apply, inside, snapshot & self.occupied)),
                change.apply.eq(1),
                change.complete.eq(~remaining.any()),
            ]
            m.d.sync += [after_apply.eq(change.applied), snapshot.eq(remaining)]
        return m
