"""Everything around the table under test, and the one task that follows the clock."""

import hashlib
import heapq
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Event, RisingEdge

from rtl.arbiter import policy
from rtl.config import TableConfig
from rtl.monitor import OF_CHANGES, Guarantee
from sim.run import bench_config, bench_parameters
from sim.typed import number_of
from tb.agents.commands import CommandSource
from tb.agents.dma import DmaEngine
from tb.agents.known import all_known
from tb.agents.ports import Port
from tb.agents.requests import CommandRequest, LookupRequest
from tb.model.configured import table_of
from tb.model.scoreboard import Scoreboard
from tb.model.words import Command, Lookup

CLOCK_NS = 10


class Environment:
    """The agents of all ports and sources, the scoreboard, and the trace.

    One task awaits the clock and lets every agent do one step a cycle, always in the same order;
    everybody else awaits events. Cycle 0 is the first in which the table is ready after reset.

    Parameters
    ----------
    dut : simulator handle
    dma_pause : (int, int)
        Fewest and most cycles that a DMA transfer waits before each thing that it does.
    patience : int
        Cycles without a beat or a completion after which the bench is given up.
    """

    def __init__(self, dut: Any, dma_pause: tuple[int, int] = (0, 6), patience: int = 5_000):
        self.dut = dut
        self.config: TableConfig = bench_config()
        self.rng = random.Random(cocotb.RANDOM_SEED)
        self.cycle = -1
        self._timers: list[tuple[int, int, Event]] = []
        self._timer_count = 0
        self._patience = patience
        self.last_activity = 0
        """Cycle of the last beat or completion."""
        self._digest = hashlib.sha256()
        self.policy = policy(self.config.arbiter)
        self.scoreboard = Scoreboard(lambda: table_of(self.config), replays=self.policy.replays)
        self.ports = []
        for number in range(self.config.ports):
            rng = self.fork_rng()
            dma = DmaEngine(lambda rng=rng: rng.randint(*dma_pause))
            self.ports.append(Port(dut, self.config, number, dma, self.scoreboard, self._trace))
        self.sources = [
            CommandSource(dut, self.config, number, self.scoreboard, self._trace)
            for number in range(self.config.sources)
        ]
        self.sampler = None
        if bench_parameters().get("coverage"):
            from tb.coverage.sampler import Sampler

            self.sampler = Sampler(self)

    def fork_rng(self) -> random.Random:
        """A random generator of its own for somebody, so that nobody disturbs anybody."""
        return random.Random(self.rng.getrandbits(64))

    async def start(self) -> None:
        """Starts the clock, resets, and follows the clock from then on."""
        self.dut.victim__set.value = 0
        if self.config.ghost_version:
            self.set_terms(0, 0)
        self.dut.rst.value = 1
        # Starting high would be an edge at which Icarus has not seen these values yet.
        Clock(self.dut.clk, CLOCK_NS, unit="ns").start(start_high=False)
        if bench_parameters().get("known"):
            cocotb.start_soon(all_known(self.dut, self.config))
        await self.reset()
        cocotb.start_soon(self._run())

    def set_terms(self, deadline: int, patience: int) -> None:
        """Sets the terms of ``bounded_invalidation``; a ``deadline`` of 0 judges nothing.

        Only while no command is in progress.
        """
        self.dut.terms__deadline.value = deadline
        self.dut.terms__patience.value = patience

    async def reset(self) -> None:
        """Resets the table, the agents and the scoreboard, and waits until the table is ready.

        Whoever waits for an answer waits in vain.
        """
        self._resetting = True
        self.dut.rst.value = 1
        for agent in (*self.ports, *self.sources):
            agent.reset()
        for _ in range(2):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.scoreboard.reset()
        if self.sampler is not None:
            self.sampler.reset()
        for _ in range(2 * max(self.config.entries, self.config.translations)):
            await RisingEdge(self.dut.clk)
            if self.dut.ready.value:
                break
        else:
            raise AssertionError("the table is not ready in time after reset")
        # The cycle that has just ended was the first in which the table was ready.
        self.cycle = self.last_activity = 0
        self._timers.clear()
        self._resetting = False

    async def _run(self) -> None:
        edge = RisingEdge(self.dut.clk)
        held_signal = self.dut.held
        sampler = self.sampler
        while True:
            await edge
            if self._resetting:
                continue
            self.cycle += 1
            cycle = self.cycle
            for source in self.sources:
                source.step(cycle)
            held = held_signal.value
            held = held.to_unsigned() if len(self.ports) > 1 else int(held)
            for port in self.ports:
                port.step(cycle, bool(held >> port.number & 1))
            if sampler is not None:
                sampler.step(cycle)
            if cycle - self.last_activity > self._patience:
                raise AssertionError(f"cycle {cycle}: no answer for {self._patience} cycles")
            while self._timers and self._timers[0][0] <= cycle:
                heapq.heappop(self._timers)[2].set()

    async def wait(self, cycles: int) -> None:
        """Returns when so many cycles have passed."""
        if cycles <= 0:
            return
        event = Event()
        self._timer_count += 1
        heapq.heappush(self._timers, (self.cycle + cycles, self._timer_count, event))
        await event.wait()

    async def look_up(self, port: int, lookup: Lookup) -> LookupRequest:
        """Does one lookup, and returns when it has its last beat."""
        request = self.ports[port].submit(lookup)
        await request.done.wait()
        return request

    async def command(self, source: int, command: Command) -> CommandRequest:
        """Does one command, and returns when it is complete."""
        request = self.sources[source].submit(command)
        await request.done.wait()
        return request

    async def quiet(self) -> None:
        """Returns when nothing is in flight any more."""
        while not all(agent.idle for agent in (*self.ports, *self.sources)):
            await self.wait(1)

    async def settle(self) -> frozenset[Guarantee]:
        """Waits until all is quiet; returns what was violated.

        Raises
        ------
        AssertionError
            If something was not explained, the monitor missed what the scoreboard saw, or the
            table has lost track of a lookup.
        """
        await self.quiet()
        if self.sampler is not None:
            self.sampler.close()
        # What the monitor sees in a cycle, it has counted in the next one.
        await self.wait(1)
        self.scoreboard.finish()
        if not self.config.ghost_version:
            # Nobody watches but the scoreboard.
            return frozenset()
        assert not self.dut.unsound.value, "the table is unsound: a lookup had no slot of its own"
        violated = frozenset(g for g, count in self.violations().items() if count)
        tally = self.scoreboard.tally
        for guarantee, seen in (
            (Guarantee.UNTORN, tally.torn),
            (Guarantee.FRESH_ANSWER, tally.stale),
        ):
            # The monitor may see more: an old entry that walks into the translations of the next
            # registration can give the very answer of the new one. Only its ghost tells.
            assert guarantee in violated or not seen, (
                f"{guarantee}: the monitor saw 0 violations, "
                f"the scoreboard {len(seen)}, first {seen[:1]}"
            )
        return violated

    async def finish(self) -> frozenset[Guarantee]:
        """Like :meth:`settle`, and holds the table to what its policy declares.

        Raises
        ------
        AssertionError
            If something declared was violated, too.
        """
        violated = await self.settle()
        for guarantee in sorted(violated & self.declared):
            cycle, number = self.first_violation(guarantee)
            place = "source" if guarantee in OF_CHANGES else "port"
            raise AssertionError(
                f"{self.config.arbiter} declares {guarantee}, but violated it "
                f"{number_of(self.violations()[guarantee], 'time')}, "
                f"first in cycle {cycle} on {place} {number}"
            )
        return violated

    @property
    def declared(self) -> frozenset[Guarantee]:
        """What the policy gives under this configuration."""
        return policy(self.config.arbiter).guarantees(self.config)

    @property
    def dma_beats(self) -> int:
        """DMA beats that all engines have issued."""
        return sum(port.dma.issued for port in self.ports)

    def violations(self) -> dict[Guarantee, int]:
        """What the monitor has counted since reset."""
        return {
            guarantee: self._violation(guarantee, "count").to_unsigned() for guarantee in Guarantee
        }

    def first_violation(self, guarantee: Guarantee) -> tuple[int, int]:
        """Cycle and port of the first violation of a guarantee."""
        cycle = self._violation(guarantee, "cycle").to_unsigned()
        return cycle, self._violation(guarantee, "port").to_unsigned()

    def verdicts(self) -> dict[str, Any]:
        """What the monitor has seen, and what the policy declares, as JSON can say it."""
        violations = self.violations()
        return {
            "violations": {str(g): count for g, count in violations.items()},
            "first_violations": {
                str(g): dict(zip(("cycle", "port"), self.first_violation(g), strict=True))
                for g in sorted(g for g, count in violations.items() if count)
            },
            "declared": sorted(self.declared),
        }

    def _violation(self, guarantee: Guarantee, what: str) -> Any:
        return getattr(self.dut, f"violation__{guarantee}__{what}").value

    def _trace(self, cycle: int, stream: str, number: int, word: int) -> None:
        self.last_activity = cycle
        self._digest.update(f"{cycle} {stream} {number} {word:x}\n".encode())

    @property
    def trace_digest(self) -> str:
        """Hash over every beat and completion so far, each with its cycle."""
        return self._digest.hexdigest()
