"""In which order the matrix is made, and how far the proofs are said to go."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from rtl.config import TableConfig
from rtl.monitor import Guarantee
from sim import growth
from sim.prover import Result, Verdict
from tb.formal import matrix
from tb.formal.harness import SMALL
from tb.formal.matrix import Cell, Found, solve
from tb.formal.plan import Step
from tb.formal.subject import Subject

CONFIG = TableConfig(**SMALL, arbiter="grace_period")
FRESH = Guarantee.FRESH_DMA


class Tries:
    """Stands in for the prover, which proves all lemmas but some, and decides nothing else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.open: set[str] = set(Guarantee)
        self._made: list[str] = []
        monkeypatch.setattr(Subject, "prove", lambda _, step: self._prove(step))
        monkeypatch.setattr(matrix, "search", lambda _, output, limit: self._search(output))

    def _prove(self, step: Step) -> Result:
        if step.output == FRESH:
            self._made.append("prove")
        undecided = step.output in self.open
        return Result(Verdict.UNDECIDED if undecided else Verdict.PROVED, 1.0)

    def _search(self, output: str) -> Found:
        assert output == FRESH
        self._made.append("search")
        return Found(Result(Verdict.UNDECIDED, 2.0))

    def of(self, **options: Any) -> tuple[list[str], Cell]:
        """What is tried of :data:`FRESH`, in order, and the cell of it."""
        *_, cell = solve(CONFIG, part=FRESH, bounds=False, **options)
        return self._made, cell


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    return Tries(monkeypatch)


def test_a_proof_comes_first(tries: Tries):
    made, cell = tries.of()
    assert made == ["prove", "search"]
    assert (cell.verdict, cell.seconds) == (Verdict.UNDECIDED, 3.0)


def test_without_a_lemma_a_violation_comes_first(tries: Tries):
    """A policy that misses what its guarantee stands on most likely doesn't give it."""
    tries.open.add("outlived")
    assert tries.of()[0] == ["search", "prove"]


def test_nothing_is_looked_for_if_nobody_asks(tries: Tries):
    assert tries.of(refutes=False)[0] == ["prove"]


def test_growth_says_how_far_it_goes(monkeypatch: pytest.MonkeyPatch):
    """What isn't proved is no failure, and each size tells when it is done."""

    def solved(config: TableConfig, limit: int, refutes: bool = True) -> Iterator[Cell]:
        assert not refutes
        for guarantee in Guarantee:
            open_ = guarantee is Guarantee.UNTORN and config.sources == 3
            yield Cell(guarantee, True, Verdict.UNDECIDED if open_ else Verdict.PROVED, 0.25)

    monkeypatch.setattr(growth, "solve", solved)
    said = io.StringIO()
    growth.print_growth([CONFIG], 1, Console(file=said, width=200))
    lines = said.getvalue().splitlines()
    assert sum("all of it, in 0 s" in line for line in lines) == len(growth.GROWN) - 1
    assert sum("all but untorn, in 0 s" in line for line in lines) == 1
    cells = [[cell.strip() for cell in line.split("│")] for line in lines if line.startswith("│")]
    assert [row[6] for row in cells if row[5] == "3"] == ["?"]
    assert {row[6] for row in cells if row[5] in ("1", "2")} == {"0.2"}
