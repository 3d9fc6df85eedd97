"""From an Amaranth component to Verilog that every simulator and viewer can read.

Amaranth hands its names over as RTLIL: fields of structures as ``payload.key``, ports of
submodules as ``valid$8``. Viewers take a dot for a level of hierarchy, and refuse dumps that
hold a name like ``$auto$verilog_backend.cc:1``. So the names are cleaned here, once, before any
simulator sees them: ``payload.key`` is ``payload_key`` everywhere.
"""

import contextlib
import fcntl
import gc
import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]  # not in the stubs
from amaranth.lib import wiring

from rtl.arbiter import own
from rtl.config import TableConfig
from sim import simulators

ROOT = Path(__file__).resolve().parent.parent
"""Folder of the project."""

BUILD = ROOT / "build"
"""Everything that is generated; ``make clean`` removes it."""

CACHE = BUILD / "cache"
"""What can be had again for a price: netlists, compiled simulations, the simulator's runtime."""


class NetlistFailed(RuntimeError):
    """A component could not be turned into Verilog."""


@dataclass(frozen=True)
class Design:
    """Something to simulate.

    Parameters
    ----------
    name : str
        Name of the top module: a plain Verilog identifier.
    factory : callable
        Makes the component. Called only if no netlist is cached for ``key``.
    key : str
        Stands for everything that the component depends on: two designs of the same name and
        key have the same netlist. :func:`source_hash` helps to make one.
    unset : bool
        Registers have no value before reset either, so that Icarus shows what never gets one.
    """

    name: str
    factory: Callable[[], wiring.Component]
    key: str
    unset: bool = False

    def __post_init__(self) -> None:
        if not _PLAIN.fullmatch(self.name):
            raise ValueError(f"name must be a plain Verilog identifier, not {self.name}")


def table_design(config: TableConfig) -> Design:
    """The shared table for a configuration, as a :class:`Design`.

    Of a policy of one's own the key covers the file, and not what that imports.
    """

    def factory() -> wiring.Component:
        from rtl.top import SharedTable

        return SharedTable(config)

    return Design("shared_table", factory, f"{table_hash(config)} {config!r}")


def table_hash(config: TableConfig) -> str:
    """Hash over everything that a table of this configuration is made from."""
    sources = sorted((ROOT / "rtl").rglob("*.py"))
    if own.is_own(config.arbiter):
        sources.append(own.file_of(config.arbiter))
    return source_hash(sources)


def source_hash(paths: Iterable[Path]) -> str:
    """Hash over files, by their place in the project and their content."""
    digest = hashlib.sha256()
    for path in paths:
        resolved = path.resolve()
        place = resolved.relative_to(ROOT) if resolved.is_relative_to(ROOT) else resolved.name
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{place} {content}\n".encode())
    return digest.hexdigest()


def short_hash(*parts: str) -> str:
    """Hash of texts, short enough for the name of a folder."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:20]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file next to ``path``: one process at a time makes what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def netlist_key(design: Design, *more: Path) -> str:
    """Stands for a design, the versions of the tools, and the code that calls them.

    Parameters
    ----------
    design : Design
    more : Path
        Files that call them, too.
    """
    tools = [platform.python_version(), source_hash([Path(__file__), *more])]
    tools += [f"{name} {importlib.metadata.version(name)}" for name in ("amaranth", "pyosys")]
    return short_hash(design.name, design.key, *["unset"] * design.unset, *tools)


def verilog(design: Design, cache: Path = CACHE) -> Path:
    """The design as one Verilog file, made only if it is not in the cache.

    The text depends on nothing but the design and the versions of the tools: it holds no path,
    no date, and no name that is not a plain Verilog identifier.

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
    path = cache / "netlist" / netlist_key(design) / f"{design.name}.v"
    return cached(path, lambda: write_verilog(design.name, rtlil_text(design), _PASSES))


def cached(path: Path, make: Callable[[], str]) -> Path:
    """A file of the cache, whose text is made if it isn't there."""
    if path.exists():
        return path
    with locked(path.parent):
        if not path.exists():
            text = make()
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, text)
    return path


def replace(path: Path, text: str) -> None:
    """Writes a file such that nobody ever sees half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.rename(path)


def converted(design: Design) -> str:
    """The design in the intermediate language of Yosys, as Amaranth writes it.

    Without the collector of garbage meanwhile: millions of objects are made, nearly all of which
    stay until the end, and looking through them again and again takes a fifth of the time or more.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return rtlil.convert(design.factory(), name=design.name, emit_src=False)
    finally:
        if collects:
            gc.enable()


def rtlil_text(design: Design) -> str:
    """The design in the intermediate language of Yosys, without places in the sources.

    The rows of a memory get no first value. Nothing may depend on one, and Icarus shows it: there
    they start as X.
    """
    text = _MEMORY_INIT.sub("", converted(design))
    return _REGISTER_INIT.sub("", text) if design.unset else text


_MEMORY_INIT = re.compile(r"^  cell \$meminit_v2 .*?^  end\n", re.MULTILINE | re.DOTALL)


_REGISTER_INIT = re.compile(r"^ *attribute \\init .*\n", re.MULTILINE)

_YOSYS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    design.run_pass(command)
"""


_PASSES = (
    # Processes become multiplexers and registers: written out as processes, they would come
    # with helper signals that have the names viewers choke on.
    # What has a name stays, even if nothing but a viewer looks at it.
    "proc",
    "select -set named w:* w:$* %d",
    "setattr -set keep 1 @named",
    # Selections by an index become an index again, and others a tree: written out as
    # they are, the simulation of the default table would be ten times slower.
    "opt_expr",
    "opt_merge",
    "pmux2shiftx",
    "opt_clean",
    "pmuxtree",
    "opt_clean",
)


def write_verilog(name: str, text: str, passes: Sequence[str]) -> str:
    """RTLIL as clean Verilog, after some passes of Yosys.

    Parameters
    ----------
    name : str
        Of the design, for the message.
    text : str
    passes : sequence of str

    Raises
    ------
    NetlistFailed
        If Yosys refuses something.
    """
    # In a process of its own, since Yosys numbers names in the order in which the process met
    # them, and ends the process on an error.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.il").write_text(text)
        commands = ["read_rtlil in.il", *passes, "write_verilog -noattr -sv out.v"]
        run_yosys(name, commands, Path(folder))
        return clean(Path(folder, "out.v").read_text())


def run_yosys(name: str, commands: Sequence[str], folder: Path) -> None:
    """Runs commands of Yosys, in a process of its own.

    Parameters
    ----------
    name : str
        Of the design, for the message.
    commands : sequence of str
        The last one writes files.
    folder : Path
        Where files without a folder are.

    Raises
    ------
    NetlistFailed
        If Yosys refuses something.
    """
    result = subprocess.run(
        [sys.executable, "-c", _YOSYS, *commands],
        cwd=folder,
        env=simulators.clean_environment(),
        capture_output=True,
        text=True,
    )
    if result.returncode:
        said = (result.stdout + result.stderr).strip().splitlines()
        raise NetlistFailed("\n".join([f"Yosys failed on {name}:", *said[-5:]]))


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TOKEN = re.compile(
    r"""
    (?P<string> "(?:[^"\\]|\\.)*" )
    | (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<number> \d*'[sS]?[bodhBODH][0-9a-fA-FxXzZ_?]+ )
    | \\(?P<escaped> \S+ )[ ]
    | (?P<plain> [A-Za-z_$][A-Za-z0-9_$]* )
    """,
    re.VERBOSE | re.DOTALL,
)

_MODULE = re.compile(
    r"^module\s+(?P<name>\\\S+[ ]|\w+)\s*\((?P<ports>[^;]*?)\);(?P<body>.*?)^endmodule",
    re.MULTILINE | re.DOTALL,
)


class _Names:
    """Gives each escaped name a plain one that nothing else has.

    Parameters
    ----------
    taken : set of str
        Names that are not to be given.
    outer : _Names, optional
        Names of the whole file, which come first.
    """

    def __init__(self, taken: set[str], outer: "_Names | None" = None):
        self.taken = taken
        self.given: dict[str, str] = {}
        self.outer = outer

    def plain(self, name: str) -> str:
        if self.outer is not None and name in self.outer.given:
            return self.outer.given[name]
        if name not in self.given:
            base = re.sub(r"[^A-Za-z0-9_]+", "_", name)
            if not _PLAIN.fullmatch(base):
                base = f"n{base}"
            candidate, number = base, 2
            # Yosys escapes a plain name only if it is a keyword.
            while candidate in self.taken or candidate == name:
                candidate, number = f"{base}_{number}", number + 1
            self.taken.add(candidate)
            self.given[name] = candidate
        return self.given[name]


def _tokens(text: str) -> tuple[list[str], set[str]]:
    """The escaped names of a text in their order, and the set of its plain ones."""
    escaped: list[str] = []
    plain: set[str] = set()
    for token in _TOKEN.finditer(text):
        if token["escaped"] is not None:
            escaped.append(token["escaped"])
        elif token["plain"] is not None:
            plain.add(token["plain"])
    return escaped, plain


def clean(text: str) -> str:
    """Verilog as Yosys writes it, with plain names and without the line that says who wrote it.

    Names of modules and ports keep their meaning across modules; all others belong to one
    module. A name that is already plain stays; one that would collide gets a number.
    """
    text = re.sub(r"\A/\*.*?\*/\s*", "", text, flags=re.DOTALL)
    _, everywhere = _tokens(text)
    shared = _Names(set(everywhere))
    for module in _MODULE.finditer(text):
        for name in _tokens(f"{module['name']} {module['ports']} ")[0]:
            shared.plain(name)

    def clean_module(match: re.Match[str]) -> str:
        _, taken = _tokens(match.group())
        names = _Names(taken | set(shared.given.values()), shared)

        def clean_token(token: re.Match[str]) -> str:
            if token["escaped"] is None:
                return token.group()
            return names.plain(token["escaped"])

        return _TOKEN.sub(clean_token, match.group())

    return _MODULE.sub(clean_module, text)


def ports(text: str, name: str) -> list[str]:
    """Names of the ports of one module of a :func:`clean` text."""
    for module in _MODULE.finditer(text):
        if module["name"] == name:
            return [port.strip() for port in module["ports"].split(",") if port.strip()]
    raise ValueError(f"no module is called {name}")
