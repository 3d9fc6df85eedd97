"""Why the two tables agree: what is true of the command engine in every cycle."""

import itertools
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.commands import CommandState, context_layout
from rtl.component import Component
from rtl.config import StepOrder, TableConfig
from rtl.layouts import (
    CommandStatus,
    EntryKind,
    EntryState,
    Opcode,
    command_layout,
    entry_layout,
)
from rtl.monitor import any_of
from rtl.worker import WatchedWorkerSignature, WorkerState
from tb.formal.environment import range_layout
from tb.formal.shadow import (
    choose,
    holds,
    is_formed,
    owned_span,
    pages,
    places,
    replaced_layout,
    row_layout,
    same,
    span,
)
from tb.formal.working import FINISHING, STARTING, is_one_of


class Ledger(Component):
    """Keeps account of who has, writes and gives up what, and says if it doesn't come out.

    Its claims follow from themselves one cycle earlier, whatever the arbiter grants, if what is
    read is what was written and the hosts keep to the rules. From them follows that the two
    tables agree. In the order ``translations_first`` they don't, while a deregistration goes on:
    there, nothing is claimed of the translations that an entry should find.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    context, worker_state, worker, working_for : the engine's
    in_progress : In(config.sources)
    fetched : In(entry_layout)
        The entry that was read last, as it was then.
    busy : In(config.sources)
    ordered : In(command_layout).array(config.sources)
    owned : In(range_layout).array(config.entries)
    applied : In(config.sources)
    entry, row, replaced : the shadow's
    misread : Out(1)
        The worker has read another count of windows than was written.
    unaccounted : Out(1)
        A claim is wrong.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        self.removes_first = config.step_order is StepOrder.TRANSLATIONS_FIRST
        sources = config.sources
        super().__init__(
            {
                "context": In(context_layout(config)).array(sources),
                "worker_state": In(WorkerState),
                "worker": In(WatchedWorkerSignature(config)),
                "working_for": In(range(max(2, sources))),
                "in_progress": In(sources),
                "fetched": In(entry_layout(config)),
                "busy": In(sources),
                "ordered": In(command_layout(config)).array(sources),
                "owned": In(range_layout(config)).array(config.entries),
                "applied": In(sources),
                "entry": In(entry_layout(config)).array(config.entries),
                "row": In(row_layout(config)).array(config.translations),
                "replaced": In(replaced_layout(config)).array(sources),
                "misread": Out(1),
                "unaccounted": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, worker = self._config, self.worker
        wrong: list[Value] = []

        def claim(condition: ValueLike, *consequences: ValueLike) -> None:
            wrong.extend(
                Value.cast(condition) & ~Value.cast(consequence) for consequence in consequences
            )

        # How many windows each region has been counted, and the count that was read last.
        counts = [Signal(config.index_bits + 1, name=f"count_{i}") for i in range(config.entries)]
        counted = Signal(config.index_bits + 1)
        for index, count in enumerate(counts):
            with m.If(worker.counts & (worker.to == index)):
                m.d.sync += count.eq(worker.new_count)
        with m.If(worker.asked):
            m.d.sync += counted.eq(choose(counts, worker.of))
        m.d.comb += self.misread.eq(worker.count != counted)

        uses, has = self._claim_entries(m, claim)
        bound = [is_bound(entry) for entry in self.entry]
        commands = [
            _Command(m, self, source, counts, counted, bound, uses, has)
            for source in range(config.sources)
        ]
        self._claim_worker(claim)
        for command in commands:
            command.claim_order(claim)
            command.claim_reads(claim)
            command.claim_plan(claim)
            command.claim_permission(claim)
            command.claim_preparation(m, claim)
            command.claim_result(m, claim)
            command.claim_peace(claim)
        for one, other in itertools.permutations(commands, 2):
            one.claim_distance(claim, other)

        # Translations are kept for an entry while there is one, and while one goes.
        for index, (entry, owned) in enumerate(zip(self.entry, self.owned, strict=True)):
            is_there = (entry.kind == EntryKind.REGION) & (entry.state != EntryState.INVALID)
            going = [c.after & c.deregisters & (c.index == index) for c in commands]
            claim(owned.taken, is_there | any_of(*going))

        # Of each region, as many windows are bound, about to be, or not yet released as counted.
        for index, count in enumerate(counts):
            users = [
                is_bound & (entry.parent == index)
                for is_bound, entry in zip(bound, self.entry, strict=True)
            ]
            users += [used & (of == index) for c in commands for used, of in c.uses]
            claim(1, count == sum(users, start=Value.cast(0)))
        m.d.comb += self.unaccounted.eq(Cat(wrong).any())
        return m

    def _claim_entries(self, m: Module, claim: Any) -> tuple[list[Value], list[Value]]:
        """What is true of the entries alone; the result is what each uses, and what it owns."""
        config = self._config
        spans: list[Value] = [span(m, config, entry) for entry in self.entry]
        has: list[Value] = [
            Signal(config.translations, name=f"has_{i}") for i in range(config.entries)
        ]
        m.d.comb += [
            owned.eq(owned_span(config, entry))
            for owned, entry in zip(has, self.entry, strict=True)
        ]
        for index, (entry, covered) in enumerate(zip(self.entry, spans, strict=True)):
            is_region, owned = entry.kind == EntryKind.REGION, self.owned[index]
            claim(1, is_formed(m, config, entry))
            is_there = is_region & (entry.state != EntryState.INVALID)
            claim(
                is_there,
                owned.taken,
                owned.first == entry.first_translation,
                owned.count == entry.translations,
                pages(m, config, entry) <= entry.translations,
            )
            claim(~is_there, entry.translations == 0)
            claim(is_region & (entry.state == EntryState.INVALID), covered == 0)
            claim(owned.taken, owned.first + owned.count <= config.translations)
            claim(
                is_region & (entry.state == EntryState.VALID) & (not self.removes_first),
                holds(self.row, covered, entry.ghost.stamp),
            )
            parent = data.View(entry_layout(config), choose(self.entry, entry.parent))
            claim(
                is_bound(entry),
                parent.state == EntryState.VALID,
                parent.kind == EntryKind.REGION,
                same(entry.ghost.stamp, parent.ghost.stamp),
                (covered & ~choose(spans, entry.parent)) == 0,
            )
        for one, other in itertools.combinations(has, 2):
            claim(1, (one & other) == 0)
        return spans, has

    def _claim_worker(self, claim: Any) -> None:
        known = (WorkerState.PICK, *STARTING, *FINISHING)
        claim(1, is_one_of(self.worker_state, known), self.working_for < self._config.sources)


class _Command:
    """The command of one source, and what is claimed of it.

    Parameters
    ----------
    m : Module
    ledger : Ledger
    source : int
    counts : list of Signal
        How many windows each region has been counted.
    counted : Signal
        The count that was read last.
    bound, uses, has : list of Value
        Of each entry: it is a bound window; the translations that it uses, and that it owns.
    """

    def __init__(
        self,
        m: Module,
        ledger: Ledger,
        source: int,
        counts: list[Signal],
        counted: Signal,
        bound: list[Value],
        uses: list[Value],
        has: list[Value],
    ):
        self.ledger, self.source, self.counts, self.counted = ledger, source, counts, counted
        self.covers, self.has = uses, has
        self.config = config = ledger._config
        self.context = context = ledger.context[source]
        self.command = command = context.command
        self.plan = plan = context.plan
        self.new = context.entry
        self.index = index = command.key.index
        self.old = ledger.replaced[source]
        self.in_progress = ledger.in_progress[source]

        # The entries that it names, as they are now.
        self.entry = entry = self._entry_of(index)
        self.parent = self._entry_of(command.parent.index)
        self.bound = choose(bound, index)
        self.has_now = choose(has, index)

        state, opcode = context.state, command.opcode
        self.accepted = state == CommandState.ACCEPTED
        self.idle = state == CommandState.IDLE
        self.started = state == CommandState.STARTED
        self.asking = state == CommandState.REQUESTING
        self.applied = state == CommandState.APPLIED
        self.ending = state == CommandState.FINISHING
        self.over = (state == CommandState.COMPLETING) & context.requested
        self.failed = (state == CommandState.COMPLETING) & ~context.requested
        self.after = self.applied | self.ending | self.over

        self.fast = opcode == Opcode.FAST_REGISTER
        self.registers = (opcode == Opcode.REGISTER) | self.fast
        self.reregisters = opcode == Opcode.REREGISTER
        self.deregisters = opcode == Opcode.DEREGISTER
        self.allocates = opcode == Opcode.ALLOCATE
        self.deallocates = opcode == Opcode.DEALLOCATE
        self.invalidates = (opcode == Opcode.LOCAL_INVALIDATE) | (
            opcode == Opcode.REMOTE_INVALIDATE
        )
        self.binds = opcode == Opcode.BIND
        self.only_writes = opcode == Opcode.WRITE_TRANSLATION
        self.encloses = self.binds & (command.length != 0)
        self.reserves = self.allocates & (command.kind == EntryKind.REGION)
        keeps = (command.first_translation == entry.first_translation) & (command.translations == 0)
        self.keeps = self.reregisters & keeps
        # In the order `translations_first`, a deregistration has done so before its R.
        removes_last = self.deregisters & (not ledger.removes_first)
        self.removes = self.reregisters | removes_last
        self.makes = self.registers | self.reregisters & ~keeps
        self.writes = self.registers | self.reregisters | self.only_writes

        # Past its check, and not yet applied.
        self.works = self.started & (ledger.working_for == source)
        self.binding = self.works & is_one_of(
            ledger.worker_state, (WorkerState.FETCH_PARENT, WorkerState.CHECK_PARENT)
        )
        self.writing = self._does(WorkerState.WRITE_TRANSLATIONS)
        removing = self._does(WorkerState.REMOVE_TRANSLATIONS)
        self.sweeping = removing & self.deregisters & ledger.removes_first
        checked = self.asking | self.works & (self.binding | self.writing | self.sweeping)
        self.changes = Signal(name=f"changes_{source}")
        # What it writes or reserves, and what it has to give up.
        self.claimed = Signal(config.translations, name=f"claimed_{source}")
        self.planned = Signal(config.translations, name=f"planned_{source}")
        wanted = places(config, command.first_translation, command.translations)
        m.d.comb += [
            self.changes.eq(checked & ~self.only_writes),
            self.claimed.eq(Mux(self.writes | self.reserves, wanted, 0)),
            self.planned.eq(places(config, plan.first, plan.count)),
        ]
        # When it counts on a region, and on which.
        self.uses = (
            (self.asking & self.encloses, command.parent.index),
            ((self.applied | self.ending) & plan.releases, plan.released),
        )

    def _entry_of(self, index: Value) -> data.View:
        return data.View(entry_layout(self.config), choose(self.ledger.entry, index))

    def _does(self, *states: WorkerState) -> Value:
        """The worker does one of these for it."""
        mine = self.ledger.working_for == self.source
        return mine & is_one_of(self.ledger.worker_state, states)

    def claim_order(self, claim: Any) -> None:
        """It is what was ordered, the worker has it when it should, and it goes step by step."""
        ledger, context, plan = self.ledger, self.context, self.plan
        busy = ledger.busy[self.source]
        claim(1, busy == ~self.idle, Value.cast(context.state) != 7)
        claim(busy, same(ledger.ordered[self.source], self.command))
        claim(busy, ledger.applied[self.source] == self.after)
        starts = self._does(*STARTING) | self.sweeping
        claim(starts, self.started)
        claim(self._does(*FINISHING) & ~self.sweeping, self.ending)
        claim(self.started, starts)
        claim(context.requested, self.asking | self.after)
        claim(self.applied | self.ending, context.requested)
        claim(self.asking | self.after, context.status == CommandStatus.OK)
        claim(self.failed & self.deregisters, context.status != CommandStatus.OK)
        changing = self.registers | self.reregisters | self.deregisters
        changing = changing | self.invalidates | self.binds | self.allocates | self.deallocates
        anew = self.registers | self.allocates
        claim(self.changes | self.after, changing, plan.arbitrated == ~anew)
        claim(self.asking, ~self.only_writes)
        claim(self.ending, plan.removes | plan.releases)
        planned = self.asking | self.applied | self.ending
        claim(planned, ~(plan.removes & plan.releases), ~plan.removes | (plan.count != 0))
        claim(self._does(WorkerState.REMOVE_TRANSLATIONS) & ~self.sweeping, plan.removes)
        claim(self._does(WorkerState.FETCH_COUNT, WorkerState.RELEASE_PARENT), plan.releases)
        claim(self._does(WorkerState.FETCH_PARENT, WorkerState.CHECK_PARENT), self.encloses)
        claim(self.writing, self.writes)

    def claim_reads(self, claim: Any) -> None:
        """What the worker has read for it is still so, and it stands within the range it walks."""
        ledger, worker, command, plan = self.ledger, self.ledger.worker, self.command, self.plan
        parent = command.parent.index

        def is_counted(index: Value) -> Value:
            return self.counted == choose(self.counts, index)

        looks = self.works & self._does(WorkerState.CHECK)
        claim(looks, same(ledger.fetched, self.entry), is_counted(self.index))
        looks_up = self.works & self._does(WorkerState.CHECK_PARENT)
        claim(looks_up, same(ledger.fetched, self.parent), is_counted(parent))
        claim(self.binding | self.works & self.writing, same(worker.old_entry, self.entry))
        claim(self._does(WorkerState.RELEASE_PARENT), is_counted(plan.released))
        for walks, first, count in (
            (self.writing, command.first_translation, command.translations),
            (self._does(WorkerState.REMOVE_TRANSLATIONS), plan.first, plan.count),
        ):
            claim(
                walks,
                first + count <= self.config.translations,
                worker.left != 0,
                worker.left <= count,
                worker.place + worker.left == first + count,
            )

    def claim_plan(self, claim: Any) -> None:
        """Its plan is about the entry that it changes."""
        plan = self.plan
        anew = self.registers | self.allocates
        claim(
            self.changes & ~anew,
            self.planned == self.has_now,
            plan.first == self.entry.first_translation,
            plan.removes == (self.removes & ~self.keeps & (self.planned != 0)),
            plan.releases == self.bound,
            ~self.bound | (plan.released == self.entry.parent),
        )
        claim(self.changes & anew, plan.count == 0, ~plan.removes, ~plan.releases)
        claim(self.in_progress | self.changes, plan.first + plan.count <= self.config.translations)

    def claim_permission(self, claim: Any) -> None:
        """What made it legal stays so until its A."""
        entry, changes = self.entry, self.changes
        is_region = entry.kind == EntryKind.REGION
        is_valid = entry.state == EntryState.VALID
        is_there = entry.state != EntryState.INVALID
        claim(changes & self.allocates, ~is_there)
        claim(changes & self.registers & ~self.fast, ~is_there)
        claim(changes & self.fast, is_region, entry.state == EntryState.FREE)
        claim(changes & self.reregisters, is_region, is_valid)
        claim(changes & self.deregisters, is_region, is_there)
        claim(changes & self.deallocates, ~is_region, is_there)
        claim(changes & self.invalidates, is_valid)
        claim(changes & self.binds, ~is_region, is_there)
        frees = self.reregisters | self.deregisters | self.invalidates
        claim(changes & is_region & frees, choose(self.counts, self.index) == 0)

    def claim_preparation(self, m: Module, claim: Any) -> None:
        """What the entry will be after A is sound, and its translations are written."""
        config, command, entry, new = self.config, self.command, self.entry, self.new
        covered = span(m, config, new)
        count = pages(m, config, new)
        is_region = entry.kind == EntryKind.REGION
        is_valid = new.state == EntryState.VALID
        registration = (entry.ghost.registrations + 1)[: config.ghost_width]
        made = self.changes & ~self.binding
        claim(made, is_formed(m, config, new))
        claim(
            made & self.makes,
            is_valid,
            new.kind == EntryKind.REGION,
            new.first_translation == command.first_translation,
            count == command.translations,
            command.first_translation + command.translations <= config.translations,
            covered == self.claimed,
            new.translations == Mux(self.fast, entry.translations, command.translations),
            new.ghost.stamp.version == registration,
            new.ghost.stamp.owner == self.index,
        )
        claim(
            made & self.keeps,
            is_valid,
            new.kind == EntryKind.REGION,
            new.first_translation == entry.first_translation,
            count <= pages(m, config, entry),
            new.translations == entry.translations,
            (covered & ~self.has_now) == 0,
            same(new.ghost.stamp, entry.ghost.stamp),
        )
        empty = new.base == new.limit
        owned = new.translations
        claim(
            made & self.fast,
            new.first_translation == entry.first_translation,
            (self.claimed & ~self.has_now) == 0,
        )
        claim(made & self.allocates, new.state != EntryState.INVALID, empty)
        claim(
            made & self.reserves,
            new.kind == EntryKind.REGION,
            new.state == EntryState.FREE,
            new.first_translation == command.first_translation,
            owned == command.translations,
            command.first_translation + command.translations <= config.translations,
        )
        claim(made & self.allocates & ~self.reserves, new.kind != EntryKind.REGION, owned == 0)
        gives_up = self.deregisters | self.deallocates
        claim(made & gives_up, new.state == EntryState.INVALID, covered == 0, owned == 0)
        claim(made & self.invalidates, new.state == EntryState.FREE, new.kind == entry.kind)
        claim(
            made & self.invalidates & is_region,
            *(
                getattr(new, field) == getattr(entry, field)
                for field in (
                    "first_translation",
                    "translations",
                    "base",
                    "limit",
                    "offset",
                    "page_shift",
                )
            ),
        )
        claim(made & self.invalidates & ~is_region, owned == 0)
        claim(made & self.binds, is_valid, new.kind == entry.kind, owned == 0)
        claim(made & self.binds & ~self.encloses, empty)
        claim(
            self.asking & self.encloses,
            self.parent.state == EntryState.VALID,
            self.parent.kind == EntryKind.REGION,
            ~empty,
            new.parent == command.parent.index,
            same(new.ghost.stamp, self.parent.ghost.stamp),
            (covered & ~choose(self.covers, command.parent.index)) == 0,
        )
        rows, worker = self.ledger.row, self.ledger.worker
        claim(self.asking & self.makes, holds(rows, self.claimed, new.ghost.stamp))
        behind = Cat(place < worker.place for place in range(config.translations))
        stamp = Cat(self.index[: config.index_bits], registration)
        claim(self.works & self.writing, holds(rows, self.claimed & behind, stamp))

    def claim_result(self, m: Module, claim: Any) -> None:
        """After A the entry is what it became, and what it replaced is as it was."""
        config, plan, old = self.config, self.plan, self.old
        was = old.entry
        covered = span(m, config, was)
        claim(self.after, same(self.entry, self.new))
        claim(self.after & plan.removes, self.removes)
        claim(self.after & self.deregisters, self.entry.state == EntryState.INVALID)
        claim(1, old.valid == (self.applied & plan.arbitrated))
        claim(
            old.valid,
            old.index == self.index,
            self.planned == owned_span(config, was),
            plan.releases == is_bound(was),
        )
        usable = old.valid & (was.state == EntryState.VALID)
        claim(usable, is_formed(m, config, was))
        is_region = was.kind == EntryKind.REGION
        claim(usable & is_region, (covered & ~self.planned) == 0)
        claim(
            usable & is_region & (not self.ledger.removes_first),
            holds(self.ledger.row, covered, was.ghost.stamp),
        )
        released = self._entry_of(plan.released)
        claim(
            (self.applied | self.ending) & plan.releases,
            released.state == EntryState.VALID,
            released.kind == EntryKind.REGION,
        )
        claim(
            old.valid & is_bound(was),
            (covered & ~choose(self.covers, plan.released)) == 0,
            same(was.ghost.stamp, released.ghost.stamp),
        )

    def claim_peace(self, claim: Any) -> None:
        """What it has to give up belongs to no other entry, nor to its own when it has another."""
        replaced = self.after & self.plan.removes
        for place, other in enumerate(self.has):
            claim(
                (self.in_progress | self.changes) & ((self.index != place) | replaced),
                (self.planned & other) == 0,
            )

    def claim_distance(self, claim: Any, other: "_Command") -> None:
        """It names no entry that another names, and writes nothing that another gives up."""
        both = ~(self.idle | self.accepted) & ~(other.idle | other.accepted)
        claim(
            both,
            self.index != other.index,
            ~(self.binds & (self.command.parent.index == other.index)),
        )
        claim((self.asking | self.writing) & other.in_progress, (self.claimed & other.planned) == 0)
        claim(
            (self.in_progress | self.changes) & (other.in_progress | other.changes),
            (self.planned & other.planned) == 0,
        )


def is_bound(entry: data.View) -> Value:
    """The entry is a bound window."""
    usable = (entry.kind != EntryKind.REGION) & (entry.state == EntryState.VALID)
    return usable & (entry.base != entry.limit)
