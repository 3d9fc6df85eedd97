"""And-inverter graphs in the binary AIGER format: to read, to cut, to put together, and to write.

A literal is twice a variable, plus one if it is inverted; 0 is low and 1 is high. Variables are
numbered: inputs first, then latches, then gates, each gate after what it reads.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
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

    def fixed(self, values: Mapping[int, int]) -> "Graph":
        """The graph with some variables low (0) or high (1), whatever they come from.

        What follows from that within a cycle is constant, too; no gate is left out, but nobody
        reads those that are.
        """
        known = dict(values)

        def moved(literal: int) -> int:
            value = known.get(literal >> 1)
            return literal if value is None else value ^ (literal & 1)

        gates: list[tuple[int, int]] = []
        for variable, (a, b) in enumerate(self.gates, self.inputs + len(self.latches) + 1):
            high, low = sorted((moved(a), moved(b)), reverse=True)
            if variable not in known and (low == 0 or high == 1):
                known[variable] = low & high
            gates.append((high, low))
        return Graph(
            self.inputs,
            tuple(map(moved, self.latches)),
            tuple(map(moved, self.outputs)),
            tuple(gates),
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


Pin = tuple[str, int]
"""A bit of a port: the name of the port, and the number of the bit."""


@dataclass(frozen=True)
class Model:
    """A graph whose inputs and outputs have names.

    Parameters
    ----------
    graph : Graph
    inputs : tuple
        What each input is; those of a cut have no name.
    outputs : mapping
        A literal for each pin.
    drives : mapping
        What each part that can be taken out drives, a literal for each of its pins.
    sees : mapping
        What each of them reads, of those in whose place another can be put.
    given : mapping
        Inputs that are constant.
    """

    graph: Graph
    inputs: tuple[Pin | None, ...]
    outputs: Mapping[Pin, int]
    drives: Mapping[str, Mapping[Pin, int]]
    sees: Mapping[str, Mapping[Pin, int]] = dataclasses.field(default_factory=dict)
    given: Mapping[Pin, int] = dataclasses.field(default_factory=dict)

    def output(self, name: str) -> int:
        """The literal of an output of one bit."""
        return self.outputs[name, 0]

    def without(self, parts: Iterable[str]) -> "Model":
        """The same, where whatever some parts drive can have any value in any cycle.

        What is proved then holds with the parts, too; what is refuted may need something that they
        never do.
        """
        free = {literal >> 1 for part in parts for literal in self.drives[part].values()}
        graph, outputs = self._through(lambda graph: graph.cut(free))
        inputs = (*self.inputs, *[None] * (graph.inputs - self.graph.inputs))
        return Model(graph, inputs, outputs, {}, given=self.given)

    def _through(self, change: Callable[[Graph], Graph]) -> tuple[Graph, dict[Pin, int]]:
        """The graph after a change, and where its outputs are then."""
        whole = dataclasses.replace(self.graph, outputs=tuple(self.outputs.values()))
        graph = change(whole)
        return graph, dict(zip(self.outputs, graph.outputs, strict=True))

    def fixed(self, values: Mapping[Pin, int]) -> "Model":
        """The same with some bits of inputs constant; parts can be taken out as before."""
        bits = {
            place: values[pin] & 1
            for place, pin in enumerate(self.inputs, 1)
            if pin is not None and pin in values
        }
        graph, outputs = self._through(lambda graph: graph.fixed(bits))
        return dataclasses.replace(
            self, graph=graph, outputs=outputs, given={**self.given, **values}
        )

    def filled(self, part: str, other: "Model") -> "Model":
        """The same, with another model in place of a part: one with the pins of the part.

        Raises
        ------
        ValueError
            If the other reads or drives what the part doesn't.
        """
        joined = _Joined(self, part, other)
        outputs = {pin: joined.moved(literal) for pin, literal in self.outputs.items()}
        drives = {
            name: {pin: joined.moved(literal) for pin, literal in pins.items()}
            for name, pins in self.drives.items()
            # What is constant now couldn't be taken out again.
            if name != part
        }
        return Model(joined.graph(), self.inputs, outputs, drives, given=self.given)


class _Joined:
    """A model in place of a part of another, gate after gate as they depend on each other.

    Variables of the other one are numbered on from those of the first.
    """

    def __init__(self, base: Model, part: str, other: Model):
        sees, drives = base.sees[part], base.drives[part]
        if missing := drives.keys() - other.outputs.keys():
            raise ValueError(f"nothing drives {sorted(missing)} of {part}")
        self._base, self._other = base.graph, other.graph
        self._shift = base.graph.inputs + len(base.graph.latches) + len(base.graph.gates)
        # For what the part drives stands what the other one drives; and for what that one reads,
        # what the part saw.
        self._stands_for: dict[int, int] = {}
        for pin, literal in drives.items():
            if literal < 2 or literal >> 1 in self._stands_for:
                raise ValueError(f"{pin} of {part} is no signal of its own")
            self._stands_for[literal >> 1] = self._lifted(other.outputs[pin]) ^ (literal & 1)
        for variable, pin in enumerate(other.inputs, self._shift + 1):
            if pin is not None and pin in sees:
                self._stands_for[variable] = sees[pin]
        # Of each variable that is known, the literal in the new graph.
        states = self._base.inputs + len(self._base.latches)
        self._new = {variable: 2 * variable for variable in range(states + 1)}
        for place in range(1, len(self._other.latches) + 1):
            self._new[self._shift + self._other.inputs + place] = 2 * (states + place)
        for variable in self._stands_for:
            self._new.pop(variable, None)
        self._states = states + len(self._other.latches)
        self._gates: list[tuple[int, int]] = []

    def _lifted(self, literal: int) -> int:
        return literal + 2 * self._shift if literal > 1 else literal

    def _read_by(self, variable: int) -> tuple[int, ...]:
        """The literals that a variable comes from."""
        if variable in self._stands_for:
            return (self._stands_for[variable],)
        if variable <= self._shift:
            graph = self._base
            return graph.gates[variable - graph.inputs - len(graph.latches) - 1]
        graph = self._other
        gate = variable - self._shift - graph.inputs - len(graph.latches) - 1
        if gate < 0:
            raise ValueError("it reads what the part doesn't see")
        return tuple(map(self._lifted, graph.gates[gate]))

    def moved(self, literal: int) -> int:
        """The literal in the new graph."""
        new, todo, entered = self._new, [literal >> 1], set[int]()
        while todo:
            variable = todo[-1]
            if variable in new:
                todo.pop()
                continue
            literals = self._read_by(variable)
            unknown = [read >> 1 for read in literals if read >> 1 not in new]
            if unknown and variable in entered:
                raise ValueError("it depends on itself within one cycle")
            entered.add(variable)
            todo += unknown
            if unknown:
                continue
            found = [new[read >> 1] ^ (read & 1) for read in literals]
            if len(found) == 2:
                self._gates.append((max(found), min(found)))
                found = [2 * (self._states + len(self._gates))]
            new[variable] = found[0]
        return new[literal >> 1] ^ (literal & 1)

    def graph(self) -> Graph:
        """The new graph, with everything that was ever moved."""
        latches = [*self._base.latches, *map(self._lifted, self._other.latches)]
        moved = tuple(map(self.moved, latches))
        return Graph(self._base.inputs, moved, (), tuple(self._gates))
