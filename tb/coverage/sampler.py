"""Watches a bench, and says which bins it hits."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rtl.config import ZeroLength
from tb.agents.ports import Port
from tb.agents.requests import CommandRequest, LookupRequest
from tb.coverage.bins import (
    APPLIED,
    STATUSES,
    UNKNOWN,
    Bin,
    Company,
    Entries,
    Moment,
    Phase,
    Place,
    Three,
)
from tb.coverage.model import Model
from tb.model.lookups import has_no_bytes
from tb.model.words import EntryKind, EntryState, LookupStatus, Opcode

if TYPE_CHECKING:
    from tb.agents.environment import Environment

FILE = "coverage.json"
"""What a run with a sampler writes into its folder: the bins that were hit, by group."""


@dataclass(frozen=True)
class Standing:
    """A lookup, and where it stands in some cycle."""

    request: LookupRequest
    phase: Phase


@dataclass(frozen=True)
class Meeting:
    """R or A of a command, and the lookups of its entry in that cycle."""

    command: Opcode
    kind: EntryKind
    moment: Moment
    lookups: Sequence[Standing]


def phase_of(request: LookupRequest, cycle: int, *, on_offer: bool) -> Phase:
    """Where a lookup stands at the end of a cycle.

    Parameters
    ----------
    request : LookupRequest
        It has been offered, and its tag has not come back before this cycle.
    cycle : int
    on_offer : bool
        A beat of it is offered in this cycle, and not taken.
    """
    if request.admitted is None:
        return Phase.WAITING
    if request.retired == cycle:
        return Phase.RETIRED
    if request.admitted == cycle:
        return Phase.ADMITTED
    if not request.beats:
        return Phase.FIRST_OFFERED if on_offer else Phase.READING
    if request.finished == cycle:
        return (Phase.BEAT_1, Phase.BEAT_2, Phase.BEAT_3)[min(len(request.beats), 3) - 1]
    if request.beats[-1][1].last:
        return Phase.DMA
    return Phase.LATER_OFFERED if on_offer else Phase.BETWEEN


class Sampler:
    """Looks at the agents once a cycle, and counts when all is answered.

    Whether a lookup was refused shows only in its answer. So a meeting is kept until :meth:`close`.

    Parameters
    ----------
    env : Environment
    """

    model: Model | None = None
    """All tests of a run count into one."""

    def __init__(self, env: "Environment"):
        self._env = env
        if Sampler.model is None:
            Sampler.model = Model()
        self._model = Sampler.model
        self._meetings: list[Meeting] = []
        self.reset()

    def reset(self) -> None:
        """The table is empty."""
        self._kinds: dict[int, EntryKind] = {}

    def step(self, cycle: int) -> None:
        """Looks at what the agents have seen of a cycle."""
        ended = self._look_at_commands(cycle)
        self._look_at_answers(cycle, ended)

    def hit(self, group: str) -> frozenset[Bin]:
        """The bins of a group that were hit so far."""
        return self._model.hit(group)

    def count(self) -> None:
        """Counts the meetings so far; all lookups have been answered."""
        for meeting in self._meetings:
            self._count_meeting(meeting)
        self._meetings.clear()

    def close(self) -> None:
        """Counts what is answered, and writes all that was hit so far into :data:`FILE`."""
        self.count()
        Path(FILE).write_text(json.dumps(self._model.hits()))

    # Commands

    def _look_at_commands(self, cycle: int) -> int | None:
        """Returns the entry that becomes unusable in this cycle, if one does."""
        ended = None
        moments: dict[Moment, list[CommandRequest]] = {moment: [] for moment in Moment}
        for source in self._env.sources:
            last = source.finished[-1] if source.finished else None
            completed = last if last is not None and last.completed == cycle else None
            request = completed or source.current
            if request is None or request.accepted is None:
                continue
            for moment, happens in (
                (Moment.ACCEPTED, request.accepted == cycle),
                (Moment.R, request.requested == cycle),
                (Moment.A, request.applied == cycle),
                (Moment.IN_PROGRESS, request.requested is not None),
                (Moment.COMPLETED, completed is not None),
            ):
                if happens:
                    moments[moment].append(request)
            if request.requested == cycle:
                self._meet(Moment.R, request, cycle)
            if request.applied == cycle:
                ended = self._apply(request, cycle) if ended is None else ended
            if completed is not None:
                self._completed(request)
        for moment, requests in moments.items():
            self._together(moment, requests)
        return ended

    def _apply(self, request: CommandRequest, cycle: int) -> int | None:
        self._meet(Moment.A, request, cycle)
        index = request.command.key.index
        # The scoreboard has been told before.
        entry = self._env.scoreboard.table.entries[index]
        self._kinds[index] = entry.kind
        usable = entry.state is EntryState.VALID or request.command.opcode is Opcode.ALLOCATE
        return None if usable else index

    def _meet(self, moment: Moment, request: CommandRequest, cycle: int) -> None:
        command = request.command
        opcode = Opcode(command.opcode)
        if opcode not in APPLIED:
            return
        if opcode is Opcode.ALLOCATE:
            kind = command.kind
        else:
            kind = self._kinds.get(command.key.index, EntryKind.REGION)
        if opcode is Opcode.REGISTER:
            kind = EntryKind.REGION
        lookups = [
            standing
            for port in self._env.ports
            for standing in _standings(port, cycle)
            if standing.request.lookup.key.index == command.key.index
        ]
        self._meetings.append(Meeting(opcode, kind, moment, lookups))

    def _together(self, moment: Moment, requests: Sequence[CommandRequest]) -> None:
        for size in (2, 3):
            for some in itertools.combinations(requests, size):
                numbers = [str(request.source) for request in some]
                sources = f"{', '.join(numbers[:-1])} and {numbers[-1]}"
                indices = len({request.command.key.index for request in some})
                if indices == 1:
                    entries = Entries.SAME
                else:
                    entries = Entries.OTHER if indices == size else Entries.MIXED
                self._model.sample("together", moment, sources, entries)

    def _completed(self, request: CommandRequest) -> None:
        assert request.completion is not None
        opcode = request.command.opcode
        known = {o.value: o.name for o in Opcode}
        number = opcode.value if isinstance(opcode, Opcode) else opcode
        name = known.get(number, UNKNOWN)
        assert name is UNKNOWN or name in STATUSES
        self._model.sample("command_status", name, request.completion.status.name)

    # Lookups

    def _look_at_answers(self, cycle: int, ended: int | None) -> None:
        touches: list[tuple[int, int]] = []
        for port in self._env.ports:
            request = port.finished[-1] if port.finished else None
            if request is None or request.finished != cycle:
                continue
            self._model.sample("lookup_status", request.status.name)
            bypassed = (
                has_no_bytes(request.lookup) and self._env.config.zero_length is ZeroLength.BYPASS
            )
            if request.status is LookupStatus.OK and not bypassed:
                touches.append((port.number, request.lookup.key.index))
        for (one, index), (other, second) in itertools.combinations(touches, 2):
            self._model.sample("touches", f"{one} and {other}", self._place(index, second))
        for some in itertools.combinations(touches, 3):
            indices = {index for _, index in some}
            sets = {index % self._env.config.sets for index in indices}
            if len(indices) == 1:
                kind = Three.ONE_ENTRY
            else:
                kind = Three.ONE_SET if len(sets) == 1 else Three.SEVERAL_SETS
            self._model.sample("three_touches", kind)
        if ended is not None:
            for port, index in touches:
                self._model.sample("touch_and_end", str(port), self._place(index, ended))

    def _place(self, index: int, other: int) -> Place:
        if index == other:
            return Place.SAME_ENTRY
        sets = self._env.config.sets
        return Place.SAME_SET if index % sets == other % sets else Place.OTHER_SET

    def _count_meeting(self, meeting: Meeting) -> None:
        there = [
            Standing(standing.request, phase)
            for standing in meeting.lookups
            if (phase := _phase_in_the_end(standing)) is not None
        ]
        names = (meeting.command.name, meeting.kind.name, meeting.moment)
        for standing in there:
            for company in _companies(standing.request, there):
                self._model.sample("race", *names, standing.phase, company)


def _standings(port: Port, cycle: int) -> list[Standing]:
    head = next(iter(port.awaiting), None)
    return [
        Standing(
            request,
            phase_of(request, cycle, on_offer=request is head and port.beat_waits),
        )
        for request in port.in_flight(cycle)
    ]


def _phase_in_the_end(standing: Standing) -> Phase | None:
    """The phase, now that the answer is known; ``None`` of one that was turned away before."""
    request, phase = standing.request, standing.phase
    if phase is Phase.WAITING:
        return phase
    if not request.beats:
        # It was reset before.
        return None
    if request.status in (LookupStatus.RETRY, LookupStatus.TAG_IN_USE):
        refused = phase is Phase.ADMITTED and request.status is LookupStatus.RETRY
        return Phase.REFUSED if refused else None
    return phase


def _companies(request: LookupRequest, lookups: Sequence[Standing]) -> set[Company]:
    others = {other.request.port for other in lookups if other.request is not request}
    if not others:
        return {Company.ALONE}
    found = {Company.SAME_PORT} if request.port in others else set()
    return found | ({Company.OTHER_PORT} if others - {request.port} else set())
