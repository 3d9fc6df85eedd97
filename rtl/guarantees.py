"""The names of what a policy can give."""

from enum import StrEnum


class Guarantee(StrEnum):
    """A statement that holds in every cycle, or is violated.

    R, A and C are the cycles in which a command first asks the arbiter, is written to the table,
    and is reported to its requester.
    """

    UNTORN = "untorn"
    """All beats of one lookup come from one version of the entry, or it ends ``ABORTED``."""
    FRESH_ADMIT = "fresh_admit"
    """A lookup admitted after A is never answered from the version before A."""
    FRESH_ANSWER = "fresh_answer"
    """No OK beat from the version before A is delivered after C."""
    FRESH_DMA = "fresh_dma"
    """No DMA beat under a translation from before A is issued after C."""
    NO_EARLY_REUSE = "no_early_reuse"
    """Neither the index nor its translations are handed to a new owner before C."""
