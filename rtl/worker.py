"""Does for all commands, one at a time, whatever takes several steps."""

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import StepOrder, TableConfig
from rtl.layouts import (
    CommandStatus,
    EntryKind,
    Opcode,
    command_layout,
    entry_layout,
    translation_layout,
)
from rtl.legality import Legality
from rtl.tables import CopiedMemory, ReadSignature, WriteSignature


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


class WorkerResult(enum.Enum, shape=2):
    """How the worker leaves a command."""

    OVER = 0
    """It completes, and never had an A."""
    STARTED = 1
    """It is ready for its A."""
    FINISHED = 2
    """It completes, after its A."""
    AGAIN = 3
    """Others stand in its way: it starts over."""


def plan_layout(config: TableConfig) -> data.StructLayout:
    """What has been found out about a command when it was checked.

    ``first`` and ``count`` name the translations that the entry owns. ``arbitrated`` says that the
    arbiter has a say in the apply. At the end, ``removes`` asks to remove those translations, and
    ``releases`` to count one window less for the region ``released``.
    """
    return data.StructLayout(
        {
            "first": config.translation_bits,
            "count": config.translation_bits + 1,
            "arbitrated": 1,
            "removes": 1,
            "releases": 1,
            "released": config.index_bits,
        }
    )


class JobSignature(wiring.Signature):
    """What the worker works at, seen from who gives it work; holds while it is ``busy``.

    ``begin`` is high in the cycle before the first; ``finishing`` tells the end of a command, after
    its A, from its start.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "begin": Out(1),
                "finishing": Out(1),
                "command": Out(command_layout(config)),
                "entry": Out(entry_layout(config)),
                "plan": Out(plan_layout(config)),
                "busy": In(1),
            }
        )


class ReportSignature(wiring.Signature):
    """What the worker says of its command, seen from the worker. Each part comes when it is known.

    With ``entry_valid``, what the entry is or will be; with ``plan_valid``, the plan; with
    ``leaves``, in the last cycle, the result and the status.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "entry_valid": Out(1),
                "entry": Out(entry_layout(config)),
                "plan_valid": Out(1),
                "plan": Out(plan_layout(config)),
                "leaves": Out(1),
                "result": Out(WorkerResult),
                "status": Out(CommandStatus),
            }
        )


class OwnedSignature(wiring.Signature):
    """Translations that a command in progress still has to give up, seen from its owner."""

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "valid": Out(1),
                "first": Out(config.translation_bits),
                "count": Out(config.translation_bits + 1),
            }
        )


class WatchedWorkerSignature(wiring.Signature):
    """Where the worker stands with its command, for whoever watches.

    ``place`` and ``left``: the translation whose turn it is, and how many are left with it.
    ``old_entry`` is the entry as it was read. Of the count of bound windows, ``asked`` is high in
    the cycle before the one in which ``count`` is that of the entry ``of``; ``counts`` is high in
    the cycle in which that of ``to`` becomes ``new_count``.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "place": Out(config.translation_bits),
                "left": Out(config.translation_bits + 1),
                "old_entry": Out(entry_layout(config)),
                "asked": Out(1),
                "of": Out(config.index_bits),
                "count": Out(config.index_bits + 1),
                "counts": Out(1),
                "to": Out(config.index_bits),
                "new_count": Out(config.index_bits + 1),
            }
        )


class Worker(Component):
    """Reads and checks, writes and removes translations one a cycle, and counts bound windows.

    It never waits. Starting a command takes 2 cycles, 2 more to look at the region of a window,
    and one for each translation; finishing one takes a cycle for each translation, or 2 to count a
    window less. Between two jobs it is idle for at least one cycle.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    job : In(JobSignature)
    report : Out(ReportSignature)
    owned : In(OwnedSignature).array(config.sources)
        A command that would write one of these translations is left with ``AGAIN``.
    entry_read : Out(ReadSignature(entry_layout, config.entries))
    translation_write : Out(WriteSignature(translation_layout, config.translations))
    state : Out(WorkerState)
    watched : Out(WatchedWorkerSignature)
    ready : Out(1)
        The worker's own memory is ready.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "job": In(JobSignature(config)),
                "report": Out(ReportSignature(config)),
                "owned": In(OwnedSignature(config)).array(config.sources),
                "entry_read": Out(ReadSignature(entry_layout(config), config.entries)),
                "translation_write": Out(
                    WriteSignature(translation_layout(config), config.translations)
                ),
                "state": Out(WorkerState),
                "watched": Out(WatchedWorkerSignature(config)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        job, report = self.job, self.report
        command, plan, read = job.command, job.plan, self.entry_read
        state = Signal(WorkerState)
        # The entry as it was read, which the region of a window is read after.
        old_entry = Signal(entry_layout(config))
        m.d.comb += [self.state.eq(state), job.busy.eq(state != WorkerState.PICK)]

        m.submodules.windows = windows = CopiedMemory(config.index_bits + 1, config.entries, 1)
        windows_read, windows_write = windows.read[0], windows.write
        m.d.comb += self.ready.eq(windows.ready)

        m.submodules.legality = legality = Legality(config)
        m.d.comb += [
            legality.command.eq(command),
            Value.cast(legality.entry).eq(
                Mux(
                    state == WorkerState.CHECK_PARENT,
                    Value.cast(old_entry),
                    Value.cast(read.data),
                )
            ),
            legality.windows.eq(windows_read.data != 0),
            legality.parent.eq(read.data),
        ]

        registers = (command.opcode == Opcode.REGISTER) | (command.opcode == Opcode.FAST_REGISTER)
        reregisters = command.opcode == Opcode.REREGISTER
        deregisters = command.opcode == Opcode.DEREGISTER
        only_writes = command.opcode == Opcode.WRITE_TRANSLATION
        allocates = command.opcode == Opcode.ALLOCATE
        # A window has no translations of its own, whatever its command says.
        reserves = allocates & (command.kind == EntryKind.REGION)
        writes = only_writes | registers | reregisters
        binds = (command.opcode == Opcode.BIND) & (command.length != 0)
        replaces = reregisters & ~legality.keeps_translations
        removes_first = config.step_order is StepOrder.TRANSLATIONS_FIRST
        owned = read.data.translations
        wanted = Mux(only_writes | reserves, command.translations, legality.pages)
        meets_owned = (writes | reserves) & self._is_owned(m, command.first_translation, wanted)

        def leave(result: WorkerResult, status: ValueLike = CommandStatus.OK) -> None:
            m.d.comb += [report.leaves.eq(1), report.result.eq(result), report.status.eq(status)]
            m.d.sync += state.eq(WorkerState.PICK)

        def fetch(index: Value, then: WorkerState) -> None:
            """Reads an entry and its count of bound windows."""
            m.d.comb += [
                read.enable.eq(1),
                read.address.eq(index),
                windows_read.enable.eq(1),
                windows_read.address.eq(index),
            ]
            m.d.sync += state.eq(then)

        def count_windows(index: Value, change: int) -> None:
            m.d.comb += [
                windows_write.enable.eq(1),
                windows_write.address.eq(index),
                windows_write.data.eq(windows_read.data + change),
            ]

        # One translation a cycle.
        write = self.translation_write
        left = Signal(config.translation_bits + 1)
        place = Signal(config.translation_bits)
        frame = Signal(config.frame_width)
        stride = Signal(range(config.page_shift_max - config.page_shift_min + 1))
        m.d.comb += [
            stride.eq(command.page_shift - config.page_shift_min),
            write.address.eq(place),
        ]

        watched = self.watched
        m.d.comb += [
            watched.place.eq(place),
            watched.left.eq(left),
            watched.old_entry.eq(old_entry),
            watched.asked.eq(windows_read.enable),
            watched.of.eq(windows_read.address),
            watched.count.eq(windows_read.data),
            watched.counts.eq(windows_write.enable),
            watched.to.eq(windows_write.address),
            watched.new_count.eq(windows_write.data),
        ]

        def run(then: WorkerState, first: Value, count: Value) -> None:
            m.d.sync += [place.eq(first), left.eq(count), state.eq(then)]

        def step() -> Value:
            """Goes to the next translation; the result says that this one was the last."""
            m.d.comb += write.enable.eq(1)
            m.d.sync += [place.eq(place + 1), left.eq(left - 1)]
            return left == 1

        with m.Switch(state):
            with m.Case(WorkerState.PICK):
                with m.If(job.begin & ~job.finishing):
                    m.d.sync += state.eq(WorkerState.FETCH)
                with m.Elif(job.begin & plan.removes):
                    run(WorkerState.REMOVE_TRANSLATIONS, plan.first, plan.count)
                with m.Elif(job.begin):
                    m.d.sync += state.eq(WorkerState.FETCH_COUNT)
            with m.Case(WorkerState.FETCH):
                fetch(command.key.index, WorkerState.CHECK)
            with m.Case(WorkerState.CHECK):
                m.d.comb += [report.entry_valid.eq(1), report.entry.eq(read.data)]
                m.d.sync += [old_entry.eq(read.data), frame.eq(command.frame)]
                with m.If(command.key.index >= config.entries):
                    # Some other entry has been read.
                    m.d.comb += Value.cast(report.entry).eq(0)
                with m.If(legality.entry_status != CommandStatus.OK):
                    leave(WorkerResult.OVER, legality.entry_status)
                with m.Elif(legality.idle):
                    leave(WorkerResult.OVER)
                with m.Elif(meets_owned):
                    leave(WorkerResult.AGAIN)
                with m.Elif(binds):
                    m.d.sync += state.eq(WorkerState.FETCH_PARENT)
                with m.Elif(only_writes & (command.translations == 0)):
                    leave(WorkerResult.OVER)
                with m.Else():
                    with m.If(~only_writes):
                        m.d.comb += report.entry.eq(legality.changed)
                    with m.If(writes & (command.translations != 0)):
                        run(
                            WorkerState.WRITE_TRANSLATIONS,
                            command.first_translation,
                            command.translations,
                        )
                    with m.Elif(deregisters & removes_first & (owned != 0)):
                        run(WorkerState.REMOVE_TRANSLATIONS, read.data.first_translation, owned)
                    with m.Else():
                        leave(WorkerResult.STARTED)
                m.d.comb += [
                    report.plan_valid.eq(1),
                    report.plan.first.eq(read.data.first_translation),
                    report.plan.released.eq(read.data.parent),
                ]
                # Nothing of these can be in flight, and they give nothing up.
                with m.If(~(registers | allocates)):
                    m.d.comb += [
                        report.plan.arbitrated.eq(1),
                        report.plan.count.eq(owned),
                        report.plan.removes.eq(
                            (deregisters & (not removes_first) | replaces) & (owned != 0)
                        ),
                        report.plan.releases.eq(legality.bound),
                    ]
            with m.Case(WorkerState.FETCH_PARENT):
                fetch(command.parent.index, WorkerState.CHECK_PARENT)
            with m.Case(WorkerState.CHECK_PARENT):
                with m.If(legality.parent_status != CommandStatus.OK):
                    leave(WorkerResult.OVER, legality.parent_status)
                with m.Else():
                    # From here on the region can't go: the bind will succeed.
                    count_windows(command.parent.index, +1)
                    m.d.comb += [report.entry_valid.eq(1), report.entry.eq(legality.changed)]
                    leave(WorkerResult.STARTED)
            with m.Case(WorkerState.WRITE_TRANSLATIONS):
                m.d.comb += [write.data.present.eq(1), write.data.frame.eq(frame)]
                m.d.sync += frame.eq(frame + (1 << stride))
                with m.If(step()):
                    with m.If(only_writes):
                        leave(WorkerResult.OVER)
                    with m.Else():
                        leave(WorkerResult.STARTED)
            with m.Case(WorkerState.REMOVE_TRANSLATIONS):
                with m.If(step()):
                    with m.If(job.finishing):
                        leave(WorkerResult.FINISHED)
                    with m.Else():
                        leave(WorkerResult.STARTED)
            with m.Case(WorkerState.FETCH_COUNT):
                m.d.comb += [windows_read.enable.eq(1), windows_read.address.eq(plan.released)]
                m.d.sync += state.eq(WorkerState.RELEASE_PARENT)
            with m.Case(WorkerState.RELEASE_PARENT):
                count_windows(plan.released, -1)
                leave(WorkerResult.FINISHED)

        if config.ghost_version:
            # A written translation belongs to the next registration of its owner, a removed one to
            # the last that had it. The entry says how often its index has been registered: the new
            # one already counts a re-registration.
            stamp = write.data.stamp
            m.d.comb += stamp.owner.eq(command.key.index)
            with m.If(state == WorkerState.WRITE_TRANSLATIONS):
                m.d.comb += stamp.version.eq(old_entry.ghost.registrations + 1)
            with m.Else():
                m.d.comb += stamp.version.eq(job.entry.ghost.registrations - reregisters)
        return m

    def _is_owned(self, m: Module, first: Value, count: Value) -> Value:
        """Whether somebody still has to give up one of these translations."""
        meets = Signal(len(self.owned))
        for place, owned in enumerate(self.owned):
            m.d.comb += meets[place].eq(
                owned.valid
                & (owned.count != 0)
                & (first < owned.first + owned.count)
                & (owned.first < first + count)
            )
        return meets.any()
