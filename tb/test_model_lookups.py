"""What the reference model answers, against cases worked out by hand."""

import dataclasses

import pytest

from tb.model.examples import EMPTY_OK, TOP, a_table, failed, lookup, region, register
from tb.model.lookups import answer_of, check
from tb.model.words import NO_RIGHTS, Beat, Entry, EntryKind, EntryState, Rights
from tb.model.words import LookupStatus as L


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
    def test_remote_access_of_no_bytes_may_be_checked(self, right: Rights) -> None:
        """The other choice: it is a lookup like any other, and an entry of no bytes has none."""
        table = a_table(
            register(), register(2, length=0, translations=0), zero_length_is_checked=True
        )
        assert table.answer(lookup(0x1800, 0, right)) == EMPTY_OK
        for changes, status in (
            ({"index": 99}, L.INDEX_OUT_OF_RANGE),
            ({"variant": 0}, L.WRONG_VARIANT),
            ({"pd": 99}, L.WRONG_PD),
            ({"address": 0xDEAD}, L.OUT_OF_BOUNDS),
            ({"index": 2}, L.OUT_OF_BOUNDS),
        ):
            asked = lookup(**{"address": 0x1000, "length": 0, "rights": right, **changes})
            assert table.answer(asked) == failed(status)

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
