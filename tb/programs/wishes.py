"""Wishes, of which a host makes lawful steps.

A wish is a few small numbers that mean the same whatever the wishes around it are. One that can't
be granted where it stands is left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from tb.model.words import NO_RIGHTS, Command, Entry, EntryKind, EntryState, Key, Lookup, Opcode
from tb.model.words import Rights as R
from tb.programs.host import Holding, Host
from tb.programs.program import Accepts, Dma, Until, Wait

_GRANTED = (
    R.LOCAL_WRITE | R.REMOTE_READ | R.REMOTE_WRITE | R.REMOTE_ATOMIC | R.BIND,
    R.REMOTE_READ | R.REMOTE_WRITE,
    R.REMOTE_READ,
    R.LOCAL_WRITE | R.BIND,
    NO_RIGHTS,
)
_ASKED = (NO_RIGHTS, R.REMOTE_READ, R.REMOTE_WRITE, R.REMOTE_ATOMIC, R.REMOTE_READ | R.LOCAL_WRITE)


class Wish(Protocol):
    """Something that may become steps of a program."""

    def grant(self, host: Host) -> None:
        """Makes steps of it, if that is possible."""
        ...


@dataclass(frozen=True)
class Target:
    """Which entry is meant: the ``number``-th of those that suit, from the latest on.

    ``anyhow``: of all that there are.
    """

    number: int
    anyhow: bool

    def of(
        self, host: Host, there: Iterable[int], suits: Callable[[Entry], bool] = lambda entry: True
    ) -> int | None:
        """The index; ``None`` if there is none."""
        known = list(there)
        suiting = [index for index in known if suits(host.table.entries[index])]
        found = known if self.anyhow or not suiting else suiting
        return found[-1 - self.number % len(found)] if found else None


def _is_valid(entry: Entry) -> bool:
    return entry.state is EntryState.VALID


@dataclass(frozen=True)
class Area:
    """What a region is to be like."""

    pages: int
    variant: int
    rights: int
    offset: int
    page_shift: int
    zero_based: bool
    at_the_end: bool
    pd: int

    def command(self, host: Host, opcode: Opcode, index: int, run: range) -> Command:
        """The command that makes it, on these translations."""
        pages = min(self.pages, len(run))
        length = (pages << self.page_shift) - self.offset
        return Command(
            opcode,
            Key(index, self.variant),
            rights=_GRANTED[self.rights],
            remote_invalidate=self.variant != 3,
            zero_based=self.zero_based,
            pd=self.pd,
            base=2**64 - length if self.at_the_end else (index + 1 << 20) + self.offset,
            length=length,
            page_shift=self.page_shift,
            offset=self.offset,
            first_translation=run.start,
            translations=pages,
            frame=host.new_frame(),
        )


@dataclass(frozen=True)
class Make:
    """Something new: a region, registered or only allocated, or a window.

    ``first_writes``: the translations are written by a command of their own.
    """

    source: int
    kind: EntryKind
    area: Area
    allocates: bool
    first_writes: bool

    def grant(self, host: Host) -> None:
        """Nothing, if there is no index or there are no translations."""
        index = host.take_index(self.source)
        if index is None:
            return
        key, pd = Key(index, self.area.variant), self.area.pd
        allocate = Command(Opcode.ALLOCATE, key, kind=self.kind, pd=pd, remote_invalidate=True)
        if self.kind is not EntryKind.REGION:
            host.order(self.source, allocate)
            host.hold(self.source, index, Holding(self.kind))
            return
        run = host.take_translations(self.source, self.area.pages)
        if run is None:
            host.leave_index(self.source, index)
            return
        register = self.area.command(host, Opcode.REGISTER, index, run)
        if self.allocates:
            on_run = replace(allocate, first_translation=run.start, translations=len(run))
            host.order(self.source, on_run)
        elif self.first_writes:
            writes = Command(
                Opcode.WRITE_TRANSLATION,
                Key(index),
                page_shift=register.page_shift,
                first_translation=run.start,
                translations=register.translations,
                frame=register.frame,
            )
            host.order(self.source, writes)
            host.order(self.source, replace(register, translations=0))
        else:
            host.order(self.source, register)
        host.hold(self.source, index, Holding(self.kind, [run]))


@dataclass(frozen=True)
class Renew:
    """A fast registration. One that is ``beside`` its range fails, and one of a window."""

    source: int
    target: Target
    area: Area
    beside: bool

    def grant(self, host: Host) -> None:
        """Nothing, if there is nothing."""
        index = self.target.of(
            host, host.holdings, lambda e: e.state is EntryState.FREE and not e.is_window
        )
        if index is None:
            return
        runs = host.holdings[index].runs
        run = runs[-1] if runs else range(1)
        if self.beside:
            run = range(run.start + 1, run.stop + 1)
        command = self.area.command(host, Opcode.FAST_REGISTER, index, run)
        host.order(self.source, replace(command, pd=host.table.entries[index].pd))


@dataclass(frozen=True)
class Move:
    """A re-registration, on other translations or those that are there; one of a window fails."""

    source: int
    target: Target
    area: Area
    keeps: bool

    def grant(self, host: Host) -> None:
        """Nothing, if there is nothing, or there are no translations to move to."""
        mine = host.movable(self.source)
        index = self.target.of(host, mine, lambda e: _is_valid(e) and not e.is_window)
        if index is None:
            return
        holding = host.holdings[index]
        keeps = self.keeps and len(holding.runs) == 1
        if not holding.is_region:
            run = range(1)
        elif keeps:
            run = holding.runs[0]
        elif len(holding.runs) > 1:
            # One of the two is its own, and nobody else has the other one.
            holding.runs.reverse()
            run = holding.runs[-1]
        else:
            run = host.take_translations(self.source, self.area.pages)
            if run is None:
                return
            holding.runs.append(run)
        command = self.area.command(host, Opcode.REREGISTER, index, run)
        if keeps:
            command = replace(command, translations=0)
        holding.source = self.source
        host.order(self.source, replace(command, variant=self.area.variant))


@dataclass(frozen=True)
class End:
    """A deregistration, or the end of a window. One that is ``mixed_up`` with the other fails."""

    source: int
    target: Target
    mixed_up: bool

    def grant(self, host: Host) -> None:
        """Nothing, if there is nothing."""
        index = self.target.of(host, host.movable(self.source))
        if index is None:
            return
        is_region = host.holdings[index].is_region
        opcode = Opcode.DEREGISTER if is_region != self.mixed_up else Opcode.DEALLOCATE
        host.order(self.source, Command(opcode, Key(index)))
        if self.mixed_up:
            host.holdings[index].source = self.source
        else:
            host.end(self.source, index)


@dataclass(frozen=True)
class Invalidate:
    """A local or remote invalidate; ``wrong`` says what is wrong about it, 0 nothing."""

    source: int
    target: Target
    remote: bool
    wrong: int

    def grant(self, host: Host) -> None:
        """Nothing, if there was never anything."""
        index = self.target.of(
            host, host.past, lambda e: _is_valid(e) and e.kind is not EntryKind.WINDOW_1
        )
        if index is None:
            return
        entry = host.past[index][0]
        command = Command(
            Opcode.REMOTE_INVALIDATE if self.remote else Opcode.LOCAL_INVALIDATE,
            Key(index, entry.variant ^ (self.wrong == 1)),
            pd=entry.pd ^ (self.wrong == 2),
            qpn=entry.qpn ^ (self.wrong == 3),
            header_valid=self.wrong != 4,
        )
        host.order(self.source, command)


@dataclass(frozen=True)
class Bind:
    """A bind of a window to a part of a region; ``wrong`` says what is wrong about it, if not 0."""

    source: int
    target: Target
    parent: Target
    variant: int
    rights: int
    skipped: int
    length: int
    qpn: int
    zero_based: bool
    wrong: int

    def grant(self, host: Host) -> None:
        """Nothing, if there is nothing, or all that it could be bound to is about to end."""
        index = self.target.of(
            host,
            host.holdings,
            lambda e: e.kind is EntryKind.WINDOW_1 or (e.is_window and not _is_valid(e)),
        )
        parent = self.parent.of(
            host,
            filter(host.may_bind_to, host.holdings),
            lambda e: _is_valid(e) and not e.is_window and bool(e.rights & R.BIND),
        )
        if index is None or parent is None:
            return
        window, region = host.table.entries[index], host.table.entries[parent]
        command = Command(
            Opcode.BIND,
            Key(index, window.variant ^ (self.wrong == 1)),
            variant=self.variant,
            rights=_GRANTED[1:][self.rights],
            zero_based=self.zero_based,
            pd=window.pd ^ (self.wrong == 2),
            qpn=self.qpn,
            base=min(region.base + self.skipped, 2**64 - 1),
            length=self.length,
            parent=Key(parent, region.variant ^ (self.wrong == 3)),
        )
        host.order(self.source, command)
        host.bind(self.source, index, parent)


@dataclass(frozen=True)
class Other:
    """A command that changes nothing: a query, or one of those that nothing can make succeed."""

    source: int
    target: Target
    what: int

    def grant(self, host: Host) -> None:
        """Always."""
        key, last = Key(self.target.of(host, host.holdings) or 0), host.config.translations - 1
        command = (
            Command(Opcode.QUERY, key),
            Command(len(Opcode), key),
            Command(Opcode.QUERY, Key(2**20)),
            Command(Opcode.WRITE_TRANSLATION, key, page_shift=0),
            Command(Opcode.WRITE_TRANSLATION, key, first_translation=last, translations=2),
            Command(Opcode.LOCAL_INVALIDATE, Key(2**24 - 1)),
        )[self.what]
        host.order(self.source, command)


@dataclass(frozen=True)
class Again:
    """Makes what is there already, or ends what isn't: both fail."""

    source: int
    target: Target
    ends: bool

    def grant(self, host: Host) -> None:
        """Nothing, if all indices are somebody's, or none is."""
        if self.ends:
            index = host.take_index(self.source)
            if index is not None:
                host.order(self.source, Command(Opcode.DEREGISTER, Key(index)))
                host.leave_index(self.source, index)
            return
        there = (i for i in host.movable(self.source) if not host.holdings[i].doubted)
        index = self.target.of(host, there)
        if index is not None:
            host.holdings[index].source = self.source
            host.order(self.source, Command(Opcode.REGISTER, Key(index), length=8))


@dataclass(frozen=True)
class LookUp:
    """A lookup in what was once made; ``wrong`` says what is wrong about it, 0 nothing."""

    port: int
    target: Target
    older: int
    skipped: int
    length: int
    rights: int
    wrong: int
    tag: int | None

    def grant(self, host: Host) -> None:
        """Nothing, if there was never anything."""
        index = self.target.of(host, host.past, lambda e: _is_valid(e) and e.base != e.limit)
        if index is None:
            return
        entries = host.past[index]
        entry = entries[min(self.older, len(entries) - 1)]
        size = entry.limit - entry.base
        skipped = self.skipped if self.wrong == 5 else self.skipped % max(1, size)
        rest = max(0, size - skipped)
        asked = _ASKED[self.rights]
        lookup = Lookup(
            Key(2**20 if self.wrong == 4 else index, entry.variant ^ (self.wrong == 1)),
            pd=entry.pd ^ (self.wrong == 2),
            qpn=entry.qpn ^ (self.wrong == 3),
            rights=asked if self.wrong == 6 else asked & entry.rights,
            address=min(entry.base + skipped, 2**64 - 1),
            length=self._length(rest),
            tag=self.tag or 0,
        )
        host.ask(self.port, lookup, chooses_tag=self.tag is not None)

    def _length(self, rest: int) -> int:
        if self.length < 0:
            # To the end of it, so that many pages are walked.
            return rest
        return self.length if self.wrong == 5 else min(self.length, rest)


@dataclass(frozen=True)
class LetTimePass:
    """A wait."""

    step: Wait | Until

    def grant(self, host: Host) -> None:
        """Always."""
        host.wait(self.step)


@dataclass(frozen=True)
class TakeTime:
    """Somebody is slower, or faster, from now on."""

    step: Accepts | Dma

    def grant(self, host: Host) -> None:
        """Always."""
        host.pace(self.step)
