"""How long things take at most, given that everybody around the table is patient.

No proof is about everything at once. How long a lookup has its slot doesn't depend on the commands,
and hardly ever on the policy; how long a change waits for the policy depends on the pipelines only
by that; how long it takes from there on doesn't depend on the policy. The bound of a change is the
sum of the three.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from rtl.arbiter import policy
from rtl.config import ReadStructure, RetireScope, TableConfig
from rtl.monitor import Guarantee
from sim.prover import Model, Result, Verdict, induct, prove, refute
from tb.formal.anything import any_policy
from tb.formal.graphs import DEPTH, LAWFUL, engine_graph, table_graph
from tb.formal.lengths import LONGEST, PATIENCE, beyond
from tb.formal.plan import (
    ARBITER,
    COMMANDS,
    ORDER,
    PAGED,
    PIPELINES,
    ROOM,
    TABLES,
    modules,
)
from tb.formal.subject import Subject
from tb.formal.worlds import at_leisure, bits_of

AT_ONCE = 5
"""Seconds in which a bound that isn't the least one is improved."""

SEARCH = 10
"""Seconds that the search for a change that takes as long as a bound may take: several times what
it takes where there is one."""

QUIET = 3
"""Cycles from when a lookup is offered to its first beat, or to the next one."""

CROWDED = {RetireScope.LOOKUP: 6, RetireScope.DMA: 7}
"""Cycles that a change waits at most for lookups that were killed, if none of the others in front
of them is of two pages."""

AROUND = 12
"""Cycles that a command takes besides its change."""

ENTRIES = "table.mpt"
LEGALITY = "table.commands.worker.legality"
"""Modules that are taken out by themselves."""


@dataclass(frozen=True)
class Bound:
    """At most so many cycles.

    Parameters
    ----------
    length : str
        Of :data:`tb.formal.lengths.LONGEST`, or what else was looked for.
    cycles : int, optional
        What was proved, if anything was.
    seconds : float
    """

    length: str
    cycles: int | None
    seconds: float

    @property
    def is_the_last(self) -> bool:
        """All others were found, and this one is what they were needed for."""
        return self.length == Guarantee.BOUNDED_INVALIDATION and self.cycles is not None


class Bounds:
    """Finds the bounds of one configuration, one after the other.

    Parameters
    ----------
    config : TableConfig
    limit : int
        Seconds that one try may take.
    least : bool
        The least bound is looked for, and not just one.
    """

    def __init__(self, config: TableConfig, limit: int = 60, least: bool = True):
        self.config = config
        self.limit = limit
        self._least = least
        self._parts = modules(config)
        self._table = Subject(config, lambda c: table_graph(c, patient=True), self._parts, limit)
        self._engine = Subject(config, lambda c: engine_graph(c, PATIENCE), {}, limit)

    def graph(self, *free: str) -> Model:
        """The table among the patient, without some parts of it, or some modules."""
        config = any_policy(self.config) if ARBITER in free else self.config
        return self._table.graph(config, free)

    def search(
        self, length: str, guess: int, graph: Model, never: Sequence[str], port: int | None = None
    ) -> Bound:
        """A bound that can be proved, from a guess on; the least one, if what is less is proved or
        refuted at once."""
        tried: dict[int, Result] = {}

        def proved(cycles: int, limit: int) -> bool:
            if cycles not in tried:
                tried[cycles] = prove(graph, beyond(length, cycles, port), (), never, limit)
            return tried[cycles].verdict is Verdict.PROVED

        most = LONGEST[length]
        cycles, low, stride = min(guess, most), 0, 1
        while not (found := proved(cycles, self.limit)) and cycles < most:
            if tried[cycles].verdict is Verdict.UNDECIDED:
                # The next one takes longer.
                break
            low, cycles, stride = cycles, min(most, cycles + stride), 2 * stride
        step = 1
        while self._least and found and low < cycles - 1:
            # Most guesses are right.
            middle = max(low + 1, cycles - step)
            if proved(middle, AT_ONCE):
                cycles, step = middle, 2 * step
            else:
                low, step = middle, 1
        seconds = sum(result.seconds for result in tried.values())
        return Bound(length, cycles if found else None, seconds)

    def solve(self) -> Iterator[Bound]:
        """All of them, in the order in which they stand on each other."""
        config, limit, search = self.config, self.limit, self.search
        for step in PAGED:
            yield _lemma(step.output, self._table.lemma(step))
        known = list(self._table.proved)
        lives = []
        # Two beats and the DMA, each as late as may be.
        life_guess = 11 if config.scope is RetireScope.DMA else 9
        # A lookup that starts anew may do so again: nothing here says how often.
        for port in () if policy(config.arbiter).replays else range(config.ports):
            others: list[str] = []
            if config.read_structure is ReadStructure.REPLICATED:
                others = [m for m in self._parts[PIPELINES] if m != self._parts[PIPELINES][port]]
            life = search(
                "life", life_guess, self.graph(ARBITER, COMMANDS, ENTRIES, *others), known, port
            )
            yield life
            if life.cycles is None:
                return
            lives.append(beyond("life", life.cycles, port))
        ends = search("ends", 9 * config.sources - 2, self._engine.graph(config), ())
        yield ends
        if policy(config.arbiter).replays:
            # What it waits for is in the pipelines.
            graph = self.graph(TABLES)
        else:
            graph = self.graph(PIPELINES, TABLES)
        asks = search("asks", 2, graph, lives)
        yield asks
        if asks.cycles is None:
            return
        waits = search("waits", 11, graph, lives)
        yield waits
        phases = (asks, waits, ends)
        if any(phase.cycles is None for phase in phases):
            return
        never = [beyond(phase.length, phase.cycles or 0) for phase in phases]
        commands = self.graph(ARBITER, PIPELINES, TABLES)
        phased = commands.fixed(
            bits_of("asked", 8, asks.cycles) | bits_of("waited", 8, waits.cycles or 0)
        )
        lemmas = (("interrupted", commands), ("unsummed", phased), ("miscounted", commands))
        for lemma, graph in lemmas:
            result = induct(graph, lemma, (), never, limit)
            yield _lemma(lemma, result)
            if result.verdict is Verdict.PROVED:
                never.append(lemma)
        counted = [name for name in never if name == "miscounted"]
        # R is counted as a cycle of the first, and not of the change.
        total = sum(phase.cycles or 0 for phase in phases) - 1
        if self._least and self._is_crowded(waits):
            apart = yield from self.apart([*known, *lives], ends)
            if apart:
                # These add up without `unsummed`, which knows less.
                phased = commands
                never = [name for name in never if name != "unsummed"]
                never += [beyond(bound.length, bound.cycles or 0) for bound in apart]
                waited, cleared, spared = (bound.cycles or 0 for bound in apart)
                longest = max(waited + spared, cleared + (ends.cycles or 0))
                total = min(total, asks.cycles + longest - 1)
        change = search("change", total, phased, never)
        yield change
        if change.cycles is None:
            return
        # What the monitor says of it is the same.
        output = str(Guarantee.BOUNDED_INVALIDATION)
        graph = commands.fixed(bits_of("deadline", 8, change.cycles))
        result = prove(graph, output, (), [beyond("change", change.cycles), *counted], limit)
        proved = result.verdict is Verdict.PROVED
        yield Bound(output, change.cycles if proved else None, result.seconds)

    def _is_crowded(self, waits: Bound) -> bool:
        """A change may wait longer than it would if all lookups were of its entry.

        Who kills those has to wait for others: they are in front, and they go on. With more
        sources, another may be changing their entry, and then nobody knows what is left for them.
        """
        kills = Guarantee.LOSSLESS not in policy(self.config.arbiter).guarantees(self.config)
        most = CROWDED[self.config.scope]
        return kills and self.config.sources == 1 and (waits.cycles or 0) > most

    def apart(self, known: Sequence[str], ends: Bound) -> Generator[Bound, None, list[Bound]]:
        """Bounds of the changes that clear the table, and of those that don't.

        What they stand on is true only where hosts keep to the rules. The result is how long a
        change waits, how long one that clears, and how long one ends that doesn't; or nothing, if
        nothing is known.
        """
        engine, table = self._engine, self._table
        for step in ORDER:
            yield _lemma(step.output, engine.lemma(step))
        disordered, squeezed = ORDER[-1].output, ROOM[-1].output
        table.proved += [name for name in engine.proved if name == disordered]
        for step in ROOM:
            yield _lemma(step.output, table.lemma(step))
        if squeezed not in table.proved:
            return []
        never = [*known, squeezed]
        # Without the rows, a page could be missing in one cycle and found in the next.
        graph, most = self.graph(ENTRIES, LEGALITY), CROWDED[self.config.scope]
        found: list[Bound] = []
        for length, guess, where, given in (
            ("waits", most + 2, graph, never),
            ("waits_clearing", most, graph, never),
            ("ends_sparing", (ends.cycles or 0) - 2, engine.graph(self.config), ()),
        ):
            bound = self.search(length, guess, where, given)
            yield bound
            if bound.cycles is None:
                return []
            found.append(bound)
        return found

    def progress(self, change: int | None) -> Iterator[Bound]:
        """How long a port that wants something is offered nothing; and how long a command takes,
        given how long a change does. Where nothing lasts for ever, nothing is stuck."""
        for port in range(self.config.ports):
            yield self.search("quiet", QUIET, self.graph(), (), port)
        if change is not None:
            graph = self.graph(ARBITER, PIPELINES, TABLES)
            yield self.search("command", change + AROUND, graph, [beyond("change", change)])

    def taking(self, cycles: int) -> Result:
        """Looks for a change that takes that many cycles, and so more than one less."""
        graph = table_graph(self.config, patient=True)
        graph = graph.fixed({**at_leisure(self.config), **bits_of("deadline", 8, cycles - 1)})
        output = str(Guarantee.BOUNDED_INVALIDATION)
        return refute(graph, output, LAWFUL, ("unsound",), min(self.limit, SEARCH), DEPTH)


def _lemma(name: str, result: Result) -> Bound:
    """What came of a lemma: nothing of the kind ever happens, or nobody knows."""
    return Bound(name, 0 if result.verdict is Verdict.PROVED else None, result.seconds)
