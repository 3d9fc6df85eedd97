"""The main job: one run of the traffic bench, from the request to ``result.json``."""

import contextlib
import dataclasses
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rtl.arbiter import own
from sim.netlist import BUILD, ROOT
from sim.request import Request, UsageError
from sim.run import RUNS, RunResult, run
from sim.waves import prepare

LATEST = BUILD / "latest"
"""Link to the folder of the last run."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A finished run.

    Parameters
    ----------
    result : dict
        What ``result.json`` says.
    run : RunResult
    files : tuple of Path
        What the run wrote for people.
    save : Path, optional
        GTKWave's save file.
    """

    result: dict[str, Any]
    run: RunResult
    files: tuple[Path, ...]
    save: Path | None = None

    @property
    def broken(self) -> list[str]:
        """Guarantees that the policy declares and violated."""
        violations = self.result["violations"]
        return [g for g in self.result["declared"] if violations[g]]


def run_job(request: Request, verb: str, console: Console, *, waves: bool) -> Outcome:
    """Runs the traffic that was asked for, and writes ``result.json``.

    Raises
    ------
    UsageError
        If the capture can't be played.
    RunFailed, BuildFailed, NetlistFailed, SimulatorMissing
        If the run failed.
    """
    parameters: dict[str, Any] = {
        key: request.run[key]
        for key in (
            "qps",
            "lookups",
            "pages",
            "invalidations",
            "command",
            "backpressure",
            "dma_cycles",
        )
    }
    longest = parameters["pages"]
    if request.run["capture"] is not None:
        captured, longest = _captured(request)
        parameters |= captured
    # Eight if there is room for them, more for long lookups.
    parameters["buffer_pages"] = max(longest, min(8, request.most_pages))
    folder = new_folder(f"{own.label(request.config.arbiter)}-{request.run['seed']}")
    repeat = request.repeat(verb)
    started = time.monotonic()
    with _progress(console, folder / "progress", parameters["lookups"]):
        ran = run(
            request.config,
            request.simulator,
            "tb.bench_traffic",
            seed=request.run["seed"],
            parameters=parameters,
            run_dir=folder,
            waves=waves,
            repeat=repeat,
        )
    measured = json.loads((folder / "measured.json").read_text())
    for name in ("measured.json", "progress"):
        (folder / name).unlink(missing_ok=True)
    if "capture" in parameters:
        parameters["capture"] = Path(parameters["capture"]).name
    result = {
        "command": repeat,
        "config": dataclasses.asdict(request.config),
        "parameters": parameters,
        "seed": ran.seed,
        "simulator": str(ran.simulator),
        "seconds": round(time.monotonic() - started, 3),
        **measured,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    point_latest_to(folder)
    waves_files, save = prepare(ran.waves, request.config)
    return Outcome(result, ran, (folder / "result.json", ran.log, *waves_files), save)


def _captured(request: Request) -> tuple[dict[str, Any], int]:
    """What the bench must know of a capture, and the pages that its longest packet fills."""
    from tb.agents.capture import CaptureError, read_capture
    from tb.agents.scenes import PAGE
    from tb.bench_traffic import captured_flows

    path = request.run["capture"]
    # It is read twice. What isn't there at all gets its sentence from the reader.
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"CAPTURE must be an ordinary file, not {path}.")
    try:
        capture = read_capture(path)
    except CaptureError as error:
        raise UsageError(f"CAPTURE={path} can't be played: {error}.") from None
    longest = max(send.payload_length for send in capture.sends)
    pages = -(-longest // PAGE)
    if pages > request.most_pages:
        raise UsageError(
            f"TRANSLATIONS must be larger to hold a packet of {longest} bytes in the buffer, "
            f"not {request.config.translations}."
        )
    own = len({send.qpn for send in capture.sends})
    pairs = request.run["qps"] if "QPS" in request.typed else own
    if pairs < own:
        raise UsageError(f"QPS must be at least the capture's own {own}, not {pairs}.")
    parameters = {
        "capture": str(path.resolve()),
        "packets": capture.packets,
        "qps": pairs,
        "lookups": sum(len(lengths) for _, lengths in captured_flows(capture, pairs)),
    }
    return parameters, pages


def new_folder(what: str) -> Path:
    """Makes a folder for a run, named after the time and what is run."""
    # What somebody has called a file may be long, and hold anything.
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", what)[:80]
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{plain}"
    folder, attempt = RUNS / name, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            attempt += 1
            folder = RUNS / f"{name}-{attempt}"
        else:
            return folder


def point_latest_to(folder: Path) -> None:
    """From now on the last run is the one in this folder."""
    temporary = BUILD / f"latest.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder.relative_to(BUILD))
    temporary.replace(LATEST)


@contextlib.contextmanager
def _progress(console: Console, counter: Path, total: int) -> Iterator[None]:
    """Shows how many lookups the bench says that it has got an answer to."""
    done = threading.Event()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("lookups"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("building", total=total)

        def watch() -> None:
            while not done.wait(0.2):
                with contextlib.suppress(OSError, ValueError):
                    answered = int(counter.read_text())
                    progress.update(task, description="simulating", completed=answered)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def shown(path: Path) -> str:
    """A path as seen from the project's folder, where it lies below it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
