"""From an Amaranth component to what holds of it for all time.

Yosys makes an and-inverter graph of the component, in AIGER; ABC proves, by property-directed
reachability, that an output is never high, or finds the shortest way to make it so, by bounded
model checking. Memories start with zeros.
"""

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyosys

from sim.aiger import Graph, Model, Pin
from sim.netlist import CACHE, Design, converted, locked, netlist_key, replace, run_yosys

ABC = Path(pyosys.__file__).parent / "yosys-abc"


class ProverFailed(RuntimeError):
    """A proof could not be tried."""


class _NothingLeft(ProverFailed):
    """ABC doesn't search a graph without a latch."""


class Verdict(StrEnum):
    """What came of a proof."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Result:
    """What came of a proof, and what it took.

    Parameters
    ----------
    verdict : Verdict
    seconds : float
    trace : tuple
        Of a refuted output: the value of each input in each cycle, up to the first in which the
        output is high.
    searched : int
        Of an output that was looked for in vain: in how many cycles from the start it is low.
    """

    verdict: Verdict
    seconds: float
    trace: tuple[Mapping[str, int], ...] = ()
    searched: int = 0

    @property
    def cycles(self) -> int:
        """Cycles of the trace."""
        return len(self.trace)


def model(
    design: Design, parts: Sequence[str] = (), socket: str = "", *, cache: Path = CACHE
) -> Model:
    """The graph of a design, made only if it is not in the cache.

    Parameters
    ----------
    design : Design
    parts : sequence of str
        Modules that can be taken out, with their names below the top one.
    socket : str
        One of them in whose place another can be put. It reads all its inputs, and nothing that it
        drives is constant, or the same as something else that it drives.
    cache : Path
        Folder of the cache.

    Raises
    ------
    NetlistFailed
        If Yosys refuses the component.
    """
    design = dataclasses.replace(design, key=f"{design.key} {' '.join(parts)} {socket}")
    key = netlist_key(design, Path(__file__))
    path = cache / "aiger" / key / f"{design.name}.aig"
    names = path.with_suffix(".map")
    if not path.exists():
        with locked(path.parent):
            if not path.exists():
                _write_aiger(design, parts, socket, path)
    return _named(path, names.read_text(), parts)


def _write_aiger(design: Design, parts: Sequence[str], socket: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        text = converted(design)
        Path(folder, "in.il").write_text(text)
        for name in parts:
            if f"module \\{design.name}.{name}\n" not in text:
                raise ProverFailed(f"In {design.name} nothing is called {name}.")
        shown = [f"{design.name}.{name}/o:*" for name in parts]
        if socket:
            shown.append(f"{design.name}.{socket}/i:*")
        commands = [
            "read_rtlil in.il",
            f"hierarchy -top {design.name}",
            "proc",
            *([f"setattr -set part 1 {' '.join(shown)}"] if shown else []),
            "flatten",
            *(["expose a:part"] if shown else []),
            "opt -full",
            "memory_map",
            "opt -full",
            "techmap",
            "opt -fast -full",
            "dffunmap",
            "simplemap",
            "opt -fast -nodffe -nosdff",
            "aigmap",
            "opt_clean -purge",
            "setundef -init -zero",
            "write_aiger -zinit -map out.map out.aig",
        ]
        run_yosys(design.name, commands, Path(folder))
        names = Path(folder, "out.map").read_text()
        # An output that is constant has a place in the graph, and no name.
        ports = [
            (name, bit)
            for name, width in _ports(text, design.name, "output")
            for bit in range(width)
        ]
        names += "".join(f"port {n} {bit} {name}\n" for n, (name, bit) in enumerate(ports))
        if socket:
            module = f"{design.name}.{socket}"
            seen = _ports(text, module, "input")
            names += "".join(f"seen {n} 0 {socket}.{name}\n" for n, (name, _) in enumerate(seen))
            names += "".join(
                f"same {bit} {of} {name} {other}\n" for name, bit, other, of in _same(text, module)
            )
        Path(folder, "out.map").write_text(names)
        # The graph comes last: where it is, the names are, too.
        for made, final in (("out.map", path.with_suffix(".map")), ("out.aig", path)):
            partial = final.with_name(f"{final.name}.{os.getpid()}")
            partial.write_bytes(Path(folder, made).read_bytes())
            partial.rename(final)


def _module(rtlil_text: str, module: str) -> str:
    text = rtlil_text[rtlil_text.index(f"\nmodule \\{module}\n") :]
    return text[: text.index("\nend\n")]


def _same(rtlil_text: str, module: str) -> list[tuple[str, int, str, int]]:
    """What is only another name in a module, bit by bit: name, bit, and those of the other one.

    Of inputs that are the same outside, Amaranth makes one.
    """
    pattern = r"^ *connect \\(\S+) \\(\S+) \[(?:(\d+):)?(\d+)\]$"
    return [
        (name, bit - int(low), other, bit)
        for name, other, high, low in re.findall(pattern, _module(rtlil_text, module), re.MULTILINE)
        for bit in range(int(low), int(high or low) + 1)
    ]


def _ports(rtlil_text: str, module: str, way: str) -> list[tuple[str, int]]:
    """Names and widths of the inputs or outputs of a module, in the order of its ports."""
    text = _module(rtlil_text, module)
    found = re.findall(rf"^  wire width (\d+) {way} (\d+)  ?\\(\S+)$", text, re.MULTILINE)
    found.sort(key=lambda port: int(port[1]))
    return [(name, int(width)) for width, _, name in found]


def _named(path: Path, names: str, parts: Sequence[str]) -> Model:
    graph = Graph.read(path)
    pins: dict[str, dict[int, Pin]] = {kind: {} for kind in ("input", "output", "port", "seen")}
    same: dict[Pin, Pin] = {}
    for line in names.splitlines():
        kind, place, bit, name, *other = line.split()
        if kind in pins:
            pins[kind][int(place)] = name, int(bit)
        elif kind == "same":
            same[name, int(place)] = other[0], int(bit)
    inputs = tuple(pins["input"].get(place) for place in range(graph.inputs))
    outputs = {pin: graph.outputs[place] for place, pin in pins["port"].items()}
    # What is shown of the parts comes after the outputs of the top module.
    shown = {pin: graph.outputs[place] for place, pin in pins["output"].items()}
    if any(outputs.get(pin, literal) != literal for pin, literal in shown.items()):
        raise ProverFailed(f"The outputs of {path.stem} are in another order.")
    seen_names = {name for name, _ in pins["seen"].values()}
    drives: dict[str, dict[Pin, int]] = {}
    sees: dict[str, dict[Pin, int]] = {}
    for part in parts:
        own = {
            (name.removeprefix(f"{part}."), bit): (literal, name in seen_names)
            for (name, bit), literal in shown.items()
            if name.startswith(f"{part}.")
        }
        drives[part] = {pin: literal for pin, (literal, seen) in own.items() if not seen}
        sees[part] = {pin: literal for pin, (literal, seen) in own.items() if seen}
        if sees[part]:
            sees[part] |= {pin: sees[part][one] for pin, one in same.items() if one in sees[part]}
    return Model(graph, inputs, outputs, drives, sees)


def select(
    source: Model, bad: Sequence[str], always: Sequence[str], never: Sequence[str]
) -> tuple[bytes, tuple[int, ...]]:
    """What some outputs depend on, with others as constraints, and which of the inputs are left.

    Parameters
    ----------
    source : Model
    bad, always, never : sequence of str
        Outputs that are to be judged, that are assumed to be high, and assumed to be low.
    """
    chosen = [source.output(name) for name in bad]
    constraints = [source.output(name) for name in always]
    constraints += [source.output(name) ^ 1 for name in never]
    graph, inputs = source.graph.cone(chosen + constraints)
    # ABC doesn't search a graph without.
    return graph.with_a_latch().to_bytes(len(constraints)), inputs


def prove(
    source: Model,
    bad: str,
    always: Sequence[str] = (),
    never: Sequence[str] = (),
    limit: int = 60,
) -> Result:
    """Tries to prove that an output is never high.

    Parameters
    ----------
    source : Model
    bad : str
    always, never : sequence of str
        Outputs that are assumed to be high, and to be low, in every cycle.
    limit : int
        Seconds, of which each of several tries has its part; together they may take somewhat more.
    """
    if source.output(bad) == 0:
        return Result(Verdict.PROVED, 0.0)
    question = _Question.of(source, bad, always, never)
    for engine in dict.fromkeys(engine for engine, _ in _ENGINES):
        # Whoever has found out is believed, whoever would be asked first.
        if (known := question.known(engine)) is not None:
            return known
    seconds = 0.0
    result = Result(Verdict.UNDECIDED, 0.0)
    for engine, share in _ENGINES:
        part = max(1, int(limit * share))
        try:
            result = question.ask(engine.format(part), part)
        except _NothingLeft:
            continue
        seconds += result.seconds
        if result.verdict is not Verdict.UNDECIDED:
            break
    return dataclasses.replace(result, seconds=seconds)


# Not `pdr -n` or `-c`, which fail an assertion of their own here and there.
_WHOLE, _REDUCED = "pdr -s -f -T {}", "scorr; dc2; pdr -s -f -T {}"
_ENGINES = (
    (_WHOLE, 0.03),
    (_REDUCED, 0.06),
    (_WHOLE, 0.3),
    (_REDUCED, 0.5),
    # What has no state left after the reduction is nothing that `pdr` says anything about.
    ("scorr; dc2; iprove", 0.2),
)
"""What :func:`prove` tries, and for which part of its limit. What is reduced isn't always easier:
each of the two takes seconds here and there where the other one takes forever."""


def induct(
    source: Model,
    bad: str,
    always: Sequence[str] = (),
    never: Sequence[str] = (),
    limit: int = 60,
) -> Result:
    """Tries to prove that an output is never high: not at start, and in no cycle after another.

    For what has been made to follow from itself one cycle earlier, where :func:`prove` would look
    for a reason of its own. Parameters as in :func:`prove`.
    """
    if source.output(bad) == 0:
        return Result(Verdict.PROVED, 0.0)
    question = _Question.of(source, bad, always, never)
    base = question.ask(f"bmc3 -F {_AFTER} -T {limit}", limit, _AFTER)
    if base.verdict is Verdict.REFUTED or base.searched < _AFTER:
        return base
    step = question.ask(f"ind -F {_AFTER} -T {limit}", limit)
    return Result(step.verdict, base.seconds + step.seconds)


def refute(
    source: Model,
    bad: str,
    always: Sequence[str] = (),
    never: Sequence[str] = (),
    limit: int = 60,
    depth: int = 100,
) -> Result:
    """Looks for the shortest way to make an output high. Parameters as in :func:`prove`.

    A result that is undecided says that there is none of up to ``depth`` cycles, or that the time
    was over; one that is proved, that all there is was searched.
    """
    if source.output(bad) == 0:
        return Result(Verdict.PROVED, 0.0)
    question, search = _Question.of(source, bad, always, never), f"bmc3 -F {depth} -T {limit}"
    try:
        return question.ask(f"scorr; dc2; {search}", limit, depth)
    except _NothingLeft:
        return question.ask(search, limit, depth)


def equivalent(one: Model, other: Model, limit: int = 60) -> bool:
    """Whether two models with the same pins do the same in every cycle, whatever comes in."""
    if one.inputs != other.inputs or one.outputs.keys() != other.outputs.keys():
        raise ValueError("The two don't have the same pins.")
    with tempfile.TemporaryDirectory() as folder:
        for name, source in (("one", one), ("other", other)):
            outputs = tuple(source.outputs[pin] for pin in one.outputs)
            graph = dataclasses.replace(source.graph, outputs=outputs).with_a_latch()
            Path(folder, f"{name}.aig").write_bytes(graph.to_bytes())
        result = subprocess.run(
            [ABC, "-c", f"dsec -T {limit} one.aig other.aig"],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    return "Networks are equivalent" in result.stdout


_SAID = re.compile(
    r"Property proved|Networks are equivalent|UNSATISFIABLE|Explored all reachable states"
    r"|was asserted in frame (\d+)",
    re.MULTILINE,
)
_OTHER = re.compile(r"The network has registers|^SATISFIABLE", re.MULTILINE)
"""The engine is for networks without a state; or there is something, and it doesn't say what."""
_SEARCHED = re.compile(r"No output asserted in (\d+) frames")
_AFTER = 2
"""Cycles of an induction: the one that is judged, and the one before."""


@dataclass(frozen=True)
class _Said:
    """What ABC said of a graph: a :class:`Result` without names."""

    verdict: Verdict
    seconds: float
    values: Sequence[str] = ()
    searched: int = 0


@dataclass(frozen=True)
class _Question:
    """Whether one output of a model may be high: what ABC needs to know of it.

    Parameters
    ----------
    source : Model
    graph : bytes
        What the answer depends on, in AIGER.
    left : tuple of int
        Which of the inputs those of the graph are.
    constrained : bool
        Something is assumed.
    """

    source: Model
    graph: bytes
    left: tuple[int, ...]
    constrained: bool

    @classmethod
    def of(
        cls, source: Model, bad: str, always: Sequence[str], never: Sequence[str]
    ) -> "_Question":
        """Parameters as those of :func:`prove`."""
        graph, left = select(source, [bad], always, never)
        return cls(source, graph, left, bool(always or never))

    def _place(self, engine: str) -> Path:
        # Whatever the design: the same graph has the same proof, however long it may take.
        lasting = re.sub(r" -T \S+", "", engine)
        key = hashlib.sha256(self.graph + lasting.encode()).hexdigest()[:20]
        return CACHE / "proof" / f"{key}.json"

    def known(self, engine: str) -> Result | None:
        """What an engine has found out before, if it has."""
        place = self._place(engine)
        return self._result(_Said(**json.loads(place.read_text()))) if place.exists() else None

    def ask(self, engine: str, limit: int, frames: int = 0) -> Result:
        """Runs ABC; what takes more than ``frames`` cycles isn't looked for, if there are any."""
        place = self._place(engine)
        # What several are after is looked for once.
        with locked(place):
            known = self.known(engine)
            if known is not None:
                return known
            said = _solve(self.graph, self.constrained, engine, limit)
            if said.verdict is not Verdict.UNDECIDED or (frames and said.searched >= frames):
                replace(place, json.dumps(dataclasses.asdict(said)))
        return self._result(said)

    def _result(self, said: _Said) -> Result:
        trace = _renamed(said.values, self.source, self.left)
        return Result(Verdict(said.verdict), said.seconds, trace, said.searched)


def _solve(graph: bytes, constrained: bool, engine: str, limit: int) -> _Said:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.aig").write_bytes(graph)
        fold = "fold; " if constrained else ""
        script = f"read_aiger in.aig; strash; {fold}{engine}; write_cex -a out.cex"
        try:
            result = subprocess.run(
                [ABC, "-c", script],
                cwd=folder,
                capture_output=True,
                text=True,
                # Its own limit isn't looked at everywhere.
                timeout=2 * limit + 30,
            )
        except subprocess.TimeoutExpired:
            return _Said(Verdict.UNDECIDED, time.monotonic() - began)
        seconds = time.monotonic() - began
        said = _SAID.search(result.stdout)
        if said is None:
            if "UNDECIDED" in result.stdout or "No output asserted" in result.stdout:
                searched = _SEARCHED.search(result.stdout)
                return _Said(
                    Verdict.UNDECIDED, seconds, searched=int(searched[1]) if searched else 0
                )
            if "for combinational networks" in result.stdout:
                raise _NothingLeft("Of the graph, nothing is left that has a state.")
            if _OTHER.search(result.stdout + result.stderr):
                return _Said(Verdict.UNDECIDED, seconds)
            lines = (result.stdout + result.stderr).strip().splitlines()
            raise ProverFailed("\n".join(["ABC failed:", *lines[-5:]]))
        if said[1] is None:
            return _Said(Verdict.PROVED, seconds)
        # First a line with the latches, last one with a comment; between them the inputs.
        witness = Path(folder, "out.cex").read_text().splitlines()[1:]
        return _Said(Verdict.REFUTED, seconds, witness[: int(said[1]) + 1])


def _renamed(
    values: Sequence[str], source: Model, left: Sequence[int]
) -> tuple[Mapping[str, int], ...]:
    """A trace with names; inputs on which nothing depends are low, if nothing else was given."""
    nothing = {named[0]: 0 for named in source.inputs if named is not None}
    for (name, bit), value in source.given.items():
        nothing[name] |= value << bit
    cycles = []
    for line in values:
        cycle = dict(nothing)
        for place, value in zip(left, line, strict=True):
            named = source.inputs[place]
            if named is not None:
                name, bit = named
                cycle[name] |= (value == "1") << bit
        cycles.append(cycle)
    return tuple(cycles)
