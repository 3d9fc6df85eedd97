"""Plays a script, and shows what happens in it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from sim.job import new_folder, point_latest_to
from sim.request import Request
from sim.run import RunResult, run
from sim.summary import held, print_again, story_table, title, verdicts
from sim.waves import prepare


@dataclasses.dataclass(frozen=True)
class Played:
    """A script that was played to its end, or until something went wrong.

    Parameters
    ----------
    request : Request
    command : str
        The command that does the same again.
    run : RunResult
    result : dict
        What ``played.json`` says.
    files : tuple of Path
        What the run wrote for people.
    save : Path, optional
        GTKWave's save file.
    """

    request: Request
    command: str
    run: RunResult
    result: dict[str, Any]
    files: tuple[Path, ...]
    save: Path | None = None

    @property
    def broken(self) -> bool:
        """The table differs from the model, or the policy violates what it declares."""
        return self.result["failure"] is not None


def play_script(request: Request, verb: str, console: Console, *, waves: bool) -> Played:
    """Plays the script of a request.

    Raises
    ------
    RunFailed, BuildFailed, NetlistFailed, SimulatorMissing
        If it could not be played.
    """
    folder = new_folder(f"script-{request.run['script'].stem}")
    command = request.repeat(verb)
    with console.status("building and simulating"):
        ran = run(
            request.config,
            request.simulator,
            "tb.bench_programs",
            tests=["play"],
            parameters={"script": request.script},
            run_dir=folder,
            waves=waves,
            repeat=command,
        )
    played = folder / "played.json"
    result = json.loads(played.read_text())
    point_latest_to(folder)
    waves_files, save = prepare(ran.waves, request.config)
    return Played(request, command, ran, result, (played, ran.log, *waves_files), save)


def print_script(played: Played, console: Console) -> None:
    """Prints what happened, what came of it, and how to do it again."""
    config, result = played.request.config, played.result
    console.print(title(dataclasses.asdict(config), str(played.run.simulator)), soft_wrap=True)
    declared = tuple(f"{guarantee} is violated" for guarantee in result["declared"])
    console.print(story_table(result["story"], lambda cycle, what: what.startswith(declared)))
    console.print(verdicts(result))
    said = result["failure"] or held(config.arbiter, result["violations"])
    console.print(said, soft_wrap=True)
    print_again(played.command, played.save, played.files, console)
