"""Explains every beat by a version of the entry that was current while the lookup lived.

It knows when commands were accepted, applied (A) and completed (C), and when lookups were admitted
and answered, and nothing else of the table. What an entry was at which time it learns from the
reference model, which executes every command at its A.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tb.model.lookups import answer_of, check, segments
from tb.model.table import Table
from tb.model.words import (
    Beat,
    Command,
    CommandStatus,
    Completion,
    Entry,
    Lookup,
    LookupStatus,
    Opcode,
)

READ_BEFORE = 3
"""Cycles from that in which an entry is read to the first beat, at the least."""


class ObservedLookup(Protocol):
    """What the scoreboard has to know of a lookup."""

    lookup: Lookup
    port: int
    admitted: int | None
    beats: list[tuple[int, Beat]]


class ObservedCommand(Protocol):
    """What the scoreboard has to know of a command."""

    command: Command
    source: int
    accepted: int | None
    applied: int | None
    completed: int | None
    completion: Completion | None


class Unexplained(AssertionError):
    """The table did something that no version of the entry explains."""


@dataclass(eq=False)
class Version:
    """An entry between two applies.

    ``since`` is the A that made it: lookups read it from the next cycle on. ``superseded`` and
    ``over`` are the A and the C of the command that ended it.
    """

    since: int
    entry: Entry
    frames: dict[int, int | None]
    superseded: int | None = None
    over: int | None = None

    def __str__(self) -> str:
        state = self.entry.state.name
        return f"version since cycle {self.since} ({state}, variant {self.entry.variant:#04x})"


@dataclass(eq=False)
class _Translation:
    """A value that a translation had, at most from ``since`` to ``until``."""

    frame: int | None
    since: int
    until: int | None = None


@dataclass
class Tally:
    """What was seen.

    ``torn`` and ``stale`` list the lookups that broke ``untorn`` and ``fresh_answer``, each with
    the cycle of the beat that did.
    """

    by_status: dict[LookupStatus, int] = field(default_factory=dict)
    commands: dict[CommandStatus, int] = field(default_factory=dict)
    torn: list[tuple[int, ObservedLookup]] = field(default_factory=list)
    stale: list[tuple[int, ObservedLookup]] = field(default_factory=list)


class Scoreboard:
    """Compares what is observed with the reference model.

    A lookup is answered from the version that was current at its admission. Where lookups may be
    replayed, it can be one that became current later, but in time for its first beat. An answer
    that ends ``ABORTED`` is as much of a right one as was given, and needs a change of the entry
    since the admission.

    Parameters
    ----------
    new_table : function
        Makes the reference model of an empty table.
    replays : bool
        Lookups may be replayed.
    """

    def __init__(self, new_table: Callable[[], Table], *, replays: bool = False):
        self._new_table = new_table
        self._replays = replays
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self.table = self._new_table()
        self.tally = Tally()
        self._versions: dict[int, list[Version]] = {}
        self._translations: dict[int, list[_Translation]] = {}
        self._superseded: dict[ObservedCommand, list[_Translation]] = {}
        self._outstanding: dict[ObservedCommand, set[CommandStatus]] = {}
        self._releasing: dict[ObservedCommand, int] = {}
        self._met_change: set[ObservedLookup] = set()
        self._unsettled: list[tuple[ObservedLookup, set[ObservedCommand]]] = []

    # Commands

    def accepted(self, request: ObservedCommand) -> None:
        """A command has been accepted."""
        possible = {self.table.status_of(request.command)}
        index = request.command.key.index
        if index in self._releasing.values():
            # A window counts until the command that unbound it is complete.
            self.table.bound_windows[index] += 1
            possible.add(self.table.status_of(request.command))
            self.table.bound_windows[index] -= 1
        self._outstanding[request] = possible

    def applied(self, request: ObservedCommand) -> None:
        """A command has written the table in the cycle ``request.applied``."""
        assert request.applied is not None
        index = request.command.key.index
        versions = self._history(index)
        versions[-1].superseded = request.applied
        old = self.table.entry(index)
        if old is not None and old.is_bound:
            self._releasing[request] = old.parent
        expected = self._execute(request)
        if expected.status is not CommandStatus.OK:
            raise Unexplained(
                f"cycle {request.applied}: {request.command} was applied, "
                f"but should fail with {expected.status.name}"
            )
        entry = expected.entry
        frames = {place: self.table.translation(place) for place in self._reach(entry)}
        versions.append(Version(request.applied, entry, frames))

    def completed(self, request: ObservedCommand) -> None:
        """A command has completed in the cycle ``request.completed``."""
        completion, now = request.completion, request.completed
        assert completion is not None
        assert now is not None
        possible = self._outstanding[request]
        if request.applied is not None:
            expected = {CommandStatus.OK}
            for version in self._history(request.command.key.index):
                if version.superseded == request.applied:
                    version.over = now
        elif completion.status is CommandStatus.OK:
            expected = {self._execute(request).status}
        else:
            expected = possible
        entry = self.table.entry(request.command.key.index) or Entry()
        if completion.status not in expected or completion.entry != entry:
            names = " or ".join(sorted(status.name for status in expected))
            raise Unexplained(
                f"cycle {now}: {request.command} completed with {completion}, "
                f"but should with {names} and {entry}"
            )
        del self._outstanding[request]
        self._releasing.pop(request, None)
        for value in self._superseded.pop(request, ()):
            value.until = now
        count = self.tally.commands
        count[completion.status] = count.get(completion.status, 0) + 1
        self._settle(request)

    def _execute(self, request: ObservedCommand) -> Completion:
        before = list(self.table.translations)
        expected = self.table.execute(request.command)
        since = request.accepted or 0
        for place, (old, new) in enumerate(zip(before, self.table.translations, strict=True)):
            if old != new:
                values = self._translations.setdefault(place, [_Translation(old, -1)])
                self._superseded.setdefault(request, []).append(values[-1])
                values.append(_Translation(new, since))
        for other, possible in self._outstanding.items():
            possible.add(self.table.status_of(other.command))
        return expected

    def _reach(self, entry: Entry) -> Iterable[int]:
        # A window sees only its part of the region's translations, and a lookup only the entry's.
        return entry.span if entry.base != entry.limit else ()

    # Lookups

    def admitted(self, request: ObservedLookup) -> None:
        """A lookup has been accepted by its port."""
        self._history(request.lookup.key.index)
        if any(c.command.opcode is not Opcode.QUERY for c in self._outstanding):
            self._met_change.add(request)

    def answered(self, request: ObservedLookup) -> None:
        """A lookup has its last beat."""
        met_change = request in self._met_change
        self._met_change.discard(request)
        status = request.beats[-1][1].status
        count = self.tally.by_status
        count[status] = count.get(status, 0) + 1
        if status is LookupStatus.RETRY:
            if not met_change or len(request.beats) > 1:
                raise Unexplained(f"{request.lookup} was refused, and no change is in progress")
            return
        if status is LookupStatus.TAG_IN_USE and len(request.beats) == 1:
            return
        if status is LookupStatus.ABORTED:
            self._check_abort(request)
        matching = [v for v in self._answering(request) if self._fits(v, request)]
        if matching:
            self._judge(request, matching)
        else:
            self._unsettled.append((request, set(self._outstanding)))
            if not self._outstanding:
                self._settle(None)

    def finish(self) -> None:
        """The run is over: every lookup must have been explained.

        Raises
        ------
        Unexplained
            If a lookup was not, or a command is outstanding.
        """
        if self._outstanding:
            raise Unexplained(f"commands never completed: {list(self._outstanding)}")
        self._settle(None)

    def _history(self, index: int) -> list[Version]:
        if index not in self._versions:
            entry = self.table.entry(index)
            self._versions[index] = [Version(-1, entry or Entry(), {})]
        return self._versions[index]

    def _current(self, request: ObservedLookup) -> list[Version]:
        """The versions that were current at some time of the lookup's life."""
        assert request.admitted is not None
        finished = request.beats[-1][0]
        found = []
        for version in reversed(self._history(request.lookup.key.index)):
            if version.since < finished:
                found.append(version)
            if version.since < request.admitted:
                break
        return found

    def _answering(self, request: ObservedLookup) -> list[Version]:
        """The versions that the lookup may be answered from."""
        living = self._current(request)
        in_time = request.beats[0][0] - READ_BEFORE
        return [
            version
            for place, version in enumerate(living)
            if place == len(living) - 1 or (self._replays and version.since < in_time)
        ]

    def _fits(self, version: Version, request: ObservedLookup) -> bool:
        """Whether the answer is that of this version, as far as it goes."""
        beats, predicted = _beats(request), self._predict(version, request)
        if beats[-1].status is LookupStatus.ABORTED:
            return len(beats) <= len(predicted) and beats[:-1] == predicted[: len(beats) - 1]
        return beats == predicted

    def _check_abort(self, request: ObservedLookup) -> None:
        """Was there a reason, and is the beat as it should be?"""
        cycle, beat = request.beats[-1]
        assert request.admitted is not None
        changed = any(
            request.admitted <= version.since < cycle
            for version in self._history(request.lookup.key.index)
        )
        first = len(request.beats) == 1
        if not changed or beat != Beat(LookupStatus.ABORTED, first, last=True):
            raise Unexplained(
                f"port {request.port}, admitted in cycle {request.admitted}: {request.lookup} "
                f"was aborted with {beat} in cycle {cycle}, and its entry was "
                f"{'' if changed else 'not '}changed"
            )

    def _predict(self, version: Version, request: ObservedLookup) -> tuple[Beat, ...]:
        lookup = request.lookup
        return answer_of(
            version.entry if self.table.entry(lookup.key.index) is not None else None,
            lookup,
            lambda place: version.frames.get(place),
            page_shift_min=self.table.page_shift_min,
            physical_width=self.table.physical_width,
            zero_length_is_checked=self.table.zero_length_is_checked,
        )

    def _judge(self, request: ObservedLookup, matching: list[Version]) -> None:
        """Was the answer given after its version was over?"""
        late = []
        for version in matching:
            over = version.over
            late.append(
                [
                    cycle
                    for cycle, beat in request.beats
                    if beat.length and over is not None and over < cycle
                ]
            )
        if all(late):
            self.tally.stale.append((late[0][0], request))

    def _settle(self, completed: ObservedCommand | None) -> None:
        """Explains the lookups that no command in progress can matter to any more."""
        remaining = []
        for request, commands in self._unsettled:
            commands.discard(completed) if completed is not None else commands.clear()
            if commands:
                remaining.append((request, commands))
                continue
            versions = self._answering(request)
            matching = [v for v in versions if self._fits(v, request)]
            if matching:
                self._judge(request, matching)
            else:
                self._explain_mixture(request, versions)
        self._unsettled = remaining

    def _explain_mixture(self, request: ObservedLookup, versions: list[Version]) -> None:
        """Each beat comes from some version and some value of its translation, or nothing did."""
        whole = [beat.last for _, beat in request.beats] == [False] * (len(request.beats) - 1) + [
            True
        ]
        aborted = request.beats[-1][1].status is LookupStatus.ABORTED
        answered = request.beats[:-1] if aborted else request.beats
        choices = [self._explanations(request, place, versions) for place in range(len(answered))]
        if not whole or not all(choices):
            predicted = [
                f"{version} would answer {self._predict(version, request)}"
                for version in self._current(request)
            ]
            raise Unexplained(
                f"port {request.port}, admitted in cycle {request.admitted}: {request.lookup} "
                f"was answered {request.beats}, but " + ", and ".join(predicted)
            )
        if not aborted:
            self.tally.torn.append((request.beats[-1][0], request))
        late = [
            cycle
            for (cycle, beat), found in zip(answered, choices, strict=True)
            if beat.length and all(v.over is not None and v.over < cycle for v in found)
        ]
        if late:
            self.tally.stale.append((late[0], request))

    def _explanations(
        self, request: ObservedLookup, place: int, versions: list[Version]
    ) -> list[Version]:
        """The versions that one beat can come from, with any translations of that time."""
        beat = request.beats[place][1]
        return [v for v in versions if beat in self._possible_beats(v, request, place)]

    def _possible_beats(
        self, version: Version, request: ObservedLookup, place: int
    ) -> Iterator[Beat]:
        lookup, first = request.lookup, place == 0
        status = check(version.entry, lookup)
        if status is not LookupStatus.OK:
            if first:
                yield Beat(status, first=True, last=True)
            return
        pages = list(segments(version.entry, lookup))
        if place >= len(pages):
            return
        index, offset, length = pages[place]
        assert request.admitted is not None
        for frame in self._frames(index, request.admitted, request.beats[-1][0]):
            if frame is None:
                yield Beat(LookupStatus.NO_TRANSLATION, first, last=True)
            else:
                address = frame << self.table.page_shift_min | offset
                yield Beat(LookupStatus.OK, first, place == len(pages) - 1, address, length)

    def _frames(self, index: int, since: int, until: int) -> Iterator[int | None]:
        """The values that a translation can have had between two cycles."""
        values = self._translations.get(index)
        if values is None:
            yield self.table.translation(index)
            return
        for value in reversed(values):
            if value.until is not None and value.until < since:
                break
            if value.since <= until:
                yield value.frame


def _beats(request: ObservedLookup) -> tuple[Beat, ...]:
    return tuple(beat for _, beat in request.beats)
