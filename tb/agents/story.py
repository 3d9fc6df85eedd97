"""What happens around the table, cycle by cycle, for people."""

from collections.abc import Sequence
from typing import Any

from rtl.config import TableConfig
from rtl.layouts import beat_layout, command_layout, completion_layout, lookup_layout
from rtl.monitor import OF_CHANGES, Guarantee
from tb.agents.packing import Packer
from tb.agents.ports import open_bus
from tb.formal.case import described

BEAT = ("tag", "status", "first", "last", "address", "length")
"""Fields of a beat that requesters see; the others are ghosts."""

COMPLETION = ("status",)
"""What of a completion is told; the entry would fill the line."""


class Story:
    """Watches all streams, and notes who does what in which cycle. It drives nothing.

    Parameters
    ----------
    dut : simulator handle
    config : TableConfig
    first : Guarantee, optional
        Told first where several are violated in one cycle.

    Members
    -------
    lines : list of (int, str, str)
        Cycle, who, and what, in the order of the cycles.
    """

    def __init__(self, dut: Any, config: TableConfig, first: Guarantee | None = None):
        self.lines: list[tuple[int, str, str]] = []
        self._records = {
            guarantee: open_bus(dut, f"violation__{guarantee}", "seen", "port")
            for guarantee in sorted(Guarantee, key=lambda g: g is not first)
        }
        self._seen: set[Guarantee] = set()
        self._watched = [
            *(_Port(dut, config, number) for number in range(config.ports)),
            *(_Source(dut, config, number) for number in range(config.sources)),
        ]

    def look(self, cycle: int) -> None:
        """Sees the values at the end of a cycle."""
        self.look_for_violations(cycle)
        for watched in self._watched:
            self.lines += [(cycle, watched.who, what) for what in watched.look()]

    def look_for_violations(self, cycle: int) -> None:
        """Sees the records alone; a violation shows a cycle later."""
        for guarantee, record in self._records.items():
            if guarantee not in self._seen and record.seen.value:
                self._seen.add(guarantee)
                place = "source" if guarantee in OF_CHANGES else "port"
                where = f"{place} {record.port.value.to_unsigned()}"
                self.lines.append((cycle - 1, where, f"{guarantee} is violated"))

    def has_seen(self, guarantee: Guarantee) -> bool:
        """Whether it has been violated."""
        return guarantee in self._seen


class _Stream:
    """A stream, and whether what is on offer has been told already."""

    def __init__(self, dut: Any, stream: str, number: int, packer: Packer, fields: Sequence[str]):
        self._bus = open_bus(dut, f"{stream}__{number}", "payload", "valid", "ready")
        self._noun = stream
        self._packer = packer
        self._fields = fields
        self._waits = False

    def look(self, offers: str, taken: str, waits: str) -> list[str]:
        """At most one line: what is on offer for the first time, or was and is taken now.

        ``waits`` stands for the first of these where it isn't taken at once; of ``{}`` in all three
        becomes what is offered.
        """
        if not self._bus.valid.value:
            return []
        waited, self._waits = self._waits, not self._bus.ready.value
        if waited and self._waits:
            return []
        words = self._packer.unpack(self._bus.payload.value.to_unsigned())
        fields = {name: words[name] for name in self._fields if words[name]}
        what = f"a {self._noun}: {described(f'{self._noun}s', fields)}"
        form = waits if self._waits else taken if waited else offers
        return [form.format(what)]


def _out(stream: _Stream, noun: str) -> list[str]:
    return stream.look("offers {}", f"its {noun} is taken", "offers {}, which waits")


def _in(stream: _Stream) -> list[str]:
    return stream.look("takes {}", "takes {}", "is offered {}, which waits")


class _Port:
    """One port: its requester and its DMA engine."""

    def __init__(self, dut: Any, config: TableConfig, number: int):
        self.who = f"port {number}"
        lookups = Packer(lookup_layout(config))
        self._lookup = _Stream(dut, "lookup", number, lookups, lookups.names)
        self._beat = _Stream(dut, "beat", number, Packer(beat_layout(config)), BEAT)
        self._dma = open_bus(dut, f"dma__{number}", "tag", "valid")
        self._retire = open_bus(dut, f"retire__{number}", "payload", "valid")

    def look(self) -> list[str]:
        """What happens in this cycle."""
        lines = _out(self._lookup, "lookup") + _in(self._beat)
        if self._dma.valid.value:
            lines.append(f"DMA beat under tag {int(self._dma.tag.value)}")
        if self._retire.valid.value:
            lines.append(f"returns tag {int(self._retire.payload.value)}")
        return lines


class _Source:
    """One command source, with R, A and C of its changes."""

    def __init__(self, dut: Any, config: TableConfig, number: int):
        self.who = f"source {number}"
        commands = Packer(command_layout(config))
        self._command = _Stream(dut, "command", number, commands, commands.names)
        completions = Packer(completion_layout(config))
        self._completion = _Stream(dut, "completion", number, completions, COMPLETION)
        self._change = open_bus(dut, f"change__{number}", "requested", "applied", "completed")

    def look(self) -> list[str]:
        """What happens in this cycle."""
        lines = _out(self._command, "command")
        for letter, name in (("R", "requested"), ("A", "applied"), ("C", "completed")):
            if getattr(self._change, name).value:
                lines.append(f"{letter}: the change is {name}")
        return lines + _in(self._completion)
