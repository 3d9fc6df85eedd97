"""The way to ``untorn``: what is proved in turn, and what each proof stands on.

A policy comes in once, with ``exposed``: no lookup is answered from an entry whose change has been
granted its completion. All else holds for every policy.

What is proved of the command engine among sources that are granted whatever whenever is true of it
in the table, whatever the policy grants: the engine is the same, and so are its sources. The rules
of the hosts are assumed in the proofs of the engine alone.
"""

from dataclasses import dataclass

RULES = ("ranges_apart", "pages_written")
"""Outputs of both harnesses that are assumed to be high."""


@dataclass(frozen=True)
class Lemma:
    """An output that is never high.

    Parameters
    ----------
    name : str
    given : tuple of str
        Outputs that have been proved to be low.
    always : tuple of str
        Outputs that are assumed to be high.
    inductive : bool
        It follows from itself one cycle earlier: for :func:`sim.prover.induct`, not for
        :func:`sim.prover.prove`.
    """

    name: str
    given: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    inductive: bool = False


ENGINE = (
    Lemma("misread"),
    Lemma("unaccounted", ("misread",), RULES, inductive=True),
    Lemma("disagree", ("misread", "unaccounted"), RULES, inductive=True),
    Lemma("disturbed", ("misread", "unaccounted"), RULES, inductive=True),
)
"""Of :class:`tb.formal.engine.EngineHarness`, in this order, whatever the policy."""

TABLE = (
    Lemma("misread"),
    Lemma("unslotted", inductive=True),
    Lemma("misled", ("misread", "unslotted", "disagree", "disturbed"), inductive=True),
    Lemma("exposed", ("unslotted",)),
    Lemma("untorn", ("misread", "unslotted", "misled", "exposed")),
)
"""Of :class:`tb.formal.harness.Harness`, in this order, with what is proved in :data:`ENGINE`."""
