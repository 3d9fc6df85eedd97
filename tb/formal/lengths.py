"""How long things take, as outputs of a harness: one for each number of cycles.

Whatever takes longer than so many cycles makes an output high. So a bound is one output that is
never high, and what is proved of one length helps to prove another. That the lengths of the phases
of a change add up, and that the monitor counts the same cycles, follows from itself one cycle
earlier.
"""

from collections.abc import Iterable
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data
from amaranth.lib.wiring import Member, Out

from rtl.commands import CommandState
from rtl.component import Component
from rtl.config import TableConfig
from rtl.monitor import any_of
from tb.formal.environment import lasts
from tb.formal.room import is_clearing

PATIENCE = 1
"""Cycles that a consumer and the DMA may take: the smallest that there is in scope ``dma``."""

LONGEST = {
    "life": 40,
    "asks": 64,
    "waits": 64,
    "ends": 32,
    "waits_clearing": 64,
    "ends_sparing": 32,
    "change": 96,
    "command": 96,
    "quiet": 64,
}
"""Things that take a number of cycles, and the most that can be asked about.

``life``: a lookup has its slot. ``asks``, ``waits`` and ``ends``: of a change, from R to A, from
there until the arbiter grants the completion, and from there to C. ``waits_clearing`` and
``ends_sparing``: the same of changes that clear the table, and of those that don't, see
:func:`tb.formal.room.is_clearing`. ``change``: all of that, without R itself. ``command``: from
when a command is taken to its completion. ``quiet``: a port wants something, and is offered
nothing.
"""

OF_A_PORT = ("life", "quiet")
"""Those of them that are asked about each port alone."""


def beyond(length: str, cycles: int, port: int | None = None) -> str:
    """The output of the harness that is high when something takes more cycles than these."""
    return f"{length}_{'' if port is None else f'{port}_'}beyond_{cycles}"


def phases(config: TableConfig, context: data.View) -> dict[str, Value]:
    """Where a change stands, from its R to its C; some of it only of certain changes."""
    state = context.state
    completing = (state == CommandState.COMPLETING) & context.requested
    waits = state == CommandState.APPLIED
    ends = (state == CommandState.FINISHING) | completing
    clearing = is_clearing(config, context)
    return {
        "asks": state == CommandState.REQUESTING,
        "waits": waits,
        "ends": ends,
        "waits_clearing": waits & clearing,
        "ends_sparing": ends & ~clearing,
    }


def members(asked: Iterable[tuple[str, int | None]]) -> dict[str, Member]:
    """The outputs for some lengths."""
    return {
        beyond(length, n + 1, port): Out(1)
        for length, port in asked
        for n in range(LONGEST[length])
    }


class Lasting(NamedTuple):
    """Something that lasts: whether it is so ``now``, and how long it has been, see
    :func:`tb.formal.environment.lasts`."""

    now: Value
    held: Value


def timed(m: Module, length: str, conditions: Iterable[Value]) -> list[Lasting]:
    """For how long each of some conditions has held."""
    return [Lasting(now, lasts(m, now, LONGEST[length])) for now in conditions]


def judge(
    m: Module, component: Component, length: str, port: int | None, lasting: Iterable[Lasting]
) -> None:
    """Drives the outputs for a length, from all that it is the length of."""
    past = list(lasting)
    for n in range(LONGEST[length]):
        late = Cat(now & held[n] for now, held in past)
        m.d.comb += getattr(component, beyond(length, n + 1, port)).eq(late.any())


def miscounted(change: Lasting, age: Value) -> Value:
    """The monitor's ``age`` of a change isn't one more than it has lasted after its R."""
    older = Cat(age >= n + 2 for n in range(len(change.held)))
    return Mux(change.now, (age == 0) | (change.held != older), age != 0)


def unsummed(
    change: Lasting, asks: Lasting, waits: Lasting, ends: Lasting, asked: Value, waited: Value
) -> Value:
    """A change has lasted longer than its phase has, and those before may have.

    That is ``asked`` cycles from R to A, and ``waited`` from there to the grant.
    """
    # How long it has lasted with R itself: at least so many cycles.
    lasted = Cat(1, change.held)

    def beyond_phase(phase: Lasting, before: Value | int) -> Value:
        held = Cat(phase.held, Const(0, len(lasted) - len(phase.held)))
        return phase.now & ((lasted >> before) & ~held).any()

    return any_of(
        change.now & ~(asks.now | waits.now | ends.now),
        # What has lasted long has lasted shorter before.
        *((phase.held[1:] & ~phase.held).any() for phase in (asks, waits, ends)),
        # Its R is a cycle of the first, and not its own.
        asks.now & change.now & ~asks.held[0],
        asks.now & (change.held & ~Cat(asks.held[1:], Const(0, len(change.held)))).any(),
        beyond_phase(waits, asked),
        beyond_phase(ends, asked + waited),
    )


def lengths(config: TableConfig) -> list[tuple[str, int | None]]:
    """All of :data:`LONGEST`, and of which port."""
    found: list[tuple[str, int | None]] = []
    for length in LONGEST:
        found += (
            [(length, port) for port in range(config.ports)]
            if length in OF_A_PORT
            else [(length, None)]
        )
    return found
