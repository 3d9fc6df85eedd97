"""Lookups and changes that meet, at a distance that a bench sweeps."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import cocotb

from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import PAGE_SHIFT, Buffer
from tb.model.scoreboard import READ_BEFORE
from tb.model.words import Command, CommandStatus, Lookup, LookupStatus

DMA_PAUSE = (4, 4)
"""Long enough that a DMA engine still has beats to issue when nobody waits for it."""

PATIENCE = 1_000
"""Many more cycles than anything here takes: a deadlock is found soon."""

EARLIEST = -6
"""The first lookup is offered when the change that was given before it is about to be applied."""

LIFE = 30
"""After so many cycles the last of three lookups is retired when the change comes, or nearly."""


@dataclass
class Encounter:
    """The lookups and the changes of one meeting, each in the order in which they were given."""

    lookups: list[LookupRequest] = field(default_factory=list)
    changes: list[CommandRequest] = field(default_factory=list)

    @property
    def statuses(self) -> list[CommandStatus]:
        """How the changes completed. All of them did."""
        return [status_of(change) for change in self.changes]

    @property
    def met(self) -> bool:
        """A lookup was admitted and not fully answered at the R of some change."""
        return any(is_met(lookup, change) for lookup in self.lookups for change in self.changes)


async def collide(
    env: Environment,
    offset: int,
    lookups: Iterable[Lookup],
    changes: Sequence[tuple[int, Command]],
    accepts: str = "always",
) -> Encounter:
    """Gives lookups, and ``offset`` cycles after the first of them the changes; returns when all is
    quiet.

    The lookups come one a cycle, on one port after another, and each port is the first one in its
    turn. With a negative offset the changes come before. Each change names its source, and follows
    the one before it as soon as that source can take it. ``accepts`` says how the ports take beats.
    """
    turn = offset % len(env.ports)
    ports = env.ports[turn:] + env.ports[:turn]
    for port in ports:
        port.accepts = GENERATORS[accepts](env.fork_rng())
    encounter = Encounter()

    async def look_up() -> None:
        for port, lookup in zip(itertools.cycle(ports), lookups, strict=False):
            encounter.lookups.append(port.submit(lookup))
            await env.wait(1)

    async def change() -> None:
        encounter.changes.extend(env.sources[source].submit(c) for source, c in changes)

    first, second = (look_up, change) if offset >= 0 else (change, look_up)
    task = cocotb.start_soon(first())
    await env.wait(abs(offset))
    await second()
    await task
    await env.quiet()
    return encounter


def new_frames() -> Iterator[int]:
    """Where buffers move to: somewhere else each time."""
    return itertools.count(0x2000, 16)


def across(buffer: Buffer, ports: int) -> list[Lookup]:
    """For each port a lookup that begins and ends within a page, with all the pages between."""
    return [buffer.lookup(100, buffer.length - 200)] * ports


def status_of(request: CommandRequest) -> CommandStatus:
    """How a command completed, which it did."""
    assert request.completion is not None, request
    return request.completion.status


def is_met(lookup: LookupRequest, change: CommandRequest) -> bool:
    """The lookup was admitted and not fully answered at R."""
    at = change.requested
    return (
        lookup.admitted is not None and at is not None and lookup.admitted <= at < lookup.finished
    )


def pages_reached(lookup: LookupRequest, buffer: Buffer, after: int = -1) -> int:
    """Beats that led into the physical pages of a buffer, taken after a cycle."""
    frames = range(buffer.frame, buffer.frame + buffer.pages)
    return sum(
        cycle > after and beat.length > 0 and beat.address >> PAGE_SHIFT in frames
        for cycle, beat in lookup.beats
    )


def epoch_of(
    env: Environment,
    lookup: LookupRequest,
    changes: Sequence[CommandRequest],
    statuses: Sequence[LookupStatus],
) -> int | None:
    """How many of the changes, given in their order, were applied when the lookup read its entry.

    ``statuses`` has what it must be answered after none of them, after the first, and so on. A
    lookup reads in the cycle of its admission, or later if the policy replays and there was time.
    One that was refused or aborted has no epoch.

    Raises
    ------
    AssertionError
        If its answer is none of those.
    """
    if lookup.status in (LookupStatus.RETRY, LookupStatus.ABORTED):
        return None
    assert lookup.admitted is not None
    applied = [change.applied for change in changes if change.applied is not None]
    admitted = sum(cycle < lookup.admitted for cycle in applied)
    in_time = sum(cycle < lookup.beats[0][0] - READ_BEFORE for cycle in applied)
    latest = max(admitted, in_time) if env.policy.replays else admitted
    for epoch in range(admitted, latest + 1):
        if lookup.status is statuses[epoch]:
            return epoch
    raise AssertionError(f"{lookup} is none of {statuses[admitted : latest + 1]}: {changes}")
