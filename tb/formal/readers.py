"""Why lookups find what they need: what is true of the pipelines in every cycle."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import EntryState, LookupStatus, beat_layout, entry_layout
from rtl.monitor import (
    WatchedReadsSignature,
    WatchedRecordSignature,
    WatchedStageSignature,
    any_of,
)
from tb.formal.shadow import choose, places, replaced_layout, row_layout, span


class Readers(Component):
    """Says which lookups stand on an entry that is there no more, and whether others find theirs.

    A lookup is let go when the arbiter grants the completion of a change whose A came after its
    admission: from then on nobody keeps its translations.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    reads, stage, record : the table's
    accepted : In(config.ports)
    beat : In(beat_layout).array(config.ports)
    held : In(config.sources)
        The arbiter grants nothing to the change of this source.
    entry, row, replaced : the shadow's
    misread : Out(1)
        What a pipeline has read last is not what the shadow had then.
    misled : Out(1)
        A lookup that has not been let go needs what its entry doesn't have, or has read what its
        entry doesn't expect.
    exposed : Out(1)
        A lookup that has been let go is answered as if it hadn't.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "reads": In(WatchedReadsSignature(config)).array(config.pipelines),
                "stage": In(WatchedStageSignature(config)).array(config.pipelines, 3),
                "record": In(WatchedRecordSignature(config)).array(config.slots),
                "accepted": In(config.ports),
                "beat": In(beat_layout(config)).array(config.ports),
                "held": In(config.sources),
                "entry": In(entry_layout(config)).array(config.entries),
                "row": In(row_layout(config)).array(config.translations),
                "replaced": In(replaced_layout(config)).array(config.sources),
                "misread": Out(1),
                "misled": Out(1),
                "part": Out(256),  # DEBUG
                "exposed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        misread: list[Value] = []
        misled: list[Value] = []
        exposed: list[Value] = []

        gone = Signal(config.slots)
        for slot, record in enumerate(self.record):
            standing = [
                old.valid & (old.index == record.index) & record.changed for old in self.replaced
            ]
            with m.If(record.starts):
                m.d.sync += gone[slot].eq(0)
            with m.Elif(
                any_of(*(s & ~self.held[source] for source, s in enumerate(standing)))
            ):
                m.d.sync += gone[slot].eq(1)
            misled.append(record.walking & record.changed & ~gone[slot] & ~any_of(*standing))

        # Each entry as it is, and those that were replaced: what they have.
        current = [
            (entry, self._has(m, entry, f"entry_{index}"))
            for index, entry in enumerate(self.entry)
        ]
        replaced = [
            (old, self._has(m, old.entry, f"replaced_{source}"))
            for source, old in enumerate(self.replaced)
        ]

        for pipeline, (reads, stages) in enumerate(zip(self.reads, self.stage, strict=True)):
            entry = Signal(entry_layout(config), name=f"entry_of_{pipeline}")
            row = Signal(row_layout(config), name=f"row_of_{pipeline}")
            with m.If(reads.reads_entry):
                m.d.sync += Value.cast(entry).eq(choose(self.entry, reads.of))
            with m.If(reads.reads_row):
                m.d.sync += Value.cast(row).eq(choose(self.row, reads.at))
            misread += [
                Value.cast(reads.entry) != Value.cast(entry),
                reads.row.present != row.present,
                Value.cast(reads.row.stamp) != Value.cast(row.stamp),
            ]

            in_check, in_walk, in_deliver = stages
            check, walk = reads.check, reads.walk
            for stage, need in ((in_check, check), (in_walk, walk)):
                number = "check" if stage is in_check else "walk"
                wanted, formed = self._wanted(m, need, f"{number}_{pipeline}")

                def fits(has: Value, stamp: ValueLike, wanted: Value = wanted, need: Any = need):
                    return ((wanted & ~has) == 0) & (Value.cast(need.stamp) == Value.cast(stamp))

                has_now = choose([has for _, has in current], stage.index)
                stamp_now = choose([e.ghost.stamp for e, _ in current], stage.index)
                fine = [fits(has_now, stamp_now)]
                changed = choose([r.changed for r in self.record], self._slot(pipeline, stage))
                fine += [
                    changed & old.valid & (old.index == stage.index) & fits(has, old.entry.ghost.stamp)
                    for old, has in replaced
                ]
                needs = self._counts(pipeline, stage, gone) & (need.remaining != 0)
                misled.append(needs & ~(formed & any_of(*fine)))
            found = row.present & (Value.cast(row.stamp) == Value.cast(reads.expects))
            misled.append(
                self._counts(pipeline, in_deliver, gone) & (reads.delivers != 0) & ~found
            )

        for port in range(config.ports):
            pipeline = port if config.pipelines > 1 else 0
            last, beat = self.stage[pipeline][-1], self.beat[port]
            answered = (beat.status == LookupStatus.OK) & (beat.length != 0)
            answered = answered | (beat.status == LookupStatus.NO_TRANSLATION)
            exposed.append(
                self.accepted[port]
                & last.admitted
                & answered
                & gone.bit_select(self._slot(pipeline, last), 1)
            )
        m.d.comb += [
            self.misread.eq(any_of(*misread)),
            self.misled.eq(any_of(*misled)),
            self.part.eq(Cat(misled)),  # DEBUG
            self.exposed.eq(any_of(*exposed)),
        ]
        return m

    def _has(self, m: Module, entry: data.View, name: str) -> Value:
        usable = entry.state == EntryState.VALID
        return Mux(usable, span(m, self._config, entry, name), 0)

    def _wanted(self, m: Module, need: Any, name: str) -> tuple[Value, Value]:
        """The translations that are still to be read, as one bit each, and if they can be."""
        config = self._config
        last = Signal(config.length_width + config.page_shift_max + 1, name=f"last_{name}")
        m.d.comb += last.eq((need.offset + need.remaining - 1) >> need.page_shift)
        formed = (
            (need.page_shift == config.page_shift_min)
            & (need.offset < 1 << config.page_shift_min)
            & (need.translation + last < config.translations)
        )
        return places(config, need.translation, last + 1), formed

    def _slot(self, pipeline: int, stage: Any) -> Value:
        config = self._config
        port = stage.port if config.pipelines < config.ports else pipeline
        return port * config.tags + stage.tag

    def _counts(self, pipeline: int, stage: Any, gone: Signal) -> Value:
        """An admitted lookup is in this stage, has its slot, and hasn't been let go."""
        slot = self._slot(pipeline, stage)
        own = any_of(
            *(
                (slot == number) & record.walking & (record.index == stage.index) & ~gone[number]
                for number, record in enumerate(self.record)
            )
        )
        return stage.valid & stage.admitted & own
