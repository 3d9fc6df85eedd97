"""Plays a program on the table under test."""

import itertools
from collections.abc import Callable
from typing import Any

from rtl.monitor import Guarantee
from tb.agents.environment import Environment
from tb.agents.generators import Willing
from tb.programs.program import Accepts, Ask, Dma, Order, Program, Until, Wait

_CHUNK = 1000
"""Cycles that are waited for at once: fewer than the environment's patience."""


class Stage(Environment):
    """An environment on which one program after another can be played.

    What goes wrong in the task that follows the clock would end the whole bench. Here whoever waits
    for something is told instead; :meth:`reset` makes everything ready for the next program.
    """

    def __init__(self, dut: Any):
        super().__init__(dut, dma_pause=(0, 0))
        self._failure: Exception | None = None

    async def _run(self) -> None:
        while True:
            try:
                await super()._run()
            except Exception as error:
                self._failure = error
                # The agents stand still until everything is reset.
                self._resetting = True
                for _, _, event in self._timers:
                    event.set()

    async def reset(self) -> None:
        """Resets everything, and forgets what went wrong and who takes time."""
        self._failure = None
        for port in self.ports:
            port.accepts = _first_of(1, 1)
            port.dma.pause = _in_turn((0,))
        for source in self.sources:
            source.accepts = _first_of(1, 1)
        await super().reset()

    async def wait(self, cycles: int) -> None:
        """Returns when so many cycles have passed.

        Raises
        ------
        Exception
            What has gone wrong by then, if something has; mostly an ``AssertionError``.
        """
        issued = self.dma_beats
        await super().wait(cycles)
        if self._failure is not None:
            raise self._failure
        if self.dma_beats != issued:
            # A long transfer is no sign that nothing happens any more.
            self.last_activity = self.cycle

    async def play(self, program: Program) -> frozenset[Guarantee]:
        """Does what the steps say; returns what was violated and isn't declared.

        Raises
        ------
        Exception
            If the table differs from the model, or violates what is declared; mostly an
            ``AssertionError``.
        """
        for step in program.steps:
            match step:
                case Order(source, command):
                    self.sources[source].submit(command)
                case Ask(port, lookup, chooses_tag):
                    self.ports[port].submit(lookup, chooses_tag=chooses_tag)
                case Accepts(side, number, taken, cycles):
                    agents = self.ports if side == "port" else self.sources
                    agents[number].accepts = _first_of(taken, cycles)
                case Dma(port, pauses):
                    self.ports[port].dma.pause = _in_turn(pauses)
                case Wait(cycles):
                    await self._let_pass(cycles)
                case Until(side, number):
                    await self._until_idle(side, number)
        return await self.finish()

    async def _let_pass(self, cycles: int) -> None:
        for begun in range(0, cycles, _CHUNK):
            await self.wait(min(_CHUNK, cycles - begun))
            # Who waits on purpose isn't stuck.
            self.last_activity = self.cycle

    async def _until_idle(self, side: str | None, number: int) -> None:
        if side is None:
            await self.quiet()
            return
        agent = self.ports[number] if side == "port" else self.sources[number]
        while not agent.idle:
            await self.wait(1)


def _first_of(taken: int, cycles: int) -> Willing:
    """True in the first ``taken`` of every ``cycles`` cycles."""
    while True:
        yield from [True] * taken + [False] * (cycles - taken)


def _in_turn(pauses: tuple[int, ...]) -> Callable[[], int]:
    """Gives these numbers by turns."""
    turns = itertools.cycle(pauses)
    return lambda: next(turns)
