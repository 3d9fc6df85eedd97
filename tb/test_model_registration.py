"""What makes and ends registrations of the reference model, against cases worked out by hand."""

import dataclasses

import pytest

from tb.model.examples import (
    TOP,
    a_table,
    allocate,
    assert_fails,
    bind,
    failed,
    fast_register,
    invalidate,
    lookup,
    of_index,
    region,
    register,
    reregister,
    state_of,
    window,
    write,
)
from tb.model.table import Table
from tb.model.words import (
    NO_RIGHTS,
    NOBODY,
    Beat,
    Command,
    Completion,
    Entry,
    EntryKind,
    EntryState,
    Key,
    Opcode,
)
from tb.model.words import CommandStatus as C
from tb.model.words import LookupStatus as L


class TestAnyOpcode:
    def test_unknown_opcode(self) -> None:
        assert_fails(a_table(), Command(11, Key(1)), C.UNKNOWN_OPCODE)
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
        assert table.execute(of_index(Opcode.QUERY, 1)) == Completion(C.OK, table.entries[1])
        assert table.execute(of_index(Opcode.QUERY, 2)) == Completion(C.OK, NOBODY)
        assert state_of(table) == before


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
        assert completion == Completion(C.OK, expected)
        assert table.entries[1] == expected
        assert table.translations[9:13] == [None, 0x50, 0x51, None]

    def test_keeps_translations_written_before(self) -> None:
        table = a_table(write(first_translation=10, translations=2), register(translations=0))
        assert table.translations[10:12] == [0x10, 0x11]

    def test_writes_fewer_translations_than_pages(self) -> None:
        table = a_table(register(translations=1))
        assert table.answer(lookup(0x1000, 0x1001))[1].status is L.NO_TRANSLATION

    def test_what_is_there_is_not_registered(self) -> None:
        """Only a fast registration takes what is free."""
        there = [[register()], [register(), invalidate(1)], [allocate()]]
        there += [[window(of, index=1)] for of in EntryKind if of is not EntryKind.REGION]
        for before in there:
            assert_fails(a_table(*before), register(page_shift=0), C.WRONG_STATE)

    @pytest.mark.parametrize("kind", EntryKind)
    def test_what_is_registered_is_a_region(self, kind: EntryKind) -> None:
        """The kind of the command doesn't count."""
        assert a_table(register(kind=kind)).entries[1] == region(remote_invalidate=True)

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

    def test_zero_based(self) -> None:
        """Its addresses count from its first byte, wherever that is in its page."""
        table = a_table(register(zero_based=True, offset=0x900, translations=3))
        assert table.entries[1] == region(
            remote_invalidate=True,
            zero_based=True,
            base=0,
            limit=0x2000,
            offset=0x900,
            translations=3,
        )
        assert table.answer(lookup(0, 0x701)) == (
            Beat(L.OK, True, False, 0x50_900, 0x700),
            Beat(L.OK, False, True, 0x51_000, 1),
        )
        assert table.answer(lookup(0x1FFF, 1)) == (Beat(L.OK, True, True, 0x52_8FF, 1),)
        for address in (0x2000, 0x2FFF):
            assert table.answer(lookup(address, 1)) == failed(L.OUT_OF_BOUNDS)

    def test_of_a_zero_based_region_the_base_does_not_count(self) -> None:
        a_table(register(zero_based=True, base=TOP - 1))
        a_table(register(), reregister(zero_based=True, base=TOP - 1))


class TestFastRegister:
    @pytest.mark.parametrize("before", [[allocate()], [register(), invalidate(1)]])
    def test_free_region(self, before: list[Command]) -> None:
        """The key's variant becomes the entry's; it may differ from the old one."""
        table = a_table(*before)
        again = dataclasses.replace(fast_register(), key=Key(1, 200))
        assert table.execute(again).entry == region(remote_invalidate=True, variant=200)
        assert table.translations[9:13] == [None, 0x50, 0x51, None]

    def test_variant_may_be_the_old_one(self) -> None:
        table = a_table(register(), invalidate(1), fast_register())
        assert table.entries[1] == region(remote_invalidate=True)

    def test_state_and_kind(self) -> None:
        """Not VALID, and not gone: who still has the key of what is gone gets nothing."""
        assert_fails(a_table(), fast_register(), C.WRONG_STATE)
        assert_fails(a_table(register()), fast_register(), C.WRONG_STATE)
        window_1 = a_table(window(EntryKind.WINDOW_1, index=1))
        assert_fails(window_1, fast_register(), C.WRONG_STATE)
        window_2 = a_table(window(EntryKind.WINDOW_2A, index=1))
        assert_fails(window_2, fast_register(pd=4), C.WRONG_KIND)

    def test_keeps_what_is_owned(self) -> None:
        """A key has a page list of fixed size from when it is allocated until it is gone."""
        shorter = fast_register(length=0x1000, translations=1, frame=9)
        table = a_table(register(), invalidate(1), shorter)
        assert table.entries[1] == region(remote_invalidate=True, limit=0x2000)
        assert table.translations[10:12] == [9, 0x51]
        assert table.answer(lookup(0x2000, 1)) == failed(L.OUT_OF_BOUNDS)
        table.execute(invalidate(1))
        assert table.execute(fast_register(frame=0x80)).status is C.OK
        assert table.translations[10:12] == [0x80, 0x81]

    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({"first_translation": 9}, C.RANGE_NOT_OWNED),
            ({"first_translation": 11, "length": 0x1000, "translations": 1}, C.RANGE_NOT_OWNED),
            ({"first_translation": 20}, C.RANGE_NOT_OWNED),
            ({"length": 0x2001, "translations": 3}, C.RANGE_NOT_OWNED),
            ({"offset": 1, "translations": 3}, C.RANGE_NOT_OWNED),
            ({"first_translation": 11, "length": 0, "translations": 0}, C.RANGE_NOT_OWNED),
            ({"length": 0, "translations": 0}, C.OK),
            ({"length": 0x1000, "translations": 1}, C.OK),
        ],
    )
    @pytest.mark.parametrize("before", [[allocate()], [register(), invalidate(1)]])
    def test_stays_where_it_is(self, before: list[Command], changes: dict, status: C) -> None:
        """Elsewhere, or on more than it owns, somebody else's translations may be."""
        table = a_table(*before)
        if status is C.OK:
            assert table.execute(fast_register(**changes)).status is C.OK
            assert table.entries[1].owned == range(10, 12)
        else:
            assert_fails(table, fast_register(**changes), status)

    def test_order(self) -> None:
        """Last, the range; a work request changes the variant of a key, and not whose it is."""
        table = a_table(allocate())
        steps = [
            (C.WRONG_PD, {"pd": 3}),
            (C.BAD_PAGE, {"offset": 0}),
            (C.OUT_OF_BOUNDS, {"translations": 2}),
            (C.RANGE_NOT_OWNED, {"first_translation": 10}),
        ]
        command = fast_register(pd=4, offset=0x1000, translations=4, first_translation=11)
        for status, repair in steps:
            assert_fails(table, command, status)
            command = dataclasses.replace(command, **repair)
        assert table.execute(command).status is C.OK


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

    def test_variant_and_pd_do_not_count(self) -> None:
        """They are those of the new registration; the host names an index."""
        changed = dataclasses.replace(reregister(pd=99), key=Key(1, 99))
        entry = a_table(register(), changed).entries[1]
        assert (entry.pd, entry.variant) == (99, 8)

    def test_in_use_is_all_that_is_owned(self) -> None:
        """Not only the pages of the last registration."""
        shrunk = [register(), invalidate(1), fast_register(length=0x1000, translations=1)]
        at_its_end = reregister(first_translation=11, length=0x1000, translations=1)
        assert_fails(a_table(*shrunk), at_its_end, C.RANGE_IN_USE)

    def test_owns_what_it_moved_to(self) -> None:
        table = a_table(allocate(translations=9), fast_register(), reregister())
        assert table.entries[1].owned == range(20, 22)
        assert table.translations[10:19] == [None] * 9

    def test_kept_pages_do_not_come_back(self) -> None:
        """What a shorter registration gave up may be older than the registration before it."""
        kept = reregister(first_translation=10, translations=0)
        table = a_table(register(), dataclasses.replace(kept, length=0x1000))
        assert table.entries[1].owned == range(10, 12)
        assert_fails(table, kept, C.OUT_OF_BOUNDS)

    def test_new_registration_is_checked(self) -> None:
        assert_fails(a_table(register()), reregister(offset=0x1000), C.BAD_PAGE)
        assert_fails(a_table(register()), reregister(translations=3), C.OUT_OF_BOUNDS)
        both = reregister(first_translation=11, translations=3)
        assert_fails(a_table(register()), both, C.OUT_OF_BOUNDS)

    def test_zero_based(self) -> None:
        table = a_table(register(), reregister(zero_based=True))
        entry = table.entries[1]
        assert (entry.zero_based, entry.base, entry.limit) == (True, 0, 0x2000)
        table.execute(dataclasses.replace(reregister(variant=9), first_translation=10))
        entry = table.entries[1]
        assert (entry.zero_based, entry.base, entry.limit) == (False, 0x1000, 0x3000)


class TestAllocate:
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
        table = a_table(window(kind, page_shift=0, first_translation=63, translations=9))
        assert table.entries[2] == Entry(
            state=state, kind=kind, remote_invalidate=True, variant=7, pd=3, qpn=5
        )
        assert table.translations == [None] * 64

    def test_region(self) -> None:
        """Its key can't be used yet; what it owns is not written."""
        table = a_table(allocate(base=TOP - 1, page_shift=0))
        assert table.entries[1] == Entry(
            state=EntryState.FREE,
            remote_invalidate=True,
            variant=7,
            pd=3,
            first_translation=10,
            translations=2,
            parent=1,
        )
        assert table.translations == [None] * 64
        assert table.answer(lookup()) == failed(L.WRONG_STATE)

    def test_region_in_the_table(self) -> None:
        a_table(allocate(first_translation=62))
        assert_fails(a_table(), allocate(first_translation=63), C.OUT_OF_BOUNDS)
        a_table(allocate(translations=0))

    @pytest.mark.parametrize("kind", EntryKind)
    def test_what_is_there_is_not_allocated(self, kind: EntryKind) -> None:
        there = [[register()], [register(), invalidate(1)], [allocate()]]
        there += [[window(of, index=1)] for of in EntryKind if of is not EntryKind.REGION]
        for before in there:
            command = allocate(kind=kind, first_translation=63)
            assert_fails(a_table(*before), command, C.WRONG_STATE)


class TestDeallocate:
    @pytest.mark.parametrize("kind", [k for k in EntryKind if k is not EntryKind.REGION])
    @pytest.mark.parametrize("more", [[], [bind()]])
    def test_window(self, kind: EntryKind, more: list[Command]) -> None:
        """Bound or not; who gives it back names its index and nothing else."""
        table = a_table(register(), window(kind), *more)
        assert table.bound_windows[1] == len(more)
        done = table.execute(of_index(Opcode.DEALLOCATE, 2))
        assert done == Completion(C.OK, NOBODY)
        assert table.bound_windows == [0] * 8
        assert table.translations[10:12] == [0x50, 0x51]
        assert_fails(table, of_index(Opcode.DEALLOCATE, 2), C.WRONG_STATE)

    def test_region(self) -> None:
        for before in ([register()], [allocate()]):
            assert_fails(a_table(*before), of_index(Opcode.DEALLOCATE, 1), C.WRONG_KIND)


class TestDeregister:
    @pytest.mark.parametrize("before", [[], [invalidate(1)]])
    def test_region(self, before: list[Command]) -> None:
        """VALID or FREE, its translations go with it."""
        table = a_table(register(), write(), *before)
        assert table.execute(of_index(Opcode.DEREGISTER, 1)) == Completion(C.OK, NOBODY)
        assert [i for i, frame in enumerate(table.translations) if frame is not None] == [
            60,
            61,
            62,
        ]

    def test_invalid_entry(self) -> None:
        assert_fails(a_table(), of_index(Opcode.DEREGISTER, 1), C.WRONG_STATE)

    @pytest.mark.parametrize("kind", [k for k in EntryKind if k is not EntryKind.REGION])
    def test_kind(self, kind: EntryKind) -> None:
        assert_fails(a_table(window(kind)), of_index(Opcode.DEREGISTER, 2), C.WRONG_KIND)

    @pytest.mark.parametrize(
        "after",
        [
            [allocate()],
            [register(), invalidate(1), fast_register(length=0x1000, translations=1)],
            [register(), reregister(first_translation=10, length=0x1000, translations=0)],
        ],
    )
    def test_nothing_stays_behind(self, after: list[Command]) -> None:
        """All that the region owns goes, used or not."""
        table = a_table(write(first_translation=10, translations=2), *after)
        assert table.execute(of_index(Opcode.DEREGISTER, 1)).status is C.OK
        assert table.translations == [None] * 64

    def test_the_index_is_all_that_counts(self) -> None:
        """The host alone has handles of entries; its driver knows whose they are."""
        stranger = Command(Opcode.DEREGISTER, Key(1, 99), pd=99)
        assert a_table(register()).execute(stranger).status is C.OK

    def test_windows_bound(self) -> None:
        """A region with bound windows can't be deregistered; after the last of them it can."""
        windows = [window(EntryKind.WINDOW_1), window(EntryKind.WINDOW_2A, index=3)]
        table = a_table(register(), *windows, bind(2), bind(3))
        for index in (2, 3):
            assert_fails(table, of_index(Opcode.DEREGISTER, 1), C.WINDOWS_BOUND)
            assert table.execute(of_index(Opcode.DEALLOCATE, index)).status is C.OK
        assert table.translations[10:12] == [0x50, 0x51]
        assert table.execute(of_index(Opcode.DEREGISTER, 1)).status is C.OK

    def test_unbound_window_is_counted_nowhere(self) -> None:
        table = a_table(register(0), window(EntryKind.WINDOW_1), of_index(Opcode.DEALLOCATE, 2))
        assert table.bound_windows == [0] * 8
