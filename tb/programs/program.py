"""What a program is: steps, one after another."""

from dataclasses import dataclass
from typing import Literal

from tb.model.words import Command, Lookup

Side = Literal["port", "source"]


@dataclass(frozen=True)
class Order:
    """A source gives a command. It is offered when those before it at this source are complete."""

    source: int
    command: Command


@dataclass(frozen=True)
class Ask:
    """A port asks for a lookup. It is offered when those before it at this port are accepted.

    Its tag counts only if ``chooses_tag``; else the port gives it a free one.
    """

    port: int
    lookup: Lookup
    chooses_tag: bool = False


@dataclass(frozen=True)
class Accepts:
    """From now on a port takes beats, or a source completions, in the first ``taken`` of every
    ``cycles`` cycles.
    """

    side: Side
    number: int
    taken: int = 1
    cycles: int = 1


@dataclass(frozen=True)
class Dma:
    """From now on the DMA engine of a port waits so many cycles before each thing that it does.

    The numbers are used in turn.
    """

    port: int
    pauses: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    """Nothing new happens for so many cycles."""

    cycles: int


@dataclass(frozen=True)
class Until:
    """Nothing new happens until a source or a port has nothing in progress any more: commands are
    complete, lookups answered and their tags returned. Without a ``side``, until all of them are.
    """

    side: Side | None = None
    number: int = 0


Step = Order | Ask | Accepts | Dma | Wait | Until


@dataclass(frozen=True)
class Program:
    """Steps from reset on.

    Steps with no wait between them happen in one cycle. After the last one everything that is in
    progress is waited for.
    """

    steps: tuple[Step, ...]
