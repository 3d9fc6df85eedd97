"""The bins that can't be hit, each with the reason.

A rule is a predicate and one sentence. The first that holds for a bin is its reason. A bin that has
one and is hit all the same is an error: somebody was wrong about the table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from rtl.config import RetireScope
from tb.coverage.bins import (
    APPLIED,
    GROUPS,
    STATUSES,
    UNKNOWN,
    Bin,
    Company,
    Entries,
    Moment,
    Phase,
    Place,
)
from tb.model.words import CommandStatus, LookupStatus, Opcode


@dataclass(frozen=True)
class Where:
    """For whom a bin is to be hit.

    Parameters
    ----------
    arbiter : str
    scope : RetireScope
    """

    arbiter: str
    scope: RetireScope


@dataclass(frozen=True)
class Rule:
    """Why some bins of a group can't be hit.

    Parameters
    ----------
    group : str
    reason : str
        A sentence.
    holds : function
        Of where it is to be hit, and of the names of its dimensions in their order.
    """

    group: str
    reason: str
    holds: Callable[..., bool]


DRAINS = ("pending_bit", "drain_fence")
"""Policies that hold lookups back, and apply when none is in flight."""

ABORTS = ("squash", "version_check")
"""Policies that end lookups."""

AT_ONCE = ("apply_now", "grace_period", "squash", "version_check")
"""Policies that hold no lookup back. What is true of somebody's own policy nobody knows here."""

SEES_OFF = ("pending_bit", "drain_fence", "grace_period", "squash")
"""Policies under which no lookup from before A has a beat left to take after C."""

_MAKES = {Opcode.REGISTER.name, Opcode.FAST_REGISTER.name, Opcode.ALLOCATE.name}
"""Commands that nobody arbitrates, as nothing that was let through can be in flight."""

_APPLIED = {(opcode.name, kind.name) for opcode, kinds in APPLIED.items() for kind in kinds}
_INVALIDATES = {Opcode.LOCAL_INVALIDATE.name, Opcode.REMOTE_INVALIDATE.name}

_SLOT = {
    Phase.ADMITTED,
    Phase.READING,
    Phase.FIRST_OFFERED,
    Phase.LATER_OFFERED,
    Phase.BEAT_1,
    Phase.BEAT_2,
    Phase.BEAT_3,
}
"""Phases in which a lookup has a slot, or takes one, in both scopes."""

_DMA = {Phase.DMA, Phase.RETIRED}

_LATER = {Phase.LATER_OFFERED, Phase.BEAT_2, Phase.BEAT_3}


def _begins(command: str, kind: str) -> bool:
    """The command makes an entry usable that is not, or makes it."""
    return command in _MAKES or (command == Opcode.BIND.name and kind != "WINDOW_1")


RULES: Sequence[Rule] = (
    Rule(
        "race",
        "A window of type 1 is unbound by a bind of no bytes, and can't be invalidated.",
        lambda where, command, kind, *_: command in _INVALIDATES and kind == "WINDOW_1",
    ),
    Rule(
        "race",
        "The command is for entries of another kind.",
        lambda where, command, kind, *_: (command, kind) not in _APPLIED,
    ),
    Rule(
        "race",
        "The beats of a lookup follow each other without a gap: the next is on offer at once.",
        lambda where, command, kind, moment, phase, company: phase == Phase.BETWEEN,
    ),
    Rule(
        "race",
        "The policy turns no lookup away.",
        lambda where, command, kind, moment, phase, company: (
            phase == Phase.REFUSED and where.arbiter in AT_ONCE
        ),
    ),
    Rule(
        "race",
        "A lookup is turned away from the cycle after R to A of a change that waits for others.",
        lambda where, command, kind, moment, phase, company: (
            where.arbiter in DRAINS
            and phase == Phase.REFUSED
            and (moment == Moment.R or command in _MAKES)
        ),
    ),
    Rule(
        "race",
        "The policy applies when no lookup of the entry has a slot.",
        lambda where, command, kind, moment, phase, company: (
            where.arbiter in DRAINS
            and moment == Moment.A
            and command not in _MAKES
            and (phase in _SLOT or (phase in _DMA and where.scope is RetireScope.DMA))
        ),
    ),
    Rule(
        "race",
        "A port offers one lookup at a time, and the policy applies when no other has a slot.",
        lambda where, command, kind, moment, phase, company: (
            where.arbiter in DRAINS
            and where.scope is RetireScope.DMA
            and moment == Moment.A
            and command not in _MAKES
            and company == Company.SAME_PORT
        ),
    ),
    Rule(
        "race",
        "The entry can't be used yet: a lookup has one beat, and older ones have had their last.",
        lambda where, command, kind, moment, phase, company: (
            phase in _LATER and _begins(command, kind) and where.arbiter in SEES_OFF
        ),
    ),
    Rule(
        "lookup_status",
        "The policy turns no lookup away.",
        lambda where, status: status == LookupStatus.RETRY.name and where.arbiter in AT_ONCE,
    ),
    Rule(
        "lookup_status",
        "The policy ends no lookup.",
        lambda where, status: (
            status == LookupStatus.ABORTED.name
            and where.arbiter in ("apply_now", "grace_period", *DRAINS)
        ),
    ),
    Rule(
        "command_status",
        "An unknown opcode fails before anything else is looked at, and nothing else does.",
        lambda where, command, status: (
            (command == UNKNOWN) != (status == CommandStatus.UNKNOWN_OPCODE.name)
        ),
    ),
    Rule(
        "command_status",
        "No rule of the command has this status.",
        lambda where, command, status: (
            status not in ("OK", "INDEX_OUT_OF_RANGE", "UNKNOWN_OPCODE")
            and CommandStatus[status] not in STATUSES[command]
        ),
    ),
    Rule(
        "touch_and_end",
        "The policy applies when no lookup of the entry has a slot.",
        lambda where, port, entries: entries == Place.SAME_ENTRY and where.arbiter in DRAINS,
    ),
    Rule(
        "together",
        "Two commands name one entry, or two.",
        lambda where, moment, sources, entries: (
            entries == Entries.MIXED and sources.count(",") == 0
        ),
    ),
    Rule(
        "together",
        "One worker prepares the commands, so each has its R in a cycle of its own.",
        lambda where, moment, sources, entries: moment == Moment.R,
    ),
    Rule(
        "together",
        "One entry is written in a cycle.",
        lambda where, moment, sources, entries: moment == Moment.A,
    ),
    Rule(
        "together",
        "A command that names the entry of another one begins when that is complete.",
        lambda where, moment, sources, entries: (
            moment != Moment.ACCEPTED and entries != Entries.OTHER
        ),
    ),
)
"""All of them."""


def reason(where: Where, group: str, names: Bin) -> str | None:
    """Why a bin can't be hit there; ``None`` if it can."""
    for rule in RULES:
        if rule.group == group and rule.holds(where, *names):
            return rule.reason
    return None


@cache
def reachable(where: Where, group: str) -> frozenset[Bin]:
    """The bins of a group that can be hit there."""
    return frozenset(names for names in GROUPS[group].bins() if reason(where, group, names) is None)
