"""The reference model against cases worked out by hand, and against its own invariants."""

import copy
import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtl import layouts
from tb.model import table as model
from tb.model.table import (
    NO_RIGHTS,
    NOBODY,
    Beat,
    Command,
    Entry,
    EntryKind,
    EntryState,
    Key,
    Lookup,
    Opcode,
    Rights,
    Table,
    answer_of,
    check,
)
from tb.model.table import CommandStatus as C
from tb.model.table import LookupStatus as L

ALL_RIGHTS = Rights(31)
TOP = 1 << 64


def lookup(
    address: int = 0x1000,
    length: int = 8,
    rights: Rights = NO_RIGHTS,
    *,
    index: int = 1,
    variant: int = 7,
    pd: int = 3,
    qpn: int = 0,
) -> Lookup:
    return Lookup(Key(index, variant), pd, qpn, rights, address, length)


def region(**changes) -> Entry:
    """A valid region of two 4 KiB pages at 0x1000, translated from 10 on."""
    fields: dict = {
        "state": EntryState.VALID,
        "rights": ALL_RIGHTS,
        "variant": 7,
        "pd": 3,
        "base": 0x1000,
        "limit": 0x3000,
        "page_shift": 12,
        "first_translation": 10,
        "parent": 1,
    }
    return Entry(**{**fields, **changes})


def register(index: int = 1, **changes) -> Command:
    """Registers what :func:`region` describes, with frames 0x50 and 0x51."""
    fields: dict = {
        "variant": 7,
        "rights": ALL_RIGHTS,
        "remote_invalidate": True,
        "pd": 3,
        "base": 0x1000,
        "length": 0x2000,
        "first_translation": 10,
        "translations": 2,
        "frame": 0x50,
    }
    return Command(Opcode.REGISTER, Key(index, 7), **{**fields, **changes})


def reregister(**changes) -> Command:
    """Moves it to translations 20 and 21, with frames 0x60 and 0x61, under variant 8."""
    moved = {"variant": 8, "first_translation": 20, "frame": 0x60}
    return dataclasses.replace(register(), opcode=Opcode.REREGISTER, **{**moved, **changes})


def window(kind: EntryKind, index: int = 2, **changes) -> Command:
    """Allocates a window."""
    return register(index, kind=kind, **{"qpn": 5, **changes})


def bind(index: int = 2, **changes) -> Command:
    """Binds 0x1800 to 0x2800 of the region."""
    fields: dict = {
        "variant": 9,
        "rights": Rights.REMOTE_READ,
        "pd": 3,
        "qpn": 6,
        "base": 0x1800,
        "length": 0x1000,
        "parent": Key(1, 7),
    }
    return Command(Opcode.BIND, Key(index, 7), **{**fields, **changes})


def invalidate(
    index: int, opcode: Opcode = Opcode.LOCAL_INVALIDATE, variant: int = 7, **changes
) -> Command:
    return Command(opcode, Key(index, variant), **{"pd": 3, **changes})


def of_index(opcode: Opcode, index: int) -> Command:
    return Command(opcode, Key(index))


def a_table(*commands: Command) -> Table:
    """A table of 8 entries and 64 translations after these commands, all of which succeed."""
    table = Table(8, 64)
    for command in commands:
        assert table.execute(command).status is C.OK
    return table


def state_of(table: Table) -> tuple:
    return list(table.entries), list(table.translations), list(table.bound_windows)


def assert_fails(table: Table, command: Command, status: C) -> None:
    """The command completes with this status and changes nothing."""
    before = copy.deepcopy(state_of(table))
    completion = table.execute(command)
    assert completion.status is status
    assert completion.entry == (table.entry(command.key.index) or NOBODY)
    assert state_of(table) == before


def failed(status: L) -> tuple[Beat, ...]:
    return (Beat(status, first=True, last=True, address=0, length=0),)


EMPTY_OK = failed(L.OK)


@pytest.mark.parametrize(
    "name", ["LookupStatus", "CommandStatus", "EntryState", "EntryKind", "Rights", "Opcode"]
)
def test_enums_agree_with_the_layouts(name: str) -> None:
    ours, theirs = getattr(model, name), getattr(layouts, name)
    assert {m.name: m.value for m in ours} == {m.name: m.value for m in theirs}


class TestCheck:
    def test_order(self) -> None:
        """A lookup that fails everything gets, repair by repair, the statuses in their order."""
        entry = Entry(
            state=EntryState.FREE,
            kind=EntryKind.WINDOW_2B,
            variant=1,
            base=0x1001,
            limit=0x1001,
        )
        asked = lookup(0x1000, 8, Rights.REMOTE_ATOMIC, qpn=4)
        assert check(None, asked) is L.INDEX_OUT_OF_RANGE
        steps = [
            (L.WRONG_VARIANT, {"variant": 7}),
            (L.WRONG_STATE, {"state": EntryState.VALID}),
            (L.WRONG_PD, {"pd": 3}),
            (L.WRONG_QPN, {"qpn": 4}),
            (L.RIGHTS_MISSING, {"rights": Rights.REMOTE_ATOMIC}),
            (L.OUT_OF_BOUNDS, {"base": 0xFFF, "limit": 0x3000}),
            (L.MISALIGNED, {"base": 0x1000}),
            (L.OK, {}),
        ]
        for status, repair in steps:
            assert check(entry, asked) is status
            entry = dataclasses.replace(entry, **repair)

    def test_rights_are_a_subset(self) -> None:
        """Every right asked for must be granted: all 32 x 32 cases."""
        for granted in range(32):
            for asked in range(32):
                entry = region(rights=Rights(granted))
                lacks_one = any(asked >> bit & 1 and not granted >> bit & 1 for bit in range(5))
                expected = L.RIGHTS_MISSING if lacks_one else L.OK
                assert check(entry, lookup(rights=Rights(asked))) is expected

    def test_local_read_is_implied(self) -> None:
        assert check(region(rights=NO_RIGHTS), lookup()) is L.OK

    @pytest.mark.parametrize(
        ("kind", "status"),
        [
            (EntryKind.REGION, L.OK),
            (EntryKind.WINDOW_1, L.OK),
            (EntryKind.WINDOW_2A, L.OK),
            (EntryKind.WINDOW_2B, L.WRONG_QPN),
        ],
    )
    def test_only_a_2b_window_belongs_to_a_queue_pair(self, kind: EntryKind, status: L) -> None:
        assert check(region(kind=kind, qpn=5), lookup(qpn=6)) is status
        assert check(region(kind=kind, qpn=5), lookup(qpn=5)) is L.OK

    @pytest.mark.parametrize("state", [EntryState.INVALID, EntryState.FREE])
    def test_only_a_valid_entry_answers(self, state: EntryState) -> None:
        assert check(region(state=state), lookup()) is L.WRONG_STATE

    @pytest.mark.parametrize(
        ("address", "length", "status"),
        [
            (0x0FFF, 1, L.OUT_OF_BOUNDS),
            (0x1000, 0x2000, L.OK),
            (0x1000, 0x2001, L.OUT_OF_BOUNDS),
            (0x2FFF, 1, L.OK),
            (0x3000, 1, L.OUT_OF_BOUNDS),
            (0x3000, 0, L.OK),
            (0x3001, 0, L.OUT_OF_BOUNDS),
        ],
    )
    def test_bounds(self, address: int, length: int, status: L) -> None:
        assert check(region(), lookup(address, length)) is status

    @pytest.mark.parametrize(
        ("limit", "length", "status"),
        [
            (TOP, 0x3FF, L.OK),
            (TOP, 0x400, L.OK),
            (TOP, 0x401, L.OUT_OF_BOUNDS),
            (TOP - 1, 0x3FF, L.OK),
            (TOP - 1, 0x400, L.OUT_OF_BOUNDS),
            (TOP, 0xFFFFFFFF, L.OUT_OF_BOUNDS),
        ],
    )
    def test_range_that_wraps_never_passes(self, limit: int, length: int, status: L) -> None:
        """CVE-2016-8636, at 2**64."""
        entry = region(base=0xFFFF_FFFF_FFFF_FC00, limit=limit)
        assert check(entry, lookup(0xFFFF_FFFF_FFFF_FC00, length)) is status

    def test_range_that_wraps_into_a_whole_address_space(self) -> None:
        """CVE-2016-8636: the sum, cut to 64 bits, would be inside."""
        entry = region(base=0, limit=TOP)
        assert check(entry, lookup(TOP - 1, 1)) is L.OK
        assert check(entry, lookup(TOP - 1, 2)) is L.OUT_OF_BOUNDS

    @pytest.mark.parametrize("address", [0, 0x0FFF, 0x1000, 0x1001, TOP - 1])
    @pytest.mark.parametrize("length", [0, 1, 0xFFFFFFFF])
    def test_entry_of_no_bytes_admits_nothing(self, address: int, length: int) -> None:
        """CVE-2023-25775: it must not switch the bounds check off."""
        for base in (0, 0x1000):
            entry = region(base=base, limit=base)
            assert check(entry, lookup(address, length)) is L.OUT_OF_BOUNDS

    @pytest.mark.parametrize(
        ("address", "offset", "status"),
        [
            (0x1008, 0, L.OK),
            (0x1004, 0, L.MISALIGNED),
            (0x1008, 4, L.MISALIGNED),
            (0x1004, 4, L.OK),
        ],
    )
    def test_atomic_is_aligned_after_translation(
        self, address: int, offset: int, status: L
    ) -> None:
        """The physical address counts, not the virtual one."""
        entry = region(offset=offset)
        assert check(entry, lookup(address, 8, Rights.REMOTE_ATOMIC)) is status
        assert check(entry, lookup(address, 8, Rights.REMOTE_READ)) is L.OK


class TestAnswer:
    @pytest.mark.parametrize("right", [Rights.REMOTE_READ, Rights.REMOTE_WRITE])
    @pytest.mark.parametrize("index", [0, 1, 99])
    def test_remote_access_of_no_bytes_skips_the_check(self, right: Rights, index: int) -> None:
        """C9-88: whatever the key and the address."""
        asked = lookup(0xDEAD, 0, right, index=index, variant=0, pd=99)
        assert a_table(register(rights=NO_RIGHTS)).answer(asked) == EMPTY_OK

    @pytest.mark.parametrize("right", [Rights.REMOTE_READ, Rights.REMOTE_WRITE])
    def test_one_byte_is_checked(self, right: Rights) -> None:
        assert a_table().answer(lookup(0, 1, right, index=99)) == failed(L.INDEX_OUT_OF_RANGE)

    @pytest.mark.parametrize(
        "rights",
        [
            NO_RIGHTS,
            Rights.LOCAL_WRITE,
            Rights.REMOTE_ATOMIC,
            Rights.REMOTE_ATOMIC | Rights.REMOTE_READ,
        ],
    )
    def test_local_access_and_atomic_of_no_bytes_are_checked(self, rights: Rights) -> None:
        """C9-88 speaks of READ and WRITE only."""
        table = a_table(register())
        assert table.answer(lookup(0x1000, 0, rights)) == EMPTY_OK
        assert table.answer(lookup(0x1000, 0, rights, pd=4)) == failed(L.WRONG_PD)

    def test_no_bytes_read_no_translation(self) -> None:
        def untouched(index: int) -> int | None:
            raise AssertionError(index)

        assert answer_of(region(), lookup(0x1800, 0), untouched) == EMPTY_OK

    def test_one_page(self) -> None:
        expected = (Beat(L.OK, True, True, 0x51_010, 0x20),)
        assert a_table(register()).answer(lookup(0x2010, 0x20)) == expected

    def test_ends_with_its_page(self) -> None:
        """A range up to the page's end is one beat, one byte more is two."""
        table = a_table(register())
        assert table.answer(lookup(0x1FF8, 8)) == (Beat(L.OK, True, True, 0x50_FF8, 8),)
        assert table.answer(lookup(0x1FF8, 9)) == (
            Beat(L.OK, True, False, 0x50_FF8, 8),
            Beat(L.OK, False, True, 0x51_000, 1),
        )

    def test_small_pages_with_odd_offset(self) -> None:
        """Base 0x5 lies 0xFFD into its first page: byte 3 of the region starts the second."""
        frames = {10: 0x50, 11: 0x99, 12: 0x20}
        entry = region(base=0x5, limit=0x5 + 0x2000, offset=0xFFD)
        assert answer_of(entry, lookup(0x5, 0x1004), frames.get) == (
            Beat(L.OK, True, False, 0x50_FFD, 3),
            Beat(L.OK, False, False, 0x99_000, 0x1000),
            Beat(L.OK, False, True, 0x20_000, 1),
        )

    def test_large_pages_with_odd_offset(self) -> None:
        """2 MiB pages: base 0x1000 lies 0x1FFFFD into the first."""
        frames = {10: 0x200, 11: 0xA00, 12: 0x400}
        entry = region(limit=0x1000 + 0x400000, page_shift=21, offset=0x1FFFFD)
        assert answer_of(entry, lookup(0x1001, 0x200003), frames.get) == (
            Beat(L.OK, True, False, 0x3FFFFE, 2),
            Beat(L.OK, False, False, 0xA00000, 0x200000),
            Beat(L.OK, False, True, 0x400000, 1),
        )

    def test_up_to_the_end_of_the_address_space(self) -> None:
        base = 0xFFFF_FFFF_FFFF_FC00
        table = a_table(register(base=base, length=0x400, offset=0xC00, translations=1))
        assert table.answer(lookup(base, 0x3FF)) == (Beat(L.OK, True, True, 0x50_C00, 0x3FF),)
        assert table.answer(lookup(base, 0x400)) == (Beat(L.OK, True, True, 0x50_C00, 0x400),)
        assert table.answer(lookup(base, 0x401)) == failed(L.OUT_OF_BOUNDS)

    def test_missing_translation(self) -> None:
        asked = lookup(0x1FFF, 2)
        assert answer_of(region(), asked, {}.get) == failed(L.NO_TRANSLATION)
        assert answer_of(region(), asked, {10: 1}.get) == (
            Beat(L.OK, True, False, 0x1FFF, 1),
            Beat(L.NO_TRANSLATION, False, True, 0, 0),
        )

    def test_missing_translation_ends_the_lookup(self) -> None:
        entry = region(limit=0x4000)
        beats = answer_of(entry, lookup(0x1000, 0x3000), {10: 1, 12: 3}.get)
        assert [beat.status for beat in beats] == [L.OK, L.NO_TRANSLATION]

    def test_frame_0_is_a_translation(self) -> None:
        assert answer_of(region(), lookup(), {10: 0}.get) == (Beat(L.OK, True, True, 0, 8),)

    def test_place_is_ored_into_a_frame_that_is_not_aligned(self) -> None:
        """No carry: the low bits of a larger page's frame are taken to be 0."""
        entry = region(page_shift=13, limit=0x1000 + 0x2000)
        last_frame = {10: (1 << 40) - 1}
        assert answer_of(entry, lookup(0x2010, 8), last_frame.get) == (
            Beat(L.OK, True, True, 0xF_FFFF_FFFF_F010, 8),
        )

    def test_index_behind_the_table_has_no_translation(self) -> None:
        assert a_table().translation(64) is None

    def test_failed_check_reads_no_translation(self) -> None:
        assert a_table().answer(lookup(index=8)) == failed(L.INDEX_OUT_OF_RANGE)
        assert a_table(register()).answer(lookup(variant=8)) == failed(L.WRONG_VARIANT)


class TestAnyOpcode:
    def test_unknown_opcode(self) -> None:
        assert_fails(a_table(), Command(8, Key(1)), C.UNKNOWN_OPCODE)
        assert_fails(a_table(), Command(15, Key(99)), C.UNKNOWN_OPCODE)

    def test_opcode_may_be_a_number(self) -> None:
        assert a_table().execute(Command(7, Key(1))).status is C.OK

    @pytest.mark.parametrize("opcode", Opcode)
    def test_index_out_of_range(self, opcode: Opcode) -> None:
        command = Command(opcode, Key(8), header_valid=False, page_shift=0)
        assert_fails(a_table(), command, C.INDEX_OUT_OF_RANGE)
        assert a_table().execute(command).entry == NOBODY

    def test_query(self) -> None:
        table = a_table(register())
        before = state_of(table)
        assert table.execute(of_index(Opcode.QUERY, 1)) == model.Completion(C.OK, table.entries[1])
        assert table.execute(of_index(Opcode.QUERY, 2)) == model.Completion(C.OK, NOBODY)
        assert state_of(table) == before


def write(**changes) -> Command:
    fields = {"first_translation": 60, "translations": 3, "frame": 0x10}
    return Command(Opcode.WRITE_TRANSLATION, Key(1), **{**fields, **changes})


class TestWriteTranslation:
    def test_writes_a_run(self) -> None:
        table = a_table(write())
        assert table.translations[59:] == [None, 0x10, 0x11, 0x12, None]
        assert table.entries == [NOBODY] * 8

    def test_large_pages_count_in_small_ones(self) -> None:
        table = a_table(write(page_shift=14))
        assert table.translations[60:63] == [0x10, 0x14, 0x18]

    def test_frames_wrap(self) -> None:
        table = a_table(write(frame=(1 << 40) - 1, translations=2))
        assert table.translations[60:62] == [(1 << 40) - 1, 0]

    def test_up_to_the_end_of_the_table(self) -> None:
        assert a_table(write(translations=4)).translations[63] == 0x13
        assert_fails(a_table(), write(translations=5), C.OUT_OF_BOUNDS)

    @pytest.mark.parametrize("page_shift", [0, 11, 32])
    def test_page_size(self, page_shift: int) -> None:
        assert_fails(a_table(), write(page_shift=page_shift, frame=0), C.BAD_PAGE)

    def test_page_before_bounds(self) -> None:
        assert_fails(a_table(), write(translations=5, page_shift=11), C.BAD_PAGE)

    @pytest.mark.parametrize("translations", [0, 1])
    def test_frame_is_aligned(self, translations: int) -> None:
        command = write(page_shift=13, frame=0x11, translations=translations)
        assert_fails(a_table(), command, C.BAD_PAGE)


class TestRegister:
    def test_region(self) -> None:
        table = a_table()
        completion = table.execute(register(qpn=4))
        expected = region(remote_invalidate=True, qpn=4)
        assert completion == model.Completion(C.OK, expected)
        assert table.entries[1] == expected
        assert table.translations[9:13] == [None, 0x50, 0x51, None]

    def test_keeps_translations_written_before(self) -> None:
        table = a_table(write(first_translation=10, translations=2), register(translations=0))
        assert table.translations[10:12] == [0x10, 0x11]

    def test_writes_fewer_translations_than_pages(self) -> None:
        table = a_table(register(translations=1))
        assert table.answer(lookup(0x1000, 0x1001))[1].status is L.NO_TRANSLATION

    def test_fast_register_of_a_free_region(self) -> None:
        """The key's variant becomes the entry's; it may differ from the old one."""
        table = a_table(register(), invalidate(1))
        again = dataclasses.replace(register(), key=Key(1, 200))
        assert table.execute(again).entry == region(remote_invalidate=True, variant=200)

    def test_valid_entry(self) -> None:
        assert_fails(a_table(register()), register(), C.WRONG_STATE)

    def test_free_entry_of_another_kind(self) -> None:
        table = a_table(register(), invalidate(1), window(EntryKind.WINDOW_2A))
        assert_fails(table, window(EntryKind.WINDOW_2A, index=1), C.WRONG_KIND)
        assert_fails(table, register(2), C.WRONG_KIND)
        assert_fails(table, window(EntryKind.WINDOW_2B), C.WRONG_KIND)

    def test_free_window(self) -> None:
        table = a_table(window(EntryKind.WINDOW_2A))
        assert_fails(table, window(EntryKind.WINDOW_2A), C.WRONG_STATE)

    @pytest.mark.parametrize(
        ("kind", "state"),
        [
            (EntryKind.WINDOW_1, EntryState.VALID),
            (EntryKind.WINDOW_2A, EntryState.FREE),
            (EntryKind.WINDOW_2B, EntryState.FREE),
        ],
    )
    def test_window_is_unbound(self, kind: EntryKind, state: EntryState) -> None:
        """Its pages, rights and addresses don't count, not even wrong ones."""
        table = a_table(window(kind, page_shift=0, first_translation=63))
        assert table.entries[2] == Entry(
            state=state, kind=kind, remote_invalidate=True, variant=7, pd=3, qpn=5
        )
        assert table.translations == [None] * 64

    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({"page_shift": 11}, C.BAD_PAGE),
            ({"page_shift": 32, "translations": 0}, C.BAD_PAGE),
            ({"page_shift": 13, "frame": 0x51, "translations": 1}, C.BAD_PAGE),
            ({"page_shift": 13, "frame": 0x51, "translations": 0}, C.OK),
            ({"offset": 0xFFF}, C.OK),
            ({"offset": 0x1000}, C.BAD_PAGE),
            ({"base": TOP - 0x2000}, C.OK),
            ({"base": TOP - 0x1FFF}, C.OUT_OF_BOUNDS),
            ({"base": 1, "length": TOP}, C.OUT_OF_BOUNDS),
            ({"base": 0, "length": TOP}, C.OUT_OF_BOUNDS),
            ({"first_translation": 62}, C.OK),
            ({"first_translation": 63}, C.OUT_OF_BOUNDS),
            ({"first_translation": 62, "offset": 1}, C.OUT_OF_BOUNDS),
            ({"translations": 3}, C.OUT_OF_BOUNDS),
            ({"translations": 3, "offset": 1}, C.OK),
            ({"length": 0x1FFF, "offset": 1, "translations": 3}, C.OUT_OF_BOUNDS),
            ({"length": 0, "translations": 1}, C.OUT_OF_BOUNDS),
            ({"length": 0, "translations": 0, "offset": 0xFFF}, C.OK),
            ({"page_shift": 11, "length": TOP}, C.BAD_PAGE),
        ],
    )
    def test_region_that_does_not_fit(self, changes: dict, status: C) -> None:
        if status is C.OK:
            a_table(register(**changes))
        else:
            assert_fails(a_table(), register(**changes), status)

    def test_whole_address_space(self) -> None:
        """2**64 bytes are a length like any other, and not the same as 0."""
        table = Table(4, 4, page_shift_max=62)
        whole = register(base=0, length=TOP, page_shift=62, first_translation=0, frame=0)
        assert table.execute(dataclasses.replace(whole, translations=1)).status is C.OK
        assert table.answer(lookup(0, 1)) == (Beat(L.OK, True, True, 0, 1),)

    def test_region_of_no_bytes(self) -> None:
        """CVE-2023-25775."""
        table = a_table(register(length=0, translations=0))
        assert table.answer(lookup(0x1000, 1)) == failed(L.OUT_OF_BOUNDS)


class TestReregister:
    def test_moves(self) -> None:
        table = a_table(register(), reregister(rights=NO_RIGHTS, pd=4))
        assert table.entries[1] == region(
            remote_invalidate=True, variant=8, rights=NO_RIGHTS, pd=4, first_translation=20
        )
        assert table.translations[10:12] == [None, None]
        assert table.translations[20:22] == [0x60, 0x61]

    def test_keeps_its_translations(self) -> None:
        kept = reregister(first_translation=10, translations=0, pd=4)
        table = a_table(register(), kept)
        assert table.entries[1] == region(remote_invalidate=True, variant=8, pd=4)
        assert table.translations[10:12] == [0x50, 0x51]

    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({"length": 0x1000}, C.OK),
            ({"length": 0x2001}, C.OUT_OF_BOUNDS),
            ({"page_shift": 13}, C.BAD_PAGE),
            ({"page_shift": 13, "length": 0x6000}, C.OUT_OF_BOUNDS),
        ],
    )
    def test_kept_translations_must_do(self, changes: dict, status: C) -> None:
        table = a_table(register())
        command = reregister(first_translation=10, translations=0, **changes)
        if status is C.OK:
            assert table.execute(command).status is C.OK
            assert table.translations[10:12] == [0x50, 0x51]
        else:
            assert_fails(table, command, status)

    @pytest.mark.parametrize(
        ("first", "status"),
        [(8, C.OK), (9, C.RANGE_IN_USE), (10, C.RANGE_IN_USE), (11, C.RANGE_IN_USE), (12, C.OK)],
    )
    def test_range_in_use(self, first: int, status: C) -> None:
        command = reregister(first_translation=first)
        assert a_table(register()).status_of(command) is status
        if status is C.OK:
            table = a_table(register(), command)
            assert [i for i, frame in enumerate(table.translations) if frame is not None] == [
                first,
                first + 1,
            ]
        else:
            assert_fails(a_table(register()), command, status)

    def test_moving_without_writing_needs_a_free_range_too(self) -> None:
        command = reregister(first_translation=11, translations=0)
        assert_fails(a_table(register()), command, C.RANGE_IN_USE)

    def test_empty_range_is_never_in_use(self) -> None:
        to_empty = reregister(first_translation=11, length=0, translations=0)
        table = a_table(register(), to_empty)
        assert table.translations == [None] * 64
        from_empty = reregister(first_translation=10, variant=9)
        assert table.execute(from_empty).status is C.OK

    def test_state_kind_and_windows(self) -> None:
        assert_fails(a_table(), reregister(), C.WRONG_STATE)
        assert_fails(a_table(register(), invalidate(1)), reregister(), C.WRONG_STATE)
        is_window = a_table(window(EntryKind.WINDOW_1, index=1))
        assert_fails(is_window, reregister(), C.WRONG_KIND)
        free_window = a_table(window(EntryKind.WINDOW_2A, index=1))
        assert_fails(free_window, reregister(), C.WRONG_STATE)
        bound = a_table(register(), window(EntryKind.WINDOW_1), bind())
        assert_fails(bound, reregister(page_shift=0), C.WINDOWS_BOUND)

    def test_new_registration_is_checked(self) -> None:
        assert_fails(a_table(register()), reregister(offset=0x1000), C.BAD_PAGE)
        assert_fails(a_table(register()), reregister(translations=3), C.OUT_OF_BOUNDS)
        both = reregister(first_translation=11, translations=3)
        assert_fails(a_table(register()), both, C.OUT_OF_BOUNDS)


class TestDeregister:
    @pytest.mark.parametrize("before", [[], [invalidate(1)]])
    def test_region(self, before: list[Command]) -> None:
        """VALID or FREE, its translations go with it."""
        table = a_table(register(), write(), *before)
        assert table.execute(of_index(Opcode.DEREGISTER, 1)) == model.Completion(C.OK, NOBODY)
        assert [i for i, frame in enumerate(table.translations) if frame is not None] == [
            60,
            61,
            62,
        ]

    def test_invalid_entry(self) -> None:
        assert_fails(a_table(), of_index(Opcode.DEREGISTER, 1), C.WRONG_STATE)

    def test_windows_bound(self) -> None:
        """A region with bound windows can't be deregistered; after the last of them it can."""
        windows = [window(EntryKind.WINDOW_1), window(EntryKind.WINDOW_2A, index=3)]
        table = a_table(register(), *windows, bind(2), bind(3))
        for index in (2, 3):
            assert_fails(table, of_index(Opcode.DEREGISTER, 1), C.WINDOWS_BOUND)
            assert table.execute(of_index(Opcode.DEREGISTER, index)).status is C.OK
        assert table.translations[10:12] == [0x50, 0x51]
        assert table.execute(of_index(Opcode.DEREGISTER, 1)).status is C.OK

    def test_unbound_window_is_counted_nowhere(self) -> None:
        table = a_table(register(0), window(EntryKind.WINDOW_1), of_index(Opcode.DEREGISTER, 2))
        assert table.bound_windows == [0] * 8


BOTH_INVALIDATES = pytest.mark.parametrize(
    "opcode", [Opcode.LOCAL_INVALIDATE, Opcode.REMOTE_INVALIDATE]
)


class TestInvalidate:
    @BOTH_INVALIDATES
    def test_region(self, opcode: Opcode) -> None:
        """It keeps its index, everything else, and its translations."""
        table = a_table(register(), invalidate(1, opcode))
        assert table.entries[1] == region(state=EntryState.FREE, remote_invalidate=True)
        assert table.translations[10:12] == [0x50, 0x51]
        assert table.answer(lookup()) == failed(L.WRONG_STATE)

    @BOTH_INVALIDATES
    def test_window(self, opcode: Opcode) -> None:
        before = [register(), window(EntryKind.WINDOW_2B), bind()]
        table = a_table(*before, invalidate(2, opcode, 9, qpn=6))
        bound = a_table(*before).entries[2]
        expected = dataclasses.replace(bound, state=EntryState.FREE, base=0, limit=0)
        assert table.entries[2] == expected
        assert table.bound_windows == [0] * 8

    @BOTH_INVALIDATES
    def test_second_invalidate_fails(self, opcode: Opcode) -> None:
        assert_fails(a_table(register(), invalidate(1)), invalidate(1, opcode), C.WRONG_STATE)
        assert_fails(a_table(), invalidate(1, opcode), C.WRONG_STATE)

    @BOTH_INVALIDATES
    def test_order(self, opcode: Opcode) -> None:
        table = a_table(register(remote_invalidate=False), window(EntryKind.WINDOW_2A), bind())
        assert_fails(table, invalidate(1, opcode, 8, pd=4), C.WRONG_VARIANT)
        assert_fails(table, invalidate(1, opcode, pd=4), C.WRONG_PD)
        remote = opcode is Opcode.REMOTE_INVALIDATE
        status = C.NOT_ENABLED if remote else C.WINDOWS_BOUND
        assert_fails(table, invalidate(1, opcode), status)

    @BOTH_INVALIDATES
    def test_type_1_window(self, opcode: Opcode) -> None:
        """o10-37.2.26."""
        table = a_table(register(), window(EntryKind.WINDOW_1), bind())
        assert_fails(table, invalidate(2, opcode, 9, pd=4), C.WRONG_KIND)
        assert_fails(table, invalidate(2, opcode, 7), C.WRONG_VARIANT)

    @BOTH_INVALIDATES
    def test_windows_bound(self, opcode: Opcode) -> None:
        table = a_table(register(), window(EntryKind.WINDOW_2A), bind())
        assert_fails(table, invalidate(1, opcode), C.WINDOWS_BOUND)

    def test_header_not_valid(self) -> None:
        """o9-5.2.1; a local invalidate has no header."""
        command = invalidate(1, Opcode.REMOTE_INVALIDATE, header_valid=False)
        assert_fails(a_table(register()), command, C.HEADER_INVALID)
        assert_fails(a_table(), command, C.HEADER_INVALID)
        a_table(register(), invalidate(1, header_valid=False))

    def test_not_enabled(self) -> None:
        table = a_table(register(remote_invalidate=False))
        assert_fails(table, invalidate(1, Opcode.REMOTE_INVALIDATE), C.NOT_ENABLED)

    @pytest.mark.parametrize(
        ("kind", "opcode", "status"),
        [
            (EntryKind.WINDOW_2A, Opcode.REMOTE_INVALIDATE, C.OK),
            (EntryKind.WINDOW_2B, Opcode.REMOTE_INVALIDATE, C.WRONG_PD),
            (EntryKind.WINDOW_2B, Opcode.LOCAL_INVALIDATE, C.OK),
        ],
    )
    def test_queue_pair(self, kind: EntryKind, opcode: Opcode, status: C) -> None:
        table = a_table(register(), window(kind), bind())
        assert table.status_of(invalidate(2, opcode, 9, qpn=99)) is status

    def test_queue_pair_before_enabled(self) -> None:
        disabled = window(EntryKind.WINDOW_2B, remote_invalidate=False)
        table = a_table(register(), disabled, bind())
        stranger = invalidate(2, Opcode.REMOTE_INVALIDATE, 9, qpn=99)
        assert_fails(table, stranger, C.WRONG_PD)
        assert_fails(table, dataclasses.replace(stranger, qpn=6), C.NOT_ENABLED)


class TestBind:
    @pytest.mark.parametrize(
        ("kind", "qpn"),
        [(EntryKind.WINDOW_1, 5), (EntryKind.WINDOW_2A, 5), (EntryKind.WINDOW_2B, 6)],
    )
    def test_window_over_region(self, kind: EntryKind, qpn: int) -> None:
        """Its bytes are those of the region at the same addresses; only 2B takes the new QPN."""
        table = a_table(register(offset=0x900, translations=3), window(kind))
        # 0x1800 is byte 0x800 + 0x900 = 0x1100 of the region's pages.
        assert table.execute(bind()).entry == Entry(
            state=EntryState.VALID,
            kind=kind,
            rights=Rights.REMOTE_READ,
            remote_invalidate=True,
            variant=9,
            pd=3,
            qpn=qpn,
            base=0x1800,
            limit=0x2800,
            page_shift=12,
            offset=0x100,
            first_translation=11,
            parent=1,
        )
        assert table.bound_windows[1] == 1
        through_window = lookup(0x1FFF, 0x801, Rights.REMOTE_READ, index=2, variant=9, qpn=6)
        assert table.answer(through_window) == (
            Beat(L.OK, True, False, 0x51_8FF, 0x701),
            Beat(L.OK, False, True, 0x52_000, 0x100),
        )
        assert table.answer(through_window) == table.answer(lookup(0x1FFF, 0x801))

    def test_rebind(self) -> None:
        """A type 1 window leaves its old region for the new one."""
        other = register(3, first_translation=20)
        table = a_table(register(), other, window(EntryKind.WINDOW_1), bind())
        again = dataclasses.replace(bind(parent=Key(3, 7)), key=Key(2, 9))
        assert table.execute(again).status is C.OK
        assert [table.bound_windows[index] for index in (1, 3)] == [0, 1]
        assert table.execute(again).status is C.OK
        assert [table.bound_windows[index] for index in (1, 3)] == [0, 1]

    @pytest.mark.parametrize("kind", [EntryKind.WINDOW_2A, EntryKind.WINDOW_2B])
    def test_type_2_is_bound_while_free(self, kind: EntryKind) -> None:
        table = a_table(register(), window(kind), bind())
        again = dataclasses.replace(bind(), key=Key(2, 9))
        assert_fails(table, again, C.WRONG_STATE)
        a_table(register(), window(kind), bind(), invalidate(2, variant=9), again)

    def test_no_bytes_unbind_type_1(self) -> None:
        """o10-37.2.40; the region isn't looked at."""
        table = a_table(register(), window(EntryKind.WINDOW_1), bind())
        bound = table.entries[2]
        unbind = dataclasses.replace(bind(length=0, parent=Key(99, 0), variant=33), key=Key(2, 9))
        expected = dataclasses.replace(bound, variant=33, rights=NO_RIGHTS, base=0, limit=0)
        assert table.execute(unbind) == model.Completion(C.OK, expected)
        assert table.bound_windows == [0] * 8
        assert table.execute(dataclasses.replace(unbind, key=Key(2, 33))).status is C.OK
        assert table.bound_windows == [0] * 8

    @pytest.mark.parametrize("kind", [EntryKind.WINDOW_2A, EntryKind.WINDOW_2B])
    def test_no_bytes_are_illegal_on_type_2(self, kind: EntryKind) -> None:
        """o10-37.2.40."""
        table = a_table(register(), window(kind))
        assert_fails(table, bind(length=0, parent=Key(99, 0)), C.ZERO_LENGTH)

    def test_window_checks(self) -> None:
        """C10-72 is the PD."""
        assert_fails(a_table(), bind(), C.WRONG_STATE)
        table = a_table(register(), window(EntryKind.WINDOW_2A))
        stale = dataclasses.replace(bind(pd=4), key=Key(2, 8))
        assert_fails(table, stale, C.WRONG_VARIANT)
        assert_fails(table, dataclasses.replace(bind(), key=Key(1, 8)), C.WRONG_VARIANT)
        assert_fails(table, bind(1, pd=4), C.WRONG_KIND)
        assert_fails(table, bind(pd=4, length=0), C.WRONG_PD)

    @pytest.mark.parametrize(
        ("region_changes", "bind_changes", "status"),
        [
            ({}, {"parent": Key(8, 7)}, C.INDEX_OUT_OF_RANGE),
            ({}, {"parent": Key(3, 7)}, C.WRONG_STATE),
            ({}, {"parent": Key(1, 8)}, C.WRONG_VARIANT),
            ({"pd": 4, "rights": NO_RIGHTS}, {}, C.WRONG_PD),
            ({"rights": Rights(15)}, {"base": 0}, C.RIGHTS_MISSING),
            ({"rights": Rights.BIND}, {}, C.OK),
            ({"rights": Rights.BIND}, {"rights": Rights.REMOTE_WRITE}, C.RIGHTS_MISSING),
            ({"rights": Rights.BIND}, {"rights": Rights.REMOTE_ATOMIC}, C.RIGHTS_MISSING),
            (
                {"rights": Rights.BIND | Rights.LOCAL_WRITE},
                {"rights": Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC},
                C.OK,
            ),
            ({}, {"base": 0x1000, "length": 0x2000}, C.OK),
            ({}, {"base": 0x0FFF}, C.OUT_OF_BOUNDS),
            ({}, {"base": 0x1000, "length": 0x2001}, C.OUT_OF_BOUNDS),
            ({}, {"base": 0x2001}, C.OUT_OF_BOUNDS),
            ({}, {"base": 0x1000, "length": TOP}, C.OUT_OF_BOUNDS),
            ({}, {"base": TOP - 1}, C.OUT_OF_BOUNDS),
            ({"length": 0, "translations": 0}, {"base": 0x1000, "length": 1}, C.OUT_OF_BOUNDS),
        ],
    )
    def test_region_checks(self, region_changes: dict, bind_changes: dict, status: C) -> None:
        """C10-73 is the bind right, C10-74 local write, C10-75 the range."""
        table = a_table(register(**region_changes), window(EntryKind.WINDOW_2A))
        command = bind(**bind_changes)
        if status is C.OK:
            assert table.execute(command).status is C.OK
        else:
            assert_fails(table, command, status)

    def test_window_over_window(self) -> None:
        table = a_table(window(EntryKind.WINDOW_1), window(EntryKind.WINDOW_1, index=3))
        assert_fails(table, bind(parent=Key(3, 7)), C.WRONG_KIND)
        assert_fails(table, bind(parent=Key(2, 7)), C.WRONG_KIND)
        assert_fails(table, bind(parent=Key(3, 8)), C.WRONG_VARIANT)

    def test_kind_of_the_region_before_its_pd(self) -> None:
        table = a_table(window(EntryKind.WINDOW_1), window(EntryKind.WINDOW_1, index=3, pd=4))
        assert_fails(table, bind(parent=Key(3, 7)), C.WRONG_KIND)

    def test_failed_rebind_keeps_the_old_bind(self) -> None:
        table = a_table(register(), window(EntryKind.WINDOW_1), bind())
        assert_fails(table, dataclasses.replace(bind(base=0), key=Key(2, 9)), C.OUT_OF_BOUNDS)
        assert table.bound_windows[1] == 1


SMALL = {"address_width": 8, "page_shift_min": 4, "page_shift_max": 6, "physical_width": 10}
mostly_0 = st.sampled_from([0] * 7 + [1])
keys = st.builds(Key, st.sampled_from([0, 1, 2, 3] * 4 + [4]), mostly_0)
few_rights = st.sampled_from([Rights(bits) for bits in (31, 31, 31, 31, 0, 2, 4, 16)])
commands = st.builds(
    Command,
    opcode=st.sampled_from([*Opcode, Opcode.REGISTER, Opcode.BIND, Opcode.BIND] * 2 + [9]),
    key=keys,
    variant=mostly_0,
    kind=st.sampled_from(EntryKind),
    rights=few_rights,
    remote_invalidate=st.booleans(),
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
    table.execute(Command(Opcode.REGISTER, Key(2), kind=EntryKind.WINDOW_1, **small))
    table.execute(Command(Opcode.REGISTER, Key(3), kind=EntryKind.WINDOW_2B, **small))
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
            assert parent.base <= entry.base < entry.limit <= parent.limit
            assert set(entry.span) <= set(parent.span)
        for entry in table.entries:
            assert entry.span.stop <= len(table.translations)
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
