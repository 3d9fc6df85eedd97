"""What a run came to, as a table on the terminal."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rtl.arbiter import policy
from rtl.monitor import OF_CHANGES
from sim.job import Outcome, shown
from sim.typed import number_of


def print_summary(outcome: Outcome, console: Console) -> None:
    """Prints the measurements, the verdicts, and how to do it again."""
    result = outcome.result
    console.print(title(result["config"], str(result["simulator"])), soft_wrap=True)
    console.print(_measurements(result))
    console.print(verdicts(result))
    console.print(_conclusion(outcome), soft_wrap=True)
    console.print(f"seed     {result['seed']}")
    console.print(f"repeat   {result['command']}", soft_wrap=True)
    look = _look(outcome)
    if look is not None:
        console.print(f"look     {look}", soft_wrap=True)
    for file in outcome.files:
        console.print(f"wrote    {shown(file)}", soft_wrap=True)


def title(config: Mapping[str, Any], simulator: str) -> str:
    """The choices that matter, in one line."""
    words = [config["arbiter"]]
    words += [f"{choice} {config[choice]}" for choice in policy(config["arbiter"]).choices]
    words += [f"scope {config['scope']}", config["read_structure"], simulator]
    return ", ".join(words)


def _measurements(result: dict[str, Any]) -> Table:
    table = Table()
    for heading in ("", "total", "p50", "p99", "max"):
        table.add_column(heading, justify="left" if not heading else "right")
    parameters = result["parameters"]
    ok = result["statuses"].get("OK", 0)
    rows: list[tuple[str, Any]] = [
        ("queue pairs on ports", f"{parameters['qps']} on {result['config']['ports']}"),
        ("cycles", result["cycles"]),
        ("lookups answered", result["lookups"]),
        ("  OK", ok),
        *(
            (f"  {status}", count)
            for status, count in result["statuses"].items()
            if status not in ("OK", "RETRY", "ABORTED")
        ),
        ("lookups a cycle", f"{result['lookups_per_cycle']:.3f}"),
        ("lookups that waited for the arbiter", result["waited"]),
        ("refusals", result["refused"]),
        ("aborted lookups", result["aborted"]),
        ("beats", result["beats"]),
        ("DMA beats", result["dma_beats"]),
        ("changes of the entry", result["invalidations"]),
    ]
    for name, value in rows:
        table.add_row(name, str(value))
    for name, key in (
        ("latency of a lookup, cycles", "latency_cycles"),
        ("R to A, cycles", "apply_cycles"),
        ("R to C, cycles", "invalidation_cycles"),
    ):
        values = result[key]
        cells = ["-" if values[q] is None else str(values[q]) for q in ("p50", "p99", "max")]
        table.add_row(name, "", *cells)
    return table


_UNITS = {
    "fresh_dma": "DMA beat",
    "no_early_reuse": "write",
    "bounded_invalidation": "change",
    "lookup_never_waits": "cycle",
    "isolated_lookups": "cycle",
    "isolated_invalidation": "wait",
    "lossless": "lookup",
}
"""What one violation of a guarantee is, where it isn't a beat."""

_NOT_JUDGED = ("bounded_invalidation",)
"""Guarantees that a run says nothing about, since it sets no deadline."""


def story_table(story: Iterable[tuple[int, str, str]], is_it: Callable[[int, str], bool]) -> Table:
    """What happened, by cycles; ``is_it`` says whether something in a cycle stands out."""
    table = Table()
    table.add_column("cycle", justify="right")
    table.add_column("who")
    table.add_column("what", overflow="fold")
    before = None
    for cycle, who, what in story:
        number = "" if cycle == before else str(cycle)
        table.add_row(number, who, what, style="bold red" if is_it(cycle, what) else None)
        before = cycle
    return table


def print_again(command: str, save: Path | None, files: Iterable[Path], console: Console) -> None:
    """Prints how to do it again, how to look at it if there is no dump, and what was written."""
    console.print(f"repeat   {command}", soft_wrap=True)
    if save is None:
        look = command.replace("make sim", "make waves", 1)
        console.print(f"look     {look}", soft_wrap=True)
    for file in files:
        console.print(f"wrote    {shown(file)}", soft_wrap=True)


def verdicts(result: Mapping[str, Any]) -> Table:
    """For each guarantee whether it is declared, and whether it held.

    Parameters
    ----------
    result : mapping
        With ``violations``, ``first_violations`` and ``declared`` as in ``result.json``.
    """
    table = Table()
    for heading in ("guarantee", "declared", "verdict"):
        table.add_column(heading)
    for guarantee, count in result["violations"].items():
        declared = guarantee in result["declared"]
        if guarantee in _NOT_JUDGED:
            verdict = Text("not judged here")
        elif not count:
            # What isn't declared was not held to; another run may see it violated.
            verdict = Text("held", style="green") if declared else Text("not violated here")
        else:
            first = result["first_violations"][guarantee]
            place = "source" if guarantee in OF_CHANGES else "port"
            verdict = Text(
                f"violated by {number_of(count, _UNITS.get(guarantee, 'beat'))}, "
                f"first in cycle {first['cycle']}, {place} {first['port']}",
                style="red" if declared else "yellow",
            )
        table.add_row(guarantee, "yes" if declared else "no", verdict)
    return table


def _conclusion(outcome: Outcome) -> str:
    result = outcome.result
    arbiter = result["config"]["arbiter"]
    if outcome.broken:
        return f"{arbiter} violated what it declares: {', '.join(outcome.broken)}."
    if not result["invalidations"]:
        return f"Nothing was changed, so {arbiter} had nothing to arbitrate."
    return held(arbiter, result["violations"])


def held(arbiter: str, violations: Mapping[str, int]) -> str:
    """What there is to say of a policy that violated nothing that it declares."""
    violated = [guarantee for guarantee, count in violations.items() if count]
    held = f"{arbiter} held everything that it declares"
    if violated:
        names = ", ".join(violated)
        return f"{held}. It violated {names}: that is expected, it declares no such thing."
    return f"{held}."


def _look(outcome: Outcome) -> str | None:
    """The command that shows the first violation, if there is one and no dump yet."""
    if outcome.save is not None or not any(outcome.result["violations"].values()):
        return None
    return outcome.result["command"].replace("make sim", "make waves", 1)
