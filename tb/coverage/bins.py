"""The bins, as data: groups of dimensions, each with the names of its bins.

A bin of a group is one name from each of its dimensions. A group is counted for each policy and
scope, or once for all of them.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tb.model.words import CommandStatus, EntryKind, LookupStatus, Opcode

Bin = tuple[str, ...]
"""One name from each dimension of a group."""


class Moment(StrEnum):
    """A cycle in the life of a command."""

    ACCEPTED = "accepted"
    """It is taken from its source."""
    R = "R"
    A = "A"
    IN_PROGRESS = "in progress"
    """Any cycle from R to C."""
    COMPLETED = "completed"
    """Its completion is taken."""


class Phase(StrEnum):
    """Where a lookup stands at the end of a cycle, as its port sees it."""

    WAITING = "waiting"
    """It is offered, and was not taken."""
    REFUSED = "refused"
    """It was taken in this cycle, and turned away with ``RETRY``."""
    ADMITTED = "admitted"
    """It was taken in this cycle, in which its entry is read."""
    READING = "reading"
    """It was taken before, and none of its beats has been offered."""
    FIRST_OFFERED = "first beat on offer"
    """And not taken in this cycle."""
    LATER_OFFERED = "later beat on offer"
    BEAT_1 = "beat 1"
    """The first beat of the walk was taken in this cycle."""
    BEAT_2 = "beat 2"
    BEAT_3 = "beat 3 or later"
    BETWEEN = "between two beats"
    """Some were taken, more are to come, and none is on offer."""
    DMA = "in DMA"
    """The last beat was taken before, and the DMA engine has not returned the tag."""
    RETIRED = "retired"
    """The DMA engine returns the tag in this cycle."""


class Company(StrEnum):
    """Who else looks the same entry up in the same cycle."""

    ALONE = "alone"
    """No other lookup of the entry is in any phase."""
    SAME_PORT = "same port"
    """One on the same port is."""
    OTHER_PORT = "other port"
    """One on another port is."""


class Entries(StrEnum):
    """Which entries two or three commands name."""

    SAME = "the same"
    MIXED = "two the same"
    """Two name one, the third another."""
    OTHER = "all different"


class Place(StrEnum):
    """How one entry lies to another in the recency sets."""

    SAME_ENTRY = "same entry"
    SAME_SET = "same set"
    OTHER_SET = "other set"


class Three(StrEnum):
    """Which entries three touches of one cycle concern."""

    ONE_ENTRY = "one entry"
    ONE_SET = "one set"
    """Several entries of it."""
    SEVERAL_SETS = "several sets"


APPLIED: Mapping[Opcode, Sequence[EntryKind]] = {
    Opcode.REGISTER: [EntryKind.REGION],
    Opcode.FAST_REGISTER: [EntryKind.REGION],
    Opcode.ALLOCATE: list(EntryKind),
    Opcode.LOCAL_INVALIDATE: [EntryKind.REGION, EntryKind.WINDOW_2A, EntryKind.WINDOW_2B],
    Opcode.REMOTE_INVALIDATE: [EntryKind.REGION, EntryKind.WINDOW_2A, EntryKind.WINDOW_2B],
    Opcode.BIND: [EntryKind.WINDOW_1, EntryKind.WINDOW_2A, EntryKind.WINDOW_2B],
    Opcode.REREGISTER: [EntryKind.REGION],
    Opcode.DEREGISTER: [EntryKind.REGION],
    Opcode.DEALLOCATE: [EntryKind.WINDOW_1, EntryKind.WINDOW_2A, EntryKind.WINDOW_2B],
}
"""The opcodes that have an R and an A, and the kinds of entries that they have them on."""

UNKNOWN = "an unknown opcode"

_REGION = [CommandStatus.BAD_PAGE, CommandStatus.OUT_OF_BOUNDS]
_INVALIDATE = [
    CommandStatus.WRONG_STATE,
    CommandStatus.WRONG_VARIANT,
    CommandStatus.WRONG_KIND,
    CommandStatus.WRONG_PD,
    CommandStatus.WINDOWS_BOUND,
    CommandStatus.ALREADY_FREE,
]
STATUSES: Mapping[str, Sequence[CommandStatus]] = {
    Opcode.REGISTER.name: [CommandStatus.WRONG_STATE, *_REGION],
    Opcode.WRITE_TRANSLATION.name: _REGION,
    Opcode.LOCAL_INVALIDATE.name: _INVALIDATE,
    Opcode.REMOTE_INVALIDATE.name: [
        CommandStatus.HEADER_INVALID,
        CommandStatus.WRONG_QPN,
        CommandStatus.NOT_ENABLED,
        *_INVALIDATE,
    ],
    Opcode.BIND.name: [
        CommandStatus.WRONG_STATE,
        CommandStatus.WRONG_VARIANT,
        CommandStatus.WRONG_KIND,
        CommandStatus.ALREADY_BOUND,
        CommandStatus.WRONG_PD,
        CommandStatus.ZERO_LENGTH,
        CommandStatus.ZERO_BASED,
        CommandStatus.PARENT_OUT_OF_RANGE,
        CommandStatus.PARENT_STATE,
        CommandStatus.PARENT_VARIANT,
        CommandStatus.PARENT_KIND,
        CommandStatus.PARENT_PD,
        CommandStatus.PARENT_ZERO_BASED,
        CommandStatus.BIND_NOT_ALLOWED,
        CommandStatus.LOCAL_WRITE_MISSING,
        CommandStatus.OUTSIDE_PARENT,
    ],
    Opcode.REREGISTER.name: [
        CommandStatus.WRONG_STATE,
        CommandStatus.WRONG_KIND,
        CommandStatus.WINDOWS_BOUND,
        *_REGION,
        CommandStatus.RANGE_IN_USE,
    ],
    Opcode.DEREGISTER.name: [
        CommandStatus.WRONG_STATE,
        CommandStatus.WRONG_KIND,
        CommandStatus.WINDOWS_BOUND,
    ],
    Opcode.QUERY.name: [],
    Opcode.ALLOCATE.name: [CommandStatus.WRONG_STATE, CommandStatus.OUT_OF_BOUNDS],
    Opcode.DEALLOCATE.name: [CommandStatus.WRONG_STATE, CommandStatus.WRONG_KIND],
    Opcode.FAST_REGISTER.name: [
        CommandStatus.WRONG_STATE,
        CommandStatus.WRONG_KIND,
        CommandStatus.WRONG_PD,
        *_REGION,
        CommandStatus.RANGE_NOT_OWNED,
    ],
}
"""The failures of each opcode that are rules of its own. Every opcode can succeed, and name an
index outside the table."""


@dataclass(frozen=True)
class Group:
    """Bins that belong together.

    Parameters
    ----------
    title : str
        What it is about, for people.
    dimensions : mapping of str to sequence of str
        Names of the bins of each dimension.
    everywhere : bool
        Its bins are there for each policy and scope, and not once for all.
    """

    title: str
    dimensions: Mapping[str, Sequence[str]]
    everywhere: bool

    def bins(self) -> Iterator[Bin]:
        """All bins, those that can't be reached included."""
        return itertools.product(*self.dimensions.values())


def _names(kind: type[EntryKind] | type[LookupStatus] | type[CommandStatus]) -> list[str]:
    return [member.name for member in kind]


SOURCES = ["0 and 1", "0 and 2", "1 and 2", "0, 1 and 2"]
"""Sets of sources: the host is 0, the send queues are 1, the responder is 2."""

PORTS = ["0", "1", "2"]
PAIRS = ["0 and 1", "0 and 2", "1 and 2"]
"""Of ports; touches of one cycle count in the order of their ports."""

GROUPS: Mapping[str, Group] = {
    "race": Group(
        "a command meets a lookup of its entry",
        {
            "command": [opcode.name for opcode in APPLIED],
            "kind": _names(EntryKind),
            "moment": [Moment.R, Moment.A],
            "phase": list(Phase),
            "company": list(Company),
        },
        everywhere=True,
    ),
    "together": Group(
        "commands of several sources in one cycle",
        {"moment": list(Moment), "sources": SOURCES, "entries": list(Entries)},
        everywhere=True,
    ),
    "lookup_status": Group(
        "statuses of lookups", {"status": _names(LookupStatus)}, everywhere=True
    ),
    "command_status": Group(
        "statuses of commands",
        {"command": [*STATUSES, UNKNOWN], "status": _names(CommandStatus)},
        everywhere=False,
    ),
    "touches": Group(
        "two touches in one cycle", {"ports": PAIRS, "entries": list(Place)}, everywhere=False
    ),
    "three_touches": Group(
        "three touches in one cycle", {"entries": list(Three)}, everywhere=False
    ),
    "touch_and_end": Group(
        "a touch in the cycle in which an entry becomes unusable",
        {"port": PORTS, "entries": list(Place)},
        everywhere=False,
    ),
}
"""Everything that is to be covered, by the name that the sampler uses."""
