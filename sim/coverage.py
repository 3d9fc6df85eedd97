"""Coverage: what sampled runs hit together, and what Verilator saw of the hardware."""

import dataclasses
import json
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rtl.arbiter import POLICIES, own
from rtl.config import OnPending, RetireScope, TableConfig
from sim import rtl_coverage, simulators
from sim.netlist import BUILD, replace, table_design
from sim.rtl_coverage import explain, instrumented
from sim.run import run
from sim.simulators import Simulator
from tb.coverage.bins import GROUPS
from tb.coverage.merged import Hits, Result, judge, union
from tb.coverage.sampler import FILE
from tb.coverage.unreachable import DRAINS, Where
from tb.variants import SIZE

FOLDER = BUILD / "coverage"
"""What the last ``make coverage`` came to."""

MOST_LINES = 200
"""Most holes that are shown on the terminal."""

# What comes first hits what is easy; what comes last aims at what is left.
BENCHES = [
    "tb.bench_random",
    "tb.bench_rules",
    "tb.bench_readers",
    "tb.bench_load",
    "tb.bench_answers",
    "tb.bench_changes",
    "tb.bench_races",
    "tb.bench_scenes",
    "tb.bench_coverage",
]
TESTS = [
    "anything",
    *("second_invalidate", "zero_length", "zero_based", "windows_of_a_queue_pair", "who_owns_what"),
    *("random_lookups", "every_status", "r08_end_of_the_address_space", "tags_in_use"),
    *("r12_two_invalidations", "translations_are_not_reused_early"),
    *("statuses", "together", "touches", "a_range_is_awaited", "everywhere"),
    "races",
]

RTL_SIZE: Mapping[str, Any] = {**SIZE, "ports": 2, "translations": 32, "ghost_version": False}
"""The table whose hardware is looked at: as it would be built, without ghosts and monitor."""

RTL_TESTS = [*TESTS[:-1], "wide_values", "r01_invalidate_in_flight", "rebind_at_every_offset"]

CYCLES = 4000
"""Of random traffic."""


@dataclass(frozen=True)
class CoverageRequest:
    """What was asked for, checked.

    Parameters
    ----------
    arbiter : str, optional
        Only this policy.
    seed : int
    """

    arbiter: str | None
    seed: int

    @property
    def arbiters(self) -> list[str]:
        """The policies that are run."""
        return list(POLICIES) if self.arbiter is None else [self.arbiter]

    @property
    def command(self) -> str:
        """What does the same again."""
        words = [] if self.arbiter is None else [f"ARBITER={self.arbiter}"]
        return shlex.join(["make", "coverage", *words, f"SEED={self.seed}"])


@dataclass(frozen=True)
class Hardware:
    """What Verilator saw of one policy's table."""

    arbiter: str
    counted: Mapping[str, int]
    seen: Mapping[str, int]
    explained: Mapping[str, int]
    holes: Sequence[str]


def run_coverage(request: CoverageRequest, console: Console) -> int:
    """Runs everything, prints what came of it, and writes it into :data:`FOLDER`.

    Returns 0 if every bin was hit that can be, and none that can't, and whatever Verilator did not
    see has a reason; else 1. Of somebody's own policy nobody knows which bins it can hit: there,
    those that were not are listed, and don't count.
    """
    began = time.monotonic()
    hits: dict[Where, Hits] = {}
    hardware: list[Hardware] = []
    wheres = [Where(arbiter, scope) for arbiter in request.arbiters for scope in RetireScope]
    with (
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as progress,
        ProcessPoolExecutor(os.cpu_count()) as pool,
    ):
        task = progress.add_task("running", total=len(wheres) + len(request.arbiters))
        jobs: dict[Future[Any], Where | None] = {
            pool.submit(look_at_hardware, arbiter, request.seed): None
            for arbiter in request.arbiters
        }
        jobs |= {pool.submit(sample, where, request.seed): where for where in wheres}
        try:
            for done in as_completed(jobs):
                where = jobs[done]
                if where is None:
                    hardware.append(done.result())
                else:
                    hits[where] = done.result()
                progress.advance(task)
        except BaseException:
            # Nobody waits for what is left.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    results = judge({where: hits[where] for where in wheres})
    hardware.sort(key=lambda found: request.arbiters.index(found.arbiter))
    seconds = round(time.monotonic() - began, 1)
    for part in _shortened([*bins_report(results), *hardware_report(hardware)]):
        console.print(part, soft_wrap=True)
    console.print(f"{len(jobs)} runs in {seconds} s")
    console.print(f"seed     {request.seed}")
    console.print(f"repeat   {request.command}", soft_wrap=True)
    _write(request, results, hardware, seconds)
    console.print("wrote    build/coverage/coverage.json, build/coverage/coverage.txt")
    is_own = request.arbiter is not None and own.is_own(request.arbiter)
    return 1 if failures(results, hardware, is_own) else 0


def _shortened(parts: Sequence[Table | str]) -> Iterator[Table | str]:
    """The parts of a report, without most of the holes if there are many."""
    lines = 0
    for part in parts:
        if isinstance(part, str):
            lines += 1
            if lines > MOST_LINES:
                continue
        yield part
    if lines > MOST_LINES:
        yield f"{lines - MOST_LINES} more are in build/coverage/coverage.txt"


def failures(results: Sequence[Result], hardware: Sequence[Hardware], is_own: bool) -> int:
    """How many things there are that should not be.

    Holes of somebody's own policy are none.
    """
    wrong = sum(len(result.wrong) for result in results)
    holes = sum(len(result.holes) for result in results)
    unseen = sum(len(found.holes) for found in hardware)
    return wrong if is_own else wrong + holes + unseen


# Bins


def sample(where: Where, seed: int) -> dict[str, list[tuple[str, ...]]]:
    """The bins that are hit under one policy, in one scope."""
    # Two if the policy holds lookups back: they wait, or are turned away.
    first = TableConfig(**SIZE, arbiter=where.arbiter, scope=where.scope)
    configs = [first]
    if where.arbiter in DRAINS:
        configs.append(dataclasses.replace(first, on_pending=OnPending.REFUSE))
    runs: list[Hits] = []
    # Icarus builds in a second.
    simulator = simulators.available()[-1]
    for config in configs:
        folder = FOLDER / "runs" / f"{own.label(where.arbiter)}-{where.scope}-{config.on_pending}"
        before = sorted(union(runs)["race"])
        ran = run(
            config,
            simulator,
            BENCHES,
            tests=TESTS,
            seed=seed,
            parameters={"coverage": True, "hit": before, "cycles": CYCLES},
            run_dir=folder,
        )
        runs.append(json.loads((ran.run_dir / FILE).read_text()))
    return {group: sorted(bins) for group, bins in union(runs).items()}


def bins_report(results: Sequence[Result]) -> Iterator[Table | str]:
    """What became of the bins: a table, the holes, and why others can't be hit."""
    table = Table()
    for heading in ("group", "bins", "can't be hit", "can be hit", "hit", "%"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for result in results:
        table.add_row(GROUPS[result.group].title, *_counts(result))
    yield table
    yield from (f"hole     {named}" for result in results for named in result.holes)
    yield from (
        f"wrong    {named} was hit, though it can't be" for r in results for named in r.wrong
    )
    reasons = Table()
    reasons.add_column("can't be hit", justify="right")
    reasons.add_column("group")
    reasons.add_column("since")
    for result in results:
        for reason, count in result.unreachable.items():
            reasons.add_row(str(count), result.group, reason)
    yield reasons


def _counts(result: Result) -> list[str]:
    share = 100 * result.hit / result.reachable if result.reachable else 100
    numbers = [result.bins, result.unreachable.total(), result.reachable, result.hit]
    # Rounded down: 100 is all of them.
    return [*map(str, numbers), f"{int(share * 10) / 10:g}"]


# Hardware


def look_at_hardware(arbiter: str, seed: int) -> Hardware:
    """Lines and toggles of the table with one policy, in scope ``dma``, with its defaults."""
    config = TableConfig(**RTL_SIZE, arbiter=arbiter)
    ran = run(
        config,
        Simulator.VERILATOR,
        BENCHES,
        tests=RTL_TESTS,
        seed=seed,
        parameters={"cycles": CYCLES},
        run_dir=FOLDER / "runs" / f"{own.label(arbiter)}-hardware",
        coverage=True,
    )
    points = rtl_coverage.read(ran.run_dir / rtl_coverage.DATA)
    text = instrumented(table_design(config)).read_text()
    reasons = list(explain(config, text, points))
    return Hardware(
        arbiter,
        Counter(point.kind for point in points),
        Counter(point.kind for point in points if point.count),
        Counter(why for _, why in reasons if why),
        [str(point) for point, why in reasons if not why],
    )


def hardware_report(hardware: Sequence[Hardware]) -> Iterator[Table | str]:
    """What Verilator saw: a table, why the rest can't be seen, and what has no reason."""
    table = Table()
    for heading in ("table with", "lines", "seen", "bits, each way", "seen", "explained", "holes"):
        table.add_column(heading, justify="left" if heading == "table with" else "right")
    for found in hardware:
        cells = [str(n[kind]) for kind in ("line", "toggle") for n in (found.counted, found.seen)]
        explained = sum(found.explained.values())
        table.add_row(found.arbiter, *cells, str(explained), str(len(found.holes)))
    yield table
    yield from (f"hole     {found.arbiter}: {hole}" for found in hardware for hole in found.holes)
    reasons = Table()
    reasons.add_column("not seen", justify="right")
    reasons.add_column("since")
    total: Counter[str] = Counter()
    for found in hardware:
        total.update(found.explained)
    for reason, count in total.items():
        reasons.add_row(str(count), reason)
    yield reasons


def _write(
    request: CoverageRequest,
    results: Sequence[Result],
    hardware: Sequence[Hardware],
    seconds: float,
) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = {
        "command": request.command,
        "seed": request.seed,
        "seconds": seconds,
        "groups": {
            result.group: {
                "bins": result.bins,
                "reachable": result.reachable,
                "hit": result.hit,
                "holes": [str(named) for named in result.holes],
                "wrong": [str(named) for named in result.wrong],
                "unreachable": dict(result.unreachable),
            }
            for result in results
        },
        "hardware": {
            found.arbiter: {
                "counted": dict(found.counted),
                "seen": dict(found.seen),
                "explained": dict(found.explained),
                "holes": list(found.holes),
            }
            for found in hardware
        },
    }
    replace(FOLDER / "coverage.json", json.dumps(record, indent=1) + "\n")
    with (FOLDER / "coverage.txt").open("w") as file:
        console = Console(file=file, width=160, markup=False, emoji=False, highlight=False)
        for part in (*bins_report(results), *hardware_report(hardware)):
            console.print(part, soft_wrap=True)
