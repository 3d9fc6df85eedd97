"""The commands behind ``make``."""

import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from rtl.monitor import Guarantee
from sim.build import BuildFailed
from sim.dump import WavesError
from sim.job import run_job, shown
from sim.netlist import BUILD, NetlistFailed
from sim.parameters import (
    COVERAGE_PARAMETERS,
    PROOF_PARAMETERS,
    RUN_PARAMETERS,
    TABLE_PARAMETERS,
    Parameter,
)
from sim.prover import ProverFailed
from sim.replay import print_replay, replay_case
from sim.request import UsageError, parse, parse_table, parse_values
from sim.run import RunFailed
from sim.script import play_script, print_script
from sim.simulators import SimulatorMissing
from sim.summary import print_summary
from sim.typed import as_typed
from sim.verilog import write_verilog
from sim.waves import open_in_gtkwave


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit status.

    0: done, and the policy held what it declares. 1: it didn't, or the run failed. 2: what was
    typed can't be done.
    """
    # Names of files may look like markup.
    console = Console(markup=False, emoji=False, highlight=False)
    verb, *words = arguments or ["help"]
    try:
        if verb not in VERBS:
            raise UsageError(
                f"The command must be one of {', '.join(VERBS)}, not {as_typed(verb)}."
            )
        return VERBS[verb](words, console)
    except (UsageError, SimulatorMissing) as error:
        print(error, file=sys.stderr)
        return 2
    except (RunFailed, BuildFailed, NetlistFailed, WavesError, ProverFailed) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130


def _run(words: Sequence[str], console: Console) -> int:
    request = parse(words)
    if request.case is not None:
        replay = replay_case(request, "sim", console, waves=request.run["waves"])
        print_replay(replay, console)
        return 1 if replay.broken else 0
    if request.script is not None:
        played = play_script(request, "sim", console, waves=request.run["waves"])
        print_script(played, console)
        return 1 if played.broken else 0
    outcome = run_job(request, "sim", console, waves=request.run["waves"])
    print_summary(outcome, console)
    return 1 if outcome.broken else 0


def _waves(words: Sequence[str], console: Console) -> int:
    request = parse(words)
    if request.case is not None:
        outcome = replay_case(request, "waves", console, waves=True)
        print_replay(outcome, console)
    elif request.script is not None:
        outcome = play_script(request, "waves", console, waves=True)
        print_script(outcome, console)
    else:
        outcome = run_job(request, "waves", console, waves=True)
        print_summary(outcome, console)
    assert outcome.save is not None
    shown_well = open_in_gtkwave(outcome.save)
    return 1 if outcome.broken else shown_well


def _verilog(words: Sequence[str], console: Console) -> int:
    config = parse_table(words)
    path = BUILD / "shared_mr_table.v"
    write_verilog(config, path)
    console.print(f"wrote    {shown(path)}", soft_wrap=True)
    return 0


def _prove(words: Sequence[str], console: Console) -> int:
    # The prover and the harness take a while to load, and nothing else needs them.
    from sim.growth import print_growth
    from sim.prove import ProofRequest, run_proofs

    request = ProofRequest(**parse_values(words, PROOF_PARAMETERS))
    if not request.configurations():
        raise UsageError(
            "CONFIG must be part of the name of a configuration, such as "
            f"grace_period-entry-dma, not {as_typed(request.config)}."
        )
    if not any(request.guarantee in guarantee for guarantee in Guarantee):
        raise UsageError(
            f"GUARANTEE must be part of one of {', '.join(Guarantee)}, "
            f"not {as_typed(request.guarantee)}."
        )
    if request.guarantee and request.record:
        raise UsageError("RECORD=1 keeps whole tables: leave out GUARANTEE.")
    if request.growth:
        if request.guarantee or request.record:
            raise UsageError("GROWTH=1 goes without GUARANTEE and RECORD: leave them out.")
        print_growth(request.configurations(), request.limit, console)
        # How far it goes is what was asked for.
        return 0
    return run_proofs(request, console)


def _coverage(words: Sequence[str], console: Console) -> int:
    # As with the prover.
    from sim.coverage import CoverageRequest, run_coverage

    return run_coverage(CoverageRequest(**parse_values(words, COVERAGE_PARAMETERS)), console)


def _help(words: Sequence[str], console: Console) -> int:
    for title, parameters in (
        ("A run", RUN_PARAMETERS),
        ("The table", TABLE_PARAMETERS),
        ("A proof", PROOF_PARAMETERS),
        ("Coverage", COVERAGE_PARAMETERS),
    ):
        console.print(f"{title}:", highlight=False)
        for parameter in parameters.values():
            console.print(f"  {_line(parameter)}", highlight=False, soft_wrap=True)
    return 0


def _line(parameter: Parameter) -> str:
    default = parameter.default
    if isinstance(default, bool):
        default = int(default)
    others = [str(choice) for choice in parameter.choices if choice != str(default)]
    words = [] if default in (None, "") else [str(default)]
    if others:
        words.append(f"or {', '.join(others)}")
    suffix = f" ({'; '.join(words)})" if words else ""
    return f"{parameter.name.upper():17} {parameter.meaning}{suffix}"


VERBS: dict[str, Callable[[Sequence[str], Console], int]] = {
    "run": _run,
    "waves": _waves,
    "verilog": _verilog,
    "prove": _prove,
    "coverage": _coverage,
    "help": _help,
}
