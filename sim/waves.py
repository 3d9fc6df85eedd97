"""Dumps that explain themselves: GTKWave save files with groups, names of states and the race.

A dump holds numbers and thousands of signals. The save file picks those that tell the story, puts
them in order, and points at the first race; translate files turn numbers of enums into their names.
All of these lie next to the dump and name each other without a folder, so the folder of a run can
be moved or sent.
"""

import math
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from vcd.gtkw import GTKWColor, GTKWSave, make_translation_filter

from rtl.commands import CommandState
from rtl.config import TableConfig
from rtl.layouts import CommandStatus, EntryKind, EntryState, LookupStatus, Opcode
from rtl.monitor import Guarantee
from rtl.worker import WorkerState
from sim.dump import Header, Race, Variable, WavesError, find_race, read_header

SAVE_NAME = "save.gtkw"
"""Name of the save file in its folder."""

NAMED: tuple[tuple[type[Enum], int], ...] = (
    (EntryState, 2),
    (EntryKind, 2),
    (LookupStatus, 4),
    (CommandStatus, 5),
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

_RESTING = frozenset({"IDLE", "PICK", "INVALID", "REGION"})
_GOOD = frozenset({"OK", "VALID"})
_ERRORS: frozenset[type[Enum]] = frozenset({LookupStatus, CommandStatus})


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


def layout(config: TableConfig, header: Header, focus: Race | None = None) -> list[Trace | Group]:
    """What is to be shown for a configuration, whether or not the dump has it.

    Only the signals of the policy itself are taken from the dump, since nobody else knows them.
    Groups that have no part in ``focus`` are closed.
    """
    port = 0 if focus is None else focus.port or 0
    source = 0 if focus is None else focus.source or 0
    shown: list[Trace | Group] = [Trace("clk", "clk")]
    if config.ghost_version:
        shown.append(Trace("monitor.cycle", "cycle", "dec"))
    # Whoever races comes first, and the two stand next to each other.
    sources = sorted(range(config.sources), key=lambda s: s != source)
    ports = sorted(range(config.ports), key=lambda p: p != port)
    shown.append(_source_group(source, closed=False))
    shown.append(_port_group(config, port, closed=False))
    if config.ghost_version:
        first = None if focus is None else focus.guarantee
        shown.append(Group("monitor", _monitor_rows(first)))
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
    asked, dma = GTKWColor.violet, GTKWColor.yellow
    rows = [
        Trace(f"{lookup}valid", "lookup valid", "bin", asked),
        Trace(f"{lookup}ready", "lookup ready", "bin", asked),
        Trace(f"admission_{p}.held", "held", "bin", GTKWColor.red),
        Trace(f"{lookup}payload_key_index", "key index", "dec", asked),
        Trace(f"{lookup}payload_key_variant", "key variant", "hex", asked),
        Trace(f"{lookup}payload_address", "lookup address", "hex", asked),
        Trace(f"{lookup}payload_length", "lookup length", "dec", asked),
        Trace(f"{lookup}payload_tag", "lookup tag", "dec", asked),
        Trace(f"{beat}valid", "beat valid", "bin"),
        Trace(f"{beat}ready", "beat ready", "bin"),
        Trace(f"{beat}payload_tag", "beat tag", "dec"),
        Trace(f"{beat}payload_status", "beat status", LookupStatus),
        Trace(f"{beat}payload_first", "beat first", "bin"),
        Trace(f"{beat}payload_last", "beat last", "bin"),
        Trace(f"{beat}payload_address", "beat address", "hex"),
        Trace(f"{beat}payload_length", "beat length", "dec"),
    ]
    if config.ghost_version:
        ghost = f"{beat}payload_ghost_"
        rows += [
            Trace(f"{ghost}version", "beat version", "dec"),
            Trace(f"{ghost}expected", "stamp expected"),
            Trace(f"{ghost}found", "stamp found"),
        ]
    rows += [
        Trace(f"dma__{p}__valid", "DMA beat", "bin", dma),
        Trace(f"dma__{p}__tag", "DMA tag", "dec", dma),
        Trace(f"retire__{p}__valid", "retire", "bin", dma),
        Trace(f"retire__{p}__payload", "retire tag", "dec", dma),
        Trace(f"kill__{p}", "kill, by tag", "bin", GTKWColor.red),
    ]
    return Group(f"port {p}", rows, closed)


def _monitor_rows(first: Guarantee | None) -> list[Trace | Group]:
    guarantees = sorted(Guarantee, key=lambda guarantee: guarantee is not first)
    seen = [
        Trace(f"violation__{guarantee}__seen", f"{guarantee} violated", "bin", GTKWColor.red)
        for guarantee in guarantees
    ]
    counts = [
        Trace(f"violation__{guarantee}__count", f"{guarantee} violations", "dec", GTKWColor.red)
        for guarantee in guarantees
    ]
    return [*seen, Group("violations counted", counts, closed=True)]


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
        Trace("commands.worker_state", "worker", WorkerState, GTKWColor.yellow),
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
        rows = [(int(member.value), member.name, _color(member)) for member in kind]
        path = folder / f"{kind.__name__}.txt"
        path.write_text(make_translation_filter(rows, datafmt="hex", size=width) + "\n")
        written[kind] = path
    return written


def _color(member: Enum) -> str | None:
    if member.name in _GOOD:
        return "DarkGreen"
    if type(member) in _ERRORS:
        return "DarkRed"
    return "gray25" if member.name in _RESTING else None


def write_save_file(dump: Path, config: TableConfig, focus: Race | None = None) -> Path:
    """Writes the save file of a dump, with its translate files, and returns its path.

    Signals that the dump doesn't have are left out; :func:`missing_signals` names them.

    Parameters
    ----------
    dump : Path
        VCD or FST. The files are written next to it.
    config : TableConfig
        Configuration of the table in the dump.
    focus : Race, optional
        What to zoom to and to mark; the groups that take part in it come first, and are open.
        Without it the first microsecond is shown.

    Raises
    ------
    WavesError
        If the dump can't be read.
    """
    header = read_header(dump)
    filters = write_translate_files(dump.parent)

    def ticks(ns: float) -> int:
        return round(ns * header.ticks_per_ns)

    path = dump.parent / SAVE_NAME
    with path.open("w") as file:
        save = GTKWSave(file)
        save.dumpfile(dump.name, abspath=False)
        save.savefile(SAVE_NAME, abspath=False)
        save.size(*_WINDOW)
        save.sst_expanded(False)
        save.signals_width(_SIGNALS_WIDTH)
        start, end = (ticks(ns) for ns in (focus.around_ns if focus is not None else (0, 1000)))
        pixels = _WINDOW[0] - _SIGNALS_WIDTH - _CHROME
        marks = focus.marks if focus is not None else {}
        lettered = list(zip(string.ascii_lowercase, marks, strict=False))
        # GTKWave counts its zoom in negative powers of two of the time that 200 pixels stand for.
        save.zoom_markers(
            -math.log2(max(1, end - start) * 200 / pixels),
            ticks(focus.at_ns) if focus is not None else -1,
            **{letter: ticks(marks[name]) for letter, name in lettered},  # pyright: ignore[reportArgumentType]  # wrong in pyvcd
        )
        for letter, name in lettered:
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


def save_for_first_race(
    dump: Path, config: TableConfig, guarantee: Guarantee | None = None
) -> Path:
    """Writes a save file that shows the first race of a dump, next to the dump.

    Parameters as in :func:`sim.dump.find_race`.

    Raises
    ------
    WavesError
        If the dump can't be read.
    """
    return write_save_file(dump, config, find_race(dump, config, guarantee))


def prepare(
    dump: Path | None, config: TableConfig, guarantee: Guarantee | None = None
) -> tuple[list[Path], Path | None]:
    """Makes a dump smaller where that is possible, and writes its save file, if there is a dump.

    Returns
    -------
    list of Path
        Both files.
    Path or None
        The save file.

    Raises
    ------
    WavesError
        If the dump can't be read.
    """
    if dump is None:
        return [], None
    smaller = convert(dump)
    save = save_for_first_race(smaller, config, guarantee)
    return [smaller, save], save


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
