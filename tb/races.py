"""The races that happened elsewhere: what each is, which bench runs it, and what breaks it.

The rows are those of ``docs/races.md``, which a test compares with them.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fault:
    """A patch that breaks the table, and what must come of it.

    Parameters
    ----------
    patch : str
        Name of a file in ``tb/faults``, without its end.
    says : str
        Pattern of what the row's test says then.
    variant : str
        Which variant of a test with parameters is run; all of them if empty.
    choices : dict
        What the configuration needs; the policy, above all.
    """

    patch: str
    says: str
    variant: str = ""
    choices: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One race.

    Parameters
    ----------
    id : str
    seen_in : str
        Where it happened, and when it became known.
    sequence : str
        The same as a sequence on this table.
    holds : str
        What must hold.
    bench, test : str
        The test is a coroutine of that module of ``tb``.
    result : str
        What comes of it.
    faults : tuple of Fault
        At least one.
    """

    id: str
    seen_in: str
    sequence: str
    holds: str
    bench: str
    test: str
    result: str
    faults: tuple[Fault, ...]

    @property
    def name(self) -> str:
        """The test as the pages name it."""
        return f"{self.bench}.{self.test}"


HELD = "held"
AS_DECLARED = "held by those that declare it"

ROWS = (
    Row(
        "R01",
        "rxe, 2022",
        "Long lookups on all ports; the key is invalidated, by its owner or by a peer, and made "
        "valid again on other pages",
        "`fresh_answer`: no byte of the old pages is answered after C",
        "bench_races",
        "r01_invalidate_in_flight",
        AS_DECLARED,
        (
            Fault(
                "R01-the_grace_period_forgets_a_port",
                "grace_period declares|old pages after C",
                "accepts=half",
                {"arbiter": "grace_period"},
            ),
        ),
    ),
    Row(
        "R02",
        "rxe, 2021",
        "A long READ is a row of lookups; the key is invalidated when some of them are answered",
        "Once one fails, all that follow fail; no slot stays taken",
        "bench_races",
        "r02_invalidate_within_a_long_read",
        HELD,
        (Fault("R02-a_failed_lookup_keeps_its_slot", "in flight"),),
    ),
    Row(
        "R03",
        "rxe, 2023",
        "Lookups through a window and through its region; the window is unbound and the region "
        "deregistered",
        "The region goes after its window; each lookup is answered from one version, or fails",
        "bench_races",
        "r03_window_or_region_goes",
        HELD,
        (Fault("R03-a_bound_window_is_not_counted", "WINDOWS_BOUND|went before"),),
    ),
    Row(
        "R04",
        "rxe, 2022",
        "The entry goes from one variant to the next, by a fast registration, a re-registration or "
        "a rebind; all ports look up both",
        "The old variant passes up to A, the new one after it; never both in one cycle",
        "bench_replacements",
        "r04_next_variant",
        HELD,
        (Fault("R04-both_variants_pass", "answered|is none of|both variants"),),
    ),
    Row(
        "R05",
        "rxe, 2023",
        "A buffer is registered, invalidated, and registered again, on the same pages and others",
        "Every physical address is that of the last registration",
        "bench_answers",
        "r05_same_pages_again",
        HELD,
        (Fault("R05-pages_go_on_where_the_last_ones_ended", "answered"),),
    ),
    Row(
        "R06",
        "rxe, 2022",
        "Each set of rights is asked of each set that is granted",
        "Only what is granted in full passes",
        "bench_answers",
        "r06_every_right",
        HELD,
        (Fault("R06-any_right_is_enough", "answered|passed with"),),
    ),
    Row(
        "R08",
        "rxe, CVE-2016-8636, and again in 2023",
        "Ranges that begin 1024 bytes before 2^64, of 0x3FF, 0x400 and 0x401 bytes",
        "An end at 2^64 passes, one behind it doesn't",
        "bench_answers",
        "r08_end_of_the_address_space",
        HELD,
        (Fault("R08-the_end_of_a_range_wraps", "answered|bytes to the end"),),
    ),
    Row(
        "R11",
        "siw, 2021",
        "All ports look the entry up in the same cycle, and in the next, while it is invalidated "
        "or deregistered",
        "All see the old entry up to A, and the new one after it",
        "bench_races",
        "r11_ports_agree",
        HELD,
        (Fault("R11-one_copy_is_written_a_cycle_late", "answered|is none of"),),
    ),
    Row(
        "R12",
        "mlx5, 2025",
        "Two sources invalidate the entry, or one of them deregisters it, in each order",
        "Both complete; the second one fails, or changes nothing, as `SECOND_INVALIDATE` says",
        "bench_changes",
        "r12_two_invalidations",
        HELD,
        (Fault("R12-two_commands_on_one_entry_at_once", "but should|declares|answered"),),
    ),
    Row(
        "R13",
        "mlx5, 2019",
        "An invalidate or a deregistration meets a registration of many pages",
        "It finds what was there before, or the whole new entry; so does every lookup",
        "bench_changes",
        "r13_invalidate_meets_a_registration",
        HELD,
        (Fault("R13-the_entry_comes_before_its_pages", "answered|half of an entry"),),
    ),
    Row(
        "R15",
        "mlx5, 2019",
        "Three sources write the same translations",
        "They are written in the order in which the commands were accepted",
        "bench_changes",
        "r15_writes_in_order",
        HELD,
        (Fault("R15-writes_wait_for_nobody", "another order"),),
    ),
    Row(
        "R16",
        "mlx5, reuse of keys",
        "A lookup waits to be taken while its index, translations and key go to a new owner",
        "`untorn`, `fresh_answer`: it never leads to the new owner's pages",
        "bench_races",
        "r16_new_owner_meets_a_parked_lookup",
        f"{AS_DECLARED}; `apply_now` must be seen to violate both",
        (
            Fault(
                "R16-the_beat_on_offer_is_forgotten",
                "version_check declares|new owner's pages",
                choices={"arbiter": "version_check"},
            ),
        ),
    ),
    Row(
        "R19",
        "hns, bnxt_re, irdma",
        "The region is deregistered while a window is being bound to it, or is bound",
        "One of the two fails; if it is the deregistration, the entry is as it was, and its index "
        "is not given away",
        "bench_changes",
        "r19_deregister_with_a_window",
        HELD,
        (Fault("R19-a_region_with_windows_goes", "WINDOWS_BOUND", "kind=WINDOW_1"),),
    ),
    Row(
        "R20",
        "irdma, bnxt_re, cxgb4",
        "A lookup, an invalidate, a registration of the next variant, a lookup of that: one behind "
        "the other, the last one with and without a fence",
        "Each is answered as the reference model says; behind a fence, the last one passes",
        "bench_replacements",
        "r20_back_to_back",
        HELD,
        (Fault("R20-the_last_entry_is_remembered", "answered|is none of"),),
    ),
    Row(
        "R21",
        "RDS, 2019",
        "The index is registered while its invalidate waits for lookups; other invalidates fail",
        "The registration fails, or comes after C; an invalidate that fails leaves a `VALID` entry",
        "bench_changes",
        "r21_register_while_an_invalidate_waits",
        HELD,
        (Fault("R21-an_invalid_header_counts", "HEADER_INVALID"),),
    ),
    Row(
        "R24",
        "uverbs, 2026",
        "Two re-registrations on other translations, of one source or of two, and long lookups",
        "`untorn`: each lookup gets all its pages from one of the three registrations",
        "bench_replacements",
        "r24_two_reregistrations",
        AS_DECLARED,
        (
            Fault(
                "R24-the_snapshot_is_that_of_another_source",
                "grace_period declares|answered",
                "sources=2",
                {"arbiter": "grace_period"},
            ),
        ),
    ),
    Row(
        "R25",
        "libfabric, CXI and EFA",
        "The buffer is deregistered while the DMA of its lookups goes on, and somebody moves in",
        "`fresh_dma`: no DMA beat is issued after C",
        "bench_races",
        "r25_teardown_meets_dma",
        f"{AS_DECLARED}; `apply_now`, and all in scope `lookup`, must be seen to violate it",
        (Fault("R25-a_slot_is_free_with_the_last_beat", "declares fresh_dma"),),
    ),
    Row(
        "R26",
        "UCX, EFA",
        "A window is rebound 256 times, so that its variant comes round, while a lookup is parked",
        "`fresh_answer`: the lookup isn't answered from the first binding after C",
        "bench_replacements",
        "r26_variants_come_round",
        f"{AS_DECLARED}; `apply_now`, and `version_check` with `ON_WRAP=ignore`, must be seen to "
        "violate it",
        (
            Fault(
                "R26-versions_come_round",
                "variant came round",
                choices={"arbiter": "version_check"},
            ),
        ),
    ),
    Row(
        "R27",
        "nv_peer_memory",
        "While the deregistration of an entry waits for lookups, two more invalidates of it come; "
        "the lookups are taken when both are accepted",
        "All three complete",
        "bench_changes",
        "r27_invalidates_while_a_deregistration_waits",
        HELD,
        (Fault("R27-each_waits_for_the_other", "no answer for"),),
    ),
    Row(
        "R33",
        "csRNA",
        "A set is filled and all ways but one are used, by several ports in one cycle",
        "The one that wasn't is the next victim",
        "bench_answers",
        "r33_victim_of_a_full_set",
        HELD,
        (Fault("R33-one_touch_a_cycle", "has to go, not", choices={"ways": 4}),),
    ),
    Row(
        "R35",
        "Coyote",
        "A re-registration leaves only the first page of a long lookup, or takes it away",
        "`fresh_answer`: C comes after the last beat of the lookup, whichever of its pages goes",
        "bench_replacements",
        "r35_part_of_a_lookup_in_flight",
        AS_DECLARED,
        (
            Fault(
                "R35-no_wait_if_nothing_is_removed",
                "grace_period declares|didn't wait",
                choices={"arbiter": "grace_period"},
            ),
        ),
    ),
)

BENCHES = sorted({f"tb.{row.bench}" for row in ROWS})
"""The benches that hold the rows, and nothing else."""
