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
from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]  # not in the stubs

from sim.netlist import CACHE, Design, locked, netlist_key, replace, run_yosys

ABC = Path(pyosys.__file__).parent / "yosys-abc"


class ProverFailed(RuntimeError):
    """A proof could not be tried."""


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


@dataclass(frozen=True)
class Model:
    """An and-inverter graph, and the names of what goes in and out.

    Parameters
    ----------
    path : Path
        AIGER, with the outputs in the order of ``outputs``.
    outputs : tuple of str
    inputs : tuple
        Name and bit of each input of the graph; those without a name are of modules that were
        taken out.
    low : frozenset of str
        Outputs that Yosys found to be always low. They have no name in ``outputs``.
    """

    path: Path
    outputs: tuple[str, ...]
    inputs: tuple[tuple[str, int] | None, ...]
    low: frozenset[str]


def model(design: Design, free: Sequence[str] = (), cache: Path = CACHE) -> Model:
    """The graph of a design, made only if it is not in the cache.

    Parameters
    ----------
    design : Design
    free : sequence of str
        Modules that are taken out, with their names below the top one. Whatever they drive can
        have any value in any cycle. What is proved then holds with the modules, too; what is
        refuted may need something that they never do.
    cache : Path
        Folder of the cache.

    Raises
    ------
    NetlistFailed
        If Yosys refuses the component.
    """
    design = dataclasses.replace(design, key=f"{design.key} {' '.join(free)}")
    key = netlist_key(design, Path(__file__))
    path = cache / "aiger" / key / f"{design.name}.aig"
    names = path.with_suffix(".map")
    if not path.exists():
        with locked(path.parent):
            if not path.exists():
                _write_aiger(design, free, path)
    return _named(path, names.read_text())


def _write_aiger(design: Design, free: Sequence[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        text = rtlil.convert(design.factory(), name=design.name, emit_src=False)
        Path(folder, "in.il").write_text(text)
        commands = [
            "read_rtlil in.il",
            f"hierarchy -top {design.name}",
            "proc",
            *(f"cutpoint {design.name}.{name}" for name in free),
            "flatten",
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
        # Of an output that is constant, the graph has the value and not the name.
        names = Path(folder, "out.map").read_text()
        known = {line.split()[3] for line in names.splitlines() if line.startswith("output")}
        constant = [name for name in _output_ports(text) if name not in known]
        names += "".join(f"constant 0 0 {name}\n" for name in constant)
        Path(folder, "out.map").write_text(names)
        # The graph comes last: where it is, the names are, too.
        for made, final in (("out.map", path.with_suffix(".map")), ("out.aig", path)):
            partial = final.with_name(f"{final.name}.{os.getpid()}")
            partial.write_bytes(Path(folder, made).read_bytes())
            partial.rename(final)


def _output_ports(rtlil_text: str) -> list[str]:
    """The outputs of the top module of a design, all of one bit."""
    top = rtlil_text[rtlil_text.index("attribute \\top 1") :]
    module = top[: top.index("\nend\n")]
    return re.findall(r"^  wire width \d+ output \d+  ?\\(\S+)$", module, re.MULTILINE)


def _named(path: Path, names: str) -> Model:
    with path.open("rb") as file:
        header = file.readline().split()
    inputs: list[tuple[str, int] | None] = [None] * int(header[2])
    outputs = [""] * int(header[4])
    constant = set()
    for line in names.splitlines():
        kind, place, bit, name = (line.split() + [""] * 4)[:4]
        if kind == "input":
            inputs[int(place)] = (name, int(bit))
        elif kind == "output":
            outputs[int(place)] = name
        elif kind == "constant":
            constant.add(name)
    literals = _literals(path, len(outputs))
    if any(literal != 0 for literal, name in zip(literals, outputs, strict=True) if not name):
        raise ProverFailed(f"An output of {path.stem} is always high.")
    return Model(path, tuple(outputs), tuple(inputs), frozenset(constant))


def _literals(path: Path, outputs: int) -> list[int]:
    header, rest = path.read_bytes().split(b"\n", 1)
    latches = int(header.split()[3])
    return [int(line) for line in rest.split(b"\n", latches + outputs)[latches:-1]]


def select(source: Model, bad: Sequence[str], always: Sequence[str], never: Sequence[str]) -> bytes:
    """The graph with only the outputs ``bad``, and others as constraints.

    Parameters
    ----------
    source : Model
    bad, always, never : sequence of str
        Outputs that are to be judged, that are assumed to be high, and assumed to be low.
    """
    header, rest = source.path.read_bytes().split(b"\n", 1)
    words = header.split()
    latches, outputs = int(words[3]), int(words[4])
    lines = rest.split(b"\n", latches + outputs)
    literals = dict(zip(source.outputs, map(int, lines[latches : latches + outputs]), strict=True))
    literals |= dict.fromkeys(source.low, 0)
    chosen = [literals[name] for name in bad]
    constraints = [literals[name] for name in always]
    constraints += [literals[name] ^ 1 for name in never]
    words[4] = b"%d" % len(chosen)
    if constraints:
        words += [b"0", b"%d" % len(constraints)]
    numbers = [b"%d" % literal for literal in chosen + constraints]
    return b"\n".join([b" ".join(words), *lines[:latches], *numbers, lines[-1]])


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
        Seconds after which nothing is decided.
    """
    if bad in source.low:
        return Result(Verdict.PROVED, 0.0)
    pdr = f"pdr -s -f -T {limit}"
    seconds = 0.0
    # What has no state after the reduction is nothing that `pdr` says anything about.
    for engine in (f"scorr; dc2; {pdr}", "scorr; dc2; iprove", pdr):
        result = _run(source, bad, always, never, engine, limit)
        seconds += result.seconds
        if result.verdict is not Verdict.UNDECIDED or seconds >= limit / 2:
            break
    return dataclasses.replace(result, seconds=seconds)


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
    if bad in source.low:
        return Result(Verdict.PROVED, 0.0)
    base = _run(source, bad, always, never, f"bmc3 -F {_AFTER} -T {limit}", limit)
    if base.verdict is Verdict.REFUTED or base.searched < _AFTER:
        return base
    step = _run(source, bad, always, never, f"ind -F {_AFTER} -T {limit}", limit)
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
    was over.
    """
    if bad in source.low:
        return Result(Verdict.UNDECIDED, 0.0, searched=depth)
    bmc = f"bmc3 -F {depth} -T {limit}"
    result = _run(source, bad, always, never, f"scorr; dc2; {bmc}", limit)
    if result.verdict is Verdict.UNDECIDED and not result.searched and result.seconds < limit / 2:
        # Nor does `bmc3` of what has no state.
        again = _run(source, bad, always, never, bmc, limit)
        result = dataclasses.replace(again, seconds=result.seconds + again.seconds)
    return result


_SAID = re.compile(
    r"Property proved|Networks are equivalent|UNSATISFIABLE|was asserted in frame (\d+)",
    re.MULTILINE,
)
_NOTHING = re.compile(
    r"The network has registers|Does not work for combinational networks|^SATISFIABLE"
    r"|Explored all reachable states",
    re.MULTILINE,
)
"""The engine is for networks that have no state, or for those that have one; or there is something,
and it doesn't say what; or the search came to an end before its depth."""
_SEARCHED = re.compile(r"No output asserted in (\d+) frames")
_AFTER = 2
"""Cycles of an induction: the one that is judged, and the one before."""


def _run(
    source: Model,
    bad: str,
    always: Sequence[str],
    never: Sequence[str],
    engine: str,
    limit: int,
) -> Result:
    graph = select(source, [bad], always, never)
    # Whatever the design: the same graph has the same proof.
    key = hashlib.sha256(graph + engine.encode()).hexdigest()[:20]
    known = CACHE / "proof" / f"{key}.json"
    if known.exists():
        said = json.loads(known.read_text())
        trace = tuple({name: int(value) for name, value in cycle.items()} for cycle in said[2])
        return Result(Verdict(said[0]), said[1], trace)
    result = _solve(source, graph, bool(always or never), engine, limit)
    if result.verdict is not Verdict.UNDECIDED:
        known.parent.mkdir(parents=True, exist_ok=True)
        replace(known, json.dumps([result.verdict, result.seconds, result.trace]))
    return result


def _solve(source: Model, graph: bytes, constrained: bool, engine: str, limit: int) -> Result:
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
            return Result(Verdict.UNDECIDED, time.monotonic() - began)
        seconds = time.monotonic() - began
        said = _SAID.search(result.stdout)
        if said is None:
            if _NOTHING.search(result.stdout + result.stderr):
                return Result(Verdict.UNDECIDED, seconds)
            if "UNDECIDED" in result.stdout or "No output asserted" in result.stdout:
                searched = _SEARCHED.search(result.stdout)
                cycles = int(searched[1]) if searched else 0
                return Result(Verdict.UNDECIDED, seconds, searched=cycles)
            lines = (result.stdout + result.stderr).strip().splitlines()
            raise ProverFailed("\n".join(["ABC failed:", *lines[-5:]]))
        if said[1] is None:
            return Result(Verdict.PROVED, seconds)
        # The state at the start comes before the cycles, and may look like one.
        cycles = int(said[1]) + 1
        return Result(Verdict.REFUTED, seconds, _trace(source, Path(folder, "out.cex"))[-cycles:])


def _trace(source: Model, path: Path) -> tuple[Mapping[str, int], ...]:
    """The values of the named inputs, from a witness of AIGER."""
    cycles = []
    for line in path.read_text().splitlines():
        if len(line) != len(source.inputs) or set(line) - set("01x"):
            continue
        values: dict[str, int] = {}
        for named, value in zip(source.inputs, line, strict=True):
            if named is not None:
                name, bit = named
                values[name] = values.get(name, 0) | (value == "1") << bit
        cycles.append(values)
    return tuple(cycles)
