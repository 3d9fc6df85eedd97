"""What Verilator counts in the hardware: lines, and bits that toggle.

It counts in a netlist of its own, as near to the sources as can be had. Amaranth writes a process
for each signal, with those branches of ``m.If`` and ``m.Switch`` that drive it. In the netlist that
is simulated otherwise there are multiplexers instead, of which Verilator sees nothing.
So a *line* is one branch of one process: a condition under which one signal gets its value.

Bits are counted that hold state, and those of the ports of the top level. Whatever else there is
follows from these within the cycle, and most of it is there several times: once in each module that
passes it on. Rows of memories are not counted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rtl.config import StepOrder, TableConfig
from sim import netlist
from sim.netlist import CACHE, Design

_PASSES = ("proc_prune", "proc_clean", "memory_collect")
"""Processes stay."""

_MODULE = re.compile(r"^module (\w+)\(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_DECLARATION = re.compile(
    r"^  (?P<kind>input|output|wire|reg|logic)\b[^;=]*?(?P<name>\w+)(?P<rows> \[[\d:]+\])?"
    r"(?: = [^;]*)?;$",
    re.MULTILINE,
)
_STATE = re.compile(r"^ +(\w+)(?:\[[\d:]+\])? <=", re.MULTILINE)


def instrumented(design: Design, cache: Path = CACHE) -> Path:
    """The design as Verilog with its processes, and with marks at what is not to be counted.

    Parameters
    ----------
    design : Design
    cache : Path
        Folder of the cache.

    Raises
    ------
    NetlistFailed
        If Yosys refuses the component.
    """
    key = netlist.netlist_key(design, Path(__file__))
    path = cache / "netlist" / f"{key}-lines" / f"{design.name}.v"

    def make() -> str:
        text = netlist.write_verilog(design.name, netlist.rtlil_text(design), _PASSES)
        return _marked(text, design.name)

    return netlist.cached(path, make)


def _marked(text: str, top: str) -> str:
    """Turns counting off at declarations of what is neither state nor a port of the top level."""

    def mark_module(module: re.Match[str]) -> str:
        state = set(_STATE.findall(module[0]))

        def mark(found: re.Match[str]) -> str:
            is_port = module[1] == top and found["kind"] in ("input", "output")
            if is_port or (found["name"] in state and not found["rows"]):
                return found[0]
            return f"/*verilator coverage_off*/\n{found[0]}\n/*verilator coverage_on*/"

        return _DECLARATION.sub(mark, module[0])

    return _MODULE.sub(mark_module, text)


@dataclass(frozen=True)
class Point:
    """Something that Verilator counts.

    Parameters
    ----------
    kind : str
        ``line`` or ``toggle``.
    module : str
        Of the Verilog.
    place : str
        The instance, without the name of the top level.
    name : str
        Of a toggle, the signal, its bit and the direction; of a line, the kind of the branch.
    line : int
        In the Verilog.
    count : int
        How often it was seen.
    """

    kind: str
    module: str
    place: str
    name: str
    line: int
    count: int

    def __str__(self) -> str:
        what = f"line {self.line}, {self.name}" if self.kind == "line" else self.name
        return f"{self.kind}: {self.place or 'top'}: {what}"


DATA = "coverage.dat"
"""What the simulation leaves in the folder of its run."""


def read(path: Path) -> list[Point]:
    """Reads what a simulation counted.

    The package of Verilator comes without its own program for that.
    """
    points = []
    for line in path.read_text(encoding="latin-1").splitlines():
        if not line.startswith("C '"):
            continue
        keys, _, count = line[3:].rpartition("' ")
        fields = dict(key.split("\x02", 1) for key in keys.split("\x01") if key)
        kind, _, module = fields["page"].partition("/")
        # A double underscore is written as one and a code.
        name = fields["o"].replace("__05F", "_")
        points.append(
            Point(
                "toggle" if kind == "v_toggle" else "line",
                module,
                fields["h"].partition(".")[2],
                name,
                int(fields["l"]),
                int(count),
            )
        )
    return points


@dataclass(frozen=True)
class Excuse:
    """Why some points are never seen.

    Parameters
    ----------
    reason : str
        A sentence.
    holds : function
        Of the configuration, the point, and its line of Verilog with the next one.
    """

    reason: str
    holds: Callable[[TableConfig, Point, str], bool]


def _toggles(pattern: str) -> Callable[[Point], bool]:
    compiled = re.compile(pattern)
    return lambda point: (
        point.kind == "toggle"
        and bool(compiled.fullmatch(f"{point.place}.{point.name.partition(':')[0]}"))
    )


def _ends_none(config: TableConfig) -> bool:
    return config.arbiter not in ("squash", "version_check")


_aborts = _toggles(r"pipeline_\d+\.fixed_abort")
_fourth = _toggles(r"pipeline_\d+\.buffer\.(kept_count|again)\[2\]")
_behind = re.compile(r"'h[23]: +_\d+_ = item__[23];")

EXCUSES: Sequence[Excuse] = (
    Excuse(
        "The policy ends no lookup.",
        lambda config, point, line: (
            _ends_none(config)
            and (_aborts(point) or (point.name == "cond_then" and "= aborted ? " in line))
        ),
    ),
    Excuse(
        "With `STEP_ORDER=entry_first` a command removes translations after its A alone.",
        lambda config, point, line: (
            config.step_order is StepOrder.ENTRY_FIRST
            and point.place == "commands.worker"
            and point.name == "else"
            and "if (job__finishing) begin" in line
        ),
    ),
    Excuse(
        "Three lookups are kept for a replay at most; a fourth comes as one goes.",
        lambda config, point, line: _fourth(point),
    ),
    Excuse(
        "Only the proofs look here, and no lookup has more before it than there are stages.",
        lambda config, point, line: point.name == "case" and bool(_behind.search(line)),
    ),
)
"""What is never seen in a table of one configuration, beside what is constant."""

CONSTANT = "The condition is constant in this configuration."

_CONDITIONS = {
    "if": (re.compile(r"\bif \((\w+)\) begin"), "1'h0"),
    "elsif": (re.compile(r"\bif \((\w+)\) begin"), "1'h0"),
    "else": (re.compile(r"\bif \((\w+)\) begin"), "1'h1"),
    "cond_then": (re.compile(r"= (\w+) \? "), "1'h0"),
    "cond_else": (re.compile(r"= (\w+) \? "), "1'h1"),
}
"""By the kind of a branch: where its condition is, and the value with which it is never taken."""


class Constants:
    """Which conditions of a Verilog text have always the same value.

    Only what follows from constants in the same module, through *and*, *or* and *not*.

    Parameters
    ----------
    text : str
    """

    def __init__(self, text: str):
        self.lines = text.splitlines()
        self._values: list[Mapping[str, str]] = []
        begin = 0
        for end, line in enumerate(self.lines):
            if line == "endmodule":
                values = _values(self.lines[begin:end])
                self._values += [values] * (end + 1 - begin)
                begin = end + 1

    def never(self, point: Point) -> bool:
        """Whether the point is a branch that is never taken."""
        if point.kind != "line" or point.name not in _CONDITIONS:
            return False
        pattern, value = _CONDITIONS[point.name]
        found = pattern.search(self.lines[point.line - 1])
        return found is not None and self._values[point.line - 1].get(found[1]) == value


_ASSIGN = re.compile(r"^  assign (\w+) = (~ )?([\w']+)(?: ([&|]) ([\w']+))?;$")


def _values(lines: Iterable[str]) -> dict[str, str]:
    """The signals that are constant."""
    assigns = [found.groups() for line in lines if (found := _ASSIGN.match(line))]
    low, high = "1'h0", "1'h1"
    values = {low: low, high: high}
    while True:
        before = len(values)
        for target, inverted, one, operator, other in assigns:
            operands = {values.get(one), values.get(other)} if operator else {values.get(one)}
            decides = low if operator == "&" else high
            if operator and decides in operands:
                values[target] = decides
            elif len(operands) == 1 and (value := operands.pop()) is not None:
                values[target] = {low: high, high: low}[value] if inverted else value
        if len(values) == before:
            return values


def explain(config: TableConfig, text: str, points: Iterable[Point]) -> Iterator[tuple[Point, str]]:
    """The points that were not seen, each with the reason; empty if there is none."""
    constants = Constants(text)
    for point in points:
        if point.count:
            continue
        line = " ".join(constants.lines[point.line - 1 : point.line + 1])
        reasons = [CONSTANT] * constants.never(point)
        reasons += [excuse.reason for excuse in EXCUSES if excuse.holds(config, point, line)]
        yield point, next(iter(reasons), "")
