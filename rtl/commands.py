"""From a command to its completion."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out

from rtl.arbiter.seam import ChangeSignature
from rtl.component import Component
from rtl.config import StepOrder, TableConfig
from rtl.layouts import (
    CommandStatus,
    EntryKind,
    EntryState,
    Opcode,
    command_layout,
    command_signature,
    completion_signature,
    entry_layout,
    translation_layout,
)
from rtl.legality import Legality
from rtl.monitor import WatchedChangeSignature
from rtl.recency.seam import UseSignature
from rtl.round_robin import RoundRobin
from rtl.tables import CopiedMemory, ReadSignature, WriteSignature


class CommandState(enum.Enum, shape=3):
    """Where the command of one source stands."""

    IDLE = 0
    ACCEPTED = 1
    """Waits for the worker and for commands on the same entries."""
    STARTED = 2
    """The worker checks it and prepares the apply."""
    REQUESTING = 3
    """From R to A."""
    APPLIED = 4
    """From A until the arbiter grants the completion."""
    FINISHING = 5
    """Waits for the worker, which takes away what the entry had."""
    COMPLETING = 6
    """The completion is offered; C is the cycle in which it is taken."""


class WorkerState(enum.Enum, shape=4):
    """What the worker does."""

    PICK = 0
    FETCH = 1
    CHECK = 2
    FETCH_PARENT = 3
    CHECK_PARENT = 4
    WRITE_TRANSLATIONS = 5
    REMOVE_TRANSLATIONS = 6
    FETCH_COUNT = 7
    RELEASE_PARENT = 8


class CommandEngine(Component):
    """Runs the commands of all sources; one a source is in progress at a time.

    A command waits until no other in progress names one of its entries; commands that wait are
    started in turn. One worker does, for all of them, whatever takes several steps: reading and
    checking, writing and removing translations (one a cycle), counting bound windows. It never
    waits for the arbiter: between R and A, and between A and the grant to complete, a command
    stands aside, and the worker goes on with others.

    A command that writes translations which another still has to give up starts over after it.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    command : In(command_signature).array(config.sources)
    completion : Out(completion_signature).array(config.sources)
    change : Out(ChangeSignature).array(config.sources)
        The arbiter's seam.
    entry_read : Out(ReadSignature(entry_layout, config.entries))
    entry_write : Out(WriteSignature(entry_layout, config.entries))
    translation_write : Out(WriteSignature(translation_layout, config.translations))
    invalidate : Out(UseSignature)
        An entry becomes unusable in this cycle.
    event : Out(WatchedChangeSignature).array(config.sources)
    worker : Out(WorkerState)
    start : In(1)
        The tables are ready; nothing is accepted before.
    ready : Out(1)
        The engine's own memory is ready.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        sources = config.sources
        super().__init__(
            {
                "command": In(command_signature(config)).array(sources),
                "completion": Out(completion_signature(config)).array(sources),
                "change": Out(ChangeSignature(config)).array(sources),
                "entry_read": Out(ReadSignature(entry_layout(config), config.entries)),
                "entry_write": Out(WriteSignature(entry_layout(config), config.entries)),
                "translation_write": Out(
                    WriteSignature(translation_layout(config), config.translations)
                ),
                "invalidate": Out(UseSignature(config)),
                "event": Out(WatchedChangeSignature(config)).array(sources),
                "worker": Out(WorkerState),
                "start": In(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        sources = range(config.sources)

        context_layout = data.StructLayout(
            {
                "state": CommandState,
                "command": command_layout(config),
                "status": CommandStatus,
                "entry": entry_layout(config),
                "first": config.translation_bits,
                "count": config.translation_bits + 1,
                "arbitrated": 1,
                "requested": 1,
                "removes": 1,
                "releases": 1,
                "released": config.index_bits,
            }
        )
        contexts = [Signal(context_layout, name=f"source_{s}") for s in sources]
        worker = Signal(WorkerState)
        m.d.comb += self.worker.eq(worker)

        # The worker's own source: its context, and the entry as it was read.
        chosen = Signal(range(max(2, config.sources)))
        mine = data.View(context_layout, Array(Value.cast(c) for c in contexts)[chosen])
        command = Signal(command_layout(config))
        old_entry = Signal(entry_layout(config))
        m.d.comb += command.eq(mine.command)

        m.submodules.windows = windows = CopiedMemory(config.index_bits + 1, config.entries, 1)
        windows_read, windows_write = windows.read[0], windows.write
        m.d.comb += self.ready.eq(windows.ready)

        m.submodules.legality = legality = Legality(config)
        m.d.comb += [
            legality.command.eq(command),
            legality.entry.eq(
                data.View(
                    entry_layout(config),
                    Mux(
                        worker == WorkerState.CHECK_PARENT,
                        Value.cast(old_entry),
                        Value.cast(self.entry_read.data),
                    ),
                )
            ),
            legality.windows.eq(windows_read.data != 0),
            legality.parent.eq(self.entry_read.data),
        ]

        # Accept, stand aside, complete.
        in_progress = []
        for source in sources:
            context, change = contexts[source], self.change[source]
            completion, event = self.completion[source], self.event[source]
            state = context.state
            changes = Signal(name=f"changes_{source}")
            m.d.comb += [
                self.command[source].ready.eq(self.start & (state == CommandState.IDLE)),
                change.index.eq(context.command.key.index),
                change.request.eq((state == CommandState.REQUESTING) & context.arbitrated),
                change.wait.eq((state == CommandState.APPLIED) & context.arbitrated),
                completion.valid.eq(state == CommandState.COMPLETING),
                completion.payload.status.eq(context.status),
                completion.payload.entry.eq(context.entry),
                changes.eq(
                    (state == CommandState.REQUESTING)
                    | (state == CommandState.APPLIED)
                    | (state == CommandState.FINISHING)
                    | ((state == CommandState.COMPLETING) & context.requested)
                ),
                event.index.eq(change.index),
                event.in_progress.eq(changes),
                event.requested.eq((state == CommandState.REQUESTING) & ~context.requested),
                event.completed.eq(completion.valid & completion.ready & context.requested),
                event.first.eq(context.first),
                event.count.eq(context.count),
            ]
            in_progress.append(changes)
            if config.ghost_version:
                m.d.comb += event.version.eq(context.entry.ghost.version)
            with m.Switch(state):
                with m.Case(CommandState.IDLE):
                    with m.If(self.command[source].valid & self.start):
                        m.d.sync += [
                            context.command.eq(self.command[source].payload),
                            state.eq(CommandState.ACCEPTED),
                            context.requested.eq(0),
                            context.removes.eq(0),
                            context.releases.eq(0),
                            context.count.eq(0),
                        ]
                with m.Case(CommandState.REQUESTING):
                    m.d.sync += context.requested.eq(1)
                with m.Case(CommandState.APPLIED):
                    with m.If(change.complete | ~context.arbitrated):
                        m.d.sync += state.eq(
                            Mux(
                                context.removes | context.releases,
                                CommandState.FINISHING,
                                CommandState.COMPLETING,
                            )
                        )
                with m.Case(CommandState.COMPLETING):
                    with m.If(completion.ready):
                        m.d.sync += state.eq(CommandState.IDLE)

        # A: the table write. One a cycle, in turn.
        m.submodules.apply_turn = apply_turn = RoundRobin(config.sources)
        m.d.comb += [
            apply_turn.served.eq(apply_turn.grant.any()),
            self.entry_write.enable.eq(apply_turn.grant.any()),
        ]
        for source in sources:
            context, change = contexts[source], self.change[source]
            granted = apply_turn.grant[source]
            m.d.comb += [
                apply_turn.requests[source].eq(
                    (context.state == CommandState.REQUESTING)
                    & (change.apply | ~context.arbitrated)
                ),
                change.applied.eq(granted & context.arbitrated),
                self.event[source].applied.eq(granted),
            ]
            with m.If(granted):
                m.d.sync += context.state.eq(CommandState.APPLIED)
                m.d.comb += [
                    self.entry_write.address.eq(change.index),
                    self.entry_write.data.eq(context.entry),
                    self.invalidate.index.eq(change.index),
                    self.invalidate.valid.eq(context.entry.state != EntryState.VALID),
                ]

        # The worker picks what is to finish before what is to start.
        m.submodules.work_turn = work_turn = RoundRobin(config.sources)
        finishing = Signal(config.sources)
        for source in sources:
            context = contexts[source]
            ours = context.command
            conflicts = []
            for other in sources:
                if other == source:
                    continue
                theirs = contexts[other].command
                active = (contexts[other].state != CommandState.IDLE) & (
                    contexts[other].state != CommandState.ACCEPTED
                )
                # A window names two entries: itself and its region.
                same = ours.key.index == theirs.key.index
                our_parent = (ours.opcode == Opcode.BIND) & (ours.parent.index == theirs.key.index)
                their_parent = (theirs.opcode == Opcode.BIND) & (
                    ours.key.index == theirs.parent.index
                )
                conflicts.append(active & (same | our_parent | their_parent))
            startable = (context.state == CommandState.ACCEPTED) & ~Cat(*conflicts).any()
            m.d.comb += [
                finishing[source].eq(context.state == CommandState.FINISHING),
                work_turn.requests[source].eq(Mux(finishing.any(), finishing[source], startable)),
            ]

        # Translations that the chosen command would write while another has yet to give them up.
        wanted = Signal(config.translation_bits + 1)
        m.d.comb += wanted.eq(
            Mux(command.opcode == Opcode.WRITE_TRANSLATION, command.translations, legality.pages)
        )
        owned = Signal()
        writes = (
            (command.opcode == Opcode.WRITE_TRANSLATION)
            | (command.opcode == Opcode.REGISTER) & (command.kind == EntryKind.REGION)
            | (command.opcode == Opcode.REREGISTER)
        )
        for source in sources:
            context = contexts[source]
            with m.If(
                in_progress[source]
                & writes
                & (context.count != 0)
                & (command.first_translation < context.first + context.count)
                & (context.first < command.first_translation + wanted)
            ):
                m.d.comb += owned.eq(1)

        left = Signal(config.translation_bits + 1)
        position = Signal(config.translation_bits)
        frame = Signal(config.frame_width)
        stride = Signal(range(config.page_shift_max - config.page_shift_min + 1))
        m.d.comb += stride.eq(command.page_shift - config.page_shift_min)
        write = self.translation_write
        m.d.comb += write.address.eq(position)

        def stand_aside(state: CommandState) -> None:
            m.d.sync += [mine.state.eq(state), worker.eq(WorkerState.PICK)]

        def finish(status: ValueLike) -> None:
            m.d.sync += mine.status.eq(status)
            stand_aside(CommandState.COMPLETING)

        def request() -> None:
            m.d.sync += mine.status.eq(CommandStatus.OK)
            stand_aside(CommandState.REQUESTING)

        def run(state: WorkerState, first: Value, count: Value) -> None:
            m.d.sync += [position.eq(first), left.eq(count), worker.eq(state)]

        def step() -> Value:
            """Goes to the next translation; the result says that this one was the last."""
            m.d.comb += write.enable.eq(1)
            m.d.sync += [position.eq(position + 1), left.eq(left - 1)]
            return left == 1

        removes_first = config.step_order is StepOrder.TRANSLATIONS_FIRST
        deregisters = command.opcode == Opcode.DEREGISTER
        reregisters = command.opcode == Opcode.REREGISTER
        registers = command.opcode == Opcode.REGISTER
        binds = command.opcode == Opcode.BIND
        replaces = reregisters & ~legality.keeps_translations
        entry = self.entry_read.data

        with m.Switch(worker):
            with m.Case(WorkerState.PICK):
                m.d.comb += work_turn.served.eq(work_turn.grant.any())
                for source in sources:
                    context = contexts[source]
                    with m.If(work_turn.grant[source]):
                        m.d.sync += chosen.eq(source)
                        with m.If(context.state == CommandState.ACCEPTED):
                            m.d.sync += [
                                context.state.eq(CommandState.STARTED),
                                worker.eq(WorkerState.FETCH),
                            ]
                        with m.Elif(context.removes):
                            run(WorkerState.REMOVE_TRANSLATIONS, context.first, context.count)
                        with m.Else():
                            m.d.sync += worker.eq(WorkerState.FETCH_COUNT)
            with m.Case(WorkerState.FETCH):
                m.d.comb += [
                    self.entry_read.enable.eq(1),
                    self.entry_read.address.eq(command.key.index),
                    windows_read.enable.eq(1),
                    windows_read.address.eq(command.key.index),
                ]
                m.d.sync += worker.eq(WorkerState.CHECK)
            with m.Case(WorkerState.CHECK):
                m.d.sync += [old_entry.eq(entry), mine.entry.eq(entry), frame.eq(command.frame)]
                with m.If(command.key.index >= config.entries):
                    # Some other entry has been read.
                    m.d.sync += Value.cast(mine.entry).eq(0)
                with m.If(legality.entry_status != CommandStatus.OK):
                    finish(legality.entry_status)
                with m.Elif(command.opcode == Opcode.QUERY):
                    finish(CommandStatus.OK)
                with m.Elif(owned):
                    stand_aside(CommandState.ACCEPTED)
                with m.Elif(command.opcode == Opcode.WRITE_TRANSLATION):
                    with m.If(command.translations == 0):
                        finish(CommandStatus.OK)
                    with m.Else():
                        run(
                            WorkerState.WRITE_TRANSLATIONS,
                            command.first_translation,
                            command.translations,
                        )
                with m.Elif(binds & (command.length != 0)):
                    m.d.sync += worker.eq(WorkerState.FETCH_PARENT)
                with m.Else():
                    m.d.sync += mine.entry.eq(legality.changed)
                    with m.If((registers | reregisters) & (command.translations != 0)):
                        run(
                            WorkerState.WRITE_TRANSLATIONS,
                            command.first_translation,
                            command.translations,
                        )
                    with m.Elif(deregisters & removes_first & (legality.entry_pages != 0)):
                        run(
                            WorkerState.REMOVE_TRANSLATIONS,
                            entry.first_translation,
                            legality.entry_pages,
                        )
                    with m.Else():
                        request()
                with m.If(registers):
                    m.d.sync += [mine.arbitrated.eq(0), mine.count.eq(0)]
                with m.Else():
                    m.d.sync += [
                        mine.arbitrated.eq(1),
                        mine.first.eq(entry.first_translation),
                        mine.count.eq(legality.entry_pages),
                        mine.removes.eq(
                            (deregisters & (not removes_first) | replaces)
                            & (legality.entry_pages != 0)
                        ),
                        mine.releases.eq(legality.bound),
                        mine.released.eq(entry.parent),
                    ]
            with m.Case(WorkerState.FETCH_PARENT):
                m.d.comb += [
                    self.entry_read.enable.eq(1),
                    self.entry_read.address.eq(command.parent.index),
                    windows_read.enable.eq(1),
                    windows_read.address.eq(command.parent.index),
                ]
                m.d.sync += worker.eq(WorkerState.CHECK_PARENT)
            with m.Case(WorkerState.CHECK_PARENT):
                with m.If(legality.parent_status != CommandStatus.OK):
                    finish(legality.parent_status)
                with m.Else():
                    # From here on the region can't go: the bind will succeed.
                    m.d.comb += [
                        windows_write.enable.eq(1),
                        windows_write.address.eq(command.parent.index),
                        windows_write.data.eq(windows_read.data + 1),
                    ]
                    m.d.sync += mine.entry.eq(legality.changed)
                    request()
            with m.Case(WorkerState.WRITE_TRANSLATIONS):
                m.d.comb += [write.data.present.eq(1), write.data.frame.eq(frame)]
                m.d.sync += frame.eq(frame + (1 << stride))
                with m.If(step()):
                    with m.If(command.opcode == Opcode.WRITE_TRANSLATION):
                        finish(CommandStatus.OK)
                    with m.Else():
                        request()
            with m.Case(WorkerState.REMOVE_TRANSLATIONS):
                with m.If(step()):
                    with m.If(mine.requested):
                        stand_aside(CommandState.COMPLETING)
                    with m.Else():
                        request()
            with m.Case(WorkerState.FETCH_COUNT):
                m.d.comb += [windows_read.enable.eq(1), windows_read.address.eq(mine.released)]
                m.d.sync += worker.eq(WorkerState.RELEASE_PARENT)
            with m.Case(WorkerState.RELEASE_PARENT):
                m.d.comb += [
                    windows_write.enable.eq(1),
                    windows_write.address.eq(mine.released),
                    windows_write.data.eq(windows_read.data - 1),
                ]
                stand_aside(CommandState.COMPLETING)

        if config.ghost_version:
            # A written translation belongs to the next registration, a removed one to the last
            # that had it. `old_entry` is stale when translations are removed at the end, where the
            # new entry says how often its index has been registered.
            stamp = write.data.stamp
            m.d.comb += stamp.owner.eq(command.key.index)
            with m.If(worker == WorkerState.WRITE_TRANSLATIONS):
                m.d.comb += stamp.version.eq(old_entry.ghost.registrations + 1)
            with m.Else():
                m.d.comb += stamp.version.eq(mine.entry.ghost.registrations - reregisters)
        return m
