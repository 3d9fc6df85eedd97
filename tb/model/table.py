"""Reference model of the table: what a lookup is answered, and what a command does.

The model has no time: a command takes effect at once and as a whole, and an answer is computed
from one entry. Which entry a lookup in flight may see is a question for the scoreboard, which
can ask :func:`answer_of` for any entry it remembers.

Its enums have the names and the values of those in ``rtl.layouts``, and are written down a
second time on purpose: the model must not inherit a mistake.

Every order of checks is the order of the ``yield`` statements in one generator; the first check
that fails gives the status. The label next to a check is the rule it comes from, as the InfiniBand
specification and the Linux drivers number it.
"""

import dataclasses
from collections.abc import Callable, Iterator
from enum import Enum, IntFlag
from typing import NamedTuple


class EntryState(Enum):
    """State of an entry."""

    INVALID = 0
    FREE = 1
    VALID = 2


class EntryKind(Enum):
    """What an entry describes."""

    REGION = 0
    WINDOW_1 = 1
    WINDOW_2A = 2
    WINDOW_2B = 3


class Rights(IntFlag):
    """Rights that an entry grants or a lookup asks for; local read is implied."""

    LOCAL_WRITE = 1
    REMOTE_READ = 2
    REMOTE_WRITE = 4
    REMOTE_ATOMIC = 8
    BIND = 16


class LookupStatus(Enum):
    """Status of a beat. The model never answers with the last three: they depend on time."""

    OK = 0
    INDEX_OUT_OF_RANGE = 1
    WRONG_VARIANT = 2
    WRONG_STATE = 3
    WRONG_PD = 4
    WRONG_QPN = 5
    RIGHTS_MISSING = 6
    OUT_OF_BOUNDS = 7
    MISALIGNED = 8
    NO_TRANSLATION = 9
    RETRY = 10
    TAG_IN_USE = 11
    ABORTED = 12


class Opcode(Enum):
    """What a command asks for."""

    REGISTER = 0
    WRITE_TRANSLATION = 1
    LOCAL_INVALIDATE = 2
    REMOTE_INVALIDATE = 3
    BIND = 4
    REREGISTER = 5
    DEREGISTER = 6
    QUERY = 7


class CommandStatus(Enum):
    """Status of a completion. Whatever is not ``OK`` changed nothing."""

    OK = 0
    UNKNOWN_OPCODE = 1
    INDEX_OUT_OF_RANGE = 2
    WRONG_VARIANT = 3
    WRONG_STATE = 4
    WRONG_KIND = 5
    WRONG_PD = 6
    HEADER_INVALID = 7
    NOT_ENABLED = 8
    WINDOWS_BOUND = 9
    RIGHTS_MISSING = 10
    OUT_OF_BOUNDS = 11
    ZERO_LENGTH = 12
    BAD_PAGE = 13
    RANGE_IN_USE = 14


NO_RIGHTS = Rights(0)


@dataclasses.dataclass(frozen=True)
class Key:
    """A key: ``index`` selects the entry, ``variant`` is the consumer's."""

    index: int = 0
    variant: int = 0


@dataclasses.dataclass(frozen=True)
class Lookup:
    """A lookup: who asks (``pd``, ``qpn``), for what (``rights``), and where."""

    key: Key
    pd: int
    qpn: int
    rights: Rights
    address: int
    length: int
    tag: int = 0


@dataclasses.dataclass(frozen=True)
class Beat:
    """One page segment of an answer: ``length`` bytes from physical ``address`` on."""

    status: LookupStatus
    first: bool
    last: bool
    address: int = 0
    length: int = 0


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry. ``limit`` is the first address behind it; ``parent`` is a window's region.

    Without arguments it is the entry of nobody: INVALID, and zero all over.
    """

    state: EntryState = EntryState.INVALID
    kind: EntryKind = EntryKind.REGION
    rights: Rights = NO_RIGHTS
    remote_invalidate: bool = False
    variant: int = 0
    pd: int = 0
    qpn: int = 0
    base: int = 0
    limit: int = 0
    page_shift: int = 0
    offset: int = 0
    first_translation: int = 0
    parent: int = 0

    @property
    def is_window(self) -> bool:
        """Whether it is a window of any type."""
        return self.kind is not EntryKind.REGION

    @property
    def is_bound(self) -> bool:
        """Whether it is a window that its region counts."""
        return self.is_window and self.state is EntryState.VALID and self.base != self.limit

    @property
    def pages(self) -> int:
        """Pages that it touches; none if it has no bytes."""
        if self.base == self.limit:
            return 0
        last = self.limit - self.base + self.offset - 1
        return (last >> self.page_shift) + 1

    @property
    def span(self) -> range:
        """Indices of its translations."""
        return range(self.first_translation, self.first_translation + self.pages)

    def position(self, address: int) -> int:
        """Where ``address`` is, in bytes from the start of the first page."""
        return address - self.base + self.offset


NOBODY = Entry()


@dataclasses.dataclass(frozen=True)
class Command:
    """A command. Which fields count depends on the opcode.

    ``opcode`` may be a number that is no :class:`Opcode`.
    """

    opcode: Opcode | int
    key: Key
    variant: int = 0
    kind: EntryKind = EntryKind.REGION
    rights: Rights = NO_RIGHTS
    remote_invalidate: bool = False
    header_valid: bool = True
    pd: int = 0
    qpn: int = 0
    base: int = 0
    length: int = 0
    page_shift: int = 12
    offset: int = 0
    first_translation: int = 0
    translations: int = 0
    frame: int = 0
    parent: Key = Key()


@dataclasses.dataclass(frozen=True)
class Completion:
    """What became of a command, and the entry as it now stands."""

    status: CommandStatus
    entry: Entry


def skips_checks(lookup: Lookup) -> bool:
    """Whether the key doesn't matter: a remote READ or WRITE of no bytes (C9-88).

    An atomic is never of no bytes, so one that claims to be is checked like any other lookup.
    """
    reads_or_writes = Rights.REMOTE_READ | Rights.REMOTE_WRITE
    return (
        lookup.length == 0
        and bool(lookup.rights & reads_or_writes)
        and not lookup.rights & Rights.REMOTE_ATOMIC
    )


def _lookup_checks(entry: Entry, lookup: Lookup) -> Iterator[tuple[bool, LookupStatus]]:
    yield lookup.key.variant != entry.variant, LookupStatus.WRONG_VARIANT
    yield entry.state is not EntryState.VALID, LookupStatus.WRONG_STATE
    yield lookup.pd != entry.pd, LookupStatus.WRONG_PD
    belongs_to_qp = entry.kind is EntryKind.WINDOW_2B
    yield belongs_to_qp and lookup.qpn != entry.qpn, LookupStatus.WRONG_QPN
    # Every right asked for; granting any one of them was a bug.
    yield bool(lookup.rights & ~entry.rights), LookupStatus.RIGHTS_MISSING
    # An entry of no bytes admits nothing (CVE-2023-25775).
    yield entry.base == entry.limit, LookupStatus.OUT_OF_BOUNDS
    yield lookup.address < entry.base, LookupStatus.OUT_OF_BOUNDS
    # Sums don't wrap here, so a range that wraps is out of bounds (CVE-2016-8636).
    yield lookup.address + lookup.length > entry.limit, LookupStatus.OUT_OF_BOUNDS
    is_atomic = bool(lookup.rights & Rights.REMOTE_ATOMIC)
    yield is_atomic and entry.position(lookup.address) % 8 != 0, LookupStatus.MISALIGNED


def check(entry: Entry | None, lookup: Lookup) -> LookupStatus:
    """What ``lookup`` is told before its translations are read.

    Order: index in range, variant, state, PD, QPN (windows of type 2B), rights, bounds,
    alignment of an atomic.

    Parameters
    ----------
    entry : Entry or None
        What the lookup's index selects; ``None`` if it is out of range.
    """
    if entry is None:
        return LookupStatus.INDEX_OUT_OF_RANGE
    failures = (status for failed, status in _lookup_checks(entry, lookup) if failed)
    return next(failures, LookupStatus.OK)


def segments(entry: Entry, lookup: Lookup) -> Iterator[tuple[int, int, int]]:
    """Per page that the lookup touches: index of its translation, place in the page, bytes."""
    page_size = 1 << entry.page_shift
    position, remaining = entry.position(lookup.address), lookup.length
    while remaining:
        page, place = divmod(position, page_size)
        length = min(page_size - place, remaining)
        yield entry.first_translation + page, place, length
        position += length
        remaining -= length


def answer_of(
    entry: Entry | None,
    lookup: Lookup,
    translate: Callable[[int], int | None],
    *,
    page_shift_min: int = 12,
    physical_width: int = 52,
) -> tuple[Beat, ...]:
    """All beats that answer ``lookup`` from ``entry``.

    A lookup that fails a check gets one beat. One that meets a missing translation gets the pages
    before it, then a beat that says so. Beats that are not OK have address and length 0, and so
    has the only beat of a lookup of no bytes, which reads no translation.

    Parameters
    ----------
    entry : Entry or None
        What the lookup's index selects; ``None`` if it is out of range.
    translate : function
        Gives the page frame of a translation index, in the smallest pages, or ``None``.
    """
    status = LookupStatus.OK if skips_checks(lookup) else check(entry, lookup)
    if status is not LookupStatus.OK or lookup.length == 0:
        return (Beat(status, first=True, last=True),)
    assert entry is not None
    beats: list[Beat] = []
    remaining = lookup.length
    for index, place, length in segments(entry, lookup):
        first = not beats
        frame = translate(index)
        if frame is None:
            beats.append(Beat(LookupStatus.NO_TRANSLATION, first, last=True))
            break
        remaining -= length
        address = (frame << page_shift_min | place) % (1 << physical_width)
        beats.append(Beat(LookupStatus.OK, first, remaining == 0, address, length))
    return tuple(beats)


Checks = Iterator[tuple[bool, CommandStatus]]


class _Rule(NamedTuple):
    """What one opcode checks, in order, and what it does if all checks pass."""

    checks: Callable[[Command, Entry], Checks]
    effect: Callable[[Command, Entry], None]


class Table:
    """The table: entries, their translations, and how many windows each region has bound.

    Parameters
    ----------
    entries, translations : int
        Sizes of the two tables.
    address_width, physical_width : int
        Bits of a virtual and of a physical address.
    page_shift_min, page_shift_max : int
        Smallest and largest page, as the logarithm of its size in bytes.

    Members
    -------
    entries : list of Entry
    translations : list of int or None
        Page frame, in the smallest pages; ``None`` if there is no translation.
    bound_windows : list of int
        Per entry, the windows bound to it.
    """

    def __init__(
        self,
        entries: int,
        translations: int,
        address_width: int = 64,
        page_shift_min: int = 12,
        page_shift_max: int = 31,
        physical_width: int = 52,
    ):
        self.address_width = address_width
        self.page_shift_min = page_shift_min
        self.page_shift_max = page_shift_max
        self.physical_width = physical_width
        self.entries: list[Entry] = [NOBODY] * entries
        self.translations: list[int | None] = [None] * translations
        self.bound_windows: list[int] = [0] * entries
        self._rules = {
            Opcode.REGISTER: _Rule(self._register_checks, self._register),
            Opcode.WRITE_TRANSLATION: _Rule(
                self._write_translation_checks, self._write_translations
            ),
            Opcode.LOCAL_INVALIDATE: _Rule(self._invalidate_checks, self._invalidate),
            Opcode.REMOTE_INVALIDATE: _Rule(self._remote_invalidate_checks, self._invalidate),
            Opcode.BIND: _Rule(self._bind_checks, self._bind),
            Opcode.REREGISTER: _Rule(self._reregister_checks, self._reregister),
            Opcode.DEREGISTER: _Rule(self._deregister_checks, self._deregister),
            Opcode.QUERY: _Rule(lambda command, entry: iter(()), lambda command, entry: None),
        }

    # Lookups

    def entry(self, index: int) -> Entry | None:
        """The entry at ``index``; ``None`` if it is out of range."""
        return self.entries[index] if index < len(self.entries) else None

    def translation(self, index: int) -> int | None:
        """The page frame at ``index``; ``None`` if there is none."""
        return self.translations[index] if index < len(self.translations) else None

    def answer(self, lookup: Lookup) -> tuple[Beat, ...]:
        """All beats that answer ``lookup`` from the table as it now stands."""
        return answer_of(
            self.entry(lookup.key.index),
            lookup,
            self.translation,
            page_shift_min=self.page_shift_min,
            physical_width=self.physical_width,
        )

    # Commands

    def execute(self, command: Command) -> Completion:
        """Carry out ``command`` if it passes all checks; else change nothing.

        The completion has the entry as it then stands, or :data:`NOBODY` if the index is out of
        range.
        """
        status = self.status_of(command)
        if status is CommandStatus.OK:
            effect = self._rules[Opcode(command.opcode)].effect
            effect(command, self.entries[command.key.index])
        return Completion(status, self.entry(command.key.index) or NOBODY)

    def status_of(self, command: Command) -> CommandStatus:
        """What ``command`` would complete with."""
        failures = (status for failed, status in self._checks(command) if failed)
        return next(failures, CommandStatus.OK)

    def _checks(self, command: Command) -> Checks:
        known = isinstance(command.opcode, Opcode) or command.opcode in {o.value for o in Opcode}
        yield not known, CommandStatus.UNKNOWN_OPCODE
        yield self.entry(command.key.index) is None, CommandStatus.INDEX_OUT_OF_RANGE
        rule = self._rules[Opcode(command.opcode)]
        yield from rule.checks(command, self.entries[command.key.index])

    # Checks, in order

    def _page_checks(self, command: Command, *, writes: bool) -> Checks:
        supported = self.page_shift_min <= command.page_shift <= self.page_shift_max
        yield not supported, CommandStatus.BAD_PAGE
        misaligned = command.frame % self._frames_per_page(command) != 0
        yield writes and misaligned, CommandStatus.BAD_PAGE

    def _write_translation_checks(self, command: Command, entry: Entry) -> Checks:
        yield from self._page_checks(command, writes=True)
        end = command.first_translation + command.translations
        yield end > len(self.translations), CommandStatus.OUT_OF_BOUNDS

    def _region_checks(self, command: Command) -> Checks:
        yield from self._page_checks(command, writes=command.translations > 0)
        yield command.offset >= 1 << command.page_shift, CommandStatus.BAD_PAGE
        new = _region_of(command, variant=0)
        yield new.limit > 1 << self.address_width, CommandStatus.OUT_OF_BOUNDS
        yield new.span.stop > len(self.translations), CommandStatus.OUT_OF_BOUNDS
        yield command.translations > new.pages, CommandStatus.OUT_OF_BOUNDS

    def _register_checks(self, command: Command, entry: Entry) -> Checks:
        is_free = entry.state is EntryState.FREE
        yield entry.state is EntryState.VALID, CommandStatus.WRONG_STATE
        yield is_free and entry.kind is not command.kind, CommandStatus.WRONG_KIND
        yield is_free and entry.is_window, CommandStatus.WRONG_STATE
        if command.kind is EntryKind.REGION:
            yield from self._region_checks(command)

    def _reregister_checks(self, command: Command, entry: Entry) -> Checks:
        yield entry.state is not EntryState.VALID, CommandStatus.WRONG_STATE
        yield entry.is_window, CommandStatus.WRONG_KIND
        yield self._has_windows(command), CommandStatus.WINDOWS_BOUND
        yield from self._region_checks(command)
        new = _region_of(command, command.variant)
        if _keeps_translations(command, entry):
            yield new.pages > entry.pages, CommandStatus.OUT_OF_BOUNDS
            yield new.page_shift != entry.page_shift, CommandStatus.BAD_PAGE
        else:
            yield _overlap(new.span, entry.span), CommandStatus.RANGE_IN_USE

    def _deregister_checks(self, command: Command, entry: Entry) -> Checks:
        yield entry.state is EntryState.INVALID, CommandStatus.WRONG_STATE
        yield self._has_windows(command), CommandStatus.WINDOWS_BOUND

    def _invalidate_checks(self, command: Command, entry: Entry) -> Checks:
        is_remote = Opcode(command.opcode) is Opcode.REMOTE_INVALIDATE
        yield entry.state is not EntryState.VALID, CommandStatus.WRONG_STATE
        yield command.key.variant != entry.variant, CommandStatus.WRONG_VARIANT
        # o10-37.2.26
        yield entry.kind is EntryKind.WINDOW_1, CommandStatus.WRONG_KIND
        yield command.pd != entry.pd, CommandStatus.WRONG_PD
        needs_qp = is_remote and entry.kind is EntryKind.WINDOW_2B
        yield needs_qp and command.qpn != entry.qpn, CommandStatus.WRONG_PD
        yield is_remote and not entry.remote_invalidate, CommandStatus.NOT_ENABLED
        yield self._has_windows(command), CommandStatus.WINDOWS_BOUND

    def _remote_invalidate_checks(self, command: Command, entry: Entry) -> Checks:
        # o9-5.2.1
        yield not command.header_valid, CommandStatus.HEADER_INVALID
        yield from self._invalidate_checks(command, entry)

    def _bind_checks(self, command: Command, entry: Entry) -> Checks:
        is_type_1 = entry.kind is EntryKind.WINDOW_1
        bindable = EntryState.VALID if is_type_1 else EntryState.FREE
        yield entry.state is EntryState.INVALID, CommandStatus.WRONG_STATE
        yield command.key.variant != entry.variant, CommandStatus.WRONG_VARIANT
        yield not entry.is_window, CommandStatus.WRONG_KIND
        yield entry.state is not bindable, CommandStatus.WRONG_STATE
        # C10-72
        yield command.pd != entry.pd, CommandStatus.WRONG_PD
        if command.length:
            yield from self._parent_checks(command)
        else:
            # o10-37.2.40
            yield not is_type_1, CommandStatus.ZERO_LENGTH

    def _parent_checks(self, command: Command) -> Checks:
        yield self.entry(command.parent.index) is None, CommandStatus.INDEX_OUT_OF_RANGE
        region = self.entries[command.parent.index]
        yield region.state is not EntryState.VALID, CommandStatus.WRONG_STATE
        yield command.parent.variant != region.variant, CommandStatus.WRONG_VARIANT
        yield region.is_window, CommandStatus.WRONG_KIND
        yield command.pd != region.pd, CommandStatus.WRONG_PD
        # C10-73
        yield not region.rights & Rights.BIND, CommandStatus.RIGHTS_MISSING
        # C10-74
        changes = bool(command.rights & (Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC))
        lacks_write = not region.rights & Rights.LOCAL_WRITE
        yield changes and lacks_write, CommandStatus.RIGHTS_MISSING
        # C10-75
        yield command.base < region.base, CommandStatus.OUT_OF_BOUNDS
        yield command.base + command.length > region.limit, CommandStatus.OUT_OF_BOUNDS

    # Effects

    def _write_translations(self, command: Command, entry: Entry) -> None:
        frames = 1 << (self.physical_width - self.page_shift_min)
        for page in range(command.translations):
            frame = command.frame + page * self._frames_per_page(command)
            self.translations[command.first_translation + page] = frame % frames

    def _remove_translations(self, entry: Entry) -> None:
        for index in entry.span:
            self.translations[index] = None

    def _register(self, command: Command, entry: Entry) -> None:
        if command.kind is not EntryKind.REGION:
            self.entries[command.key.index] = _unbound_window_of(command)
            return
        self._write_translations(command, entry)
        self.entries[command.key.index] = _region_of(command, command.key.variant)

    def _reregister(self, command: Command, entry: Entry) -> None:
        if not _keeps_translations(command, entry):
            self._remove_translations(entry)
        self._write_translations(command, entry)
        self.entries[command.key.index] = _region_of(command, command.variant)

    def _deregister(self, command: Command, entry: Entry) -> None:
        if entry.is_window:
            self._release_parent(entry)
        else:
            self._remove_translations(entry)
        self.entries[command.key.index] = NOBODY

    def _invalidate(self, command: Command, entry: Entry) -> None:
        self._release_parent(entry)
        freed = dataclasses.replace(entry, state=EntryState.FREE)
        if entry.is_window:
            freed = dataclasses.replace(freed, base=0, limit=0)
        self.entries[command.key.index] = freed

    def _bind(self, command: Command, entry: Entry) -> None:
        self._release_parent(entry)
        if command.length == 0:
            self.entries[command.key.index] = dataclasses.replace(
                entry, variant=command.variant, rights=NO_RIGHTS, base=0, limit=0
            )
            return
        region = self.entries[command.parent.index]
        self.bound_windows[command.parent.index] += 1
        self.entries[command.key.index] = _bound_window_of(command, entry, region)

    # Parts of these

    def _frames_per_page(self, command: Command) -> int:
        return 1 << (command.page_shift - self.page_shift_min)

    def _has_windows(self, command: Command) -> bool:
        return self.bound_windows[command.key.index] > 0

    def _release_parent(self, entry: Entry) -> None:
        if entry.is_bound:
            self.bound_windows[entry.parent] -= 1


def _keeps_translations(command: Command, entry: Entry) -> bool:
    """Whether a re-registration goes on with the translations that are there."""
    return command.translations == 0 and command.first_translation == entry.first_translation


def _overlap(one: range, other: range) -> bool:
    """Whether a translation is in both; nothing is in an empty range, wherever it is."""
    return max(one.start, other.start) < min(one.stop, other.stop)


def _region_of(command: Command, variant: int) -> Entry:
    return Entry(
        state=EntryState.VALID,
        kind=EntryKind.REGION,
        rights=command.rights,
        remote_invalidate=command.remote_invalidate,
        variant=variant,
        pd=command.pd,
        qpn=command.qpn,
        base=command.base,
        limit=command.base + command.length,
        page_shift=command.page_shift,
        offset=command.offset,
        first_translation=command.first_translation,
        parent=command.key.index,
    )


def _unbound_window_of(command: Command) -> Entry:
    is_type_1 = command.kind is EntryKind.WINDOW_1
    return Entry(
        state=EntryState.VALID if is_type_1 else EntryState.FREE,
        kind=command.kind,
        remote_invalidate=command.remote_invalidate,
        variant=command.key.variant,
        pd=command.pd,
        qpn=command.qpn,
    )


def _bound_window_of(command: Command, window: Entry, region: Entry) -> Entry:
    """The window after its bind: it walks the translations of its region."""
    page, place = divmod(region.position(command.base), 1 << region.page_shift)
    return dataclasses.replace(
        window,
        state=EntryState.VALID,
        rights=command.rights,
        variant=command.variant,
        qpn=command.qpn if window.kind is EntryKind.WINDOW_2B else window.qpn,
        base=command.base,
        limit=command.base + command.length,
        page_shift=region.page_shift,
        offset=place,
        first_translation=region.first_translation + page,
        parent=command.parent.index,
    )
