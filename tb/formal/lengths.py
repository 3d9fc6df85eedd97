"""How long things take, as outputs of a harness: one for each number of cycles.

Whatever takes longer than so many cycles makes an output high. So a bound is one output that is
never high, and what is proved of one length helps to prove another.
"""

from collections.abc import Iterable

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data
from amaranth.lib.wiring import Member, Out

from rtl.commands import CommandState
from rtl.component import Component
from rtl.config import TableConfig
from tb.formal.environment import lasts

PATIENCE = 1
"""Cycles that a consumer and the DMA may take: the smallest that there is in scope ``dma``."""

LONGEST = {
    "life": 40,
    "asks": 64,
    "waits": 64,
    "ends": 32,
    "change": 96,
    "command": 96,
    "quiet": 64,
}
"""Things that take a number of cycles, and the most that can be asked about.

``life``: a lookup has its slot. ``asks``, ``waits`` and ``ends``: of a change, from R to A, from
there until the arbiter grants the completion, and from there to C. ``change``: all of that, without
R itself. ``command``: from when a command is taken to its completion. ``quiet``: a port wants
something, and is offered nothing.
"""

OF_A_PORT = ("life", "quiet")
"""Those of them that are asked about each port alone."""


def beyond(length: str, cycles: int, port: int | None = None) -> str:
    """The output of the harness that is high when something takes more cycles than these."""
    return f"{length}_{'' if port is None else f'{port}_'}beyond_{cycles}"


def phases(context: data.View) -> dict[str, Value]:
    """Where a change stands, from its R to its C."""
    state = context.state
    completing = (state == CommandState.COMPLETING) & context.requested
    return {
        "asks": state == CommandState.REQUESTING,
        "waits": state == CommandState.APPLIED,
        "ends": (state == CommandState.FINISHING) | completing,
    }


def members(asked: Iterable[tuple[str, int | None]]) -> dict[str, Member]:
    """The outputs for some lengths."""
    return {
        beyond(length, n + 1, port): Out(1)
        for length, port in asked
        for n in range(LONGEST[length])
    }


def judge(
    m: Module, component: Component, length: str, port: int | None, conditions: Iterable[Value]
) -> None:
    """Drives the outputs for a length: how long has each of some conditions held by now?"""
    past = [(now, lasts(m, now, LONGEST[length])) for now in conditions]
    for n in range(LONGEST[length]):
        late = Cat(now & held[n] for now, held in past)
        m.d.comb += getattr(component, beyond(length, n + 1, port)).eq(late.any())


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
