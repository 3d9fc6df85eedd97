"""How long things take at most, given that everybody around the table is patient.

No proof is about everything at once. How long a lookup has its slot doesn't depend on the commands,
and hardly ever on the policy; how long a change waits for the policy depends on the pipelines only
by that; how long it takes from there on doesn't depend on the policy. The bound of a change is the
sum of the three.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rtl.arbiter import policy
from rtl.config import ReadStructure, TableConfig
from rtl.monitor import Guarantee
from sim.prover import Model, Result, Verdict, model, prove
from tb.formal.harness import LONGEST, beyond
from tb.formal.matrix import design
from tb.formal.plan import ARBITER, PIPELINES, TABLES, modules

WORKER = ("table.commands", "table.commands.worker")
"""Modules that are taken out besides the parts of the table."""

PATIENCE = 1
"""Cycles that a consumer and the DMA may take: the smallest that there is in scope ``dma``."""


@dataclass(frozen=True)
class Bound:
    """At most so many cycles.

    Parameters
    ----------
    length : str
        Of :data:`tb.formal.harness.LONGEST`, or a lemma that has no cycles.
    cycles : int, optional
        What was proved, if anything was.
    refuted : int, optional
        The most cycles that were refuted, for the model with which the bound was proved: it may
        do what the table never does.
    seconds : float
    """

    length: str
    cycles: int | None
    refuted: int | None
    seconds: float


class Bounds:
    """Finds the bounds of one configuration, one after the other.

    Parameters
    ----------
    config : TableConfig
    limit : int
        Seconds that one try may take.
    """

    def __init__(self, config: TableConfig, limit: int = 60):
        self.config = config
        self.limit = limit
        self.known: list[str] = []
        """Outputs of the harness that are never high."""
        self._parts = modules(config)
        self._models: dict[frozenset[str], Model] = {}

    def graph(self, free: tuple[str, ...], deadline: int = 0) -> Model:
        """The table among the patient, without some of its modules."""
        key = frozenset(free)
        if deadline or key not in self._models:
            made = design(self.config, patience=PATIENCE, deadline=deadline)
            every = {*WORKER, *(name for part in self._parts.values() for name in part)}
            self._models[key] = model(made, sorted(every)).without(free)
        return self._models[key]

    def lemma(self, output: str, *free: str) -> Bound:
        """Something that never happens."""
        result = prove(self.graph(free), output, (), self.known, self.limit)
        if result.verdict is Verdict.PROVED:
            self.known.append(output)
        right = 0 if result.verdict is Verdict.PROVED else None
        return Bound(output, right, None, result.seconds)

    def least(self, length: str, guess: int, *free: str, port: int | None = None) -> Bound:
        """The least bound that can be proved, from a guess on."""
        graph = self.graph(free)
        tried: dict[int, Result] = {}

        def holds(cycles: int) -> Verdict:
            if cycles not in tried:
                output = beyond(length, cycles, port)
                tried[cycles] = prove(graph, output, (), self.known, self.limit)
            return tried[cycles].verdict

        cycles, most, stride = guess, LONGEST[length], 1
        while cycles < most and holds(cycles) is not Verdict.PROVED:
            cycles, stride = min(most, cycles + stride), 2 * stride
        low = 0
        while holds(cycles) is Verdict.PROVED and low + 1 < cycles:
            middle = (low + cycles) // 2
            if holds(middle) is Verdict.PROVED:
                cycles = middle
            else:
                low = middle
        seconds = sum(result.seconds for result in tried.values())
        refuted = [n for n, r in tried.items() if r.verdict is Verdict.REFUTED]
        if holds(cycles) is not Verdict.PROVED:
            return Bound(length, None, max(refuted, default=None), seconds)
        self.known.append(beyond(length, cycles, port))
        return Bound(length, cycles, max(refuted, default=None), seconds)

    def solve(self) -> Iterator[Bound]:
        """All of them, in the order in which they stand on each other."""
        config = self.config

        def cut(*parts: str) -> tuple[str, ...]:
            return tuple(module for part in parts for module in self._parts[part])

        yield self.lemma("unpaged_write", *cut(ARBITER, PIPELINES))
        yield self.lemma("unpaged", *cut(ARBITER, PIPELINES), "table.commands.worker")
        unpaged = list(self.known)
        lives = []
        for port in range(config.ports):
            others: list[str] = []
            if config.read_structure is ReadStructure.REPLICATED:
                others = [f"table.pipeline_{n}" for n in range(config.ports) if n != port]
            self.known = list(unpaged)
            if policy(config.arbiter).replays:
                free = ("table.mpt", "table.commands.worker.legality", *others)
            else:
                free = (*cut(ARBITER), "table.mpt", "table.commands", *others)
            life = self.least("life", 12, *free, port=port)
            yield life
            if life.cycles is None:
                return
            lives.append(beyond("life", life.cycles, port))
        self.known = []
        ends = self.least("ends", 12, *cut(ARBITER, PIPELINES))
        yield ends
        self.known = list(lives)
        asks = self.least("asks", 24, *cut(PIPELINES, TABLES))
        yield asks
        self.known = list(lives)
        waits = self.least("waits", 12, *cut(PIPELINES, TABLES))
        yield waits
        phases = (asks, waits, ends)
        if any(phase.cycles is None for phase in phases):
            return
        self.known = [beyond(phase.length, phase.cycles) for phase in phases if phase.cycles]
        total = sum(phase.cycles or 0 for phase in phases) - 1
        change = self.least("change", total, *cut(ARBITER, PIPELINES, TABLES))
        yield change
        if change.cycles is None:
            return
        # What the monitor says of it is the same.
        output = str(Guarantee.BOUNDED_INVALIDATION)
        never = [beyond("change", change.cycles)]
        graph = self.graph(cut(ARBITER, PIPELINES, TABLES), change.cycles)
        result = prove(graph, output, (), never, self.limit)
        proved = result.verdict is Verdict.PROVED
        yield Bound(output, change.cycles if proved else None, None, result.seconds)
