"""Dumps that explain themselves: GTKWave save files with groups, names of states and the race.

A dump holds numbers and thousands of signals. The save file picks those that tell the story, puts
them in order, and points at the first race; translate files next to it turn numbers of enums into
their names. All paths in it are relative, so the folder of a run can be moved or sent.

Names in the dump are those of the netlist: ``beat__0__payload_status`` for
``beat[0].payload.status``, in the scopes of the submodules. Verilator and Icarus agree on them.
"""

import contextlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, Literal

from vcd.gtkw import GTKWColor, GTKWSave, make_translation_filter

from rtl.commands import CommandState, WorkerState
from rtl.config import TableConfig
from rtl.layouts import CommandStatus, EntryKind, EntryState, LookupStatus, Opcode
from rtl.monitor import Guarantee

SAVE_NAME = "save.gtkw"
"""Name of the save file in its folder."""

NAMED: tuple[tuple[type[Enum], int], ...] = (
    (EntryState, 2),
    (EntryKind, 2),
    (LookupStatus, 4),
    (CommandStatus, 4),
    (Opcode, 4),
    (CommandState, 3),
    (WorkerState, 4),
)
"""Enums that are shown by their names, and their width."""

SOURCES = ("host", "send queue", "responder")
"""What the command sources stand for."""

_WINDOW = (1600, 1000)
_SIGNALS_WIDTH = 320
_CHROME = 40
"""Pixels of a row that are neither names nor waves."""

_MOST_CYCLES = 90
"""A longer window shows values too narrow to be read."""

_RESTING = frozenset({"IDLE", "PICK", "INVALID", "REGION"})
_GOOD = frozenset({"OK", "VALID"})
_ERRORS: frozenset[type[Enum]] = frozenset({LookupStatus, CommandStatus})


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
class Trace:
    """One row of the picture.

    Parameters
    ----------
    signal : str
        Name below the table.
    label : str
        What GTKWave shows.
    shown : type of Enum, or str
        How values are shown: by the names of an enum, or in a number format.
    color : GTKWColor
    """

    signal: str
    label: str
    shown: type[Enum] | Literal["hex", "dec", "bin"] = "hex"
    color: GTKWColor = GTKWColor.normal


@dataclass(frozen=True)
class Group:
    """Rows under one heading, folded away if ``closed``."""

    label: str
    items: "Sequence[Trace | Group]"
    closed: bool = False


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
        Further times, by name: R, A and C of the change.
    """

    what: str
    at_ns: int
    around_ns: tuple[int, int]
    port: int | None = None
    source: int | None = None
    marks: Mapping[str, int] = field(default_factory=dict)


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


_UNITS = {"s": 1e-9, "ms": 1e-6, "us": 1e-3, "ns": 1.0, "ps": 1e3, "fs": 1e6}


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
    landmark = "commands.worker"
    tops = [name.removesuffix(landmark) for name in variables if name.endswith(f".{landmark}")]
    if len(tops) != 1:
        raise WavesError(f"{dump} is no dump of the table.")
    return Header(variables, ticks_per_ns, tops[0])


def read_header(dump: Path) -> Header:
    """The signals of a dump, VCD or FST.

    Raises
    ------
    WavesError
        If it is no dump of the table, or an FST file that nothing here can read.
    """
    with _open_as_vcd(dump) as file:
        return _parse_header(file, dump)


def layout(config: TableConfig, header: Header, focus: Race | None = None) -> list[Trace | Group]:
    """What is to be shown for a configuration, whether or not the dump has it.

    Only the signals of the policy itself are taken from the dump, since nobody else knows them.
    Groups that have no part in ``focus`` are closed.
    """
    port = focus.port if focus is not None and focus.port is not None else 0
    source = focus.source if focus is not None and focus.source is not None else 0
    shown: list[Trace | Group] = [Trace("clk", "clk")]
    if config.ghost_version:
        shown.append(Trace("monitor.cycle", "cycle", "dec"))
    # Whoever races comes first, and the two stand next to each other.
    sources = sorted(range(config.sources), key=lambda s: s != source)
    ports = sorted(range(config.ports), key=lambda p: p != port)
    shown.append(_source_group(source, closed=False))
    shown.append(_port_group(config, port, closed=False))
    if config.ghost_version:
        shown.append(Group("monitor", _monitor_rows()))
    shown.append(_arbiter_group(config, header, source))
    shown += [_port_group(config, p, closed=True) for p in ports[1:]]
    shown += [_source_group(s, closed=True) for s in sources[1:]]
    shown.append(Group("worker", _worker_rows(), closed=True))
    shown.append(_slots_group(config))
    return shown


def _source_group(s: int, *, closed: bool) -> Group:
    context = f"commands.source_{s}"
    event = GTKWColor.orange
    rows = [
        Trace(f"{context}_state", "command", CommandState, GTKWColor.yellow),
        Trace(f"{context}_command_opcode", "opcode", Opcode, GTKWColor.yellow),
        Trace(f"{context}_command_key_index", "index", "dec", GTKWColor.yellow),
        Trace(f"{context}_command_key_variant", "variant", "hex", GTKWColor.yellow),
        Trace(f"change__{s}__requested", "R  requested", "bin", event),
        Trace(f"change__{s}__applied", "A  applied", "bin", event),
        Trace(f"change__{s}__completed", "C  completed", "bin", event),
        Trace(f"completion__{s}__valid", "completion valid"),
        Trace(f"completion__{s}__ready", "completion ready"),
        Trace(f"completion__{s}__payload_status", "completion status", CommandStatus),
        Trace(f"completion__{s}__payload_entry_state", "entry state", EntryState),
    ]
    return Group(f"source {s}: {SOURCES[s]}", rows, closed)


def _port_group(config: TableConfig, p: int, *, closed: bool) -> Group:
    lookup, beat = f"lookup__{p}__", f"beat__{p}__"
    asked, answered = GTKWColor.violet, GTKWColor.normal
    rows = [
        Trace(f"{lookup}valid", "lookup valid", "bin", asked),
        Trace(f"{lookup}ready", "lookup ready", "bin", asked),
        Trace(f"admission_{p}.held", "held", "bin", GTKWColor.red),
        Trace(f"{lookup}payload_key_index", "key index", "dec", asked),
        Trace(f"{lookup}payload_key_variant", "key variant", "hex", asked),
        Trace(f"{lookup}payload_address", "lookup address", "hex", asked),
        Trace(f"{lookup}payload_length", "lookup length", "dec", asked),
        Trace(f"{lookup}payload_tag", "lookup tag", "dec", asked),
        Trace(f"{beat}valid", "beat valid", "bin", answered),
        Trace(f"{beat}ready", "beat ready", "bin", answered),
        Trace(f"{beat}payload_tag", "beat tag", "dec", answered),
        Trace(f"{beat}payload_status", "beat status", LookupStatus, answered),
        Trace(f"{beat}payload_first", "beat first", "bin", answered),
        Trace(f"{beat}payload_last", "beat last", "bin", answered),
        Trace(f"{beat}payload_address", "beat address", "hex", answered),
        Trace(f"{beat}payload_length", "beat length", "dec", answered),
    ]
    if config.ghost_version:
        version = "beat version"
        rows.append(Trace(f"{beat}payload_ghost_version", version, "dec", answered))
        stamp = f"{beat}payload_ghost_"
        rows.append(Trace(f"{stamp}expected", "stamp expected", "hex", answered))
        rows.append(Trace(f"{stamp}found", "stamp found", "hex", answered))
    rows += [
        Trace(f"dma__{p}__valid", "DMA beat", "bin", GTKWColor.yellow),
        Trace(f"dma__{p}__tag", "DMA tag", "dec", GTKWColor.yellow),
        Trace(f"retire__{p}__valid", "retire", "bin", GTKWColor.yellow),
        Trace(f"retire__{p}__payload", "retire tag", "dec", GTKWColor.yellow),
    ]
    return Group(f"port {p}", rows, closed)


def _monitor_rows() -> list[Trace | Group]:
    rows: list[Trace | Group] = []
    for guarantee in Guarantee:
        flag = f"violation__{guarantee}__"
        rows.append(Trace(f"{flag}seen", f"{guarantee} violated", "bin", GTKWColor.red))
    counts = [
        Trace(f"violation__{guarantee}__count", f"{guarantee} violations", "dec", GTKWColor.red)
        for guarantee in Guarantee
    ]
    return [*rows, Group("violations counted", counts, closed=True)]


def _arbiter_group(config: TableConfig, header: Header, source: int) -> Group:
    rows: list[Trace | Group] = list(_policy_rows(header))
    for s in sorted(range(config.sources), key=lambda s: s != source):
        names = ("index", "request", "apply", "applied", "wait", "complete")
        change = [
            Trace(
                f"commands.change__{s}__{name}",
                f"{SOURCES[s]} {name}",
                "dec" if name == "index" else "bin",
                GTKWColor.orange,
            )
            for name in names
        ]
        rows.append(Group(f"change of {SOURCES[s]}", change, closed=s != source))
    for p in range(config.ports):
        admit = [
            Trace(
                f"admission_{p}.admit__{name}",
                f"port {p} {name}",
                "dec" if name == "index" else "bin",
                GTKWColor.violet,
            )
            for name in ("valid", "index", "grant", "refuse")
        ]
        rows.append(Group(f"admission of port {p}", admit, closed=True))
    return Group(f"arbiter: {config.arbiter}", rows)


_SEAM = re.compile(r"(?:clk|rst|occupied|match__\d+|(?:admit|change)__\d+__\w+)(?:_\d+)?")
_HELPER = re.compile(r"_\d+_|port_\d+_\d+")


def _policy_rows(header: Header) -> list[Trace]:
    """The registers and wires that a policy has for itself.

    A policy of wires alone has no scope, since nothing is left of it.
    """
    scope = f"{header.top}arbiter."
    found: list[tuple[str, Variable]] = []
    inside: set[str] = set()
    for name, variable in header.variables.items():
        if name.startswith(scope):
            parts = name.removeprefix(scope).split(".")
            if any(_HELPER.fullmatch(part) for part in parts):
                continue
            if len(parts) == 1 and not _SEAM.fullmatch(parts[0]):
                found.append((parts[0], variable))
            elif len(parts) > 1:
                inside.add(parts[-1])
    rows: list[Trace] = []
    for name, variable in sorted(found):
        # A wire to a part of the policy bears the name of that part's port, perhaps numbered.
        if name in inside or re.sub(r"_\d+$", "", name) in inside:
            continue
        shown: Literal["hex", "bin"] = "bin" if variable.width <= 16 else "hex"
        rows.append(Trace(f"arbiter.{name}", name, shown, GTKWColor.yellow))
    return rows


def _worker_rows() -> list[Trace]:
    return [
        Trace("commands.worker", "worker", WorkerState, GTKWColor.yellow),
        Trace("commands.chosen", "for source", "dec", GTKWColor.yellow),
        Trace("commands.entry_write__enable", "MPT write", "bin"),
        Trace("commands.entry_write__address", "MPT write index", "dec"),
        Trace("commands.entry_write__data_state", "MPT write state", EntryState),
        Trace("commands.entry_write__data_kind", "MPT write kind", EntryKind),
        Trace("commands.translation_write__enable", "MTT write", "bin"),
        Trace("commands.translation_write__address", "MTT write index", "dec"),
        Trace("commands.translation_write__data_present", "MTT write present", "bin"),
    ]


def _slots_group(config: TableConfig) -> Group:
    rows: list[Trace | Group] = [Trace("slots.occupied", "occupied", "bin")]
    for p in range(config.ports):
        slots: list[Trace] = []
        for tag in range(config.tags):
            slots.append(Trace(f"slots.valid_{p}_{tag}", f"tag {tag} valid", "bin"))
            slots.append(Trace(f"slots.index_{p}_{tag}", f"tag {tag} index", "dec"))
        rows.append(Group(f"slots of port {p}", slots, closed=True))
    return Group("slots", rows, closed=True)


def traces(items: Sequence[Trace | Group]) -> Iterator[Trace]:
    """All rows of all groups, in order."""
    for item in items:
        if isinstance(item, Group):
            yield from traces(item.items)
        else:
            yield item


def missing_signals(dump: Path, config: TableConfig) -> list[str]:
    """Signals that the save file would show, had the dump got them."""
    header = read_header(dump)
    wanted = traces(layout(config, header))
    return [trace.signal for trace in wanted if header.find(trace.signal) is None]


def write_translate_files(folder: Path) -> dict[type[Enum], Path]:
    """One file for each enum, which GTKWave reads to show names for numbers."""
    written: dict[type[Enum], Path] = {}
    for kind, width in NAMED:
        rows: list[tuple[int, str, str] | tuple[int, str]] = []
        for member in kind:
            color = None
            if member.name in _GOOD:
                color = "DarkGreen"
            elif kind in _ERRORS:
                color = "DarkRed"
            elif member.name in _RESTING:
                color = "gray25"
            row = (int(member.value), member.name)
            rows.append(row if color is None else (*row, color))
        path = folder / f"{kind.__name__}.txt"
        path.write_text(make_translation_filter(rows, datafmt="hex", size=width) + "\n")
        written[kind] = path
    return written


def write_save_file(
    dump: Path,
    config: TableConfig,
    folder: Path,
    *,
    around_ns: tuple[int, int] | None = None,
    markers: Mapping[str, int] | None = None,
    focus: Race | None = None,
) -> Path:
    """Writes the save file of a dump, with its translate files, and returns its path.

    Signals that the dump doesn't have are left out; :func:`missing_signals` names them.

    Parameters
    ----------
    dump : Path
        VCD or FST.
    config : TableConfig
        Configuration of the table in the dump.
    folder : Path
        Where to write. Best the folder of the dump, since GTKWave is told where the dump is
        relative to it.
    around_ns : (int, int), optional
        Window to zoom to; that of ``focus`` by default, else the first microsecond.
    markers : mapping of str to int, optional
        Times in ns to mark, by name; at most 26.
    focus : Race, optional
        Gets the primary marker; the groups that take part in it come first, and are open.

    Raises
    ------
    WavesError
        If the dump can't be read.
    """
    header = read_header(dump)
    folder.mkdir(parents=True, exist_ok=True)
    filters = write_translate_files(folder)
    marks = {**(focus.marks if focus is not None else {}), **(markers or {})}
    if around_ns is None:
        around_ns = focus.around_ns if focus is not None else (0, 1000)

    def ticks(ns: float) -> int:
        return round(ns * header.ticks_per_ns)

    path = folder / SAVE_NAME
    with path.open("w") as file:
        save = GTKWSave(file)
        save.dumpfile(os.path.relpath(dump, folder), abspath=False)
        save.savefile(SAVE_NAME, abspath=False)
        save.size(*_WINDOW)
        save.sst_expanded(False)
        save.signals_width(_SIGNALS_WIDTH)
        start, end = (ticks(ns) for ns in around_ns)
        pixels = _WINDOW[0] - _SIGNALS_WIDTH - _CHROME
        letters = "abcdefghijklmnopqrstuvwxyz"
        lettered = dict(zip(letters, marks.items(), strict=False))
        # GTKWave counts its zoom in negative powers of two of the time that 200 pixels stand for.
        save.zoom_markers(
            -math.log2(max(1, end - start) * 200 / pixels),
            ticks(focus.at_ns) if focus is not None else -1,
            **{letter: ticks(ns) for letter, (_, ns) in lettered.items()},  # pyright: ignore[reportArgumentType]  # wrong in pyvcd
        )
        for letter, (name, _) in lettered.items():
            # Missing in pyvcd.
            print(f"[markername] {letter.upper()}{name}", file=file)
        if focus is not None:
            save.blank(focus.what)
        _write_items(save, layout(config, header, focus), header, filters)
        save.timestart(start)
    return path


def _write_items(
    save: GTKWSave,
    items: Sequence[Trace | Group],
    header: Header,
    filters: Mapping[type[Enum], Path],
) -> None:
    for item in items:
        if isinstance(item, Group):
            if any(header.find(trace.signal) for trace in traces(item.items)):
                with save.group(item.label, closed=item.closed):
                    _write_items(save, item.items, header, filters)
            continue
        variable = header.find(item.signal)
        if variable is None:
            continue
        name = variable.name + variable.bits
        if isinstance(item.shown, str):
            save.trace(name, item.label, item.color, item.shown)
        else:
            save.trace(
                name, item.label, item.color, translate_filter_file=f"./{filters[item.shown].name}"
            )


def find_race(dump: Path, config: TableConfig) -> Race | None:
    """The first violation in a dump, or else the first change that met lookups in flight.

    Without either the first change of an entry; without any, nothing.
    """
    with _open_as_vcd(dump) as file:
        header = _parse_header(file, dump)
        return _Search(header, config).run(file)


class _Search:
    """Follows a handful of signals through a dump until the first violation."""

    def __init__(self, header: Header, config: TableConfig):
        self._header = header
        self._config = config
        self._codes: dict[str, list[str]] = {}
        self._values: dict[str, int] = {}
        names = ["clk"]
        for s in range(config.sources):
            events = ("requested", "applied", "completed")
            names += [f"change__{s}__{event}" for event in events]
            # The other one also rises for commands that need no arbiter.
            names += [f"commands.change__{s}__applied", f"slots.match__{s}"]
        names += [f"slots.take__{p}__valid" for p in range(config.ports)]
        if config.ghost_version:
            for guarantee in Guarantee:
                names += [f"violation__{guarantee}__{name}" for name in ("seen", "port")]
        for name in names:
            variable = header.find(name)
            if variable is not None:
                self._codes.setdefault(variable.code, []).append(name)
                self._values[name] = 0
        self._risen: dict[str, list[int]] = {name: [] for name in names}
        self._period = 0
        self._met: tuple[int, int] | None = None
        self._violation: tuple[int, Guarantee, int] | None = None

    def run(self, file: IO[str]) -> Race | None:
        now, before = 0, dict(self._values)
        end: int | None = None
        changed = False
        for line in file:
            first = line[0]
            if first == "#":
                if changed:
                    self._step(now, before)
                    before = dict(self._values)
                    changed = False
                    if self._violation is not None and end is None:
                        end = now + 40 * self._period
                now = int(line[1:])
                if end is not None and now > end:
                    break
                continue
            if first in "01xzXZ":
                bits, code = first, line[1:].strip()
            elif first in "bB":
                bits, _, code = line[1:].strip().partition(" ")
            else:
                continue
            for name in self._codes.get(code, ()):
                self._values[name] = int(bits, 2) if bits.strip("01") == "" else 0
                changed = True
        self._step(now, before)
        return self._race(now)

    def _step(self, now: int, before: dict[str, int]) -> None:
        # Looks at values when a moment is over: within it they may change more than once.
        for name, value in self._values.items():
            if value and not before[name]:
                self._risen[name].append(now)
        clocks = self._risen["clk"]
        if not self._period and len(clocks) > 1:
            self._period = clocks[1] - clocks[0]
        del clocks[2:]
        for s in range(self._config.sources):
            asked = self._risen[f"change__{s}__requested"]
            if self._met is None and asked[-1:] == [now] and self._values.get(f"slots.match__{s}"):
                self._met = (now, s)
        for guarantee in Guarantee:
            seen = self._risen.get(f"violation__{guarantee}__seen", [])
            if self._violation is None and seen:
                port = self._values.get(f"violation__{guarantee}__port", 0)
                # The flag rises one cycle late.
                self._violation = (seen[0] - self._period, guarantee, port)

    def _race(self, last: int) -> Race | None:
        port: int | None = None
        if self._violation is not None:
            at, guarantee, place = self._violation
            where = f"source {place}"
            if guarantee is not Guarantee.NO_EARLY_REUSE:
                port, where = place, f"port {place}"
            what = f"First violation: {guarantee}, {where}"
            source = self._last_to_apply(at)
        elif self._met is not None:
            at, source = self._met
            what = "First change that meets lookups in flight"
        else:
            asked = [
                (times[0], s)
                for s in range(self._config.sources)
                if (times := self._risen[f"change__{s}__requested"])
            ]
            if not asked:
                return None
            at, source = min(asked)
            what = "First change of an entry"
        marks: dict[str, int] = {}
        times = [at]
        if source is not None:
            marks = self._life(source, at)
            times += marks.values()
        # The lookup that is hit was admitted before the change, or is about to be.
        ports = range(self._config.ports) if port is None else [port]
        begun = [
            (time, p)
            for p in ports
            for time in self._risen[f"slots.take__{p}__valid"]
            if min(times) - 30 * self._period <= time <= marks.get("A", at)
        ]
        if begun:
            # Rather one that was in flight when the change was requested.
            time, admitted = max([b for b in begun if b[0] < marks.get("R", at)] or begun)
            port = admitted if port is None else port
            times.append(time)
        first, end = min(times) - 4 * self._period, max(times) + 10 * self._period
        first, end = max(0, first), min(last, end)
        if end - first > _MOST_CYCLES * self._period:
            first = max(first, at - 2 * _MOST_CYCLES * self._period // 3)
            end = min(end, first + _MOST_CYCLES * self._period)

        def ns(time: int) -> int:
            return int(time / self._header.ticks_per_ns)

        # Names of the same cycle would be written over each other.
        together: dict[int, str] = {}
        for name, time in marks.items():
            together[time] = f"{together[time]} {name}" if time in together else name
        named = {name: ns(time) for time, name in together.items()}
        return Race(what, ns(at), (ns(first), ns(end)), port, source, named)

    def _last_to_apply(self, at: int) -> int | None:
        applied = [
            (time, s)
            for s in range(self._config.sources)
            for time in self._risen[f"commands.change__{s}__applied"]
            if time <= at
        ]
        return max(applied)[1] if applied else None

    def _life(self, source: int, at: int) -> dict[str, int]:
        """R, A and C of the change that is in progress, or was the last."""
        asked = self._risen[f"change__{source}__requested"]
        arbitrated = [t for t in self._risen[f"commands.change__{source}__applied"] if t <= at]
        reference = arbitrated[-1] if arbitrated and self._violation is not None else at
        life: dict[str, int] = {}
        requests = [time for time in asked if time <= reference]
        if not requests:
            return life
        life["R"] = requests[-1]
        for name, event in (("A", "applied"), ("C", "completed")):
            later = [t for t in self._risen[f"change__{source}__{event}"] if t >= life["R"]]
            if later:
                life[name] = later[0]
        return life


def save_for_first_race(dump: Path, config: TableConfig, folder: Path | None = None) -> Path:
    """Writes a save file that shows the first race of a dump, next to the dump."""
    race = find_race(dump, config)
    return write_save_file(dump, config, folder or dump.parent, focus=race)


def convert(dump: Path) -> Path:
    """Turns VCD into FST, a tenth of the size, where ``vcd2fst`` exists; returns what there is.

    The VCD is removed once the FST is complete.
    """
    tool = shutil.which("vcd2fst")
    if dump.suffix != ".vcd" or tool is None:
        return dump
    smaller = dump.with_suffix(".fst")
    partial = dump.with_suffix(".fst.partial")
    result = subprocess.run([tool, str(dump), str(partial)], capture_output=True, text=True)
    if result.returncode != 0 or not partial.exists():
        partial.unlink(missing_ok=True)
        return dump
    partial.rename(smaller)
    dump.unlink()
    return smaller


def gtkwave_command(save: Path) -> list[str]:
    """The command that opens a save file; it works in the folder of the file.

    Raises
    ------
    WavesError
        If the save file names no dump.
    """
    named = re.search(r'^\[dumpfile\] "(.+)"$', save.read_text(), re.MULTILINE)
    if named is None:
        raise WavesError(f"{save} names no dump.")
    return ["gtkwave", "--dump", named[1], "--save", save.name]


def open_in_gtkwave(save: Path) -> int:
    """Shows a dump, and returns when the window is closed.

    Says in one sentence what is missing if there is no GTKWave or no screen.

    Returns
    -------
    int
        0, or what is wrong as an exit status.
    """
    command = gtkwave_command(save)
    by_hand = f"cd {shlex.quote(str(save.parent))} && {shlex.join(command)}"
    if shutil.which("gtkwave") is None:
        print(
            "GTKWave is missing: install the Debian package gtkwave, then look at the dump with:"
            f"\n  {by_hand}",
            file=sys.stderr,
        )
        return 1
    if sys.platform != "darwin" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        print(
            "There is no screen to show GTKWave on; on a machine with one, look at the dump with:"
            f"\n  {by_hand}",
            file=sys.stderr,
        )
        return 1
    return subprocess.run(command, cwd=save.parent).returncode
