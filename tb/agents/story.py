"""What happens around the table, cycle by cycle, for people."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rtl.config import TableConfig
from rtl.layouts import beat_layout, command_layout, completion_layout, lookup_layout
from rtl.monitor import OF_CHANGES, Guarantee, own_cycles
from sim.typed import number_of
from tb.agents.packing import Packer
from tb.agents.ports import open_bus
from tb.formal.case import described

BEAT = ("tag", "status", "first", "last", "address", "length")
"""Fields of a beat that requesters see; the others are ghosts."""

COMPLETION = ("status",)
"""What of a completion is told; the entry would fill the line."""


_FATES = ("admitted", "refused by the arbiter")
"""What becomes of a lookup that is taken and whose tag is free."""


class Story:
    """Watches all streams, and notes who does what in which cycle. It drives nothing.

    Whether a lookup that was taken has a slot, and what was violated, shows a cycle later; it is
    told as of the cycle in which it happened.

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
        self._config = config
        self._held = dut.held
        self._occupied = dut.occupied
        self._terms = (dut.terms__deadline, dut.terms__patience)
        self._records = {
            guarantee: open_bus(dut, f"violation__{guarantee}", "seen", "port")
            for guarantee in sorted(Guarantee, key=lambda g: g is not first)
        }
        self._seen: set[Guarantee] = set()
        self._ports = [_Port(dut, config, number) for number in range(config.ports)]
        self._sources = [_Source(dut, config, number) for number in range(config.sources)]
        self._asked: list[tuple[int, int, _Taken]] = []
        """Lookups that were taken in the last cycle: slot, number of the line, what it may say."""

    def look(self, cycle: int) -> None:
        """Sees the values at the end of a cycle."""
        self.look_back(cycle)
        held, occupied = _bits(self._held), _bits(self._occupied)
        for number, port in enumerate(self._ports):
            first = number * self._config.tags
            lines, taken = port.look(bool(held >> number & 1), occupied >> first)
            if taken is not None:
                # What becomes of the lookup is the first thing that a port tells.
                self._asked.append((first + taken.tag, len(self.lines), taken))
            self.lines += [(cycle, port.who, what) for what in lines]
        for source in self._sources:
            self.lines += [(cycle, source.who, what) for what in source.look()]

    def look_back(self, cycle: int) -> None:
        """Sees what shows a cycle later than it happened, and nothing else."""
        occupied = _bits(self._occupied)
        for slot, place, taken in self._asked:
            before, who, _ = self.lines[place]
            what = taken.admitted if occupied >> slot & 1 else taken.refused
            self.lines[place] = (before, who, what)
        self._asked.clear()
        for guarantee, record in self._records.items():
            if guarantee not in self._seen and record.seen.value:
                self._seen.add(guarantee)
                place = "source" if guarantee in OF_CHANGES else "port"
                where = f"{place} {record.port.value.to_unsigned()}"
                what = f"{guarantee} is violated{self._limit(guarantee, cycle - 1)}"
                self.lines.append((cycle - 1, where, what))

    def _limit(self, guarantee: Guarantee, cycle: int) -> str:
        """What it was judged by, where that is a number of cycles."""
        if guarantee is Guarantee.ISOLATED_INVALIDATION:
            limit = own_cycles(self._config)
            return (
                f": held up in cycles {cycle - limit - 1} to {cycle - 1} while only lookups of "
                f"other entries were in flight; the limit is {number_of(limit, 'cycle')}"
            )
        if guarantee is Guarantee.BOUNDED_INVALIDATION:
            deadline, patience = (number_of(int(term.value), "cycle") for term in self._terms)
            return f": no C within {deadline} of R, though nobody was slower than {patience}"
        return ""

    def has_seen(self, guarantee: Guarantee) -> bool:
        """Whether it has been violated."""
        return guarantee in self._seen


@dataclass(frozen=True)
class _Taken:
    """A lookup that was taken, and the two things that there may be to tell of it."""

    tag: int
    admitted: str
    refused: str


def _bits(signal: Any) -> int:
    """The value of a signal that may have one bit only."""
    return int(signal.value)


class _Stream:
    """A stream, and whether what is on offer has been told already."""

    def __init__(self, dut: Any, stream: str, number: int, packer: Packer, fields: Sequence[str]):
        self._bus = open_bus(dut, f"{stream}__{number}", "payload", "valid", "ready")
        self.noun = stream
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
        what = f"a {self.noun}: {described(f'{self.noun}s', fields)}"
        form = waits if self._waits else taken if waited else offers
        return [form.format(what)]


def _out(stream: _Stream, waits: str = "offers {}, which waits") -> list[str]:
    return stream.look("offers {}", f"its {stream.noun} is taken", waits)


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
        self._offer = open_bus(dut, f"lookup__{number}", "payload", "valid", "ready")
        self._lookups = lookups
        self._was_held = False
        self._kill = getattr(dut, f"kill__{number}")
        self._killed = 0
        self._tags = config.tags

    def look(self, held: bool, occupied: int) -> tuple[list[str], _Taken | None]:
        """What happens in this cycle, and the lookup that is taken, if it asks for a slot.

        ``held``: the arbiter holds its lookup back. ``occupied``: its slots with a lookup, as bits.
        """
        lines, taken = self._look_at_lookup(held, occupied)
        lines += self._look_at_kills(occupied)
        lines += _in(self._beat)
        if self._dma.valid.value:
            lines.append(f"DMA beat under tag {int(self._dma.tag.value)}")
        if self._retire.valid.value:
            lines.append(f"returns tag {int(self._retire.payload.value)}")
        return lines, taken

    def _look_at_lookup(self, held: bool, occupied: int) -> tuple[list[str], _Taken | None]:
        waits = "offers {}, which the arbiter holds back" if held else "offers {}, which waits"
        lines = _out(self._lookup, waits)
        if held and not lines and not self._was_held:
            lines = ["its lookup is held back by the arbiter"]
        self._was_held = held
        if not (lines and self._offer.valid.value and self._offer.ready.value):
            return lines, None
        words = self._lookups.unpack(self._offer.payload.value.to_unsigned())
        tag, (line,) = words["tag"], lines
        waited = not line.startswith("offers")
        if occupied >> tag & 1:
            why = f"gets no slot, since tag {tag} is in use"
            return [f"its lookup {why}" if waited else f"{line}, which {why}"], None
        if waited:
            admitted, refused = (f"its lookup is {what}: tag={tag}" for what in _FATES)
        else:
            admitted, refused = (f"{line}, which is {what}" for what in _FATES)
        return lines, _Taken(tag, admitted, refused)

    def _look_at_kills(self, occupied: int) -> list[str]:
        killed = _bits(self._kill)
        before, self._killed = self._killed, killed
        lines = []
        for tag in range(self._tags):
            is_killed, was_killed = killed >> tag & 1, before >> tag & 1
            if is_killed and not was_killed:
                lines.append(f"tag {tag} is killed")
            elif was_killed and not is_killed and occupied >> tag & 1:
                lines.append(f"tag {tag} is killed no more: its lookup starts anew")
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
        lines = _out(self._command)
        for letter, name in (("R", "requested"), ("A", "applied"), ("C", "completed")):
            if getattr(self._change, name).value:
                lines.append(f"{letter}: the change is {name}")
        return lines + _in(self._completion)
