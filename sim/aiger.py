"""And-inverter graphs in the binary AIGER format: to read, to cut, and to write.

A literal is twice a variable, plus one if it is inverted; 0 is low and 1 is high. Variables are
numbered: inputs first, then latches, then gates, each gate after what it reads.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Graph:
    """A sequential circuit. Latches start low.

    Parameters
    ----------
    inputs : int
        How many.
    latches : tuple of int
        The literal that each takes over at the end of a cycle.
    outputs : tuple of int
        A literal each.
    gates : tuple of (int, int)
        The two literals of which each is the conjunction.
    """

    inputs: int
    latches: tuple[int, ...]
    outputs: tuple[int, ...]
    gates: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, path: Path) -> "Graph":
        """The graph of a file, which has neither constraints nor latches that start high."""
        head, rest = path.read_bytes().split(b"\n", 1)
        _, inputs, latches, outputs, gates = map(int, head.split()[1:6])
        lines = rest.split(b"\n", latches + outputs)
        literals = [int(line) for line in lines[:-1]]
        coded = iter(lines[-1])

        def difference() -> int:
            value = shift = 0
            while (byte := next(coded)) & 0x80:
                value |= (byte & 0x7F) << shift
                shift += 7
            return value | byte << shift

        pairs = []
        for variable in range(inputs + latches + 1, inputs + latches + gates + 1):
            high = 2 * variable - difference()
            pairs.append((high, high - difference()))
        return cls(inputs, tuple(literals[:latches]), tuple(literals[latches:]), tuple(pairs))

    def cut(self, free: Iterable[int]) -> "Graph":
        """The graph with an input more for each variable of ``free``, which everybody then reads
        in place of it.

        Whatever the graph does, the new one can do: what is low in each of its cycles is low in
        this one, too. The new inputs come last, in the order of the variables.
        """
        cut = sorted(set(free) - {0})
        taken = {variable: self.inputs + 1 + place for place, variable in enumerate(cut)}

        def moved(literal: int) -> int:
            variable = literal >> 1
            if variable in taken:
                variable = taken[variable]
            elif variable > self.inputs:
                variable += len(cut)
            return 2 * variable | literal & 1

        gates = ((moved(a), moved(b)) for a, b in self.gates)
        return Graph(
            self.inputs + len(cut),
            tuple(map(moved, self.latches)),
            tuple(map(moved, self.outputs)),
            tuple((max(pair), min(pair)) for pair in gates),
        )

    def cone(self, roots: Iterable[int]) -> tuple["Graph", tuple[int, ...]]:
        """What some literals depend on, with these as outputs, and which of the inputs are left."""
        roots = list(roots)
        first_latch, first_gate = self.inputs + 1, self.inputs + 1 + len(self.latches)
        needed: set[int] = set()
        todo = [literal >> 1 for literal in roots]
        while todo:
            variable = todo.pop()
            if variable in needed:
                continue
            needed.add(variable)
            if variable >= first_gate:
                a, b = self.gates[variable - first_gate]
                todo += (a >> 1, b >> 1)
            elif variable >= first_latch:
                todo.append(self.latches[variable - first_latch] >> 1)
        kept = sorted(needed - {0})
        place = {0: 0} | {variable: number for number, variable in enumerate(kept, 1)}

        def moved(literal: int) -> int:
            return 2 * place[literal >> 1] | literal & 1

        inputs = tuple(variable - 1 for variable in kept if variable < first_latch)
        latches = [v for v in kept if first_latch <= v < first_gate]
        gates = [self.gates[v - first_gate] for v in kept if v >= first_gate]
        smaller = Graph(
            len(inputs),
            tuple(moved(self.latches[v - first_latch]) for v in latches),
            tuple(map(moved, roots)),
            tuple((moved(a), moved(b)) for a, b in gates),
        )
        return smaller, inputs

    def with_a_latch(self) -> "Graph":
        """The same if it has a latch; if not, the same with one that nobody reads."""
        if self.latches:
            return self

        def moved(literal: int) -> int:
            return literal + 2 * (literal >> 1 > self.inputs)

        gates = tuple((moved(a), moved(b)) for a, b in self.gates)
        return Graph(self.inputs, (0,), tuple(map(moved, self.outputs)), gates)

    def to_bytes(self, constraints: int = 0) -> bytes:
        """The content of a file. The last outputs are ``constraints``: in no cycle are they low."""
        latches, gates = len(self.latches), len(self.gates)
        sizes = [self.inputs + latches + gates, self.inputs, latches]
        sizes += [len(self.outputs) - constraints, gates]
        if constraints:
            sizes += [0, constraints]
        lines = [f"aig {' '.join(map(str, sizes))}", *map(str, self.latches + self.outputs), ""]
        coded = bytearray("\n".join(lines), "ascii")

        def code(value: int) -> None:
            while value >= 0x80:
                coded.append(value & 0x7F | 0x80)
                value >>= 7
            coded.append(value)

        for variable, (high, low) in enumerate(self.gates, self.inputs + latches + 1):
            code(2 * variable - high)
            code(high - low)
        return bytes(coded)


@dataclass(frozen=True)
class Model:
    """A graph whose inputs and outputs have names.

    Parameters
    ----------
    graph : Graph
    inputs : tuple
        Name and bit of each input; those of a cut have none.
    outputs : mapping
        A literal by name.
    parts : mapping
        What each part that can be taken out drives, as literals.
    """

    graph: Graph
    inputs: tuple[tuple[str, int] | None, ...]
    outputs: Mapping[str, int]
    parts: Mapping[str, tuple[int, ...]]

    def without(self, parts: Iterable[str]) -> "Model":
        """The same, where whatever some parts drive can have any value in any cycle.

        What is proved then holds with the parts, too; what is refuted may need something that they
        never do.
        """
        free = {literal >> 1 for part in parts for literal in self.parts[part]}
        names = list(self.outputs)
        whole = dataclasses.replace(self.graph, outputs=tuple(self.outputs.values()))
        graph = whole.cut(free)
        added = graph.inputs - self.graph.inputs
        outputs = dict(zip(names, graph.outputs, strict=True))
        return Model(graph, (*self.inputs, *[None] * added), outputs, {})
