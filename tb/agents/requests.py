"""What a bench asks for, and what became of it, by cycle."""

from dataclasses import dataclass, field

from cocotb.triggers import Event

from tb.model.words import Beat, Command, Completion, Lookup, LookupStatus


@dataclass(eq=False)
class LookupRequest:
    """One lookup on its way through a port. Cycles are ``None`` until they have come.

    Parameters
    ----------
    lookup : Lookup
        Its tag counts only if ``chooses_tag``.
    port : int
    chooses_tag : bool
        The request comes with a tag; else the port gives it a free one.

    Members
    -------
    since : int
        First cycle in which it, or the request that it repeats, was offered.
    offered : int
        First cycle in which it was offered.
    admitted : int
        Cycle in which it was accepted.
    held : int
        Cycles in which it waited because the arbiter said so.
    collides : bool
        Its tag was in flight when it was admitted.
    beats : list of (int, Beat)
        With the cycle in which each was accepted.
    retired : int
        Cycle in which the DMA engine returned its tag, if it had something to do.
    done : Event
        The last beat has been accepted.
    returned : Event
        Its tag may be used again.
    """

    lookup: Lookup
    port: int
    chooses_tag: bool = False
    since: int | None = None
    offered: int | None = None
    admitted: int | None = None
    held: int = 0
    collides: bool = False
    beats: list[tuple[int, Beat]] = field(default_factory=list)
    retired: int | None = None
    done: Event = field(default_factory=Event)
    returned: Event = field(default_factory=Event)

    @property
    def status(self) -> LookupStatus:
        """Status of the last beat so far."""
        return self.beats[-1][1].status

    @property
    def finished(self) -> int:
        """Cycle of the last beat so far."""
        return self.beats[-1][0]

    @property
    def has_ok_beat(self) -> bool:
        """Whether the DMA engine has something to do."""
        return any(beat.status is LookupStatus.OK for _, beat in self.beats)


@dataclass(eq=False)
class CommandRequest:
    """One command on its way. Cycles are ``None`` until they have come.

    ``requested``, ``applied`` and ``completed`` are R, A and the cycle in which the completion was
    accepted, which is C if the command has an A.
    """

    command: Command
    source: int
    accepted: int | None = None
    requested: int | None = None
    applied: int | None = None
    completed: int | None = None
    completion: Completion | None = None
    done: Event = field(default_factory=Event)

    @property
    def cycles_to_apply(self) -> int:
        """From R to A."""
        assert self.requested is not None
        assert self.applied is not None
        return self.applied - self.requested

    @property
    def cycles_to_complete(self) -> int:
        """From R to C."""
        assert self.requested is not None
        assert self.completed is not None
        return self.completed - self.requested
