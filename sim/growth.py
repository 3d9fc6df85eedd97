"""How the time of the proofs grows with the table."""

import dataclasses
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rtl.arbiter import policy
from rtl.config import TableConfig
from rtl.monitor import Guarantee
from sim.prove import WIDTH
from sim.prover import Verdict
from tb.formal.matrix import name_of, solve

GROWN: tuple[dict[str, int], ...] = (
    {"ports": 1, "sources": 1},
    {"ports": 2},
    {},
    {"ports": 4},
    {"tags": 4},
    {"sources": 3},
    {"entries": 8, "index_width": 3},
    {"translations": 8, "address_width": 5},
)
"""What is proved one after the other: the small table, and others that differ in this."""

USUAL = "grace_period-entry-dma-replicated-entry_first"
"""The configuration that is taken if nothing is said."""


def print_growth(configurations: Sequence[TableConfig], limit: int, console: Console) -> None:
    """Proves what one configuration declares, in larger and larger tables, and prints how long
    each takes: with all lemmas, and without anything that was proved before.

    Parameters
    ----------
    configurations : sequence of TableConfig
        The usual one is taken if it is among them, and else the first.
    limit : int
        Seconds that one try may take.
    console : Console
    """
    named = {name_of(config): config for config in configurations}
    config = named.get(USUAL, configurations[0])
    declared = [g for g in Guarantee if g in policy(config.arbiter).guarantees(config)]
    table = Table(title=name_of(config))
    for column in ("ports", "tags", "entries", "translations", "sources"):
        table.add_column(column, justify="right")
    for guarantee in declared:
        table.add_column(guarantee.replace("_", "\n"), justify="right")
    table.add_column("all, with\nlemmas, s", justify="right")
    console.print(f"{name_of(config)}, in tables of {len(GROWN)} sizes", highlight=False)
    for sizes in GROWN:
        larger = dataclasses.replace(config, **sizes)
        shape = (larger.ports, larger.tags, larger.entries, larger.translations, larger.sources)
        console.print(f"proving with {sizes or 'the sizes of the matrix'} ...", highlight=False)
        began = time.monotonic()
        cells = {cell.name: cell for cell in solve(larger, limit, refutes=False)}
        spent = time.monotonic() - began
        left = [g for g in declared if cells[g].verdict is not Verdict.PROVED]
        came_of_it = f"all but {', '.join(left)}" if left else "all of it"
        console.print(f"    {came_of_it}, in {spent:.0f} s", highlight=False, soft_wrap=True)
        marks = [
            f"{cells[g].seconds:.1f}" if cells[g].verdict is Verdict.PROVED else "?"
            for g in declared
        ]
        table.add_row(*map(str, shape), *marks, f"{spent:.0f}")
    # As the matrix: better wrapped than cut.
    Console(file=console.file, width=WIDTH).print(table, crop=False, soft_wrap=True)
    console.print(
        "Seconds of each proof; ?: not within the limit. What was proved before, in any run, is "
        "known: only after make clean the last column says how long it takes.",
        highlight=False,
        soft_wrap=True,
    )
