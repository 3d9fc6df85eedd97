"""What is proved, in which order, and what each proof stands on."""

from collections.abc import Sequence
from dataclasses import dataclass

from rtl.arbiter import policy
from rtl.config import ReadStructure, TableConfig
from rtl.monitor import Guarantee

RULES = {
    "ranges_apart": "no command writes translations that a registration has",
    "pages_written": "a registration writes all its translations, or keeps the ones it has",
}
"""What is assumed of the environment, by the output of both harnesses that says so."""


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
    inductive : bool
        It follows from itself one cycle earlier: for :func:`sim.prover.induct`, not for
        :func:`sim.prover.prove`.
    """

    output: str
    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    inductive: bool = False


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

ENGINE = (
    Step("misread"),
    Step("unaccounted", tuple(RULES), ("misread",), inductive=True),
    Step("disagree", tuple(RULES), ("misread", "unaccounted"), inductive=True),
    Step("disturbed", tuple(RULES), ("misread", "unaccounted"), inductive=True),
)
"""Of :class:`tb.formal.engine.EngineHarness`: the two tables agree, and what a change takes away
stays until it is let through, whatever is granted and when.

All of it is true of the engine in a table: it is the same, and so are its sources.
"""

OF_BOTH = ("disagree", "disturbed")
"""Outputs of both harnesses that :data:`ENGINE` proves and :data:`READERS` stand on."""

READERS = (
    Step("misread", parts=(ARBITER,)),
    Step("misled", never=("misread", "unsound", "disagree", "disturbed"), inductive=True),
    Step("exposed", never=("unsound",)),
)
"""On the way to ``untorn``, after :data:`LEMMAS` and :data:`ENGINE`.

A policy comes in once, with ``exposed``: no lookup is answered from an entry whose change has been
granted its completion. All else holds for every policy. Of the hosts' commands, the :data:`RULES`
are assumed: ``disagree`` and ``disturbed`` hold only under them.
"""

GUARANTEES = {
    Guarantee.UNTORN: Step("untorn", never=("unsound", "misread", "misled", "exposed")),
    Guarantee.FRESH_ADMIT: Step("fresh_admit", never=("unsound",)),
    Guarantee.FRESH_ANSWER: Step("fresh_answer", never=("unsound", "outlived")),
    Guarantee.FRESH_DMA: Step("fresh_dma", never=("unsound", "outlived", "stray")),
    Guarantee.NO_EARLY_REUSE: Step("no_early_reuse", parts=(ARBITER, PIPELINES)),
    Guarantee.LOOKUP_NEVER_WAITS: Step("lookup_never_waits", parts=(PIPELINES, TABLES)),
    Guarantee.ISOLATED_LOOKUPS: Step("isolated_lookups"),
    Guarantee.ISOLATED_INVALIDATION: Step("isolated_invalidation", parts=(PIPELINES, TABLES)),
    Guarantee.LOSSLESS: Step("lossless"),
}


def is_open(config: TableConfig, guarantee: Guarantee) -> bool:
    """Declared, believed, and not proved yet: what a policy that replays does to its answers."""
    unproved = {Guarantee.UNTORN, Guarantee.FRESH_ANSWER, Guarantee.FRESH_DMA}
    return guarantee in unproved and policy(config.arbiter).replays


def modules(config: TableConfig, parts: Sequence[str]) -> tuple[str, ...]:
    """The modules of the harness that make up some parts of the table."""
    found = ["table.arbiter"] if ARBITER in parts else []
    if PIPELINES in parts:
        replicated = config.read_structure is ReadStructure.REPLICATED
        found += [f"table.pipeline_{n}" for n in range(config.pipelines if replicated else 1)]
    if TABLES in parts:
        found += ["table.mpt", "table.mtt", "table.commands.worker.legality"]
    return tuple(found)
