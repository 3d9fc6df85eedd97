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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rtl.config import TableConfig
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
        Of the configuration and the point.
    """

    reason: str
    holds: Callable[[TableConfig, Point], bool]


def _toggles(pattern: str) -> Callable[[Point], bool]:
    compiled = re.compile(pattern)
    return lambda point: (
        point.kind == "toggle"
        and bool(compiled.fullmatch(f"{point.place}.{point.name.partition(':')[0]}"))
    )


_aborts = _toggles(r"pipeline_\d+\.fixed_abort")
_kills = _toggles(r"\.kill__\d+(\[\d+\])?")
_holds = _toggles(r"\.(held(\[\d+\])?|change__\d+__held)")

EXCUSES: Sequence[Excuse] = (
    Excuse(
        "The policy ends no lookup.",
        lambda config, point: _aborts(point) and config.arbiter not in ("squash", "version_check"),
    ),
    Excuse(
        "The policy stops no DMA.",
        lambda config, point: _kills(point) and config.arbiter not in ("squash", "version_check"),
    ),
    Excuse(
        "The policy makes nobody wait.",
        lambda config, point: _holds(point) and config.arbiter == "apply_now",
    ),
    Excuse(
        "The tags are always ready to be taken back.",
        lambda config, point: _toggles(r"\.retire__\d+__ready")(point),
    ),
    Excuse(
        "There are no ghosts in this table, and so no version.",
        lambda config, point: _toggles(r"\.change__\d+__version\[\d+\]")(point),
    ),
)
"""What is never seen in a table of one configuration, beside lines whose condition is constant."""

CONSTANT = "The condition is constant in this configuration."


def constant_lines(text: str) -> set[int]:
    """Numbers of the lines of a Verilog text that are branches whose condition is always low.

    A condition counts as low that is a conjunction with a 0 in it, or with another one that is low.
    """
    found: set[int] = set()
    lines = text.splitlines()
    begin = 0
    for end, line in enumerate(lines):
        if line == "endmodule":
            low = _low(lines[begin:end])
            for number in range(begin, end):
                branch = _BRANCH.search(lines[number])
                if branch is not None and branch[1] in low:
                    found.add(number + 1)
            begin = end
    return found


_BRANCH = re.compile(r"\bif \((\w+)\) begin")
_AND = re.compile(r"assign (\w+) = (\S+) && ?(\S+);|assign (\w+) = (\S+) & (\S+);")


def _low(lines: Iterable[str]) -> set[str]:
    terms = {}
    for line in lines:
        match = _AND.search(line)
        if match is not None:
            target, *operands = [group for group in match.groups() if group is not None]
            terms[target] = operands
    low = {"1'h0"}
    while True:
        more = {target for target, operands in terms.items() if low & set(operands)} - low
        if not more:
            return low
        low |= more


def explain(config: TableConfig, text: str, points: Iterable[Point]) -> Iterator[tuple[Point, str]]:
    """The points that were not seen, each with the reason; empty if there is none."""
    constant = constant_lines(text)
    for point in points:
        if point.count:
            continue
        reasons = (excuse.reason for excuse in EXCUSES if excuse.holds(config, point))
        why = CONSTANT if point.kind == "line" and point.line in constant else ""
        yield point, why or next(reasons, "")
