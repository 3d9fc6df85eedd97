"""Compiled simulations, each made once for its content.

Benches reach the ports of the top module and nothing else. Dumps show everything.

Verilator's own runtime is the same for every design and takes longer to compile than most of
them. It is compiled once into an archive, and each simulation is linked to that.
"""

import importlib.metadata
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import cocotb_tools.config
from cocotb_tools.runner import VerilatorControlFile, get_runner

from sim import netlist, simulators
from sim.netlist import CACHE, Design
from sim.rtl_coverage import instrumented
from sim.simulators import Simulator

TIMESCALE = ("1ns", "1ps")
"""Unit and precision. Icarus takes whole seconds unless it is told."""

_FLAGS = {
    # Lint of generated text isn't worth stopping for; it stays readable in the log.
    # cocotb makes every signal accessible, which makes the simulation of the default table ten
    # times slower; a control file says which ones have to be.
    Simulator.VERILATOR: ("--assert", "-Wno-fatal", "--no-public-flat-rw"),
    Simulator.ICARUS: (),
}

_COVERAGE = ("--coverage-line", "--coverage-toggle", "--coverage-max-width", "1024")
"""The widest word is a command, with what is kept of it."""

_STUB = """module stub(clk, q);
  input clk;
  output reg q;
  always @(posedge clk) q <= ~q;
endmodule
"""


class BuildFailed(RuntimeError):
    """A design could not be compiled; the message names the log and shows its end."""


@dataclass(frozen=True)
class Build:
    """A compiled simulation.

    Parameters
    ----------
    design : str
        Name of the top module.
    simulator : Simulator
    waves : bool
        Whether its runs can be dumped.
    coverage : bool
        Whether its runs say what they covered.
    folder : Path
        Where it is, and where ``build.log`` tells how it was made.
    verilog : Path
        What it was made from.
    """

    design: str
    simulator: Simulator
    waves: bool
    coverage: bool
    folder: Path
    verilog: Path


def build(
    design: Design,
    simulator: Simulator,
    *,
    waves: bool = False,
    coverage: bool = False,
    cache: Path = CACHE,
) -> Build:
    """Compiles a design, or finds it in the cache.

    Parameters
    ----------
    design : Design
    simulator : Simulator
    waves : bool
        Whether its runs are to be dumped. That flavour is a build of its own: it is slower.
    coverage : bool
        Whether its runs are to leave a ``coverage.dat``: Verilator only, another flavour, and made
        from the text of :func:`sim.rtl_coverage.instrumented`.
    cache : Path
        Folder of the cache. Several processes may use it at a time.

    Raises
    ------
    SimulatorMissing
        If the simulator is not installed.
    BuildFailed
        If it refuses the design.
    """
    simulators.require(simulator)
    source = (instrumented if coverage else netlist.verilog)(design, cache)
    tools = _tool_key(simulator, waves, coverage)
    key = netlist.short_hash(design.name, source.read_text(), *tools)
    folder = cache / f"{simulator}{_flavour(waves, coverage)}" / key
    made = Build(design.name, simulator, waves, coverage, folder, source)
    if not _is_complete(folder):
        overrides = {}
        if simulator is Simulator.VERILATOR:
            # The runtime is taken out of the list of what to compile, and into the link.
            runtime = _runtime(waves, coverage, cache)
            overrides = {"VM_GLOBAL_FAST": "", "USER_LDLIBS": str(runtime)}
        with netlist.locked(folder):
            if not _is_complete(folder):
                _compile(made, overrides)
                for pattern in ("*.o", "*.d", "*.a", "*.gch", "*.cpp", "*.h"):
                    for file in folder.glob(pattern):
                        file.unlink()
                _complete(folder)
    return made


def _flavour(waves: bool, coverage: bool) -> str:
    return f"{'-waves' if waves else ''}{'-coverage' if coverage else ''}"


def _flags(simulator: Simulator, coverage: bool) -> tuple[str, ...]:
    return (*_FLAGS[simulator], *(_COVERAGE if coverage else ()))


def _tool_key(simulator: Simulator, waves: bool, coverage: bool) -> list[str]:
    """Everything but the design that changes what comes out of a build."""
    return [
        simulator,
        simulators.version(simulator),
        f"cocotb {importlib.metadata.version('cocotb')}",
        # The simulation finds cocotb's libraries by this path.
        str(cocotb_tools.config.libs_dir),
        repr((_flags(simulator, coverage), TIMESCALE, waves)),
        repr(sorted(simulators.make_overrides().items())),
        netlist.source_hash([Path(__file__)]),
    ]


def _runtime(waves: bool, coverage: bool, cache: Path) -> Path:
    """Verilator's runtime as an archive, made from the build of a design with nothing in it.

    That way it has the same options as every other build by construction.
    """
    folder = cache / f"runtime{_flavour(waves, coverage)}"
    folder /= netlist.short_hash(*_tool_key(Simulator.VERILATOR, waves, coverage))
    archive = folder / "runtime.a"
    with netlist.locked(folder):
        if not _is_complete(folder):
            source = folder / "stub.v"
            _empty(folder)
            source.write_text(_STUB)
            stub = Build("stub", Simulator.VERILATOR, waves, coverage, folder / "stub", source)
            _compile(stub, {})
            objects = [str(path) for path in sorted((folder / "stub").glob("verilated*.o"))]
            subprocess.run(["ar", "rcsD", str(archive), *objects], check=True)
            shutil.rmtree(folder / "stub")
            _complete(folder)
    return archive


def _compile(target: Build, overrides: dict[str, str]) -> None:
    folder = target.folder
    if " " in str(folder):
        raise BuildFailed(f"make can't build in a folder with a space in its path: {folder}")
    _empty(folder)
    log = folder / "build.log"
    sources: list[Path | VerilatorControlFile] = [target.verilog]
    if target.simulator is Simulator.VERILATOR:
        sources.insert(0, VerilatorControlFile(_accessible_ports(target)))
    variables = {**simulators.make_overrides(), **overrides}
    flags = " ".join(f"{name}={value}" for name, value in variables.items())
    try:
        with simulators.environment({"MAKEFLAGS": flags}):
            get_runner(target.simulator).build(
                sources=sources,
                hdl_toplevel=target.design,
                build_dir=folder,
                build_args=_flags(target.simulator, target.coverage),
                timescale=TIMESCALE,
                waves=target.waves,
                log_file=log,
            )
    except (RuntimeError, SystemExit) as error:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else ""
        raise BuildFailed(
            f"{target.simulator} could not build {target.design} ({error}), see {log}:\n{tail}"
        ) from error


def _accessible_ports(target: Build) -> Path:
    path = target.folder / "ports.vlt"
    lines = ["`verilator_config"]
    for port in netlist.ports(target.verilog.read_text(), target.design):
        lines.append(f'public_flat_rw -module "{target.design}" -var "{port}"')
    path.write_text("\n".join(lines) + "\n")
    return path


def _empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _is_complete(folder: Path) -> bool:
    return (folder / "complete").exists()


def _complete(folder: Path) -> None:
    # Comes last, so that a build that was interrupted is made again.
    (folder / "complete").touch()
