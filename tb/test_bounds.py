"""From R to C: how many cycles are enough, and that one less is not."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import OnPending, ReadStructure, RetireScope, StepOrder, TableConfig
from rtl.monitor import Guarantee
from rtl.watched import AGE_BITS
from sim.netlist import Design
from sim.prove import recorded
from sim.prover import Model, Verdict, induct, model, prove, refute
from tb.formal.bounds import Bounds
from tb.formal.environment import clocked
from tb.formal.graphs import LAWFUL, table_graph
from tb.formal.harness import SMALL, Harness
from tb.formal.lengths import PATIENCE, beyond, judge, members, miscounted, timed, unsummed
from tb.formal.recorder import case_of
from tb.formal.worlds import bits_of
from tb.variants import name_of

ONE = {**SMALL, "ports": 1, "sources": 1}

POLICY = """# amaranth: UnusedElaboratable=no
from amaranth.hdl import Module, Signal

from rtl.arbiter.seam import Arbiter
from rtl.monitor import Guarantee


class Mine(Arbiter):
    choices = ()

    @classmethod
    def guarantees(cls, config):
        return {{Guarantee.BOUNDED_INVALIDATION}}

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [admit.grant.eq(1) for admit in self.admit]
        for source, change in enumerate(self.change):
            waited = Signal(2, name=f"waited_{{source}}")
            with m.If(change.wait):
                m.d.sync += waited.eq(waited + 1)
            with m.Else():
                m.d.sync += waited.eq(0)
            m.d.comb += [change.apply.eq(1), change.complete.eq({complete})]
        return m
"""


class Two(Component):
    """Two things that may last."""

    def __init__(self):
        self._lengths: list[tuple[str, int | None]] = [("ends", None)]
        super().__init__({"clk": In(1), "one": In(1), "other": In(1), **members(self._lengths)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        judge(m, self, "ends", None, timed(m, "ends", [self.one, self.other]))
        return m


@pytest.mark.parametrize("idle", ["one", "other"])
def test_whichever_lasts(tmp_path: Path, idle: str):
    """One of them is enough, in the first cycle that is too much."""
    both = model(Design("two", Two, "two"), cache=tmp_path)
    only = both.fixed({(idle, 0): 0})
    assert refute(only, beyond("ends", 3)).cycles == 4


class Change(Component):
    """A change whose phases last as long as anybody likes, and who counts its cycles.

    ``goes``: the next phase begins in the next cycle. ``slips``: a cycle is counted twice.
    """

    LENGTHS = ("asks", "waits", "ends", "change")

    def __init__(self):
        self._asked: list[tuple[str, int | None]] = [(length, None) for length in self.LENGTHS]
        inputs = {"clk": In(1), "goes": In(1), "slips": In(1), "asked": In(8), "waited": In(8)}
        outputs = {"miscounted": Out(1), "unsummed": Out(1)}
        super().__init__({**inputs, **outputs, **members(self._asked)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        phase = Signal(2)
        was_asking = Signal()
        age = Signal(AGE_BITS)
        with m.If(self.goes):
            m.d.sync += phase.eq(phase + 1)
        asks, waits, ends = (phase == number for number in (1, 2, 3))
        m.d.sync += was_asking.eq(asks)
        is_requested = asks & ~was_asking
        over = ends & self.goes
        older = Mux(age[-1], age, age + 1 + self.slips)
        m.d.sync += age.eq(Mux(over | (phase == 0), 0, older))
        now = {"asks": asks, "waits": waits, "ends": ends, "change": (phase != 0) & ~is_requested}
        past = {}
        for length, condition in now.items():
            past[length] = timed(m, length, [condition])
            judge(m, self, length, None, past[length])
        (change,) = past["change"]
        first, second, third = (past[length][0] for length in ("asks", "waits", "ends"))
        m.d.comb += [
            self.miscounted.eq(miscounted(change, age)),
            self.unsummed.eq(
                unsummed(change, first, second, third, self.asked, self.waited),
            ),
        ]
        return m


@pytest.fixture(scope="module")
def change(tmp_path_factory: pytest.TempPathFactory) -> Model:
    cache = tmp_path_factory.mktemp("change")
    return model(Design("change", Change, "change"), cache=cache)


@pytest.mark.parametrize(("slips", "verdict"), [(0, Verdict.PROVED), (1, Verdict.REFUTED)])
def test_a_cycle_is_counted_once(change: Model, slips: int, verdict: Verdict):
    counted = change.fixed({("slips", 0): slips})
    attempt = induct if verdict is Verdict.PROVED else refute
    assert attempt(counted, "miscounted").verdict is verdict


@pytest.mark.parametrize(
    ("asked", "waited", "verdict"),
    [
        (4, 3, Verdict.PROVED),
        (3, 3, Verdict.REFUTED),
        (4, 2, Verdict.REFUTED),
    ],
)
def test_the_phases_add_up(change: Model, asked: int, waited: int, verdict: Verdict):
    """Of phases of at most 4, 3 and 5 cycles: the sum of these is enough, and no other."""
    never = [beyond("asks", 4), beyond("waits", 3), beyond("ends", 5)]
    summed = change.fixed(bits_of("asked", 8, asked) | bits_of("waited", 8, waited))
    attempt = induct if verdict is Verdict.PROVED else refute
    assert attempt(summed, "unsummed", (), never).verdict is verdict
    if verdict is Verdict.PROVED:
        given = [*never, "unsummed"]
        # R is no cycle of the change.
        assert prove(summed, beyond("change", 11), (), given).verdict is Verdict.PROVED
        assert prove(summed, beyond("change", 10), (), given).verdict is Verdict.REFUTED


def least(config: TableConfig) -> int | None:
    """The least number of cycles, if there is one."""
    *_, last = Bounds(config).solve()
    return last.cycles if last.is_the_last else None


def own(folder: Path, complete: str) -> TableConfig:
    file = folder / "own.py"
    file.write_text(POLICY.format(complete=complete))
    return TableConfig(**ONE, arbiter=f"{file}:Mine")


@pytest.fixture(scope="module")
def at_once() -> int:
    found = least(TableConfig(**ONE, arbiter="apply_now"))
    assert found is not None
    return found


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_cycle_later_is_a_cycle_more(at_once: int, tmp_path: Path, late: int):
    assert least(own(tmp_path, f"waited == {late}")) == at_once + late


@pytest.mark.parametrize("arbiter", ["pending_bit", "drain_fence", "grace_period", "squash"])
def test_it_is_the_least(arbiter: str):
    """A change can take that long, and not longer."""
    _is_the_least(TableConfig(**ONE, arbiter=arbiter))


@pytest.mark.parametrize(
    "choices",
    [
        {"scope": RetireScope.LOOKUP},
        {"read_structure": ReadStructure.SERIALIZED},
        {"step_order": StepOrder.TRANSLATIONS_FIRST},
    ],
)
def test_what_others_need_counts(choices: dict[str, Any]):
    """Who kills lookups waits for others, which leave less to remove: in each scope and shape."""
    _is_the_least(TableConfig(**{**ONE, **choices}, arbiter="squash"))


def _is_the_least(config: TableConfig) -> None:
    bounds = Bounds(config)
    *_, last = bounds.solve()
    assert last.is_the_last
    assert last.cycles is not None
    assert bounds.taking(last.cycles).verdict is Verdict.REFUTED
    row = recorded()["configurations"][name_of(config)]
    cell = row["guarantees"][Guarantee.BOUNDED_INVALIDATION]
    assert (last.cycles, True) == (cell["least"], cell["tight"])


@pytest.mark.parametrize(
    ("arbiter", "on_pending", "quiet"),
    [
        ("apply_now", OnPending.STALL, 3),
        ("pending_bit", OnPending.STALL, 5),
        ("pending_bit", OnPending.REFUSE, 3),
        ("drain_fence", OnPending.STALL, 5),
        ("drain_fence", OnPending.REFUSE, 3),
        ("grace_period", OnPending.STALL, 3),
        ("squash", OnPending.STALL, 3),
    ],
)
def test_nobody_is_stuck(arbiter: str, on_pending: OnPending, quiet: int):
    """A port that wants something is offered something, and a command comes to its end."""
    config = TableConfig(**ONE, arbiter=arbiter, on_pending=on_pending)
    # Any bound of a change will do.
    bounds = Bounds(config, least=False)
    found = {bound.length: bound.cycles for bound in bounds.solve()}
    offered, commanded = bounds.progress(found["change"])
    # How near it comes to the least within its few seconds depends on the machine.
    assert offered.cycles is not None
    assert commanded.cycles is not None
    graph = table_graph(bounds.config, patient=True)
    assert prove(graph, beyond("quiet", quiet, 0)).verdict is Verdict.PROVED
    sooner = refute(graph, beyond("quiet", quiet - 1, 0), LAWFUL)
    assert sooner.verdict is Verdict.REFUTED


def test_who_never_completes_has_no_bound(tmp_path: Path):
    assert least(own(tmp_path, "0")) is None


def test_one_less_is_refuted(at_once: int):
    """And the refutation replays: the monitor itself says that C is late."""
    config = TableConfig(**ONE, arbiter="apply_now")
    bounds = Bounds(config)
    assert bounds.taking(at_once + 1).verdict is Verdict.UNDECIDED
    taken = bounds.taking(at_once)
    assert taken.verdict is Verdict.REFUTED
    output, deadline = Guarantee.BOUNDED_INVALIDATION, at_once - 1
    harness = Harness(config, PATIENCE)
    case = case_of("late", harness, taken.trace, output, always=LAWFUL, deadline=deadline)
    assert (case.deadline, case.patience) == (deadline, PATIENCE)


def test_what_is_enough_is_no_less_than_the_least(at_once: int):
    """More ports and sources, and no search for less."""
    config = dataclasses.replace(TableConfig(**SMALL), arbiter="apply_now")
    *_, last = Bounds(config, least=False).solve()
    assert last.is_the_last
    assert last.cycles is not None
    assert last.cycles >= at_once
