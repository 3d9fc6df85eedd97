"""Windows and invalidates of the reference model, against cases worked out by hand."""

import dataclasses

import pytest

from tb.model.examples import (
    TOP,
    a_table,
    assert_fails,
    bind,
    failed,
    invalidate,
    lookup,
    region,
    register,
    state_of,
    window,
)
from tb.model.words import (
    NO_RIGHTS,
    Beat,
    Completion,
    Entry,
    EntryKind,
    EntryState,
    Key,
    Lookup,
    Opcode,
    Rights,
)
from tb.model.words import CommandStatus as C
from tb.model.words import LookupStatus as L

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
        assert_fails(a_table(register(), invalidate(1)), invalidate(1, opcode), C.ALREADY_FREE)
        assert_fails(a_table(), invalidate(1, opcode), C.WRONG_STATE)

    @BOTH_INVALIDATES
    def test_second_invalidate_may_succeed(self, opcode: Opcode) -> None:
        """The other choice; it changes nothing, and every other rule still holds."""
        before = [register(), window(EntryKind.WINDOW_2B), bind(), invalidate(2, variant=9)]
        table = a_table(*before, invalidate(1), second_invalidate_succeeds=True)
        state = state_of(table)
        for again in (invalidate(1, opcode), invalidate(2, opcode, 9, qpn=6)):
            expected = Completion(C.OK, table.entries[again.key.index])
            assert table.execute(again) == expected
            assert state_of(table) == state
        assert_fails(table, invalidate(3, opcode), C.WRONG_STATE)
        assert_fails(table, invalidate(1, opcode, 8), C.WRONG_VARIANT)
        assert_fails(table, invalidate(1, opcode, pd=4), C.WRONG_PD)
        if opcode is Opcode.REMOTE_INVALIDATE:
            assert_fails(table, invalidate(2, opcode, 9, qpn=5), C.WRONG_QPN)

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
            (EntryKind.WINDOW_2B, Opcode.REMOTE_INVALIDATE, C.WRONG_QPN),
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
        assert_fails(table, stranger, C.WRONG_QPN)
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

    @pytest.mark.parametrize("kind", [EntryKind.WINDOW_2A, EntryKind.WINDOW_2B])
    def test_zero_based_window(self, kind: EntryKind) -> None:
        """An address in it is an offset into the window; where it lies is said as ever."""
        table = a_table(register(offset=0x900, translations=3), window(kind))
        bound = table.execute(bind(zero_based=True)).entry
        assert (bound.zero_based, bound.base, bound.limit) == (True, 0, 0x1000)
        assert (bound.offset, bound.first_translation) == (0x100, 11)

        def through(address: int, length: int) -> Lookup:
            return lookup(address, length, Rights.REMOTE_READ, index=2, variant=9, qpn=6)

        whole = table.answer(through(0, 0x1000))
        assert whole == table.answer(lookup(0x1800, 0x1000))
        assert whole[0] == Beat(L.OK, True, False, 0x51_100, 0xF00)
        for address, length in ((0x1000, 1), (0, 0x1001), (0x1800, 1)):
            assert table.answer(through(address, length)) == failed(L.OUT_OF_BOUNDS)
        table.execute(invalidate(2, variant=9))
        assert not table.entries[2].zero_based

    def test_type_1_is_never_zero_based(self) -> None:
        """o10-36.2.2; not even while it is unbound."""
        table = a_table(register(), window(EntryKind.WINDOW_1))
        assert_fails(table, bind(zero_based=True), C.ZERO_BASED)
        assert_fails(table, bind(zero_based=True, length=0), C.ZERO_BASED)
        assert_fails(table, bind(zero_based=True, pd=4), C.WRONG_PD)

    @pytest.mark.parametrize("kind", [EntryKind.WINDOW_1, EntryKind.WINDOW_2A])
    def test_zero_based_region_has_no_windows(self, kind: EntryKind) -> None:
        """Checked before the bind right (C10-73)."""
        table = a_table(register(zero_based=True, rights=NO_RIGHTS), window(kind))
        assert_fails(table, bind(base=0), C.PARENT_ZERO_BASED)

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
        assert_fails(table, again, C.ALREADY_BOUND)
        a_table(register(), window(kind), bind(), invalidate(2, variant=9), again)

    def test_no_bytes_unbind_type_1(self) -> None:
        """o10-37.2.40; the region isn't looked at."""
        table = a_table(register(), window(EntryKind.WINDOW_1), bind())
        bound = table.entries[2]
        unbind = dataclasses.replace(bind(length=0, parent=Key(99, 0), variant=33), key=Key(2, 9))
        expected = dataclasses.replace(bound, variant=33, rights=NO_RIGHTS, base=0, limit=0)
        assert table.execute(unbind) == Completion(C.OK, expected)
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
            ({}, {"parent": Key(8, 7)}, C.PARENT_OUT_OF_RANGE),
            ({}, {"parent": Key(3, 7)}, C.PARENT_STATE),
            ({}, {"parent": Key(1, 8)}, C.PARENT_VARIANT),
            ({"pd": 4, "rights": NO_RIGHTS}, {}, C.PARENT_PD),
            ({"rights": Rights(15)}, {"base": 0}, C.BIND_NOT_ALLOWED),
            ({"rights": Rights.BIND}, {}, C.OK),
            ({"rights": Rights.BIND}, {"rights": Rights.REMOTE_WRITE}, C.LOCAL_WRITE_MISSING),
            ({"rights": Rights.BIND}, {"rights": Rights.REMOTE_ATOMIC}, C.LOCAL_WRITE_MISSING),
            (
                {"rights": Rights.BIND | Rights.LOCAL_WRITE},
                {"rights": Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC},
                C.OK,
            ),
            ({}, {"base": 0x1000, "length": 0x2000}, C.OK),
            ({}, {"base": 0x0FFF}, C.OUTSIDE_PARENT),
            ({}, {"base": 0x1000, "length": 0x2001}, C.OUTSIDE_PARENT),
            ({}, {"base": 0x2001}, C.OUTSIDE_PARENT),
            ({}, {"base": 0x1000, "length": TOP}, C.OUTSIDE_PARENT),
            ({}, {"base": TOP - 1}, C.OUTSIDE_PARENT),
            ({"length": 0, "translations": 0}, {"base": 0x1000, "length": 1}, C.OUTSIDE_PARENT),
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
        assert_fails(table, bind(parent=Key(3, 7)), C.PARENT_KIND)
        assert_fails(table, bind(parent=Key(2, 7)), C.PARENT_KIND)
        assert_fails(table, bind(parent=Key(3, 8)), C.PARENT_VARIANT)

    def test_kind_of_the_region_before_its_pd(self) -> None:
        table = a_table(window(EntryKind.WINDOW_1), window(EntryKind.WINDOW_1, index=3, pd=4))
        assert_fails(table, bind(parent=Key(3, 7)), C.PARENT_KIND)

    def test_failed_rebind_keeps_the_old_bind(self) -> None:
        table = a_table(register(), window(EntryKind.WINDOW_1), bind())
        assert_fails(table, dataclasses.replace(bind(base=0), key=Key(2, 9)), C.OUTSIDE_PARENT)
        assert table.bound_windows[1] == 1
