"""Trust, and check at the end."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, ValueLike

from rtl.arbiter.seam import Arbiter, fresh_guarantees
from rtl.config import OnWrap, RetireScope, TableConfig
from rtl.monitor import Guarantee


class VersionCheck(Arbiter):
    """Applies at once and counts the applies of each entry; each lookup checks what it counted.

    A lookup takes the version of its entry with it. When a beat of it is about to be offered and
    the version is another one by then, the lookup starts anew, or is aborted if a beat of it was
    offered before. In scope ``dma`` its DMA engine is stopped, too. C waits only for the beats
    that were on offer at A.

    A version has ``version_bits``, so after ``2 ** version_bits`` applies of one entry an old
    lookup takes its version for the current one. With ``on_wrap`` ``ignore`` that goes wrong. With
    ``wait`` no version is given again while a lookup in flight has it: A waits.

    Parameters
    ----------
    config : TableConfig
    """

    choices = ("version_bits", "on_wrap")
    replays = True

    def __init__(self, config: TableConfig):
        super().__init__(config)
        self._versions = [
            Signal(config.version_bits, name=f"version_{index}") for index in range(config.entries)
        ]
        sources = range(config.sources)
        self._after_apply = [Signal(name=f"after_apply_{source}") for source in sources]
        self._snapshot = [Signal(config.ports, name=f"snapshot_{source}") for source in sources]

    @classmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        given = {
            Guarantee.FRESH_ADMIT,
            Guarantee.NO_EARLY_REUSE,
            Guarantee.ISOLATED_INVALIDATION,
        }
        if config.on_wrap is OnWrap.WAIT:
            # How long A waits then is nothing that has been proved, so it isn't claimed.
            given |= fresh_guarantees(config) - {Guarantee.BOUNDED_INVALIDATION}
        else:
            given.add(Guarantee.BOUNDED_INVALIDATION)
        return frozenset(given)

    @classmethod
    def token_width(cls, config: TableConfig) -> int:
        return config.version_bits

    def _version(self, index: ValueLike) -> Value:
        return Array(self._versions)[Value.cast(index)]

    def is_current(self, slot: int) -> Value:
        """The version that it took with it is that of its entry."""
        return self.slot[slot].token == self._version(self.slot[slot].index)

    def awaits(self, source: int, port: int) -> ValueLike:
        """It was on offer at A, and has been ever since."""
        change = self.change[source]
        return change.wait & (self._after_apply[source] | self._snapshot[source][port])

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, version = self.config, self._version

        for admit in self.admit:
            m.d.comb += [admit.grant.eq(1), admit.token.eq(version(admit.index))]
        for deliver in self.deliver:
            m.d.comb += [
                deliver.replay.eq(deliver.token != version(deliver.index)),
                deliver.renewed.eq(version(deliver.index)),
            ]
        if config.scope is RetireScope.DMA:
            for number, (slot, kill) in enumerate(zip(self.slot, self.kill, strict=True)):
                m.d.comb += kill.eq(slot.occupied & slot.indexed & ~self.is_current(number))

        for source, (change, match) in enumerate(zip(self.change, self.match, strict=True)):
            after_apply, snapshot = self._after_apply[source], self._snapshot[source]
            on_offer = Signal(config.ports, name=f"on_offer_{source}")
            remaining = Signal(config.ports, name=f"remaining_{source}")
            next_version = Signal(config.version_bits, name=f"next_version_{source}")
            m.d.comb += [
                next_version.eq(version(change.index) + 1),
                on_offer.eq(
                    Cat(
                        deliver.valid & deliver.fixed & (deliver.index == change.index)
                        for deliver in self.deliver
                    )
                ),
                # Between two beats of a port there is a cycle in which none of them is fixed.
                remaining.eq(Mux(after_apply, on_offer, snapshot & on_offer)),
                change.complete.eq(~remaining.any()),
            ]
            m.d.sync += [after_apply.eq(change.applied), snapshot.eq(remaining)]
            in_use = Cat(
                old & (slot.token == next_version)
                for old, slot in zip(match, self.slot, strict=True)
            )
            m.d.comb += change.apply.eq(~in_use.any() if config.on_wrap is OnWrap.WAIT else 1)
            with m.If(change.applied):
                m.d.sync += version(change.index).eq(next_version)
        return m
