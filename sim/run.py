"""The one function that every run of a simulator goes through, and what benches get from it.

cocotb's own runner reports success when a test failed, when a bench could not be imported, when
a filter matched nothing and when an assertion in the design fired. Here each of these fails.
"""

import dataclasses
import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rtl.config import TableConfig
from sim import simulators
from sim.netlist import BUILD, CACHE, ROOT, Design, short_hash, table_design
from sim.simulators import Simulator

RUNS = BUILD / "runs"
"""Folder of the runs whose caller names no other."""

PYTEST_OPTIONS: list[str] = []
"""Options without which pytest would not find the tests that it runs again."""

CONFIG_VARIABLE = "SHARED_MR_CONFIG"
PARAMETERS_VARIABLE = "SHARED_MR_PARAMETERS"

_ASSERTION = re.compile(r"(?:%Error|%Fatal|ERROR|FATAL): [^\n]*\.s?v:\d+:")
"""How the simulators report a failed assertion of the design: first Verilator, then Icarus."""

_EXCEPTION = re.compile(r"^\s*([A-Za-z_][\w.]*(?:Error|Exception|Warning): .*)$", re.MULTILINE)


class RunFailed(RuntimeError):
    """A run did not do what was asked of it.

    Parameters
    ----------
    reason : str
        What went wrong, in one sentence.
    run_dir : Path
        Folder of the run.
    log : Path
        What the simulator said.
    waves : Path, optional
        The dump, if there is one.
    repeat : str
        Command that does the same again.
    look : str, optional
        Command that shows the dump.
    """

    def __init__(
        self,
        reason: str,
        run_dir: Path,
        log: Path,
        waves: Path | None,
        repeat: str,
        look: str | None = None,
    ):
        lines = [reason, f"log: {log}"]
        if waves is not None:
            lines.append(f"waves: {waves}")
        if look is not None:
            lines.append(f"look: {look}")
        lines.append(f"repeat: {repeat}")
        super().__init__("\n".join(lines))
        self.reason = reason
        self.run_dir = run_dir
        self.log = log
        self.waves = waves
        self.repeat = repeat
        self.look = look


@dataclass(frozen=True)
class RunResult:
    """A run that did what was asked of it.

    Parameters
    ----------
    run_dir : Path
        Folder of the run: the log, the dump, and whatever the bench wrote.
    simulator : Simulator
    seed : int
    tests : tuple of str
        Names of the tests that ran; all of them passed.
    log : Path
        What the simulator said.
    waves : Path, optional
        The dump, if one was asked for.
    seconds : float
        Wall-clock time of the simulation, without the build.
    """

    run_dir: Path
    simulator: Simulator
    seed: int
    tests: tuple[str, ...]
    log: Path
    waves: Path | None
    seconds: float


def run(
    target: TableConfig | Design,
    simulator: Simulator,
    benches: str | Sequence[str],
    *,
    tests: Sequence[str] = (),
    seed: int = 1,
    parameters: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    run_dir: Path | None = None,
    waves: bool = False,
    coverage: bool = False,
    repeat: str | None = None,
    cache: Path = CACHE,
) -> RunResult:
    """Builds a design if need be, and runs benches on it.

    The shell's environment has no influence on what happens.

    Parameters
    ----------
    target : TableConfig or Design
        A configuration stands for the table of that configuration.
    simulator : Simulator
    benches : str or sequence of str
        Modules that hold the cocotb tests, by the name they are imported under.
    tests : sequence of str
        Names of the tests to run, all if empty. The name of a parametrised test stands for all
        its variants; ``name/a=1`` for one.
    seed : int
        Seed of all random choices.
    parameters : mapping, optional
        Whatever the bench wants to know and JSON can say; it asks :func:`bench_parameters`.
    environment : mapping, optional
        More variables for the simulator.
    run_dir : Path, optional
        Folder of the run, which is also the bench's working directory. What an earlier run left
        there is removed; in a folder outside ``build/runs`` only what this function writes.
        Without it a folder of its own is found for each test, simulator and choice of arguments.
    waves : bool
        Whether to dump all signals into the folder of the run.
    coverage : bool
        Whether Verilator writes ``coverage.dat`` into the folder of the run.
    repeat : str, optional
        Command that does the same again, for the message of a failure. A run of a table that fails
        without a dump is done again with one.
    cache : Path
        Folder of the build cache.

    Raises
    ------
    RunFailed
        If no test ran, one failed, a bench could not be imported, a name in ``tests`` matched
        nothing, there are no results, or an assertion of the design fired.
    BuildFailed, NetlistFailed, SimulatorMissing
        If it did not get that far.
    """
    # Benches import this module too, and have no use for what builds.
    from cocotb_tools.runner import get_runner

    from sim.build import build

    config = target if isinstance(target, TableConfig) else None
    design = target if isinstance(target, Design) else table_design(target)
    modules = [benches] if isinstance(benches, str) else list(benches)
    given = json.dumps(dict(parameters or {}), sort_keys=True)
    repeat = repeat or _repeat_command()
    if run_dir is None:
        what = (design.name, design.key, *modules, *tests, str(seed), given, f"{waves} {coverage}")
        run_dir = RUNS / _test_name() / f"{simulator}-{short_hash(*what)[:8]}"
    run_dir = run_dir.resolve()
    made = build(design, simulator, waves=waves, coverage=coverage, cache=cache)

    log = run_dir / "simulator.log"
    results = run_dir / "results.xml"
    dump = run_dir / ("dump.vcd" if simulator is Simulator.VERILATOR else "dump.fst")
    _prepare(run_dir, [log, results, run_dir / "dump.vcd", run_dir / "dump.fst"])

    variables = {
        **(environment or {}),
        "COCOTB_RANDOM_SEED": str(seed),
        PARAMETERS_VARIABLE: given,
        "PYTHONWARNINGS": "error::DeprecationWarning",
        # The order of a set of strings must not depend on the day.
        "PYTHONHASHSEED": "0",
    }
    if config is not None:
        variables[CONFIG_VARIABLE] = config_to_json(config)
    # The runner hands its own search path to the simulator.
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    started = time.monotonic()
    ended_badly = ""
    with simulators.environment(variables):
        try:
            get_runner(simulator).test(
                test_module=modules,
                hdl_toplevel=design.name,
                hdl_toplevel_lang="verilog",
                build_dir=made.folder,
                test_dir=run_dir,
                test_filter=_filter(tests),
                test_args=["--trace-file", str(dump)] if _traces(simulator, waves) else [],
                plusargs=[f"+dumpfile_path={dump}"] if simulator is Simulator.ICARUS else [],
                results_xml=str(results),
                log_file=log,
                waves=waves,
            )
        except (RuntimeError, SystemExit) as error:
            ended_badly = f"{error}"
    seconds = time.monotonic() - started

    passed, reason, is_visible = _judge(log, results, modules, tests, ended_badly)
    if reason is None:
        return RunResult(run_dir, simulator, seed, passed, log, dump if waves else None, seconds)
    if is_visible and config is not None and not waves:
        # Once more, the same, so that there is something to look at.
        reason += _dump_again(
            lambda: run(
                config,
                simulator,
                modules,
                tests=tests,
                seed=seed,
                parameters=parameters,
                environment=environment,
                run_dir=run_dir,
                waves=True,
                coverage=coverage,
                repeat=repeat,
                cache=cache,
            )
        )
    look = _look(dump, config)
    raise RunFailed(reason, run_dir, log, dump if dump.exists() else None, repeat, look)


def _dump_again(again: Callable[[], RunResult]) -> str:
    """Does a failed run again with a dump; returns what there is to add to the reason."""
    from sim.build import BuildFailed

    try:
        again()
    except RunFailed:
        return ""
    except BuildFailed:
        return "\nIt could not be built with waves."
    return "\nIt passed when it was run again with waves."


def _look(dump: Path, config: TableConfig | None) -> str | None:
    """Writes a save file for the dump of a table; returns the command that opens it."""
    from sim.dump import WavesError
    from sim.waves import gtkwave_command, save_for_first_race

    if config is None or not dump.exists():
        return None
    try:
        save = save_for_first_race(dump, config)
    except WavesError:
        return shlex.join(["gtkwave", str(dump)])
    return f"cd {shlex.quote(str(save.parent))} && {shlex.join(gtkwave_command(save))}"


def _traces(simulator: Simulator, waves: bool) -> bool:
    return waves and simulator is Simulator.VERILATOR


def _filter(tests: Sequence[str]) -> str | None:
    """Regular expression over ``module.test/parameters``."""
    if not tests:
        return None
    return rf"\.(?:{'|'.join(re.escape(test) for test in tests)})(?:/|$)"


def _prepare(run_dir: Path, written: Sequence[Path]) -> None:
    if run_dir.is_relative_to(RUNS) and run_dir.exists():
        shutil.rmtree(run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    for path in written:
        path.unlink(missing_ok=True)


def _judge(
    log: Path, results: Path, modules: Sequence[str], tests: Sequence[str], ended_badly: str
) -> tuple[tuple[str, ...], str | None, bool]:
    """The tests that passed, what is wrong with the run, if anything is, and whether a dump would
    show it.
    """
    said = log.read_text(errors="replace") if log.exists() else ""
    assertion = _ASSERTION.search(said)
    if assertion is not None:
        first = said[said.rfind("\n", 0, assertion.start()) + 1 :].splitlines()[0]
        return (), f"An assertion of the design fired: {first.strip()}", True
    if not results.exists():
        if "No tests were discovered" in said:
            return (), f"{', '.join(modules)} ran no test.", False
        raised = _EXCEPTION.findall(said)
        if raised and "Running tests" not in said:
            return (), f"{', '.join(modules)} could not be imported: {raised[-1]}", False
        return (), f"The simulator left no results. {ended_badly}".rstrip(), False

    passed: list[str] = []
    failed: list[str] = []
    names: list[str] = []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("skipped") is not None:
            continue
        names.append(case.get("name", ""))
        fault = case.find("failure")
        if fault is None:
            fault = case.find("error")
        if fault is None:
            passed.append(name)
        else:
            message = (fault.get("message") or fault.text or fault.get("type") or "").strip()
            failed.append(f"{name} failed: {message}")
    unmatched = [
        test
        for test in tests
        if not any(name == test or name.startswith(f"{test}/") for name in names)
    ]
    if failed:
        return tuple(passed), "\n".join(failed), True
    if unmatched:
        return (
            tuple(passed),
            f"No test of {', '.join(modules)} is called {', '.join(unmatched)}.",
            False,
        )
    silent = [name for name in modules if not any(test.startswith(f"{name}.") for test in passed)]
    if silent and (not tests or not passed):
        return tuple(passed), f"{', '.join(silent)} ran no test.", False
    if ended_badly:
        return tuple(passed), f"All tests passed, but the simulator failed: {ended_badly}", True
    return tuple(passed), None, False


def _current_test() -> str | None:
    """The pytest test that is being run, by its node id."""
    current = os.environ.get("PYTEST_CURRENT_TEST")
    return current.rsplit(" ", 1)[0] if current else None


def _test_name() -> str:
    test = _current_test()
    if test is None:
        return "run"
    # Ids of parametrised tests can be long, and hold anything.
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", test.removeprefix("tb/").replace(".py::", "-"))
    return plain.strip("-") if len(plain) <= 120 else f"{plain[:100]}-{short_hash(test)[:8]}"


def _repeat_command() -> str:
    test = _current_test()
    if test is not None:
        return shlex.join([".venv/bin/python", "-m", "pytest", *PYTEST_OPTIONS, test])
    return shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]])


def config_to_json(config: TableConfig) -> str:
    """A configuration as JSON, on one line."""
    return json.dumps(dataclasses.asdict(config))


def config_from_json(text: str) -> TableConfig:
    """The configuration that :func:`config_to_json` wrote.

    Raises
    ------
    ConfigError
        If a number is not allowed.
    ValueError
        If a choice is not known.
    """
    values = json.loads(text)
    for field in dataclasses.fields(TableConfig):
        kind = field.type
        if field.name in values and isinstance(kind, type) and issubclass(kind, StrEnum):
            values[field.name] = kind(values[field.name])
    return TableConfig(**values)


def bench_config() -> TableConfig:
    """Inside the simulator: the configuration of the table under test.

    Raises
    ------
    KeyError
        If the run was not given a configuration.
    """
    return config_from_json(os.environ[CONFIG_VARIABLE])


def bench_parameters() -> dict[str, Any]:
    """Inside the simulator: the ``parameters`` of :func:`run`."""
    return json.loads(os.environ.get(PARAMETERS_VARIABLE, "{}"))
