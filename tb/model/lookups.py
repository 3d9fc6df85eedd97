"""What a lookup is answered from one entry.

The order of the checks is the order of the ``yield`` statements; the first that fails gives the
status. The label next to a check is the rule it comes from, as the InfiniBand specification and
the Linux drivers number it.
"""

from collections.abc import Callable, Iterator

from tb.model.words import Beat, Entry, EntryKind, EntryState, Lookup, LookupStatus, Rights


def has_no_bytes(lookup: Lookup) -> bool:
    """Whether it is a remote READ or WRITE of no bytes, of which the key doesn't matter (C9-88).

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
    zero_length_is_checked: bool = False,
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
    page_shift_min, physical_width, zero_length_is_checked
        See :class:`tb.model.table.Table`.
    """
    passes = has_no_bytes(lookup) and not zero_length_is_checked
    status = LookupStatus.OK if passes else check(entry, lookup)
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
