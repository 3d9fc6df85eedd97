"""What is proved, in which order, and what each proof stands on."""

from dataclasses import dataclass

from rtl.arbiter import Arbiter, policy
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
    of_any : bool
        It is true under every policy: it is tried with one that may do anything first, and what
        is proved of that one needn't be proved of another.
    inductive : bool
        It follows from itself one cycle earlier: for :func:`sim.prover.induct`, not for
        :func:`sim.prover.prove`.
    """

    output: str
    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    of_any: bool = False
    inductive: bool = False


ARBITER = "arbiter"
COMMANDS = "commands"
PIPELINES = "pipelines"
SLOTS = "slots"
TABLES = "tables"
WORKER = "worker"
"""Parts of the table. ``tables`` is both tables, and ``legality``: what a command may do to an
entry, and makes of it."""

LEMMAS = (
    Step("astray", parts=(TABLES, SLOTS), of_any=True),
    Step("misplaced", never=("astray",), parts=(TABLES, WORKER), of_any=True),
    # Step orders differ in how a command is carried out: without that, one proof is enough.
    Step("misdated", never=("astray", "misplaced"), parts=(WORKER,), of_any=True),
    Step("unsound", never=("astray", "misplaced", "misdated"), of_any=True),
    Step("adrift", never=("unsound",), parts=(COMMANDS,), of_any=True),
    Step("stray", never=("adrift",), parts=(COMMANDS, TABLES), of_any=True),
)
"""What the guarantees stand on, whatever the policy."""

PAGED = (
    Step("unpaged_write", parts=(PIPELINES,), of_any=True),
    Step("unpaged", never=("unpaged_write",), parts=(PIPELINES, WORKER), of_any=True),
)
"""On the way to how long a lookup takes: else nobody knows how many beats it has."""

OUTLIVED = Step("outlived", parts=(TABLES,))
"""A policy that checks its lookups lets those of the old entry go on: there it isn't so."""

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

NOTICED = ("unsound", "misfiled", "crowded", "detached", "interrupted", "mislaid", "mistaken")

CHECKING = (
    Step("misfiled", of_any=True, inductive=True),
    Step("crowded", parts=(PIPELINES,), of_any=True),
    Step("detached", parts=(PIPELINES,), of_any=True),
    Step("interrupted", parts=(PIPELINES, TABLES), of_any=True),
    Step("mislaid", never=("unsound",), parts=(TABLES, WORKER), of_any=True),
    Step("mistaken", never=("unsound", "misfiled"), parts=(TABLES,)),
    Step("unnoticed", never=NOTICED, inductive=True),
    Step("late", never=(*NOTICED, "unnoticed"), parts=(TABLES,)),
)
"""Why a policy is right that checks its lookups, see :mod:`tb.formal.checking`: for those that say
how they do it, and on the way to everything about answers."""

CHECKED = (*NOTICED, "unnoticed", "late")
"""What :data:`CHECKING` proves, and what else it stands on."""

READERS = (
    Step("misread", of_any=True),
    Step(
        "misled",
        never=("misread", "unsound", "disagree", "disturbed"),
        of_any=True,
        inductive=True,
    ),
)
"""On the way to ``untorn``, after :data:`LEMMAS` and :data:`ENGINE`, whatever the policy.

Of the hosts' commands, the :data:`RULES` are assumed: ``disagree`` and ``disturbed`` hold only
under them.
"""

LINGERING = Step("lingering", parts=(TABLES,))
"""A policy that waits for the lookups of an entry has no other reason for what follows."""

EXPOSED = Step("exposed", never=("lingering", *CHECKED), parts=(TABLES,))
"""Where a policy comes in: no lookup is answered from an entry whose change has been granted its
completion."""

ORDER = (
    *ENGINE[:2],
    Step("disordered", tuple(RULES), ("misread", "unaccounted"), inductive=True),
)
"""Of :class:`tb.formal.engine.EngineHarness`, as :data:`ENGINE`: entries have what they have for
themselves, whatever the rows hold, and so in each step order."""

ROOM = (
    *LEMMAS[:2],
    READERS[0],
    Step("outgrown", never=("misplaced", "misread", "disordered"), of_any=True, inductive=True),
    LINGERING,
    Step("squeezed", never=("misplaced", "outgrown", "lingering", "disordered")),
)
"""What a change leaves for others, see :mod:`tb.formal.room`; stands on :data:`ORDER`."""

GUARANTEES = {
    Guarantee.UNTORN: Step("untorn", never=("unsound", "misread", "misled", "exposed")),
    Guarantee.FRESH_ADMIT: Step("fresh_admit", never=("unsound",)),
    Guarantee.FRESH_ANSWER: Step("fresh_answer", never=(*CHECKED, "outlived")),
    Guarantee.FRESH_DMA: Step("fresh_dma", never=(*CHECKED, "outlived", "stray")),
    Guarantee.NO_EARLY_REUSE: Step("no_early_reuse", parts=(PIPELINES,), of_any=True),
    Guarantee.LOOKUP_NEVER_WAITS: Step("lookup_never_waits", parts=(PIPELINES, TABLES)),
    Guarantee.ISOLATED_LOOKUPS: Step("isolated_lookups"),
    Guarantee.ISOLATED_INVALIDATION: Step(
        "isolated_invalidation", never=("unsound", "misfiled"), parts=(PIPELINES, TABLES)
    ),
    Guarantee.LOSSLESS: Step("lossless"),
}


def says_how_it_checks(config: TableConfig) -> bool:
    """The policy says how it checks its lookups."""
    cls = policy(config.arbiter)
    return cls.is_current is not Arbiter.is_current or cls.awaits is not Arbiter.awaits


def is_fresh(config: TableConfig) -> bool:
    """The policy says that no lookup is answered what is over."""
    return Guarantee.FRESH_ANSWER in policy(config.arbiter).guarantees(config)


def checks(config: TableConfig) -> bool:
    """The policy says how it checks its lookups, and that this is enough."""
    return says_how_it_checks(config) and is_fresh(config)


def lemmas(config: TableConfig) -> tuple[Step, ...]:
    """What the guarantees stand on, under the policy of a configuration."""
    if not is_fresh(config):
        return LEMMAS
    return (*LEMMAS, *(CHECKING if says_how_it_checks(config) else (OUTLIVED,)))


def readers(config: TableConfig) -> tuple[Step, ...]:
    """On the way to ``untorn``, under the policy of a configuration."""
    return (*READERS, *(() if checks(config) else (LINGERING,)), EXPOSED)


def modules(config: TableConfig) -> dict[str, tuple[str, ...]]:
    """The modules of the harness that make up each part of the table."""
    replicated = config.read_structure is ReadStructure.REPLICATED
    pipelines = range(config.pipelines if replicated else 1)
    return {
        ARBITER: ("table.arbiter",),
        COMMANDS: ("table.commands",),
        PIPELINES: tuple(f"table.pipeline_{n}" for n in pipelines),
        SLOTS: ("table.slots",),
        TABLES: ("table.mpt", "table.mtt", "table.commands.worker.legality"),
        WORKER: ("table.commands.worker",),
    }
