"""Policy × configuration × guarantee: proved, refuted, or not decided."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rtl.arbiter import policy
from rtl.config import ReadStructure, RetireScope, StepOrder, TableConfig
from rtl.monitor import Guarantee
from sim.netlist import ROOT, Design, source_hash, table_hash
from sim.prover import Model, Result, Verdict, induct, model, prove, refute
from tb.formal.engine import EngineHarness
from tb.formal.harness import SMALL, Harness
from tb.formal.plan import ENGINE, GUARANTEES, LEMMAS, OF_BOTH, READERS, RULES, Step, modules
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
    """One configuration in one harness, its graphs, and what was proved of it.

    Parameters
    ----------
    config : TableConfig
    source : Design
        The harness.
    limit : int
        Seconds that one try may take.
    """

    def __init__(self, config: TableConfig, source: Design, limit: int = 120):
        self.config = config
        self.source = source
        self.limit = limit
        self.proved: list[str] = []
        self._models: dict[tuple[str, ...], Model] = {}

    def graph(self, free: tuple[str, ...] = ()) -> Model:
        """The harness without some of its modules."""
        if free not in self._models:
            self._models[free] = model(self.source, free)
        return self._models[free]

    def prove(self, step: Step) -> Result:
        """Tries one step, at first without what it can do without."""
        attempt = induct if step.inductive else prove
        never = [lemma for lemma in step.never if lemma in self.proved]
        seconds = 0.0
        result = None
        for parts in dict.fromkeys((step.parts, ())):
            result = attempt(
                self.graph(modules(self.config, parts)),
                step.output,
                step.always,
                never,
                self.limit,
            )
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


def design(config: TableConfig, **terms: int) -> Design:
    """The harness around a table."""
    return Design("harness", lambda: Harness(config, **terms), f"{_key(config)} {terms!r}")


def engine_design(config: TableConfig) -> Design:
    """The harness around a command engine alone."""
    return Design("engine_harness", lambda: EngineHarness(config), _key(config))


def _key(config: TableConfig) -> str:
    sources = source_hash(sorted((ROOT / "tb" / "formal").glob("*.py")))
    return f"{table_hash(config)} {sources} {config!r}"


def solve(config: TableConfig, limit: int = 120, part: str = "") -> Iterator[Cell]:
    """The lemmas, then each guarantee: what is declared is to be proved, the rest refuted.

    With ``part`` only guarantees whose name holds it.
    """
    declared = policy(config.arbiter).guarantees(config)
    table = Subject(config, design(config), limit)
    for step in LEMMAS:
        yield table.lemma(step)
    if Guarantee.UNTORN in declared:
        # Whatever the policy, the graph of the engine is the same, and so is the proof.
        engine = Subject(config, engine_design(config), limit)
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
