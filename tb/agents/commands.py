"""One command source."""

from collections import deque
from typing import Any

from rtl.config import TableConfig
from rtl.layouts import command_layout, completion_layout
from tb.agents.generators import Willing, always
from tb.agents.packing import Packer
from tb.agents.ports import open_bus
from tb.agents.requests import CommandRequest
from tb.model.scoreboard import Scoreboard
from tb.model.words import (
    Command,
    CommandStatus,
    Completion,
    Entry,
    EntryKind,
    EntryState,
    Key,
    Rights,
)

ENTRY_TYPES = {
    "state": EntryState,
    "kind": EntryKind,
    "rights": Rights,
    "remote_invalidate": bool,
    "zero_based": bool,
}


class CommandSource:
    """Issues the commands of one source in order, and watches for their R, A and C.

    Does its work once a cycle, in :meth:`step`.

    Parameters
    ----------
    dut : simulator handle
    config : TableConfig
    number : int
    scoreboard : Scoreboard
    trace : function
        Is told of each accepted completion: cycle, name of the stream, word.
    """

    def __init__(
        self, dut: Any, config: TableConfig, number: int, scoreboard: Scoreboard, trace: Any
    ):
        self.number = number
        self.accepts: Willing = always()
        self.finished: list[CommandRequest] = []
        """Completed commands since somebody last emptied the list."""
        self._scoreboard = scoreboard
        self._trace = trace
        self._command = open_bus(dut, f"command__{number}", "payload", "valid", "ready")
        self._completion = open_bus(dut, f"completion__{number}", "payload", "valid", "ready")
        self._change = open_bus(dut, f"change__{number}", "requested", "applied")
        self._command_packer = Packer(command_layout(config))
        self._completion_packer = Packer(completion_layout(config))
        self.reset()

    def reset(self) -> None:
        """Forgets everything, and drives every input to rest."""
        self._queue: deque[CommandRequest] = deque()
        self._current: CommandRequest | None = None
        self._ready = False
        for signal in (self._command.payload, self._command.valid, self._completion.ready):
            signal.value = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or in progress."""
        return not self._queue and self._current is None

    @property
    def current(self) -> CommandRequest | None:
        """The command that is offered or in progress."""
        return self._current

    def submit(self, command: Command) -> CommandRequest:
        """Queues a command; it is offered when those before it are complete."""
        request = CommandRequest(command, self.number)
        self._queue.append(request)
        return request

    def step(self, cycle: int) -> None:
        """Sees the values at the end of a cycle, and drives those of the next."""
        current = self._current
        if current is not None:
            if current.accepted is None:
                if self._command.ready.value:
                    current.accepted = cycle
                    self._command.valid.value = 0
                    self._scoreboard.accepted(current)
            else:
                self._watch(cycle, current)
        if self._current is None and self._queue:
            self._current = self._queue.popleft()
            self._command.payload.value = self._pack(self._current.command)
            self._command.valid.value = 1
        ready = next(self.accepts)
        if ready != self._ready:
            self._ready = ready
            self._completion.ready.value = int(ready)

    def _watch(self, cycle: int, current: CommandRequest) -> None:
        if current.requested is None and self._change.requested.value:
            current.requested = cycle
        if current.applied is None and self._change.applied.value:
            current.applied = cycle
            self._scoreboard.applied(current)
        if self._ready and self._completion.valid.value:
            word = self._completion.payload.value.to_unsigned()
            self._trace(cycle, "completion", self.number, word)
            fields = self._completion_packer.unpack(word)
            entry = {
                name: ENTRY_TYPES.get(name, int)(fields[f"entry.{name}"])
                for name in Entry.__dataclass_fields__
            }
            current.completed = cycle
            current.completion = Completion(CommandStatus(fields["status"]), Entry(**entry))
            self._current = None
            self.finished.append(current)
            self._scoreboard.completed(current)
            current.done.set()

    def _pack(self, command: Command) -> int:
        fields: dict[str, Any] = {}
        for name in Command.__dataclass_fields__:
            value = getattr(command, name)
            if isinstance(value, Key):
                fields[f"{name}.index"] = value.index
                fields[f"{name}.variant"] = value.variant
            else:
                fields[name] = value
        return self._command_packer.pack(fields)
