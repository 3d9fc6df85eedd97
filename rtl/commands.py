"""From a command to its completion."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.arbiter.seam import ChangeSignature
from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import (
    CommandStatus,
    EntryState,
    Opcode,
    command_layout,
    command_signature,
    completion_signature,
    entry_layout,
    translation_layout,
)
from rtl.recency.seam import UseSignature
from rtl.tables import ReadSignature, WriteSignature
from rtl.turns import Line, Turns
from rtl.watched import WatchedChangeSignature
from rtl.worker import (
    WatchedWorkerSignature,
    Worker,
    WorkerResult,
    WorkerState,
    plan_layout,
)


class CommandState(enum.Enum, shape=3):
    """Where the command of one source stands."""

    IDLE = 0
    ACCEPTED = 1
    """Waits for the worker, and for older commands on the same entries."""
    STARTED = 2
    """The worker checks it and prepares the apply."""
    REQUESTING = 3
    """From R to A."""
    APPLIED = 4
    """From A until the arbiter grants the completion."""
    FINISHING = 5
    """The worker takes away what the entry had."""
    COMPLETING = 6
    """The completion is offered; C is the cycle in which it is taken."""


def context_layout(config: TableConfig) -> data.StructLayout:
    """All that is kept of the command of one source.

    ``entry`` is what the entry becomes, or is if the command changes nothing. ``requested`` says
    that its R has been.
    """
    return data.StructLayout(
        {
            "state": CommandState,
            "command": command_layout(config),
            "status": CommandStatus,
            "entry": entry_layout(config),
            "plan": plan_layout(config),
            "requested": 1,
        }
    )


class CommandEngine(Component):
    """Runs the commands of all sources; one a source is in progress at a time.

    A command waits as long as another one names one of its entries that has been started, or has
    been waiting for longer. Whatever it doesn't name may overtake it. Commands that don't wait are
    started in turn, and finished in turn, by one :class:`rtl.worker.Worker`. It never waits for
    the arbiter: between R and A, and between A and the grant to complete, a command stands aside,
    and the worker goes on with others. One command a cycle is applied.

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
    worker_state : Out(WorkerState)
    worker : Out(WatchedWorkerSignature)
    working_for : Out(range(config.sources))
        The source whose command the worker has, or had last.
    context : Out(context_layout).array(config.sources)
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
                "worker_state": Out(WorkerState),
                "worker": Out(WatchedWorkerSignature(config)),
                "working_for": Out(range(max(2, sources))),
                "context": Out(context_layout(config)).array(sources),
                "start": In(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        contexts = [
            Signal(context_layout(config), name=f"source_{source}")
            for source in range(config.sources)
        ]
        m.submodules.worker = worker = Worker(config)
        connect(m, worker.entry_read, flipped(self.entry_read))
        connect(m, worker.translation_write, flipped(self.translation_write))
        connect(m, worker.watched, flipped(self.worker))
        m.d.comb += [self.ready.eq(worker.ready), self.worker_state.eq(worker.state)]

        for source, context in enumerate(contexts):
            m.d.comb += self.context[source].eq(context)
            self._accept_and_complete(m, source, context)
            event = self.event[source]
            m.d.comb += [
                worker.owned[source].valid.eq(event.in_progress),
                worker.owned[source].first.eq(event.first),
                worker.owned[source].count.eq(event.count),
            ]
        self._apply(m, contexts)
        self._give_work(m, contexts, worker)
        return m

    def _accept_and_complete(self, m: Module, source: int, context: data.View) -> None:
        """What a source does without the worker and without the others."""
        state, command = context.state, self.command[source]
        completion, change, event = self.completion[source], self.change[source], self.event[source]
        m.d.comb += [
            command.ready.eq(self.start & (state == CommandState.IDLE)),
            change.index.eq(context.command.key.index),
            change.request.eq((state == CommandState.REQUESTING) & context.plan.arbitrated),
            change.wait.eq((state == CommandState.APPLIED) & context.plan.arbitrated),
            completion.valid.eq(state == CommandState.COMPLETING),
            completion.payload.status.eq(context.status),
            completion.payload.entry.eq(context.entry),
            event.index.eq(change.index),
            event.held.eq((change.request & ~change.apply) | (change.wait & ~change.complete)),
            event.arbitrated.eq(context.plan.arbitrated),
            event.requested.eq((state == CommandState.REQUESTING) & ~context.requested),
            event.in_progress.eq(event.requested | context.requested),
            event.completed.eq(completion.valid & completion.ready & context.requested),
            event.first.eq(context.plan.first),
            event.count.eq(context.plan.count),
        ]
        if self._config.ghost_version:
            m.d.comb += event.version.eq(context.entry.ghost.version)
        with m.Switch(state):
            with m.Case(CommandState.IDLE):
                with m.If(command.valid & self.start):
                    m.d.sync += [
                        context.command.eq(command.payload),
                        state.eq(CommandState.ACCEPTED),
                    ]
            with m.Case(CommandState.REQUESTING):
                m.d.sync += context.requested.eq(1)
            with m.Case(CommandState.APPLIED):
                with m.If(change.complete | ~context.plan.arbitrated):
                    m.d.sync += state.eq(
                        Mux(
                            context.plan.removes | context.plan.releases,
                            CommandState.FINISHING,
                            CommandState.COMPLETING,
                        )
                    )
            with m.Case(CommandState.COMPLETING):
                with m.If(completion.ready):
                    m.d.sync += [state.eq(CommandState.IDLE), context.requested.eq(0)]

    def _apply(self, m: Module, contexts: list[data.View]) -> None:
        """A: the table write. One a cycle, in turn."""
        m.submodules.apply_turn = turn = Turns(self._config.sources)
        m.d.comb += [turn.served.eq(turn.grant.any()), self.entry_write.enable.eq(turn.served)]
        for source, context in enumerate(contexts):
            change, arbitrated = self.change[source], context.plan.arbitrated
            m.d.comb += [
                turn.requests[source].eq(
                    (context.state == CommandState.REQUESTING) & (change.apply | ~arbitrated)
                ),
                change.applied.eq(turn.grant[source] & arbitrated),
                self.event[source].applied.eq(turn.grant[source]),
            ]
            with m.If(turn.grant[source]):
                m.d.sync += context.state.eq(CommandState.APPLIED)
                m.d.comb += [
                    self.entry_write.address.eq(change.index),
                    self.entry_write.data.eq(context.entry),
                    self.invalidate.index.eq(change.index),
                    self.invalidate.valid.eq(
                        arbitrated & (context.entry.state != EntryState.VALID)
                    ),
                ]

    def _give_work(self, m: Module, contexts: list[data.View], worker: Worker) -> None:
        """The worker finishes what is to finish before it starts what is to start."""
        config = self._config
        m.submodules.work_turn = turn = Turns(config.sources)
        m.submodules.age = age = Line(config.sources)
        finishing = Signal(config.sources)
        for source, context in enumerate(contexts):
            command = self.command[source]
            m.d.comb += age.moves[source].eq(command.valid & command.ready)
            conflict = Cat(
                self._conflict(context, other, age.ahead[source][number])
                for number, other in enumerate(contexts)
                if other is not context
            ).any()
            startable = (context.state == CommandState.ACCEPTED) & ~conflict
            m.d.comb += [
                finishing[source].eq(context.state == CommandState.FINISHING),
                turn.requests[source].eq(Mux(finishing.any(), finishing[source], startable)),
            ]

        # In the cycle in which it is picked, a command is already the worker's.
        held = Signal(range(max(2, config.sources)))
        chosen = Signal.like(held)
        mine = data.View(context_layout(config), Array(Value.cast(c) for c in contexts)[chosen])
        job, report = worker.job, worker.report
        m.d.comb += [
            chosen.eq(held),
            self.working_for.eq(held),
            job.begin.eq(~job.busy & turn.grant.any()),
            turn.served.eq(job.begin),
            job.finishing.eq(mine.state == CommandState.FINISHING),
            job.command.eq(mine.command),
            job.entry.eq(mine.entry),
            job.plan.eq(mine.plan),
        ]
        m.d.sync += held.eq(chosen)
        for source in range(config.sources):
            with m.If(~job.busy & turn.grant[source]):
                m.d.comb += chosen.eq(source)
        with m.If(job.begin & ~job.finishing):
            m.d.sync += mine.state.eq(CommandState.STARTED)
        with m.If(report.entry_valid):
            m.d.sync += mine.entry.eq(report.entry)
        with m.If(report.plan_valid):
            m.d.sync += mine.plan.eq(report.plan)
        with m.If(report.leaves):
            m.d.sync += mine.status.eq(report.status)
            with m.Switch(report.result):
                with m.Case(WorkerResult.STARTED):
                    m.d.sync += mine.state.eq(CommandState.REQUESTING)
                with m.Case(WorkerResult.AGAIN):
                    m.d.sync += mine.state.eq(CommandState.ACCEPTED)
                with m.Default():
                    m.d.sync += mine.state.eq(CommandState.COMPLETING)

    def _conflict(self, ours: data.View, theirs: data.View, older: Value) -> Value:
        """Another command goes first, and names an entry that this one names too."""
        started = (theirs.state != CommandState.IDLE) & (theirs.state != CommandState.ACCEPTED)
        # Who waits for two entries would wait forever if others could take one each.
        waits = (theirs.state == CommandState.ACCEPTED) & older
        mine, other = ours.command, theirs.command
        # A bind names two entries: the window and its region.
        same = mine.key.index == other.key.index
        my_parent = (mine.opcode == Opcode.BIND) & (mine.parent.index == other.key.index)
        their_parent = (other.opcode == Opcode.BIND) & (mine.key.index == other.parent.index)
        return (started | waits) & (same | my_parent | their_parent)
