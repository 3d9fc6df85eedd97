"""Why the two tables agree: what is true of the command engine in every cycle."""

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.commands import CommandState, context_layout
from rtl.component import Component
from rtl.config import TableConfig
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
    pages,
    places,
    region_span,
    replaced_layout,
    row_layout,
    span,
)

LINES = []  # DEBUG
CLAIMS = {
    "heard": "A source is busy with the command that the engine has.",
    "manned": "The worker has the command that waits for it, and no other.",
    "alone": "No two commands in progress name the same entry.",
    "phased": "A command asks, applies and finishes in this order, and only if it succeeds.",
    "fetched": "What the worker has read is still so.",
    "formed": "Entries lie within the table.",
    "allocated": "A region has translations that its host has allocated for it.",
    "apart": "No two regions have a translation in common.",
    "planned": "The plan of a command is about the entry that it found.",
    "permitted": "What made a command legal stays so until its A.",
    "prepared": "What an entry will be after A has its translations.",
    "undisturbed": "What a command still has to give up is nobody's.",
    "settled": "After A the entry is what the command made it.",
    "counted": "Of each region, as many windows are bound as are counted.",
    "enclosed": "A bound window lies within a region and has its stamp.",
    "complete": "Usable entries have their translations, replaced ones until they are let go.",
}
"""What is claimed. Together they follow from themselves one cycle earlier."""


class Ledger(Component):
    """Says which of its claims is wrong.

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
    entry, row, replaced : the shadow's
    wrong : Out(1), one for each of :data:`CLAIMS`
    """

    def __init__(self, config: TableConfig):
        self._config = config
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
                "entry": In(entry_layout(config)).array(config.entries),
                "row": In(row_layout(config)).array(config.translations),
                "replaced": In(replaced_layout(config)).array(sources),
                "count": Out(config.index_bits + 1).array(config.entries),
                "misread": Out(1),
                "part": Out(512),  # DEBUG
                "wrong": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        C, W, O = CommandState, WorkerState, Opcode
        VALID, REGION = EntryState.VALID, EntryKind.REGION
        state, worker = self.worker_state, self.worker
        entry_shape = entry_layout(config)
        wrong: dict[str, list[Value]] = {name: [] for name in CLAIMS}

        def claim(name: str, condition: Value, *consequences: Value) -> None:
            for consequence in consequences:
                wrong[name].append((condition & ~consequence).any())
                import traceback; LINES.append((name, traceback.extract_stack()[-2].lineno))  # DEBUG

        def view(bits: Value) -> data.View:
            return data.View(entry_shape, bits)

        def same(a: Value, b: Value) -> Value:
            return Value.cast(a) == Value.cast(b)

        # The counts of bound windows, and the one that was read last.
        counted = Signal(config.index_bits + 1)
        for index, count in enumerate(self.count):
            with m.If(worker.counts & (worker.to == index)):
                m.d.sync += count.eq(worker.new_count)
        with m.If(worker.asked):
            m.d.sync += counted.eq(choose(self.count, worker.of))
        m.d.comb += self.misread.eq(worker.count != counted)

        # What is asked of an entry, once for each.
        regions, spans, bounds = [], [], []
        for index, entry in enumerate(self.entry):
            is_region = entry.kind == REGION
            covered = span(m, config, entry, f"entry_{index}")
            has = Signal(config.translations, name=f"has_{index}")
            bound = Signal(name=f"bound_{index}")
            m.d.comb += [
                has.eq(Mux(is_region, covered, 0)),
                bound.eq(~is_region & (entry.state == VALID) & (entry.base != entry.limit)),
            ]
            regions.append(has)
            spans.append(covered)
            bounds.append(bound)
            owned = self.owned[index]
            real = is_region & (entry.state != EntryState.INVALID)
            covers = pages(m, config, entry, f"pages_{index}")
            claim("formed", Value.cast(1), is_formed(m, config, entry, f"entry_{index}"))
            claim(
                "allocated",
                real,
                owned.taken,
                owned.first == entry.first_translation,
                covers <= owned.count,
            )
            claim("allocated", owned.taken, owned.first + owned.count <= config.translations)
            claim("allocated", is_region & ~real, covered == 0)
            parent = view(choose(self.entry, entry.parent))
            claim(
                "enclosed",
                bound,
                parent.state == VALID,
                parent.kind == REGION,
                same(entry.ghost.stamp, parent.ghost.stamp),
            )
            claim(
                "complete",
                is_region & (entry.state == VALID),
                holds(self.row, covered, entry.ghost.stamp),
            )
        for index, entry in enumerate(self.entry):
            claim(
                "enclosed",
                bounds[index],
                (spans[index] & ~choose(regions, entry.parent)) == 0,
            )
        for (_, a), (_, b) in itertools.combinations(enumerate(regions), 2):
            claim("apart", Value.cast(1), (a & b) == 0)

        # The worker.
        starting = any_of(
            *(
                state == s
                for s in (
                    W.FETCH,
                    W.CHECK,
                    W.FETCH_PARENT,
                    W.CHECK_PARENT,
                    W.WRITE_TRANSLATIONS,
                )
            )
        )
        finishing = any_of(
            *(state == s for s in (W.REMOVE_TRANSLATIONS, W.FETCH_COUNT, W.RELEASE_PARENT))
        )
        writing = state == W.WRITE_TRANSLATIONS
        claim("manned", Value.cast(1), (state == W.PICK) | starting | finishing)
        claim("manned", Value.cast(1), self.working_for < config.sources)

        plans, in_progress, claims, checked = [], [], [], []
        uses: list[tuple[Value, Value]] = []
        for source, context in enumerate(self.context):
            command, plan = context.command, context.plan
            opcode, index = command.opcode, command.key.index
            mine = self.working_for == source
            entry = view(choose(self.entry, index))
            parent = view(choose(self.entry, command.parent.index))
            span_now = choose(regions, index)
            count = choose(self.count, index)
            is_region = entry.kind == REGION
            asking, applied = context.state == C.REQUESTING, context.state == C.APPLIED
            ending, completing = context.state == C.FINISHING, context.state == C.COMPLETING
            started = context.state == C.STARTED
            active = (context.state != C.IDLE) & (context.state != C.ACCEPTED)

            # Past its check, and before its A.
            in_work = started & mine
            ready = Signal(name=f"ready_{source}")
            m.d.comb += ready.eq(
                asking
                | in_work
                & ((state == W.FETCH_PARENT) | (state == W.CHECK_PARENT) | writing)
            )
            registers = opcode == O.REGISTER
            registers_region = registers & (command.kind == REGION)
            reregisters = opcode == O.REREGISTER
            deregisters = opcode == O.DEREGISTER
            invalidates = (opcode == O.LOCAL_INVALIDATE) | (opcode == O.REMOTE_INVALIDATE)
            binds = opcode == O.BIND
            only_writes = opcode == O.WRITE_TRANSLATION
            writes = registers_region | reregisters | only_writes
            keeps = (
                (command.first_translation == entry.first_translation)
                & (command.translations == 0)
            )
            claimed = Signal(config.translations, name=f"claimed_{source}")
            planned = Signal(config.translations, name=f"planned_{source}")
            m.d.comb += [
                claimed.eq(
                    Mux(writes, places(config, command.first_translation, command.translations), 0)
                ),
                planned.eq(places(config, plan.first, plan.count)),
            ]
            plans.append(planned)
            claims.append(claimed)
            checked.append(ready)
            in_progress.append(self.in_progress[source])

            claim("heard", Value.cast(1), self.busy[source] == (context.state != C.IDLE))
            claim("heard", self.busy[source], same(self.ordered[source], command))

            claim("manned", mine & starting, started)
            claim("manned", mine & finishing, ending)
            claim("manned", started, mine & starting)

            claim("phased", context.requested, asking | applied | ending | completing)
            claim("phased", applied | ending, context.requested)
            claim(
                "phased",
                asking | applied | ending | completing & context.requested,
                context.status == CommandStatus.OK,
            )
            claim("phased", completing & ~context.requested & deregisters,
                  context.status != CommandStatus.OK)
            claim("phased", ending, plan.removes | plan.releases)
            claim("phased", asking | applied | ending, ~(plan.removes & plan.releases))
            claim("phased", (asking | applied | ending) & plan.removes, plan.count != 0)
            claim("phased", asking, ~only_writes)
            claim(
                "phased",
                ready & ~only_writes | applied | ending | completing & context.requested,
                registers | reregisters | deregisters | invalidates | binds,
                plan.arbitrated == ~registers,
            )
            claim("phased", Value.cast(context.state) == 7, Value.cast(0))
            claim("phased", mine & (state == W.REMOVE_TRANSLATIONS), plan.removes)
            claim(
                "phased",
                mine & ((state == W.FETCH_COUNT) | (state == W.RELEASE_PARENT)),
                plan.releases,
            )
            claim(
                "phased",
                mine & ((state == W.FETCH_PARENT) | (state == W.CHECK_PARENT)),
                binds & (command.length != 0),
            )
            claim("phased", mine & writing, writes)

            looks = in_work & (state == W.CHECK)
            claim("fetched", looks, same(self.fetched, entry), counted == count)
            looks_up = in_work & (state == W.CHECK_PARENT)
            claim(
                "fetched",
                looks_up,
                same(self.fetched, parent),
                counted == choose(self.count, command.parent.index),
            )
            claim(
                "fetched",
                in_work & (looks_up | (state == W.FETCH_PARENT) | writing),
                same(worker.old_entry, entry),
            )
            claim(
                "fetched",
                mine & (state == W.RELEASE_PARENT),
                counted == choose(self.count, plan.released),
            )
            claim(
                "fetched",
                mine & writing,
                command.first_translation + command.translations <= config.translations,
            )
            claim("fetched", mine & writing, *self._progress(
                worker, command.first_translation, command.translations))
            claim("fetched", mine & (state == W.REMOVE_TRANSLATIONS), *self._progress(
                worker, plan.first, plan.count))

            # The plan.
            changes = ready & ~only_writes
            bound = choose(bounds, index)
            claim(
                "planned",
                changes & ~registers,
                planned == span_now,
                plan.first == entry.first_translation,
                plan.removes
                == ((deregisters | reregisters & ~keeps) & (planned != 0)),
                plan.releases == bound,
                ~bound | (plan.released == entry.parent),
            )
            claim("planned", changes & registers, plan.count == 0, ~plan.removes, ~plan.releases)
            claim("planned", self.in_progress[source] | ready & ~only_writes,
                  plan.first + plan.count <= config.translations)

            # Legality.
            claim("permitted", changes & registers, entry.state != VALID)
            claim(
                "permitted",
                changes & reregisters,
                is_region,
                entry.state == VALID,
            )
            claim("permitted", changes & deregisters, entry.state != EntryState.INVALID)
            claim("permitted", changes & invalidates, entry.state == VALID)
            claim(
                "permitted",
                changes & is_region & (reregisters | deregisters | invalidates),
                count == 0,
            )
            claim("permitted", changes & binds, ~is_region, entry.state != EntryState.INVALID)

            # The entry to come.
            new = context.entry
            new_span = span(m, config, new, f"new_{source}")
            takes = registers_region | reregisters & ~keeps
            made = changes & ~((state != W.PICK) & in_work & binds & (command.length != 0))
            claim("prepared", made, is_formed(m, config, new, f"new_{source}"))
            for condition, *facts in (
                (
                    takes,
                    new.state == VALID,
                    new.kind == REGION,
                    new.first_translation == command.first_translation,
                    pages(m, config, new, f"new_pages_{source}") == command.translations,
                    command.first_translation + command.translations <= config.translations,
                    new_span == claimed,
                    new.ghost.stamp.version == (entry.ghost.registrations + 1)[: config.ghost_width],
                    new.ghost.stamp.owner == index,
                ),
                (
                    reregisters & keeps,
                    new.state == VALID,
                    new.kind == REGION,
                    new.first_translation == entry.first_translation,
                    pages(m, config, new, f"kept_pages_{source}")
                    <= pages(m, config, entry, f"old_pages_{source}"),
                    (new_span & ~span_now) == 0,
                    same(new.ghost.stamp, entry.ghost.stamp),
                ),
                (
                    registers & ~registers_region,
                    new.kind != REGION,
                    new.base == new.limit,
                ),
                (deregisters, new.state == EntryState.INVALID, new_span == 0),
                (
                    invalidates,
                    new.state == EntryState.FREE,
                    new.kind == entry.kind,
                    ~is_region | (new.first_translation == entry.first_translation),
                    ~is_region | (new.base == entry.base),
                    ~is_region | (new.limit == entry.limit),
                    ~is_region | (new.offset == entry.offset),
                    ~is_region | (new.page_shift == entry.page_shift),
                ),
                (binds, new.kind == entry.kind, new.state == VALID),
                (binds & (command.length == 0), new.base == new.limit),
            ):
                claim("prepared", made & condition, *facts)
            encloses = asking & binds & (command.length != 0)
            claim(
                "prepared",
                encloses,
                parent.state == VALID,
                parent.kind == REGION,
                new.base != new.limit,
                new.parent == command.parent.index,
                same(new.ghost.stamp, parent.ghost.stamp),
                (new_span & ~choose(regions, command.parent.index)) == 0,
            )
            claim(
                "prepared",
                asking & takes,
                holds(self.row, claimed, new.ghost.stamp),
            )
            stamp = Cat(index[: config.index_bits],
                        (worker.old_entry.ghost.registrations + 1)[: config.ghost_width])
            before = Cat(place < worker.place for place in range(config.translations))
            claim(
                "prepared",
                mine & writing,
                holds(self.row, claimed & before, stamp),
            )

            # After A.
            over = applied | ending | completing & context.requested
            claim("settled", over, same(entry, new))
            old = self.replaced[source]
            claim("settled", old.valid, applied, plan.arbitrated, old.index == index)
            claim("settled", applied & plan.arbitrated, old.valid)
            claim(
                "formed",
                old.valid & (old.entry.state == VALID),
                is_formed(m, config, old.entry, f"old_{source}"),
            )
            old_span = region_span(m, config, old.entry, f"old_{source}")
            released = view(choose(self.entry, plan.released))
            old_bound = (
                (old.entry.kind != REGION)
                & (old.entry.state == VALID)
                & (old.entry.base != old.entry.limit)
            )
            claim("settled", old.valid, planned == old_span, plan.releases == old_bound)
            claim("settled", over & plan.removes, deregisters | reregisters)
            claim("settled", over & deregisters, entry.state == EntryState.INVALID)
            claim(
                "enclosed",
                (applied | ending) & plan.releases,
                released.state == VALID,
                released.kind == REGION,
            )
            claim(
                "enclosed",
                old.valid & old_bound,
                (span(m, config, old.entry, f"old_span_{source}")
                 & ~choose(regions, plan.released)) == 0,
                same(old.entry.ghost.stamp, released.ghost.stamp),
            )
            claim(
                "complete",
                old.valid & (old.entry.state == VALID) & (old.entry.kind == REGION),
                holds(self.row, old_span, old.entry.ghost.stamp),
            )
            # Who counts on a region.
            uses.append((encloses, command.parent.index))
            uses.append(((applied | ending) & plan.releases, plan.released))

            # What it still has to give up.
            holds_on = self.in_progress[source] | changes
            for place, other in enumerate(regions):
                replaced = over & plan.removes
                claim(
                    "undisturbed",
                    holds_on & ((index != place) | replaced),
                    (planned & other) == 0,
                )
            for other, theirs in enumerate(self.context):
                if other >= source:
                    continue
                other_active = (theirs.state != C.IDLE) & (theirs.state != C.ACCEPTED)
                same_index = theirs.command.key.index == index
                my_parent = binds & (command.parent.index == theirs.command.key.index)
                their_parent = (theirs.command.opcode == O.BIND) & (
                    theirs.command.parent.index == index
                )
                claim(
                    "alone",
                    active & other_active,
                    ~(same_index | my_parent | their_parent),
                )

        for one, other in itertools.permutations(range(config.sources), 2):
            writer = checked[one] & (self.context[one].state == C.REQUESTING)
            writer = writer | (writing & (self.working_for == one))
            claim(
                "undisturbed",
                writer & in_progress[other],
                (claims[one] & plans[other]) == 0,
            )
            if one < other:
                hold = [
                    in_progress[s]
                    | checked[s] & (self.context[s].command.opcode != O.WRITE_TRANSLATION)
                    for s in (one, other)
                ]
                claim("undisturbed", hold[0] & hold[1], (plans[one] & plans[other]) == 0)

        for index, count in enumerate(self.count):
            users = [
                bound & (entry.parent == index)
                for bound, entry in zip(bounds, self.entry, strict=True)
            ]
            users += [used & (of == index) for used, of in uses]
            claim("counted", Value.cast(1), count == sum(users, start=Value.cast(0)))

        m.d.comb += self.wrong.eq(any_of(*(c for cs in wrong.values() for c in cs)))
        m.d.comb += self.part.eq(Cat(p for c in wrong.values() for p in c))  # DEBUG
        open("/tmp/parts","w").write("\n".join(f"{n} {l}" for n in wrong for q,l in LINES if q==n))  # DEBUG
        return m

    def _progress(self, worker: data.View, first: Value, count: Value) -> tuple[Value, ...]:
        """The worker is somewhere within a range."""
        return (
            worker.left != 0,
            worker.left <= count,
            worker.place + worker.left == first + count,
        )
