"""Policy × configuration × guarantee: proved, refuted, or not decided."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rtl.arbiter import policy
from rtl.config import ReadStructure, RetireScope, StepOrder, TableConfig
from rtl.monitor import Guarantee
from sim.aiger import Pin
from sim.prover import Result, Verdict, refute
from tb.formal.bounds import Bounds
from tb.formal.graphs import DEPTH, LAWFUL, engine_graph, table_graph
from tb.formal.harness import SMALL
from tb.formal.plan import (
    ENGINE,
    GUARANTEES,
    OF_BOTH,
    Step,
    lemmas,
    modules,
    readers,
)
from tb.formal.subject import Subject
from tb.formal.worlds import one_entry
from tb.variants import name_of, policies

SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"read_structure": ReadStructure.SERIALIZED},
    {"step_order": StepOrder.TRANSLATIONS_FIRST},
)
"""What each policy and scope is tried with."""

REDUCED: tuple[dict[str, int], ...] = (
    {"ports": 1, "sources": 1},
    {"ports": 1, "sources": 2},
    {"ports": 2, "sources": 2},
    {},
)
"""Where a violation is looked for, in this order: a small table has a short search."""

GLANCE = 20
"""Seconds that a search may take which most likely is in vain: for a violation of something
declared, in one table."""

WIDER, SHORTER = 10, 60
"""Seconds that the search for a shorter violation may take in a wider world, and among all. Where
one took longer to be found than that, a shorter one isn't looked for."""

OF_ONE_ENTRY = (
    Guarantee.UNTORN,
    Guarantee.FRESH_ADMIT,
    Guarantee.FRESH_ANSWER,
    Guarantee.FRESH_DMA,
)
"""Guarantees that say nothing of other entries."""

CHOICES = ("span", "on_pending", "on_wrap")
"""What policies listen to, but for numbers."""


def configurations(quick: bool = False) -> list[TableConfig]:
    """Every policy with every choice that matters to it, in each scope and shape.

    Parameters
    ----------
    quick : bool
        Only the defaults of each policy, in scope ``dma`` and the first shape, and no policy that
        replays: its proofs take long.
    """
    found = []
    scopes = [RetireScope.DMA] if quick else list(RetireScope)
    for chosen, scope, shape in itertools.product(
        policies(), scopes, SHAPES[:1] if quick else SHAPES
    ):
        # Of a version, one bit shows all that more of them would show later.
        if (
            chosen.get("version_bits", 1) != 1
            and "version_bits" in policy(chosen["arbiter"]).choices
        ):
            continue
        found.append(TableConfig(**{**SMALL, **chosen, "scope": scope, **shape}))
    if quick:
        # The last of a policy wins, so it is to be the one with the defaults.
        defaults = TableConfig()
        found.sort(key=lambda c: sum(getattr(c, n) == getattr(defaults, n) for n in CHOICES))
        found = [config for config in found if not policy(config.arbiter).replays]
        found = list({config.arbiter: config for config in found}.values())
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Cell:
    """One guarantee under one configuration, or a lemma on the way.

    Parameters
    ----------
    name : str
        The output of the harness.
    declared : bool
        The policy says that it gives the guarantee. Lemmas aren't declared.
    verdict : Verdict
    seconds : float
        All tries together.
    cycles : int
        Of the counterexample.
    sizes : dict
        The table that shows it.
    trace : tuple
        The counterexample; of a bound, a change that takes the ``least`` of cycles.
    within : int
        Of a bound: so many cycles are enough.
    least : int
        Of a bound: so many cycles are enough in the smallest table, whose ``sizes`` these are.
    shortest : bool
        There is no shorter counterexample in that table.
    """

    name: str
    declared: bool
    verdict: Verdict
    seconds: float
    cycles: int = 0
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    trace: tuple[Any, ...] = ()
    within: int = 0
    least: int = 0
    shortest: bool = True

    @property
    def right(self) -> bool:
        """What is declared is proved, and what isn't is refuted."""
        return self.verdict is (Verdict.PROVED if self.declared else Verdict.REFUTED)


def solve(
    config: TableConfig,
    limit: int = 120,
    part: str = "",
    bounds: bool = True,
    refutes: bool = True,
) -> Iterator[Cell]:
    """The lemmas, then each guarantee: what is declared is to be proved, the rest refuted.

    With ``part`` only guarantees whose name holds it; without ``bounds`` nothing that is bounded;
    without ``refutes`` no violation is looked for.
    """
    declared = policy(config.arbiter).guarantees(config)
    table = Subject(config, table_graph, modules(config), limit)
    missed: set[str] = set()

    def lemma(subject: Subject, step: Step, prefix: str = "") -> Cell:
        result = subject.lemma(step)
        if result.verdict is not Verdict.PROVED:
            missed.add(step.output)
        return Cell(f"{prefix}{step.output}", False, result.verdict, result.seconds)

    for step in lemmas(config):
        yield lemma(table, step)
    if Guarantee.UNTORN in declared and part in Guarantee.UNTORN:
        # Whatever the policy, the engine is the same, and so is the proof.
        engine = Subject(config, engine_graph, {}, limit)
        for step in ENGINE:
            yield lemma(engine, step, "engine.")
        table.proved += [name for name in OF_BOTH if name in engine.proved]
        for step in readers(config):
            yield lemma(table, step)
    for guarantee, step in GUARANTEES.items():
        if part not in guarantee:
            continue
        is_declared = guarantee in declared
        # What most likely is so is tried first. The engine that proves rarely finds a violation,
        # and then not the shortest.
        proves_first = is_declared and missed.isdisjoint(step.never)
        tried, found = 0.0, Found(Result(Verdict.UNDECIDED, 0.0))
        for proving in (proves_first, not proves_first) if refutes else (True,):
            if proving:
                found = Found(table.prove(step))
            else:
                found = search(config, guarantee, min(limit, GLANCE) if is_declared else limit)
            tried += found.result.seconds
            if found.result.verdict is (Verdict.PROVED if proving else Verdict.REFUTED):
                break
        result = found.result
        yield Cell(
            guarantee,
            is_declared,
            result.verdict,
            tried,
            result.cycles,
            found.sizes,
            result.trace,
            shortest=found.shortest,
        )
    bound = Guarantee.BOUNDED_INVALIDATION
    if bounds and bound in declared and part in bound:
        yield bounded(config, limit)


def bounded(config: TableConfig, limit: int) -> Cell:
    """How many cycles from R to C are enough, and how many it takes in the smallest table."""
    found = list(Bounds(config, limit, least=False).solve())
    within, seconds = found[-1], sum(bound.seconds for bound in found)
    sizes = REDUCED[0]
    smallest = Bounds(dataclasses.replace(config, **sizes), limit)
    bounds = list(smallest.solve())
    least, taken = bounds[-1], Result(Verdict.UNDECIDED, 0.0)
    seconds += sum(bound.seconds for bound in bounds)
    if least.is_the_last:
        assert least.cycles is not None
        taken = smallest.taking(least.cycles)
        seconds += taken.seconds
    return Cell(
        Guarantee.BOUNDED_INVALIDATION,
        True,
        Verdict.PROVED if within.is_the_last else Verdict.UNDECIDED,
        seconds,
        sizes=sizes,
        trace=taken.trace,
        within=(within.cycles or 0) if within.is_the_last else 0,
        least=(least.cycles or 0) if least.is_the_last else 0,
    )


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Parameters
    ----------
    result : Result
    sizes : dict
        The table that shows the violation.
    shortest : bool
        There is no shorter one in that table.
    """

    result: Result
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    shortest: bool = True


def search(config: TableConfig, output: str, limit: int) -> Found:
    """Looks for the shortest violation in the smallest table that has one."""
    seconds = 0.0
    for sizes in REDUCED:
        smaller = dataclasses.replace(config, **sizes)
        declared = policy(config.arbiter).guarantees
        if output in declared(smaller) and output not in declared(config):
            # With one source there may be nothing to be seen.
            continue
        found = shortest(smaller, output, limit)
        seconds += found.result.seconds
        if found.result.verdict is Verdict.REFUTED:
            result = dataclasses.replace(found.result, seconds=seconds)
            return dataclasses.replace(found, result=result, sizes=sizes)
    return Found(Result(Verdict.UNDECIDED, seconds))


def shortest(config: TableConfig, output: str, limit: int) -> Found:
    """Looks for the shortest violation in one table.

    Of what has to do with one entry, in small worlds first: whatever is found there, in a larger
    one something shorter is looked for.
    """
    worlds: list[tuple[dict[Pin, int], int]] = [({}, SHORTER)]
    if output in OF_ONE_ENTRY:
        wider = one_entry(config, "address", "length")
        worlds = [(one_entry(config), limit), (wider, WIDER), *worlds]
    result = best = Result(Verdict.UNDECIDED, 0.0)
    seconds, depth = 0.0, DEPTH
    for world, for_less in worlds:
        known = best.verdict is Verdict.REFUTED
        if known and result.seconds > for_less:
            # In a larger one it would take longer.
            break
        # What isn't found among few may be there among all.
        most = min(limit, for_less) if known else limit // 2 if world else limit
        graph = table_graph(config).fixed(world)
        result = refute(graph, output, LAWFUL, ("unsound",), most, depth)
        seconds += result.seconds
        if result.verdict is Verdict.REFUTED:
            best, depth = result, result.cycles - 1
        elif known and result.verdict is Verdict.UNDECIDED and result.searched < depth:
            # In a larger one it would take longer.
            break
    else:
        return Found(dataclasses.replace(best, seconds=seconds))
    return Found(dataclasses.replace(best, seconds=seconds), shortest=False)


def mismatches(cells: Sequence[Cell]) -> list[Cell]:
    """Guarantees that are declared and not proved, or not declared and not refuted."""
    return [cell for cell in cells if cell.name in list(Guarantee) and not cell.right]


__all__ = ["Cell", "Subject", "configurations", "mismatches", "name_of", "search", "solve"]
