"""Policy × configuration × guarantee: proved, refuted, or not decided."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rtl.arbiter import policy
from rtl.config import ReadStructure, RetireScope, StepOrder, TableConfig
from rtl.monitor import Guarantee
from sim.netlist import Design
from sim.prover import Model, Result, Verdict, induct, model, prove, refute
from tb.formal.anything import any_policy
from tb.formal.engine import EngineHarness
from tb.formal.harness import SMALL, Harness
from tb.formal.plan import (
    ARBITER,
    CHECKING,
    ENGINE,
    GUARANTEES,
    LEMMAS,
    OF_BOTH,
    READERS,
    RULES,
    Step,
    checks,
    modules,
)
from tb.formal.small import harness_of
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

LAWFUL = tuple(RULES)
"""What every counterexample keeps to."""

PATIENCE = 20
"""Seconds that the search for a violation of something declared may take in one table."""

DEPTH = 70
"""Cycles after which the search for a violation is given up."""


CHOICES = ("span", "on_pending", "on_wrap")
"""What policies listen to, but for numbers."""


def configurations(quick: bool = False) -> list[TableConfig]:
    """Every policy with every choice that matters to it, in each scope and shape.

    Parameters
    ----------
    quick : bool
        Only the defaults of each policy, in scope ``dma`` and the first shape, and no policy that
        replays: its proofs take long, and not all of them are there.
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
        The counterexample.
    """

    name: str
    declared: bool
    verdict: Verdict
    seconds: float
    cycles: int = 0
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    trace: tuple[Any, ...] = ()

    @property
    def right(self) -> bool:
        """What is declared is proved, and what isn't is refuted."""
        return self.verdict is (Verdict.PROVED if self.declared else Verdict.REFUTED)


class Subject:
    """One configuration in one harness, and what was proved of it.

    Parameters
    ----------
    config : TableConfig
    harness : callable
        Makes the design from a configuration.
    parts : mapping
        Modules that can be taken out, by the name of the part that they make up.
    limit : int
        Seconds that one try may take.
    """

    def __init__(
        self,
        config: TableConfig,
        harness: Callable[[TableConfig], Design],
        parts: Mapping[str, tuple[str, ...]],
        limit: int = 120,
    ):
        self.config = config
        self.limit = limit
        self.proved: list[str] = []
        self._harness = harness
        self._parts = parts
        self._models: dict[tuple[TableConfig, tuple[str, ...]], Model] = {}

    def graph(self, config: TableConfig, parts: tuple[str, ...] = ()) -> Model:
        """The harness without some parts of the table."""
        key = config, parts
        if key not in self._models:
            if parts:
                modules = [module for part in parts for module in self._parts[part]]
                self._models[key] = self.graph(config).without(modules)
            else:
                # Of a policy of which nothing is left but constants, there is no module.
                modules = [
                    module
                    for part, made_of in self._parts.items()
                    for module in made_of
                    if part != ARBITER or config != self.config
                ]
                self._models[key] = model(self._harness(config), modules)
        return self._models[key]

    def prove(self, step: Step) -> Result:
        """Tries one step, at first without what it can do without."""
        attempt = induct if step.inductive else prove
        never = [lemma for lemma in step.never if lemma in self.proved]
        tries = [(self.config, step.parts), (self.config, ())]
        if step.of_any:
            tries.insert(0, (any_policy(self.config), (*step.parts, ARBITER)))
        seconds = 0.0
        result = None
        for config, parts in dict.fromkeys(tries):
            graph = self.graph(config, parts)
            result = attempt(graph, step.output, step.always, never, self.limit)
            seconds += result.seconds
            if result.verdict is Verdict.PROVED:
                break
        assert result is not None
        return dataclasses.replace(result, seconds=seconds)

    def lemma(self, step: Step, prefix: str = "") -> Cell:
        """Tries a step that later ones may stand on."""
        result = self.prove(step)
        if result.verdict is Verdict.PROVED:
            self.proved.append(step.output)
        return Cell(f"{prefix}{step.output}", False, result.verdict, result.seconds)


def design(config: TableConfig, deadline: int = 0, patience: int | None = None) -> Design:
    """The harness around a table."""
    return harness_of("harness", Harness, config, deadline=deadline, patience=patience)


def engine_design(config: TableConfig) -> Design:
    """The harness around a command engine alone."""
    return harness_of("engine_harness", EngineHarness, config)


def solve(config: TableConfig, limit: int = 120, part: str = "") -> Iterator[Cell]:
    """The lemmas, then each guarantee: what is declared is to be proved, the rest refuted.

    With ``part`` only guarantees whose name holds it.
    """
    declared = policy(config.arbiter).guarantees(config)
    table = Subject(config, design, modules(config), limit)
    for step in (*LEMMAS, *(CHECKING if checks(config) else ())):
        yield table.lemma(step)
    if Guarantee.UNTORN in declared and part in Guarantee.UNTORN:
        # Whatever the policy, the engine is the same, and so is the proof.
        engine = Subject(any_policy(config), engine_design, {}, limit)
        for step in ENGINE:
            yield engine.lemma(step, "engine.")
        table.proved += [name for name in OF_BOTH if name in engine.proved]
        for step in READERS:
            yield table.lemma(step)
    for guarantee, step in GUARANTEES.items():
        if part not in guarantee:
            continue
        if guarantee in declared:
            result = table.prove(step)
            sizes: dict[str, int] = {}
            if result.verdict is not Verdict.PROVED:
                # The engine that proves rarely finds a violation, and then not the shortest.
                tried = result.seconds
                result, sizes = search(config, guarantee, min(limit, PATIENCE))
                result = dataclasses.replace(result, seconds=tried + result.seconds)
        else:
            result, sizes = search(config, guarantee, limit)
            if result.verdict is Verdict.UNDECIDED:
                result = table.prove(step)
        yield Cell(
            guarantee,
            guarantee in declared,
            result.verdict,
            result.seconds,
            result.cycles,
            sizes,
            result.trace,
        )


def search(config: TableConfig, output: str, limit: int) -> tuple[Result, dict[str, int]]:
    """Looks for the shortest violation in the smallest table that has one, and names its sizes."""
    seconds = 0.0
    for sizes in REDUCED:
        smaller = dataclasses.replace(config, **sizes)
        declared = policy(config.arbiter).guarantees
        if output in declared(smaller) and output not in declared(config):
            # With one source there may be nothing to be seen.
            continue
        result = refute(model(design(smaller)), output, LAWFUL, ("unsound",), limit, DEPTH)
        seconds += result.seconds
        if result.verdict is Verdict.REFUTED:
            return dataclasses.replace(result, seconds=seconds), sizes
    return Result(Verdict.UNDECIDED, seconds), {}


def mismatches(cells: Sequence[Cell]) -> list[Cell]:
    """Guarantees that are declared and not proved, or not declared and not refuted."""
    return [cell for cell in cells if cell.name in list(Guarantee) and not cell.right]


__all__ = ["Cell", "Subject", "configurations", "mismatches", "name_of", "search", "solve"]
