"""Why lookups find what they need: what is true of the pipelines in every cycle."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import LookupStatus, beat_layout, entry_layout
from rtl.monitor import any_of
from rtl.watched import (
    WatchedReadsSignature,
    WatchedRecordSignature,
    WatchedStageSignature,
)
from tb.formal.shadow import choose, places, replaced_layout, row_layout, same, usable_span


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
    outgrown : Out(1)
        Of the entries alone, whatever the rows hold: a lookup whose entry hasn't changed wants, or
        has just been given, what its entry doesn't cover; or nobody knows why its entry changed.
    exposed : Out(1)
        A lookup that has been let go is answered as if it hadn't.
    gone : Out(config.slots)
        Lookups that have been let go.
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
                "outgrown": Out(1),
                "exposed": Out(1),
                "gone": Out(config.slots),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        misread: list[Value] = []
        misled: list[Value] = []
        outgrown: list[Value] = []
        exposed: list[Value] = []

        gone = self.gone
        for slot, record in enumerate(self.record):
            standing = [
                old.valid & (old.index == record.index) & record.changed for old in self.replaced
            ]
            with m.If(record.starts):
                m.d.sync += gone[slot].eq(0)
            with m.Elif(any_of(*(s & ~self.held[source] for source, s in enumerate(standing)))):
                m.d.sync += gone[slot].eq(1)
            forgotten = record.walking & record.changed & ~gone[slot] & ~any_of(*standing)
            misled.append(forgotten)
            outgrown.append(forgotten)

        has_now = [usable_span(m, config, entry) for entry in self.entry]
        had = [usable_span(m, config, old.entry) for old in self.replaced]

        for pipeline, (reads, stages) in enumerate(zip(self.reads, self.stage, strict=True)):
            entry = Signal(entry_layout(config), name=f"entry_of_{pipeline}")
            row = Signal(row_layout(config), name=f"row_of_{pipeline}")
            with m.If(reads.reads_entry):
                m.d.sync += Value.cast(entry).eq(choose(self.entry, reads.of))
            with m.If(reads.reads_row):
                m.d.sync += Value.cast(row).eq(choose(self.row, reads.at))
            misread += [
                ~same(reads.entry, entry),
                reads.row.present != row.present,
                ~same(reads.row.stamp, row.stamp),
            ]

            *reading, delivering = stages
            for stage, need in zip(reading, (reads.check, reads.walk), strict=True):
                wanted, possible = self._wanted(m, need)
                stamps = [entry.ghost.stamp for entry in self.entry]
                changed = choose([r.changed for r in self.record], self._slot(pipeline, stage))
                # Where it may find all that it wants: its entry, and before that, what it was.
                sources = [(1, choose(has_now, stage.index), choose(stamps, stage.index))]
                sources += [
                    (changed & old.valid & (old.index == stage.index), has, old.entry.ghost.stamp)
                    for old, has in zip(self.replaced, had, strict=True)
                ]
                fits = any_of(
                    *(
                        valid & ((wanted & ~has) == 0) & same(need.stamp, stamp)
                        for valid, has, stamp in sources
                    )
                )
                is_current = self._in_slot(pipeline, stage, [~r.changed for r in self.record])
                reads_on = stage.valid & stage.admitted & is_current & (need.remaining != 0)
                inside = ((wanted | self._given(stage, need)) & ~choose(has_now, stage.index)) == 0
                followed = stage.begun & (need.translation == 0)
                outgrown.append(reads_on & ~(possible & inside & ~followed))
                needs = self._counts(pipeline, stage, gone) & (need.remaining != 0)
                misled.append(needs & ~(possible & fits))
            found = row.present & same(row.stamp, reads.expects)
            misled.append(self._counts(pipeline, delivering, gone) & (reads.delivers != 0) & ~found)

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
            self.outgrown.eq(any_of(*outgrown)),
            self.exposed.eq(any_of(*exposed)),
        ]
        return m

    def _wanted(self, m: Module, need: Any) -> tuple[Value, Value]:
        """The translations that are still to be read, as one bit each, and if they can be."""
        config = self._config
        last = Signal(config.length_width + config.page_shift_max + 1, name="last")
        m.d.comb += last.eq((need.offset + need.remaining - 1) >> need.page_shift)
        possible = (
            (need.page_shift == config.page_shift_min)
            & (need.offset < 1 << config.page_shift_min)
            & (need.translation + last < config.translations)
        )
        return places(config, need.translation, last + 1), possible

    def _given(self, stage: Any, need: Any) -> Value:
        """The translation that was read last for a lookup that still needs others, as a bit."""
        last = places(self._config, need.translation - 1, Const(1))
        return Mux(stage.begun, last, 0)

    def _slot(self, pipeline: int, stage: Any) -> Value:
        config = self._config
        port = stage.port if config.pipelines < config.ports else pipeline
        return port * config.tags + stage.tag

    def _in_slot(self, pipeline: int, stage: Any, flags: Iterable[Value]) -> Value:
        """The slot of the lookup in a stage is one of those with this flag, and is about it."""
        slot = self._slot(pipeline, stage)
        return any_of(
            *(
                (slot == number) & record.walking & (record.index == stage.index) & flag
                for number, (record, flag) in enumerate(zip(self.record, flags, strict=True))
            )
        )

    def _counts(self, pipeline: int, stage: Any, gone: Signal) -> Value:
        """An admitted lookup is in this stage, has its slot, and hasn't been let go."""
        own = self._in_slot(pipeline, stage, [~flag for flag in gone])
        return stage.valid & stage.admitted & own
