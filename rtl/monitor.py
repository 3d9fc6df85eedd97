"""What may never happen, whatever the policy."""

import itertools
from enum import StrEnum
from typing import Any

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import RetireScope, TableConfig
from rtl.layouts import LookupStatus, translation_layout
from rtl.slots import TagSignature, TakeSignature
from rtl.tables import CopiedMemory, WriteSignature
from rtl.violation import Violation, ViolationSignature
from rtl.watched import (
    AGE_BITS,
    DELIVER,
    TERM_BITS,
    AcceptedBeatSignature,
    TermsSignature,
    WatchedChangeSignature,
    WatchedDoorSignature,
    WatchedRecordSignature,
    WatchedStageSignature,
)


class Guarantee(StrEnum):
    """A statement that holds in every cycle, or is violated.

    R, A and C are the cycles in which a command first asks the arbiter, is written to the table,
    and is reported to its requester. A lookup whose table read falls in the cycle A or before saw
    the old entry.
    """

    UNTORN = "untorn"
    """All beats of one lookup come from one version of the entry, or it ends ``ABORTED``."""
    FRESH_ADMIT = "fresh_admit"
    """A lookup admitted after A is never answered from the version before A."""
    FRESH_ANSWER = "fresh_answer"
    """No OK beat from the version before A is delivered after C."""
    FRESH_DMA = "fresh_dma"
    """No DMA beat under a translation from before A is issued after C."""
    NO_EARLY_REUSE = "no_early_reuse"
    """Neither the index nor its translations are handed to a new owner before C."""
    BOUNDED_INVALIDATION = "bounded_invalidation"
    """C follows R within a stated number of cycles, if every DMA and every consumer is patient."""
    LOOKUP_NEVER_WAITS = "lookup_never_waits"
    """A change never delays or refuses a lookup."""
    ISOLATED_LOOKUPS = "isolated_lookups"
    """A change of an entry never delays, refuses or aborts a lookup of another entry, or one
    admitted after A."""
    ISOLATED_INVALIDATION = "isolated_invalidation"
    """The arbiter never keeps a change waiting for lookups of other entries alone."""
    LOSSLESS = "lossless"
    """No admitted lookup is aborted."""


OF_CHANGES = frozenset(
    {
        Guarantee.NO_EARLY_REUSE,
        Guarantee.BOUNDED_INVALIDATION,
        Guarantee.ISOLATED_INVALIDATION,
    }
)
"""Guarantees that are given to a change, and not to the lookups of a port."""


def own_cycles(config: TableConfig) -> int:
    """Cycles that the arbiter may keep a change waiting while no lookup of its entry is in flight.

    That is what changes of other entries cost it, whose turn may come first. Beyond, it must be a
    lookup of another entry that it waits for.
    """
    return 4 * config.sources


class Monitor(Component):
    """States each guarantee once, and records whether it held. It drives nothing.

    It knows no policy: it keeps, for the last lookup admitted with each tag of each port, the
    version that was current at its admission, whether the C of that version and of a later one has
    been, and the version that its first OK beat came from. A lookup of no bytes touches no memory
    and is not judged. DMA activity is judged by the last lookup that was admitted with its tag, so
    a requester must not use a tag again before the DMA under it has ended.

    Versions are compared modulo ``2 ** ghost_width``.

    A delay is judged where it comes from. A lookup waits because of a change if the arbiter holds
    it back at its door, turns it away, or has it replayed. A lookup of another entry is hit by that
    if it is the lookup itself, or stands right behind it: on its port, or, of one that is replayed,
    in its pipeline. A change waits because of a lookup of another entry if the arbiter holds it up
    for more than :func:`own_cycles` while no lookup of its own entry is in flight. How long a
    lookup takes whose turn it is behind another in a pipeline has nothing to do with changes.

    Beside the guarantees, which depend on the policy, it watches what all of them stand on,
    whatever the policy: each admitted lookup in a pipeline has a slot with its index, a tag of its
    own, and the version of its entry that was current when it was read.

    Parameters
    ----------
    config : TableConfig
        With ``ghost_version``.
    stages : int
        Lookups that a pipeline can hold.

    Members
    -------
    take : In(TakeSignature).array(config.ports)
    beat : In(AcceptedBeatSignature).array(config.ports)
    dma : In(TagSignature).array(config.ports)
        The DMA engine of the port issues a beat under this tag.
    door : In(WatchedDoorSignature).array(config.ports)
    stage : In(WatchedStageSignature).array(pipelines, stages)
    issue : In(WatchedStageSignature).array(pipelines)
        The lookup whose entry is read in this cycle.
    replayed : In(pipelines)
        The lookup that is to be delivered starts anew.
    astray : In(pipelines)
        What a pipeline keeps for a replay isn't what is in it.
    waiting : In(config.ports)
        A beat is offered and not accepted.
    unheard : In(config.sources)
        A completion is offered and not taken.
    occupied : In(config.slots)
    match : In(config.slots).array(config.sources)
        Slots that hold a lookup, and those that hold one of the entry that changes.
    terms : In(TermsSignature)
    change : In(WatchedChangeSignature).array(config.sources)
    translation_write : In(WriteSignature(translation_layout, config.translations))
    violation : Out(ViolationSignature), one for each :class:`Guarantee`
    misplaced, misdated : Out(1)
        In this cycle a lookup in a pipeline has no slot of its own; it has another version of its
        entry than was current when it was read.
    unsound : Out(1)
        Sticky: one of these, or a pipeline was ``astray``.
    outlived : Out(1)
        Sticky: a lookup was in flight after the C of a change that came after its admission. That
        is no fault by itself. Where it never happens, nothing stale can be answered.
    stray : Out(1)
        Sticky: in scope ``dma``, a DMA engine issued a beat under a tag that no lookup in flight
        has. That is a fault of the engine, and nothing is guaranteed to it.
    slow : Out(1)
        Somebody takes longer than ``terms.patience`` in this cycle.
    record : Out(WatchedRecordSignature).array(config.slots)
    age : Out(AGE_BITS).array(config.sources)
        Cycles since the R of the change in progress, as many as can be counted.
    start : In(1)
        The table is ready; cycles are counted from here on.
    ready : Out(1)
        The monitor's own memories are ready.

    Raises
    ------
    ValueError
        If the configuration has no ``ghost_version``.
    """

    def __init__(self, config: TableConfig, stages: int = 3):
        if not config.ghost_version:
            raise ValueError("a monitor needs a configuration with ghost_version")
        self._config = config
        super().__init__(
            {
                "take": In(TakeSignature(config)).array(config.ports),
                "beat": In(AcceptedBeatSignature(config)).array(config.ports),
                "dma": In(TagSignature(config)).array(config.ports),
                "door": In(WatchedDoorSignature(config)).array(config.ports),
                "stage": In(WatchedStageSignature(config)).array(config.pipelines, stages),
                "issue": In(WatchedStageSignature(config)).array(config.pipelines),
                "replayed": In(config.pipelines),
                "astray": In(config.pipelines),
                "waiting": In(config.ports),
                "unheard": In(config.sources),
                "occupied": In(config.slots),
                "match": In(config.slots).array(config.sources),
                "terms": In(TermsSignature()),
                "change": In(WatchedChangeSignature(config)).array(config.sources),
                "translation_write": In(
                    WriteSignature(translation_layout(config), config.translations)
                ),
                "violation": Out(violations_signature(config)),
                "misplaced": Out(1),
                "misdated": Out(1),
                "unsound": Out(1),
                "outlived": Out(1),
                "stray": Out(1),
                "slow": Out(1),
                "record": Out(WatchedRecordSignature(config)).array(config.slots),
                "age": Out(AGE_BITS).array(config.sources),
                "start": In(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        cycle = Signal(40)
        with m.If(self.start):
            m.d.sync += cycle.eq(cycle + 1)

        hits: dict[Guarantee, Signal] = {}
        for guarantee in Guarantee:
            width = config.sources if guarantee in OF_CHANGES else config.ports
            m.submodules[guarantee] = violation = Violation(config, width)
            hits[guarantee] = Signal(width, name=f"{guarantee}_hits")
            record = getattr(self.violation, guarantee)
            m.d.comb += [violation.cycle.eq(cycle), violation.hits.eq(hits[guarantee])]
            for name in ("seen", "count", "cycle", "port"):
                m.d.comb += getattr(record, name).eq(getattr(violation.record, name))

        m.submodules.versions = versions = CopiedMemory(
            config.ghost_width, config.entries, config.ports
        )
        m.d.comb += self.ready.eq(versions.ready)
        for change in self.change:
            with m.If(change.applied):
                m.d.comb += [
                    versions.write.enable.eq(1),
                    versions.write.address.eq(change.index),
                    versions.write.data.eq(change.version),
                ]

        # Whose A has been, and whose C has not.
        incomplete = Signal(config.sources)
        for source, change in enumerate(self.change):
            with m.If(change.applied):
                m.d.sync += incomplete[source].eq(1)
            with m.If(change.completed):
                m.d.sync += incomplete[source].eq(0)

        records = [
            _Record(config, port, tag) for port in range(config.ports) for tag in range(config.tags)
        ]
        for port in range(config.ports):
            own = records[port * config.tags : (port + 1) * config.tags]
            self._watch_port(m, port, own, versions, incomplete, hits)
            self._watch_door(m, port, hits)
        self._watch_slots(m, records)
        self._watch_replays(m, records, hits)
        self._watch_changes(m, records, hits)

        # What a change has not given up yet belongs to it.
        for owner, change in enumerate(self.change):
            others = [c for source, c in enumerate(self.change) if source != owner]
            index_taken = [c.applied & (c.index == change.index) for c in others]
            write = self.translation_write
            translation_taken = (
                write.enable
                & write.data.present
                & (write.address >= change.first)
                & (write.address < change.first + change.count)
            )
            taken = any_of(*index_taken, translation_taken)
            m.d.comb += hits[Guarantee.NO_EARLY_REUSE][owner].eq(change.in_progress & taken)
        return m

    def _watch_port(
        self,
        m: Module,
        port: int,
        records: "list[_Record]",
        versions: CopiedMemory,
        incomplete: Signal,
        hits: dict[Guarantee, Signal],
    ) -> None:
        """What the lookups of a port get, and what is done with it."""
        config = self._config
        take, accepted, dma = self.take[port], self.beat[port], self.dma[port]
        beat = accepted.beat
        read = versions.read[port]
        width = config.ghost_width

        def of(tag: Value, name: str) -> Value:
            return Array(getattr(record, name) for record in records)[tag]

        def older(version: Value, tag: Value) -> Value:
            """From before the version that was current at admission."""
            return (version - of(tag, "current"))[width - 1]

        def is_stale(version: Value, tag: Value) -> Value:
            """From before the A of a change whose C has been."""
            return Mux(older(version, tag), of(tag, "settled"), of(tag, "outdated"))

        # A lookup that starts anew counts as admitted anew. The version that is current when its
        # entry is read is known one cycle later.
        starts = Signal(name=f"starts_{port}")
        start = self.issue[port if config.pipelines > 1 else 0]
        mine = start.port == port if config.pipelines < config.ports else 1
        taken = Signal(name=f"taken_{port}")
        taken_tag = Signal(config.tag_bits, name=f"taken_tag_{port}")
        m.d.comb += [
            starts.eq(start.valid & start.admitted & mine),
            read.enable.eq(starts),
            read.address.eq(start.index),
        ]
        m.d.sync += [taken.eq(starts), taken_tag.eq(start.tag)]

        judged = Signal(name=f"judged_{port}")
        ok = Signal(name=f"ok_{port}")
        m.d.comb += [
            judged.eq(accepted.valid & accepted.admitted),
            ok.eq(judged & (beat.status == LookupStatus.OK) & (beat.length != 0)),
        ]
        for tag, record in enumerate(records):
            with m.If(taken & (taken_tag == tag)):
                m.d.sync += record.current.eq(read.data)
            for change in self.change:
                mine = change.index == record.index
                with m.If(change.completed & mine):
                    m.d.sync += [record.settled.eq(1), record.outdated.eq(record.changed)]
                with m.If(change.applied & change.arbitrated & mine):
                    m.d.sync += record.changed.eq(1)
            with m.If(ok & (beat.tag == tag)):
                m.d.sync += record.answered.eq(1)
                with m.If(~record.answered):
                    m.d.sync += record.answer.eq(beat.ghost.version)
            with m.If(judged & beat.last & (beat.tag == tag)):
                m.d.sync += record.walking.eq(0)
            with m.If(take.valid & (take.tag == tag)):
                m.d.sync += [
                    record.index.eq(take.index),
                    record.answered.eq(0),
                    record.walking.eq(1),
                ]
            watched = self.record[port * config.tags + tag]
            m.d.comb += [
                watched.starts.eq(starts & (start.tag == tag)),
                watched.walking.eq(record.walking),
                watched.index.eq(record.index),
                watched.changed.eq(record.changed),
                watched.outdated.eq(record.outdated),
                watched.answered.eq(record.answered),
            ]
            with m.If(watched.starts):
                m.d.sync += [record.changed.eq(0), record.outdated.eq(0), record.settled.eq(1)]
                # What happens in this cycle happens to the entry after it was read.
                for source, change in enumerate(self.change):
                    with m.If(change.index == start.index):
                        with m.If(change.applied & change.arbitrated):
                            m.d.sync += record.changed.eq(1)
                        with m.Elif(incomplete[source] & ~change.completed):
                            m.d.sync += record.settled.eq(0)

        other_version = of(beat.tag, "answered") & (of(beat.tag, "answer") != beat.ghost.version)
        same_stamp = Value.cast(beat.ghost.found) == Value.cast(beat.ghost.expected)
        # A page that was never written has another stamp; one that has it was taken away.
        lost = judged & (beat.status == LookupStatus.NO_TRANSLATION)
        m.d.comb += [
            hits[Guarantee.UNTORN][port].eq(
                (ok & (other_version | ~same_stamp)) | (lost & (other_version | same_stamp))
            ),
            hits[Guarantee.FRESH_ADMIT][port].eq(ok & older(beat.ghost.version, beat.tag)),
            hits[Guarantee.FRESH_ANSWER][port].eq(ok & is_stale(beat.ghost.version, beat.tag)),
            hits[Guarantee.FRESH_DMA][port].eq(
                dma.valid & of(dma.tag, "answered") & is_stale(of(dma.tag, "answer"), dma.tag)
            ),
            hits[Guarantee.LOSSLESS][port].eq(judged & (beat.status == LookupStatus.ABORTED)),
        ]
        with m.If(hits[Guarantee.LOSSLESS][port] & ~of(beat.tag, "changed")):
            m.d.comb += hits[Guarantee.ISOLATED_LOOKUPS][port].eq(1)

    def _is_changing(self, index: ValueLike) -> Value:
        """A change of this entry is between its R and its C."""
        return any_of(*(change.in_progress & (change.index == index) for change in self.change))

    def _watch_door(self, m: Module, port: int, hits: dict[Guarantee, Signal]) -> None:
        """Which lookups of a port are let in late, or not at all, because of a change."""
        door = self.door[port]
        was_held = Signal(name=f"was_held_{port}")
        behind_held = Signal(name=f"behind_held_{port}")
        other = Signal(name=f"other_{port}")
        stopped = Signal(name=f"stopped_{port}")
        with m.If(door.valid):
            m.d.sync += was_held.eq((was_held | door.held) & ~door.leaves)
        # Whatever is offered right behind a lookup that was held back has waited for it.
        m.d.sync += behind_held.eq(door.leaves & was_held)
        m.d.comb += [
            other.eq(door.valid & ~self._is_changing(door.index)),
            stopped.eq(door.held | door.refused),
        ]
        with m.If(stopped):
            m.d.comb += hits[Guarantee.LOOKUP_NEVER_WAITS][port].eq(1)
        with m.If(other & (stopped | behind_held)):
            m.d.comb += hits[Guarantee.ISOLATED_LOOKUPS][port].eq(1)

    def _slot_of(self, pipeline: int, stage: Any) -> Value:
        config = self._config
        port = stage.port if config.pipelines < config.ports else pipeline
        return port * config.tags + stage.tag

    def _watch_slots(self, m: Module, records: "list[_Record]") -> None:
        """What every policy stands on."""
        misplaced: list[Value] = []
        misdated: list[Value] = []
        for pipeline in range(self._config.pipelines):
            stages = list(self.stage[pipeline])
            for stage in stages:
                slot = self._slot_of(pipeline, stage)
                own = any_of(
                    *(
                        (slot == number) & record.walking & occupied & (record.index == stage.index)
                        for number, (record, occupied) in enumerate(
                            zip(records, self.occupied, strict=True)
                        )
                    )
                )
                misplaced.append(stage.valid & stage.admitted & ~own)
            for behind, ahead in itertools.combinations(stages, 2):
                both = behind.valid & behind.admitted & ahead.valid & ahead.admitted
                same = self._slot_of(pipeline, behind) == self._slot_of(pipeline, ahead)
                # A lookup is in two stages while its beats come out one after the other.
                in_turn = behind.begun if ahead is stages[DELIVER] else Const(0)
                misplaced.append(both & same & ~in_turn)
        for port, accepted in enumerate(self.beat):
            own = records[port * self._config.tags : (port + 1) * self._config.tags]
            current = Array(record.current for record in own)[accepted.beat.tag]
            ok = (accepted.beat.status == LookupStatus.OK) & (accepted.beat.length != 0)
            other = accepted.beat.ghost.version != current
            misdated.append(accepted.valid & accepted.admitted & ok & other)
        misdated += [record.answered & (record.answer != record.current) for record in records]
        outlived = [
            occupied & record.outdated
            for record, occupied in zip(records, self.occupied, strict=True)
        ]
        stray = []
        if self._config.scope is RetireScope.DMA:
            for port, dma in enumerate(self.dma):
                own = self.occupied[port * self._config.tags : (port + 1) * self._config.tags]
                stray.append(dma.valid & ~own.bit_select(dma.tag, 1))
        with m.If(any_of(*stray)):
            m.d.sync += self.stray.eq(1)
        was_unsound = Signal()
        m.d.comb += [
            self.misplaced.eq(any_of(*misplaced)),
            self.misdated.eq(any_of(*misdated)),
            self.unsound.eq(was_unsound | self.astray.any() | self.misplaced | self.misdated),
        ]
        m.d.sync += was_unsound.eq(self.unsound)
        with m.If(any_of(*outlived)):
            m.d.sync += self.outlived.eq(1)

    def _watch_replays(
        self, m: Module, records: "list[_Record]", hits: dict[Guarantee, Signal]
    ) -> None:
        """Lookups that start anew, and those behind them."""
        config = self._config
        for pipeline in range(config.pipelines):
            behind = list(self.stage[pipeline])
            last = behind.pop(DELIVER)
            slot = Signal(range(config.slots), name=f"replayed_slot_{pipeline}")
            m.d.comb += slot.eq(self._slot_of(pipeline, last))
            changed = Array(record.changed for record in records)[slot]
            others = any_of(*(stage.valid & (stage.index != last.index) for stage in behind))
            for port in range(config.ports):
                with m.If(self.replayed[pipeline] & (slot // config.tags == port)):
                    m.d.comb += hits[Guarantee.LOOKUP_NEVER_WAITS][port].eq(1)
                    with m.If(others | ~changed):
                        m.d.comb += hits[Guarantee.ISOLATED_LOOKUPS][port].eq(1)

    def _watch_changes(
        self, m: Module, records: "list[_Record]", hits: dict[Guarantee, Signal]
    ) -> None:
        """How long changes take, and what they wait for."""
        config = self._config
        waits = [*self.waiting, *self.unheard]
        if config.scope is RetireScope.DMA:
            waits += [
                occupied & ~record.walking
                for record, occupied in zip(records, self.occupied, strict=True)
            ]
        slow = Signal(len(waits))
        for number, wait in enumerate(waits):
            waited = Signal(TERM_BITS, name=f"waited_{number}")
            m.d.comb += slow[number].eq(wait & (waited >= self.terms.patience))
            m.d.sync += waited.eq(Mux(wait, Mux(slow[number], waited, waited + 1), 0))

        m.d.comb += self.slow.eq(slow.any())
        for source, change in enumerate(self.change):
            age = self.age[source]
            excused = Signal(name=f"excused_{source}")
            late = (self.terms.deadline != 0) & (age == self.terms.deadline + 1)
            m.d.comb += hits[Guarantee.BOUNDED_INVALIDATION][source].eq(
                change.in_progress & late & ~excused & ~slow.any()
            )
            with m.If(change.in_progress & ~change.completed):
                m.d.sync += [
                    age.eq(Mux(age.all(), age, age + 1)),
                    excused.eq(excused | slow.any()),
                ]
            with m.Else():
                m.d.sync += [age.eq(0), excused.eq(0)]

            limit = own_cycles(config)
            idle = Signal(range(limit + 2), name=f"idle_{source}")
            others = self.occupied.any() & ~self.match[source].any()
            m.d.comb += hits[Guarantee.ISOLATED_INVALIDATION][source].eq(idle == limit + 1)
            with m.If(change.held & others):
                m.d.sync += idle.eq(Mux(idle == limit + 1, 1, idle + 1))
            with m.Else():
                m.d.sync += idle.eq(0)


class _Record:
    """What the monitor keeps of the last lookup that was admitted with a tag of a port.

    Parameters
    ----------
    config : TableConfig
    port, tag : int
    """

    def __init__(self, config: TableConfig, port: int, tag: int):
        def signal(name: str, width: int) -> Signal:
            return Signal(width, name=f"{name}_{port}_{tag}")

        self.index = signal("index", config.index_bits)
        self.walking = signal("walking", 1)
        """From the cycle after admission to that of the last beat."""
        self.changed = signal("changed", 1)
        """The A of a change of its entry was in the cycle of its admission or later. A
        registration doesn't count: a lookup from before it fails."""
        self.current = signal("current", config.ghost_width)
        """The version of its entry at admission."""
        self.settled = signal("settled", 1)
        """The C of the change that made this version has been."""
        self.outdated = signal("outdated", 1)
        """The C of a later one has been."""
        self.answered = signal("answered", 1)
        """An OK beat was accepted."""
        self.answer = signal("answer", config.ghost_width)
        """The version that the first of them came from."""


def violations_signature(config: TableConfig) -> wiring.Signature:
    """One :class:`ViolationSignature` for each guarantee, by its name."""
    return wiring.Signature({g.value: Out(ViolationSignature(config)) for g in Guarantee})


def any_of(*conditions: ValueLike) -> Value:
    """High if one of the conditions is."""
    result = Value.cast(0)
    for condition in conditions:
        result = result | condition
    return result
