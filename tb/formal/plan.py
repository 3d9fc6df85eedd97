"""What is proved, in which order, and what each proof stands on."""

from collections.abc import Sequence
from dataclasses import dataclass

from rtl.config import ReadStructure, TableConfig
from rtl.monitor import Guarantee

RULES = {
    "ranges_apart": "no command writes translations that a registration has",
    "pages_written": "a registration writes all its translations, or keeps the ones it has",
    "tables_agree": "a usable entry has all its translations, and its own",
}
"""What is assumed of the environment, by the output of the harness that says so."""


@dataclass(frozen=True)
class Step:
    """One thing to prove.

    Parameters
    ----------
    output : str
        Of the harness; it must never be high.
    always : tuple of str
        :data:`RULES` that are assumed.
    never : tuple of str
        Lemmas that are assumed where they were proved before.
    parts : tuple of str
        Parts of the table that the proof can do without: it is tried without them first.
    """

    output: str
    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


ARBITER = "arbiter"
PIPELINES = "pipelines"
TABLES = "tables"
"""Both tables, and what a command may do and makes of an entry."""

LEMMAS = (
    Step("unsound", parts=(ARBITER,)),
    Step("stray", parts=(ARBITER, TABLES)),
    Step("outlived", parts=(PIPELINES, TABLES)),
)
"""What the guarantees stand on, under any policy (the first two) or under most (the last)."""

GUARANTEES = {
    Guarantee.UNTORN: Step("untorn", tuple(RULES), ("unsound", "outlived")),
    Guarantee.FRESH_ADMIT: Step("fresh_admit", never=("unsound",)),
    Guarantee.FRESH_ANSWER: Step("fresh_answer", never=("unsound", "outlived")),
    Guarantee.FRESH_DMA: Step("fresh_dma", never=("unsound", "outlived", "stray")),
    Guarantee.NO_EARLY_REUSE: Step("no_early_reuse", parts=(ARBITER, PIPELINES)),
    Guarantee.LOOKUP_NEVER_WAITS: Step("lookup_never_waits", parts=(PIPELINES, TABLES)),
    Guarantee.ISOLATED_LOOKUPS: Step("isolated_lookups"),
    Guarantee.ISOLATED_INVALIDATION: Step("isolated_invalidation", parts=(PIPELINES, TABLES)),
    Guarantee.LOSSLESS: Step("lossless"),
}


def modules(config: TableConfig, parts: Sequence[str]) -> tuple[str, ...]:
    """The modules of the harness that make up some parts of the table."""
    found = ["table.arbiter"] if ARBITER in parts else []
    if PIPELINES in parts:
        replicated = config.read_structure is ReadStructure.REPLICATED
        found += [f"table.pipeline_{n}" for n in range(config.pipelines if replicated else 1)]
    if TABLES in parts:
        found += ["table.mpt", "table.mtt", "table.commands.worker.legality"]
    return tuple(found)
