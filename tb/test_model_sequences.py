"""The reference model against its own invariants, whatever comes."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtl import layouts
from tb.model import words as model
from tb.model.examples import ALL_RIGHTS, bind, lookup, register, state_of, window
from tb.model.table import Table
from tb.model.words import (
    NO_RIGHTS,
    NOBODY,
    Beat,
    Command,
    EntryKind,
    EntryState,
    Key,
    Lookup,
    Opcode,
    Rights,
)
from tb.model.words import CommandStatus as C
from tb.model.words import LookupStatus as L


@pytest.mark.parametrize(
    "name", ["LookupStatus", "CommandStatus", "EntryState", "EntryKind", "Rights", "Opcode"]
)
def test_enums_agree_with_the_layouts(name: str) -> None:
    ours, theirs = getattr(model, name), getattr(layouts, name)
    assert {m.name: m.value for m in ours} == {m.name: m.value for m in theirs}


SMALL: dict[str, Any] = {
    "address_width": 8,
    "page_shift_min": 4,
    "page_shift_max": 6,
    "physical_width": 10,
}
mostly_0 = st.sampled_from([0] * 7 + [1])
keys = st.builds(Key, st.sampled_from([0, 1, 2, 3] * 4 + [4]), mostly_0)
few_rights = st.sampled_from([Rights(bits) for bits in (31, 31, 31, 31, 0, 2, 4, 16)])
commands = st.builds(
    Command,
    opcode=st.sampled_from([*Opcode, Opcode.REGISTER, Opcode.BIND, Opcode.BIND] * 2 + [11]),
    key=keys,
    variant=mostly_0,
    kind=st.sampled_from(EntryKind),
    rights=few_rights,
    remote_invalidate=st.booleans(),
    zero_based=st.sampled_from([False, False, True]),
    header_valid=st.sampled_from([True, True, False]),
    pd=mostly_0,
    qpn=mostly_0,
    base=st.sampled_from([0, 0, 3, 16, 40, 224]),
    length=st.sampled_from([0, 1, 8, 8, 30, 32, 64, 256]),
    page_shift=st.sampled_from([4] * 6 + [3, 5, 6, 7]),
    offset=st.sampled_from([0, 0, 0, 5, 15, 31]),
    first_translation=st.sampled_from([0, 1, 4, 5, 8, 11]),
    translations=st.sampled_from([0, 0, 1, 2, 4]),
    frame=st.sampled_from([0, 4, 8, 60, 61]),
    parent=keys,
)
lookups = st.builds(
    Lookup,
    key=keys,
    pd=mostly_0,
    qpn=mostly_0,
    rights=st.sampled_from([NO_RIGHTS, Rights.REMOTE_READ, Rights.REMOTE_ATOMIC]),
    address=st.sampled_from([0, 3, 8, 15, 16, 20, 39, 40, 70, 255]),
    length=st.sampled_from([0, 1, 5, 16, 24, 40]),
)


def a_small_table() -> Table:
    """Two regions, an unbound type 1 window, and a type 2 window bound to the second region."""
    table = Table(4, 12, **SMALL)
    of_region = {"kind": EntryKind.REGION, "rights": ALL_RIGHTS, "length": 64, "translations": 4}
    small = {"page_shift": 4, "remote_invalidate": True}
    for index, first in ((0, 8), (1, 0)):
        place: dict = {"first_translation": first}
        table.execute(Command(Opcode.REGISTER, Key(index), **of_region, **small, **place))
    table.execute(Command(Opcode.ALLOCATE, Key(2), kind=EntryKind.WINDOW_1, **small))
    table.execute(Command(Opcode.ALLOCATE, Key(3), kind=EntryKind.WINDOW_2B, **small))
    of_window = {"rights": Rights.REMOTE_READ, "base": 3, "length": 40, "parent": Key(1)}
    table.execute(Command(Opcode.BIND, Key(3), **of_window))
    assert table.bound_windows[1] == 1
    return table


def bytes_of(beats: tuple[Beat, ...]) -> Iterator[int]:
    """Physical address of each byte that the beats bring."""
    for beat in beats:
        yield from range(beat.address, beat.address + beat.length)


class TestAnySequence:
    @given(st.lists(commands, max_size=40))
    @settings(deadline=None)
    def test_invariants(self, sequence: list[Command]) -> None:
        """Failed commands change nothing; bound windows are counted, and lie in their region."""
        table = a_small_table()
        for command in sequence:
            before = state_of(table)
            completion = table.execute(command)
            assert completion.entry == (table.entry(command.key.index) or NOBODY)
            if completion.status is not C.OK:
                assert state_of(table) == before
            self.assert_consistent(table)

    @staticmethod
    def assert_consistent(table: Table) -> None:
        bound = [entry for entry in table.entries if entry.is_bound]
        for index, count in enumerate(table.bound_windows):
            assert count == sum(entry.parent == index for entry in bound)
        for entry in bound:
            parent = table.entries[entry.parent]
            assert parent.state is EntryState.VALID
            assert parent.kind is EntryKind.REGION
            assert not parent.zero_based
            if entry.zero_based:
                assert entry.base == 0
                assert entry.limit <= parent.limit - parent.base
            else:
                assert parent.base <= entry.base < entry.limit <= parent.limit
            assert set(entry.span) <= set(parent.span)
        for entry in table.entries:
            assert entry.span.stop <= entry.owned.stop or entry.is_window
            assert entry.owned.stop <= len(table.translations)
            assert not entry.owned or entry.kind is EntryKind.REGION
            assert not entry.owned or entry.state is not EntryState.INVALID
            assert entry.kind is not EntryKind.WINDOW_1 or entry.state is EntryState.VALID
            is_type_2 = entry.kind in (EntryKind.WINDOW_2A, EntryKind.WINDOW_2B)
            assert not is_type_2 or entry.is_bound == (entry.state is EntryState.VALID)

    @given(st.lists(commands, max_size=20), lookups)
    @settings(deadline=None)
    def test_beats_bring_every_byte_once(self, sequence: list[Command], asked: Lookup) -> None:
        """Against a translation of one byte after the other."""
        table = a_small_table()
        for command in sequence:
            table.execute(command)
        beats = table.answer(asked)
        assert [beat.first for beat in beats] == [True] + [False] * (len(beats) - 1)
        assert [beat.last for beat in beats] == [False] * (len(beats) - 1) + [True]
        assert all(beat.status is L.OK for beat in beats[:-1])
        if beats[-1].status is not L.OK:
            assert beats[-1].address == beats[-1].length == 0
        if beats[-1].status is L.OK and asked.length:
            assert list(bytes_of(beats)) == self.by_byte(table, asked)

    @staticmethod
    def by_byte(table: Table, asked: Lookup) -> list[int]:
        entry = table.entries[asked.key.index]
        page_size = 2**entry.page_shift
        physical = []
        for address in range(asked.address, asked.address + asked.length):
            place = address - entry.base + entry.offset
            frame = table.translations[entry.first_translation + place // page_size]
            assert frame is not None
            physical.append((frame * 16 + place % page_size) % 1024)
        return physical

    @given(st.integers(0, 255), st.integers(0, 40), st.integers(0, 2**20))
    @settings(deadline=None)
    def test_window_brings_what_its_region_brings(self, base: int, at: int, size: int) -> None:
        """Whatever the offsets; frames are in no order."""
        for page_shift in (4, 5):
            table = Table(4, 32, **{**SMALL, "address_width": 12})
            for index in range(32):
                write_one = Command(
                    Opcode.WRITE_TRANSLATION,
                    Key(),
                    page_shift=page_shift,
                    first_translation=index,
                    translations=1,
                    frame=(index * 13 % 32) * 2,
                )
                assert table.execute(write_one).status is C.OK
            table.execute(
                register(base=base, length=100, page_shift=page_shift, offset=11, translations=0)
            )
            table.execute(window(EntryKind.WINDOW_2A))
            length = size % (100 - at) + 1
            assert table.execute(bind(base=base + at, length=length)).status is C.OK
            asked = lookup(base + at, length, Rights.REMOTE_READ, index=2, variant=9)
            beats = table.answer(asked)
            assert beats[-1].status is L.OK
            assert beats == table.answer(lookup(base + at, length))
