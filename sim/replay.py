"""Plays a recorded violation, and shows what happens in it."""

import dataclasses
import json
from pathlib import Path

from rich.console import Console

from rtl.arbiter import policy
from rtl.monitor import OF_CHANGES, Guarantee
from sim.job import new_folder, point_latest_to
from sim.request import Request
from sim.run import RunResult, run
from sim.summary import print_again, story_table, title
from sim.typed import number_of
from sim.waves import prepare
from tb.formal.case import Case


@dataclasses.dataclass(frozen=True)
class Replay:
    """A case that was played, and went as recorded.

    Parameters
    ----------
    case : Case
    command : str
        The command that does the same again.
    run : RunResult
    story : tuple
        Cycle, who, and what, in the order of the cycles.
    files : tuple of Path
        What the run wrote for people.
    save : Path, optional
        GTKWave's save file.
    """

    case: Case
    command: str
    run: RunResult
    story: tuple[tuple[int, str, str], ...]
    files: tuple[Path, ...]
    save: Path | None = None

    @property
    def broken(self) -> bool:
        """The policy declares what it violates, whatever the deadline."""
        config, guarantee = self.case.config, self.case.guarantee
        declared = policy(config.arbiter).guarantees(config)
        return guarantee in declared and guarantee is not Guarantee.BOUNDED_INVALIDATION


def replay_case(request: Request, verb: str, console: Console, *, waves: bool) -> Replay:
    """Plays the case of a request.

    Raises
    ------
    RunFailed
        If it goes another way than recorded.
    BuildFailed, NetlistFailed, SimulatorMissing
        If it did not get that far.
    """
    case = request.case
    assert case is not None
    folder = new_folder(f"case-{case.name}")
    command = request.repeat(verb)
    with console.status("building and simulating"):
        ran = run(
            case.config,
            request.simulator,
            "tb.bench_replay",
            parameters={"case": case.to_json()},
            run_dir=folder,
            waves=waves,
            repeat=command,
        )
    story = folder / "story.json"
    lines = tuple((cycle, who, what) for cycle, who, what in json.loads(story.read_text()))
    point_latest_to(folder)
    waves_files, save = prepare(ran.waves, case.config, case.guarantee)
    return Replay(case, command, ran, lines, (story, ran.log, *waves_files), save)


def print_replay(replay: Replay, console: Console) -> None:
    """Prints what happened, and how to do it again."""
    case = replay.case
    config = dataclasses.asdict(case.config)
    console.print(title(config, str(replay.run.simulator)), soft_wrap=True)
    it = f"{case.guarantee} "
    console.print(
        story_table(replay.story, lambda cycle, what: cycle == case.cycle and what.startswith(it))
    )
    console.print(_conclusion(replay), soft_wrap=True)
    print_again(replay.command, replay.save, replay.files, console)


def _conclusion(replay: Replay) -> str:
    case = replay.case
    place = "source" if case.guarantee in OF_CHANGES else "port"
    arbiter = case.config.arbiter
    said = f"{arbiter} violates {case.guarantee} in cycle {case.cycle} on {place} {case.place}"
    if replay.broken:
        return f"{said}, which it declares."
    if case.guarantee is Guarantee.BOUNDED_INVALIDATION:
        return f"{said}: the deadline here is {number_of(case.deadline, 'cycle')} after R."
    return f"{said}: that is expected, it declares no such thing."
