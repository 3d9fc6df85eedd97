"""The main job: one run of the traffic bench, from the request to ``result.json``."""

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sim.netlist import BUILD, ROOT
from sim.parameters import Request, UsageError
from sim.run import RUNS, RunResult, run
from sim.waves import convert, save_for_first_race

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
    parameters = {
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
    parameters["buffer_pages"] = request.buffer_pages
    if request.run["capture"] is not None:
        parameters |= _captured(request)
    folder = _new_folder(request)
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
    _point_latest_to(folder)
    files = [folder / "result.json", ran.log]
    save = None
    if ran.waves is not None:
        dump = convert(ran.waves)
        save = save_for_first_race(dump, request.config)
        files += [dump, save]
    return Outcome(result, ran, tuple(files), save)


def _captured(request: Request) -> dict[str, Any]:
    from tb.agents.capture import CaptureError, read_capture

    path = request.run["capture"]
    try:
        capture = read_capture(path)
    except CaptureError as error:
        raise UsageError(f"CAPTURE={path} can't be played: {error}.") from None
    flows: dict[int, list[int]] = {}
    for send in capture.sends:
        flows.setdefault(send.qpn, []).append(send.payload_length)
    longest = max(send.payload_length for send in capture.sends)
    if longest > request.buffer_pages << 12:
        raise UsageError(
            f"TRANSLATIONS must be larger to hold a packet of {longest} bytes in the buffer, "
            f"not {request.config.translations}."
        )
    pairs = request.run["qps"] if "QPS" in request.typed else len(flows)
    if pairs < len(flows):
        raise UsageError(f"QPS must be at least the capture's own {len(flows)}, not {pairs}.")
    sends = fan_out(flows, pairs)
    return {
        "capture": Path(path).name,
        "packets": capture.packets,
        "sends": sends,
        "qps": pairs,
        "lookups": sum(len(lengths) for _, lengths in sends),
    }


def fan_out(flows: dict[int, list[int]], pairs: int) -> list[tuple[int, list[int]]]:
    """As many flows as queue pairs: the given ones, then copies that start further on.

    A copy has a number of its own, and the packets of its original from another one on.
    """
    originals = list(flows.items())
    number = max(flows)
    result = list(originals)
    for copy in range(pairs - len(originals)):
        number += 1
        _, lengths = originals[copy % len(originals)]
        shift = (copy // len(originals) + 1) % len(lengths)
        result.append((number, lengths[shift:] + lengths[:shift]))
    return result


def _new_folder(request: Request) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{stamp}-{request.config.arbiter}-{request.run['seed']}"
    folder, attempt = RUNS / name, 1
    while folder.exists():
        attempt += 1
        folder = RUNS / f"{name}-{attempt}"
    return folder


def _point_latest_to(folder: Path) -> None:
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
