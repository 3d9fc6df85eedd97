"""Reference model of the table: what a lookup is answered, and what a command does.

The model has no time: a command takes effect at once and as a whole, and an answer is computed
from one entry. Which entry a lookup in flight may see is a question for the scoreboard, which
can ask :func:`tb.model.lookups.answer_of` for any entry it remembers.

Every order of checks is the order of the ``yield`` statements in one generator; the first check
that fails gives the status. The label next to a check is the rule it comes from, as the InfiniBand
specification and the Linux drivers number it.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tb.model.lookups import answer_of
from tb.model.words import (
    NO_RIGHTS,
    NOBODY,
    Beat,
    Command,
    CommandStatus,
    Completion,
    Entry,
    EntryKind,
    EntryState,
    Lookup,
    Opcode,
    Rights,
)

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
    zero_length_is_checked : bool
        A remote READ or WRITE of no bytes is checked like any other lookup.
    second_invalidate_succeeds : bool
        An invalidate of a FREE entry succeeds.

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
        *,
        zero_length_is_checked: bool = False,
        second_invalidate_succeeds: bool = False,
    ):
        self.address_width = address_width
        self.page_shift_min = page_shift_min
        self.page_shift_max = page_shift_max
        self.physical_width = physical_width
        self.zero_length_is_checked = zero_length_is_checked
        self.second_invalidate_succeeds = second_invalidate_succeeds
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
            Opcode.ALLOCATE: _Rule(self._allocate_checks, self._allocate),
            Opcode.FAST_REGISTER: _Rule(self._fast_register_checks, self._fast_register),
            Opcode.DEALLOCATE: _Rule(self._deallocate_checks, self._deallocate),
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
            zero_length_is_checked=self.zero_length_is_checked,
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
        yield entry.state is not EntryState.INVALID, CommandStatus.WRONG_STATE
        yield from self._region_checks(command)

    def _fast_register_checks(self, command: Command, entry: Entry) -> Checks:
        yield entry.state is not EntryState.FREE, CommandStatus.WRONG_STATE
        yield entry.is_window, CommandStatus.WRONG_KIND
        yield command.pd != entry.pd, CommandStatus.WRONG_PD
        yield from self._region_checks(command)
        elsewhere = command.first_translation != entry.first_translation
        more = _region_of(command, variant=0).pages > entry.translations
        yield elsewhere or more, CommandStatus.RANGE_NOT_OWNED

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
            yield _overlap(new.span, entry.owned), CommandStatus.RANGE_IN_USE

    def _allocate_checks(self, command: Command, entry: Entry) -> Checks:
        yield entry.state is not EntryState.INVALID, CommandStatus.WRONG_STATE
        end = command.first_translation + command.translations
        is_region = command.kind is EntryKind.REGION
        yield is_region and end > len(self.translations), CommandStatus.OUT_OF_BOUNDS

    def _deallocate_checks(self, command: Command, entry: Entry) -> Checks:
        yield entry.state is EntryState.INVALID, CommandStatus.WRONG_STATE
        yield not entry.is_window, CommandStatus.WRONG_KIND

    def _deregister_checks(self, command: Command, entry: Entry) -> Checks:
        yield entry.state is EntryState.INVALID, CommandStatus.WRONG_STATE
        yield entry.is_window, CommandStatus.WRONG_KIND
        yield self._has_windows(command), CommandStatus.WINDOWS_BOUND

    def _invalidate_checks(self, command: Command, entry: Entry) -> Checks:
        is_remote = Opcode(command.opcode) is Opcode.REMOTE_INVALIDATE
        yield entry.state is EntryState.INVALID, CommandStatus.WRONG_STATE
        yield command.key.variant != entry.variant, CommandStatus.WRONG_VARIANT
        # o10-37.2.26
        yield entry.kind is EntryKind.WINDOW_1, CommandStatus.WRONG_KIND
        yield command.pd != entry.pd, CommandStatus.WRONG_PD
        needs_qp = is_remote and entry.kind is EntryKind.WINDOW_2B
        yield needs_qp and command.qpn != entry.qpn, CommandStatus.WRONG_QPN
        yield is_remote and not entry.remote_invalidate, CommandStatus.NOT_ENABLED
        yield self._has_windows(command), CommandStatus.WINDOWS_BOUND
        is_second = entry.state is EntryState.FREE
        fails = is_second and not self.second_invalidate_succeeds
        yield fails, CommandStatus.ALREADY_FREE

    def _remote_invalidate_checks(self, command: Command, entry: Entry) -> Checks:
        # o9-5.2.1
        yield not command.header_valid, CommandStatus.HEADER_INVALID
        yield from self._invalidate_checks(command, entry)

    def _bind_checks(self, command: Command, entry: Entry) -> Checks:
        is_type_1 = entry.kind is EntryKind.WINDOW_1
        yield entry.state is EntryState.INVALID, CommandStatus.WRONG_STATE
        yield command.key.variant != entry.variant, CommandStatus.WRONG_VARIANT
        yield not entry.is_window, CommandStatus.WRONG_KIND
        # o10-37.2.30
        is_bound_2 = not is_type_1 and entry.state is EntryState.VALID
        yield is_bound_2, CommandStatus.ALREADY_BOUND
        # C10-72
        yield command.pd != entry.pd, CommandStatus.WRONG_PD
        # o10-37.2.40
        yield not is_type_1 and command.length == 0, CommandStatus.ZERO_LENGTH
        # o10-36.2.2
        yield is_type_1 and command.zero_based, CommandStatus.ZERO_BASED
        if command.length:
            yield from self._parent_checks(command)

    def _parent_checks(self, command: Command) -> Checks:
        yield self.entry(command.parent.index) is None, CommandStatus.PARENT_OUT_OF_RANGE
        region = self.entries[command.parent.index]
        yield region.state is not EntryState.VALID, CommandStatus.PARENT_STATE
        yield command.parent.variant != region.variant, CommandStatus.PARENT_VARIANT
        yield region.is_window, CommandStatus.PARENT_KIND
        yield command.pd != region.pd, CommandStatus.PARENT_PD
        yield region.zero_based, CommandStatus.PARENT_ZERO_BASED
        # C10-73
        yield not region.rights & Rights.BIND, CommandStatus.BIND_NOT_ALLOWED
        # C10-74
        changes = bool(command.rights & (Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC))
        lacks_write = not region.rights & Rights.LOCAL_WRITE
        yield changes and lacks_write, CommandStatus.LOCAL_WRITE_MISSING
        # C10-75
        yield command.base < region.base, CommandStatus.OUTSIDE_PARENT
        yield command.base + command.length > region.limit, CommandStatus.OUTSIDE_PARENT

    # Effects

    def _write_translations(self, command: Command, entry: Entry) -> None:
        frames = 1 << (self.physical_width - self.page_shift_min)
        for page in range(command.translations):
            frame = command.frame + page * self._frames_per_page(command)
            self.translations[command.first_translation + page] = frame % frames

    def _remove_translations(self, entry: Entry) -> None:
        for index in entry.owned:
            self.translations[index] = None

    def _allocate(self, command: Command, entry: Entry) -> None:
        self.entries[command.key.index] = _allocated(command)

    def _deallocate(self, command: Command, entry: Entry) -> None:
        self._release_parent(entry)
        self.entries[command.key.index] = NOBODY

    def _register(self, command: Command, entry: Entry) -> None:
        self._write_translations(command, entry)
        self.entries[command.key.index] = _region_of(command, command.key.variant)

    def _fast_register(self, command: Command, entry: Entry) -> None:
        self._write_translations(command, entry)
        self.entries[command.key.index] = dataclasses.replace(
            _region_of(command, command.key.variant), translations=entry.translations
        )

    def _reregister(self, command: Command, entry: Entry) -> None:
        new = _region_of(command, command.variant)
        if _keeps_translations(command, entry):
            new = dataclasses.replace(new, translations=entry.translations)
        else:
            self._remove_translations(entry)
        self._write_translations(command, entry)
        self.entries[command.key.index] = new

    def _deregister(self, command: Command, entry: Entry) -> None:
        self._remove_translations(entry)
        self.entries[command.key.index] = NOBODY

    def _invalidate(self, command: Command, entry: Entry) -> None:
        self._release_parent(entry)
        freed = dataclasses.replace(entry, state=EntryState.FREE)
        if entry.is_window:
            freed = dataclasses.replace(freed, zero_based=False, base=0, limit=0)
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
    """The region that a command describes, on a range of its own."""
    base = 0 if command.zero_based else command.base
    entry = Entry(
        state=EntryState.VALID,
        kind=EntryKind.REGION,
        rights=command.rights,
        remote_invalidate=command.remote_invalidate,
        variant=variant,
        pd=command.pd,
        qpn=command.qpn,
        zero_based=command.zero_based,
        base=base,
        limit=base + command.length,
        page_shift=command.page_shift,
        offset=command.offset,
        first_translation=command.first_translation,
        parent=command.key.index,
    )
    return dataclasses.replace(entry, translations=entry.pages)


def _allocated(command: Command) -> Entry:
    """An unbound window, or a region that owns translations and uses none."""
    is_type_1 = command.kind is EntryKind.WINDOW_1
    entry = Entry(
        state=EntryState.VALID if is_type_1 else EntryState.FREE,
        kind=command.kind,
        remote_invalidate=command.remote_invalidate,
        variant=command.key.variant,
        pd=command.pd,
        qpn=command.qpn,
    )
    if entry.is_window:
        return entry
    return dataclasses.replace(
        entry,
        first_translation=command.first_translation,
        translations=command.translations,
        parent=command.key.index,
    )


def _bound_window_of(command: Command, window: Entry, region: Entry) -> Entry:
    """The window after its bind: it walks the translations of its region."""
    page, place = divmod(region.position(command.base), 1 << region.page_shift)
    base = 0 if command.zero_based else command.base
    return dataclasses.replace(
        window,
        state=EntryState.VALID,
        rights=command.rights,
        variant=command.variant,
        qpn=command.qpn if window.kind is EntryKind.WINDOW_2B else window.qpn,
        zero_based=command.zero_based,
        base=base,
        limit=base + command.length,
        page_shift=region.page_shift,
        offset=place,
        first_translation=region.first_translation + page,
        parent=command.parent.index,
    )
