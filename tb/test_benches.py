"""All benches on all policies, scopes, read structures and step orders; but for the rows of
``docs/races.md``, which have a test of their own, ``test_races.py``.

The breadth is Icarus's, which builds in a second. A subset that has every single choice runs on
Verilator too; ``test_traffic.py`` shows that the two agree cycle by cycle.
"""

import itertools
from collections.abc import Iterator

import pytest

from rtl.config import (
    OnPending,
    ReadStructure,
    RetireScope,
    SecondInvalidate,
    StepOrder,
    TableConfig,
    ZeroLength,
)
from sim.run import run
from sim.simulators import Simulator
from tb.needs import needs_icarus
from tb.races import BENCHES as ROW_BENCHES
from tb.variants import SIZE, ends, name_of, variants

ALL = [
    "tb.bench_readers",
    "tb.bench_load",
    "tb.bench_random",
    "tb.bench_timing",
    "tb.bench_turns",
]


def usual(order: StepOrder) -> list[TableConfig]:
    """Every policy in each scope, and with it one of both read structures."""
    pairs = zip(RetireScope, ReadStructure, strict=True)
    found = [variants(scope=s, read_structure=r, step_order=order) for s, r in pairs]
    return ends(itertools.chain(*found))


@needs_icarus
@pytest.mark.conformance
@pytest.mark.parametrize("config", usual(StepOrder.ENTRY_FIRST), ids=name_of)
def test_everything(config: TableConfig):
    """Every bench, where the entry is deregistered first."""
    run(config, Simulator.ICARUS, ALL, seed=1)


def _spanning(order: StepOrder) -> Iterator[TableConfig]:
    """Each policy with its first choices in one scope, and with its last ones in the other."""
    for place, scope, structure in (
        (0, RetireScope.DMA, ReadStructure.REPLICATED),
        (-1, RetireScope.LOOKUP, ReadStructure.SERIALIZED),
    ):
        choices: dict[str, list[TableConfig]] = {}
        for config in variants(scope=scope, read_structure=structure, step_order=order):
            choices.setdefault(config.arbiter, []).append(config)
        yield from (configs[place] for configs in choices.values())


@needs_icarus
@pytest.mark.conformance
@pytest.mark.parametrize("config", [*_spanning(StepOrder.TRANSLATIONS_FIRST)], ids=name_of)
def test_translations_first(config: TableConfig):
    """What the other step order breaks is broken, and nothing else is.

    How the tables are read has no part in it: each scope is tried with one of both structures.
    """
    run(
        config,
        Simulator.ICARUS,
        ["tb.bench_races", "tb.bench_random"],
        tests=[
            "r16_new_owner_meets_a_parked_lookup",
            "r25_teardown_meets_dma",
            "anything",
        ],
        seed=2,
    )


SPANNING = [*_spanning(StepOrder.ENTRY_FIRST)]

EVERY_CHOICE = [
    *SPANNING,
    *variants(
        arbiter="pending_bit",
        scope=RetireScope.LOOKUP,
        read_structure=ReadStructure.SERIALIZED,
        step_order=StepOrder.TRANSLATIONS_FIRST,
        on_pending=OnPending.REFUSE,
    ),
]


@pytest.mark.conformance
@pytest.mark.parametrize("config", EVERY_CHOICE, ids=name_of)
def test_everything_on_verilator(config: TableConfig):
    """Every bench, on a subset that has every choice at least once."""
    run(config, Simulator.VERILATOR, ALL, seed=3)


@pytest.mark.parametrize(
    ("sizes", "benches"),
    [
        pytest.param({"ports": 1, "sources": 3}, [*ALL, *ROW_BENCHES], id="one-port"),
        pytest.param({"ports": 5, "tags": 8, "ways": 4}, [*ALL, *ROW_BENCHES], id="five-ports"),
        pytest.param({"entries": 64, "translations": 256, "ways": 8}, ALL, id="larger"),
        pytest.param({"ports": 1, "read_structure": ReadStructure.SERIALIZED}, ALL, id="shared"),
    ],
)
@needs_icarus
def test_other_sizes(sizes: dict[str, int], benches: list[str]):
    """Sizes at the edges of what is allowed; the races care for ports, tags and sources."""
    base = variants(arbiter="pending_bit", scope=RetireScope.DMA)[0]
    config = TableConfig(**{**_fields(base), **sizes})
    run(config, Simulator.ICARUS, benches, seed=4)


RULES = [
    TableConfig(**SIZE, zero_length=zero_length, second_invalidate=second)
    for zero_length, second in zip(ZeroLength, SecondInvalidate, strict=True)
]
"""Both ways of each rule that can be chosen."""


@pytest.mark.parametrize(
    "simulator", [pytest.param(Simulator.ICARUS, marks=needs_icarus), Simulator.VERILATOR]
)
@pytest.mark.parametrize("config", RULES, ids=["default", "other"])
def test_rules(config: TableConfig, simulator: Simulator):
    """The rules that no policy matters to, as they can be chosen; anything goes with them."""
    run(config, simulator, ["tb.bench_rules", "tb.bench_random"], seed=5)
    both_ways = ["r12_two_invalidations", "r13_invalidate_meets_a_registration"]
    run(config, simulator, "tb.bench_changes", tests=both_ways, seed=5)


def _fields(config: TableConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}
