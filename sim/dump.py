"""Reads dumps: which signals they have, what these change to, and where the race is.

VCD is read as it is, FST through ``fst2vcd``. Names in a dump are those of the netlist:
``beat__0__payload_status`` for ``beat[0].payload.status``, in the scopes of the submodules.
Verilator and Icarus agree on them. Times here are ticks of the dump, except where a name says ns.
"""

import contextlib
import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rtl.arbiter import policy
from rtl.config import TableConfig
from rtl.monitor import OF_CHANGES, Guarantee

_UNITS = {"s": 1e-9, "ms": 1e-6, "us": 1e-3, "ns": 1.0, "ps": 1e3, "fs": 1e6}
"""How many there are in a nanosecond."""

HARMFUL = frozenset(
    {
        Guarantee.UNTORN,
        Guarantee.FRESH_ADMIT,
        Guarantee.FRESH_ANSWER,
        Guarantee.FRESH_DMA,
        Guarantee.NO_EARLY_REUSE,
    }
)
"""Guarantees without which somebody's memory is touched."""

_MOST_CYCLES = 90
"""A longer window shows values too narrow to be read."""


class WavesError(RuntimeError):
    """A dump can't be read or shown; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Variable:
    """A signal of a dump.

    Parameters
    ----------
    name : str
        With its scopes, joined by dots, and without its range of bits.
    width : int
    bits : str
        Range of bits as the dump has it, like ``[3:0]``; empty for a single bit.
    code : str
        Stands for it in the body of the dump.
    """

    name: str
    width: int
    bits: str
    code: str


@dataclass(frozen=True)
class Header:
    """What a dump says about itself.

    Parameters
    ----------
    variables : mapping of str to Variable
        By name.
    ticks_per_ns : float
    top : str
        Scope of the table, with the dot behind it.
    """

    variables: Mapping[str, Variable]
    ticks_per_ns: float
    top: str

    def find(self, name: str) -> Variable | None:
        """The signal of this name below the table."""
        return self.variables.get(self.top + name)


@dataclass(frozen=True)
class Race:
    """Where to look.

    Parameters
    ----------
    what : str
        What happens there.
    at_ns : int
    around_ns : (int, int)
        Window that shows how it came to it.
    port, source : int, optional
        Who takes part in it.
    marks : mapping of str to int
        Further times in ns, by name: R, A and C of the change.
    guarantee : Guarantee, optional
        What was looked for.
    """

    what: str
    at_ns: int
    around_ns: tuple[int, int]
    port: int | None = None
    source: int | None = None
    marks: Mapping[str, int] = field(default_factory=dict)
    guarantee: Guarantee | None = None


def read_header(dump: Path) -> Header:
    """The signals of a dump, VCD or FST.

    Raises
    ------
    WavesError
        If it is no dump of the table, or an FST file that nothing here can read.
    """
    with _open_as_vcd(dump) as file:
        return _parse_header(file, dump)


def find_race(dump: Path, config: TableConfig, guarantee: Guarantee | None = None) -> Race | None:
    """The first violation in a dump, or else the first change that met lookups in flight.

    Without either the first change of an entry; without any, nothing.

    Parameters
    ----------
    dump : Path
    config : TableConfig
        Configuration of the table in the dump.
    guarantee : Guarantee, optional
        The only one whose violation counts. Without it those that touch somebody's memory count,
        and those that the policy declares.

    Raises
    ------
    WavesError
        If :func:`read_header` would.
    """
    with _open_as_vcd(dump) as file:
        search = _Search(_parse_header(file, dump), config, guarantee)
        search.read(file)
    return search.race()


@contextlib.contextmanager
def _open_as_vcd(dump: Path) -> Iterator[IO[str]]:
    """The dump as VCD text, whatever it is."""
    if not dump.exists():
        raise WavesError(f"There is no dump {dump}.")
    if dump.suffix != ".fst":
        with dump.open(errors="replace") as file:
            yield file
        return
    if shutil.which("fst2vcd") is None:
        raise WavesError(
            f"fst2vcd is needed to read {dump.name}: install the Debian package gtkwave."
        )
    with subprocess.Popen(
        ["fst2vcd", "--fstname", str(dump)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            # The reader often has enough long before the end.
            process.kill()


def _parse_header(file: IO[str], dump: Path) -> Header:
    scopes: list[str] = []
    variables: dict[str, Variable] = {}
    ticks_per_ns = 1.0
    words: list[str] = []
    for line in file:
        words += line.split()
        if not words or words[-1] != "$end":
            continue
        keyword, *rest = words[:-1]
        words = []
        if keyword == "$scope":
            scopes.append(rest[1])
        elif keyword == "$upscope":
            scopes.pop()
        elif keyword == "$timescale":
            number, unit = re.findall(r"\d+|[a-z]+", "".join(rest))
            ticks_per_ns = _UNITS[unit] / int(number)
        elif keyword == "$var":
            _, width, code, name, *bits = rest
            full = ".".join([*scopes, name])
            variables[full] = Variable(full, int(width), "".join(bits), code)
        elif keyword == "$enddefinitions":
            break
    # Verilator puts the ports into a scope of their own, next to that of the table.
    landmark = "commands.worker_state"
    tops = [name.removesuffix(landmark) for name in variables if name.endswith(f".{landmark}")]
    if len(tops) != 1:
        raise WavesError(f"{dump} is no dump of the table.")
    return Header(variables, ticks_per_ns, tops[0])


def _changes(
    file: IO[str], variables: Mapping[str, Variable]
) -> Iterator[tuple[int, dict[str, int]]]:
    """What signals change to, moment by moment, from behind the header on.

    Within a moment they may change more than once; the last value counts. What is unknown is 0.
    """
    names: dict[str, list[str]] = {}
    for name, variable in variables.items():
        names.setdefault(variable.code, []).append(name)
    now = 0
    changes: dict[str, int] = {}
    for line in file:
        first = line[0]
        if first == "#":
            if not line.endswith("\n"):
                # Here the simulator died.
                break
            yield now, changes
            now, changes = int(line[1:]), {}
            continue
        if first in "01xzXZ":
            bits, code = first, line[1:].strip()
        elif first in "bB":
            bits, _, code = line[1:].strip().partition(" ")
        else:
            continue
        for name in names.get(code, ()):
            changes[name] = 0 if bits.strip("01") else int(bits, 2)
    yield now, changes


class _Search:
    """Follows a handful of signals through a dump until shortly after the first violation."""

    def __init__(self, header: Header, config: TableConfig, guarantee: Guarantee | None):
        self._ticks_per_ns = header.ticks_per_ns
        self._sources = range(config.sources)
        self._ports = range(config.ports)
        names = [
            "clk",
            *(
                f"change__{s}__{event}"
                for s in self._sources
                for event in ("requested", "applied", "completed")
            ),
            # The one above also rises for commands that need no arbiter.
            *(f"commands.change__{s}__applied" for s in self._sources),
            *(f"slots.match__{s}" for s in self._sources),
            *(f"slots.take__{p}__valid" for p in self._ports),
            *(f"violation__{g}__{name}" for g in Guarantee for name in ("seen", "port")),
        ]
        # That an entry's change costs time or lookups is no race, unless it was said not to.
        self._sought = guarantee
        self._shown = HARMFUL | policy(config.arbiter).guarantees(config)
        if guarantee is not None:
            self._shown = frozenset({guarantee})
        found = {name: header.find(name) for name in names}
        self._variables = {name: v for name, v in found.items() if v is not None}
        self._rises: dict[str, list[int]] = {name: [] for name in names}
        self._last = 0
        self._met: tuple[int, int] | None = None
        """When a change met lookups in flight, and its source."""
        self._violation: tuple[int, Guarantee, int] | None = None
        """When it was seen, and the port or source of it."""

    @property
    def _period(self) -> int:
        clock = self._rises["clk"]
        return clock[1] - clock[0] if len(clock) > 1 else 0

    def read(self, file: IO[str]) -> None:
        """Reads on from behind the header."""
        values = dict.fromkeys(self._variables, 0)
        end = math.inf
        for now, changes in _changes(file, self._variables):
            self._last = now
            if now > end:
                break
            risen = {name for name, value in changes.items() if value and not values[name]}
            values |= changes
            for name in risen:
                # All edges of the clock would be many, and two say it all.
                if name != "clk" or len(self._rises[name]) < 2:
                    self._rises[name].append(now)
            for s in self._sources:
                met = f"change__{s}__requested" in risen and values.get(f"slots.match__{s}")
                if met and self._met is None:
                    self._met = (now, s)
            for guarantee in Guarantee:
                risen_now = f"violation__{guarantee}__seen" in risen
                if risen_now and guarantee in self._shown and self._violation is None:
                    place = values.get(f"violation__{guarantee}__port", 0)
                    self._violation = (now, guarantee, place)
                    end = now + 40 * self._period

    def race(self) -> Race | None:
        """What has been found."""
        if self._violation is not None:
            seen, guarantee, place = self._violation
            # The flag rises one cycle late.
            at = seen - self._period
            port = None if guarantee in OF_CHANGES else place
            where = f"source {place}" if port is None else f"port {place}"
            what = f"First violation: {guarantee}, {where}"
            # What isn't stale, but late or lost, is so because of a change that may not be applied.
            change = self._last_applied(at) if guarantee in HARMFUL else self._last_requested(at)
            if port is None:
                change = (at, place)
            return self._describe(what, at, port, *change)
        if self._met is not None:
            at, source = self._met
            return self._describe("First change that meets lookups in flight", at, None, at, source)
        requests = [(t, s) for s in self._sources for t in self._rises[f"change__{s}__requested"]]
        if requests:
            at, source = min(requests)
            return self._describe("First change of an entry", at, None, at, source)
        return None

    def _last_applied(self, until: int) -> tuple[int, int | None]:
        """The last change that the arbiter was asked about and that was applied."""
        applied = [
            (time, s)
            for s in self._sources
            for time in self._rises[f"commands.change__{s}__applied"]
            if time <= until
        ]
        return max(applied, default=(until, None))

    def _last_requested(self, until: int) -> tuple[int, int | None]:
        """The last change that the arbiter was asked about, and its source."""
        requested = [
            (time, s)
            for s in self._sources
            for time in self._rises[f"change__{s}__requested"]
            if time <= until
        ]
        return max(requested, default=(until, None))

    def _life(self, source: int, until: int) -> dict[str, int]:
        """R, A and C of the last change of a source that was requested until then."""
        requests = [t for t in self._rises[f"change__{source}__requested"] if t <= until]
        if not requests:
            return {}
        life = {"R": requests[-1]}
        for mark, event in (("A", "applied"), ("C", "completed")):
            later = [t for t in self._rises[f"change__{source}__{event}"] if t >= life["R"]]
            if later:
                life[mark] = later[0]
        return life

    def _describe(
        self, what: str, at: int, port: int | None, change_at: int, source: int | None
    ) -> Race:
        life = {} if source is None else self._life(source, change_at)
        times = [at, *life.values()]
        # The lookup that is hit was admitted before the change, or is about to be.
        first, last = min(times) - 30 * self._period, life.get("A", at)
        admitted = [
            (time, p)
            for p in (self._ports if port is None else [port])
            for time in self._rises[f"slots.take__{p}__valid"]
            if first <= time <= last
        ]
        if admitted:
            # Rather one that was in flight when the change was requested.
            in_flight = [a for a in admitted if a[0] < life.get("R", at)]
            time, port = max(in_flight or admitted)
            times.append(time)
        # Names of the same cycle would be written over each other.
        together: dict[int, list[str]] = {}
        for mark, time in life.items():
            together.setdefault(time, []).append(mark)
        marks = {" ".join(names): self._ns(time) for time, names in together.items()}
        start, end = self._window(at, times)
        return Race(
            what, self._ns(at), (self._ns(start), self._ns(end)), port, source, marks, self._sought
        )

    def _window(self, at: int, times: list[int]) -> tuple[int, int]:
        start = max(0, min(times) - 4 * self._period)
        end = min(self._last, max(times) + 10 * self._period)
        most = _MOST_CYCLES * self._period
        if end - start > most:
            start = max(start, at - 2 * most // 3)
            end = min(end, start + most)
        return start, end

    def _ns(self, time: int) -> int:
        return int(time / self._ticks_per_ns)
