"""Runs random programs, and says how to repeat one that fails."""

import json
import shlex

from rtl.config import TableConfig
from sim.job import shown
from sim.netlist import Design, table_design
from sim.request import words_of
from sim.run import CONFIG_VARIABLE, RunFailed, config_to_json, run
from sim.simulators import Simulator
from tb.programs.strategies import WISHES


def search(
    config: TableConfig,
    simulator: Simulator,
    *,
    seed: int,
    steps: int,
    wishes: int = WISHES,
    design: Design | None = None,
) -> dict[str, int]:
    """Plays random programs until they had so many steps; returns what was counted.

    Parameters
    ----------
    config : TableConfig
    simulator : Simulator
    seed, steps : int
    wishes : int
        Of each program: shorter ones fail less often, and shrink faster.
    design : Design, optional
        What is played on, if not the table of the configuration.

    Raises
    ------
    RunFailed
        If a program fails. The shortest that was found is in ``failing.script`` in the folder of
        the run; ``repeat`` is the command that plays it again.
    """
    try:
        # As a design, since a table that fails is run again with a dump, and all of this with it.
        ran = run(
            design or table_design(config),
            simulator,
            "tb.bench_programs",
            tests=["any_program"],
            seed=seed,
            parameters={"steps": steps, "wishes": wishes},
            environment={CONFIG_VARIABLE: config_to_json(config)},
        )
    except RunFailed as found:
        script = found.run_dir / "failing.script"
        if not script.exists():
            raise
        words = [f"SCRIPT={shown(script)}", *words_of(config), f"SIM={simulator}"]
        repeat, look = (shlex.join(["make", verb, *words]) for verb in ("sim", "waves"))
        raise RunFailed(found.reason, found.run_dir, found.log, None, repeat, look) from None
    return json.loads((ran.run_dir / "steps.json").read_text())
