"""Plays a recorded violation: what everybody around the table does, cycle by cycle."""

import json
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from rtl.config import TableConfig
from rtl.layouts import beat_layout, command_layout, completion_layout, lookup_layout
from rtl.monitor import OF_CHANGES
from sim.run import bench_parameters
from tb.agents.environment import CLOCK_NS
from tb.agents.packing import Packer
from tb.agents.ports import open_bus
from tb.agents.story import BEAT, COMPLETION, Story
from tb.formal.case import Case, Offer, PortCase, SourceCase, described

STORY = "story.json"
"""What happened, for people: cycle, who, and what, in the order of the cycles."""

AFTER = 12
"""Cycles that a run goes on after the violation, so that a dump doesn't end with it."""


@cocotb.test()
async def replay(dut: Any) -> None:
    """The monitor must see the guarantee violated in the cycle of the case, and not before.

    Everything that is expected of the streams is compared in each cycle up to then, so that where
    the table goes another way, that is where the bench fails.
    """
    case = Case.from_json(bench_parameters()["case"])
    story = Story(dut, case.config, case.guarantee)
    agents = [
        *(_Port(dut, case.config, number, port) for number, port in enumerate(case.ports)),
        *(_Source(dut, case.config, number, source) for number, source in enumerate(case.sources)),
    ]
    await _reset(dut, case, agents)
    # The cycle that has just ended was the first in which the table was ready.
    for cycle in range(case.cycle + 1):
        story.look(cycle)
        assert not story.has_seen(case.guarantee), (
            f"{case.guarantee} was violated in cycle {cycle - 1}, "
            f"where the case has it in cycle {case.cycle}"
        )
        for agent in agents:
            agent.look(cycle)
            agent.drive(cycle + 1)
        await RisingEdge(dut.clk)
    # The record shows a cycle later.
    story.look_back(case.cycle + 1)
    _judge(dut, case)
    for cycle in range(case.cycle + 1, case.cycle + 1 + AFTER):
        for agent in agents:
            agent.drive(cycle + 1)
        await RisingEdge(dut.clk)
    Path(STORY).write_text(json.dumps(story.lines))


async def _reset(dut: Any, case: Case, agents: "list[_Port | _Source]") -> None:
    """Resets the table, with what is offered in cycle 0 on offer already; ends in that cycle."""
    dut.victim__set.value = 0
    dut.terms__deadline.value = case.deadline
    dut.terms__patience.value = case.patience
    dut.rst.value = 1
    for agent in agents:
        agent.drive(-1)
    # Starting high would be an edge at which Icarus has not seen these values yet.
    Clock(dut.clk, CLOCK_NS, unit="ns").start(start_high=False)
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    for agent in agents:
        agent.drive(0)
    for _ in range(2 * max(case.config.entries, case.config.translations)):
        await RisingEdge(dut.clk)
        if dut.ready.value:
            return
    raise AssertionError("the table is not ready in time after reset")


def _judge(dut: Any, case: Case) -> None:
    """The record of the monitor is that of the case."""
    record = open_bus(dut, f"violation__{case.guarantee}", "seen", "cycle", "port")
    assert record.seen.value, f"{case.guarantee} was not violated in cycle {case.cycle}"
    cycle, port = (getattr(record, name).value.to_unsigned() for name in ("cycle", "port"))
    assert cycle == case.cycle, (
        f"the monitor has the violation of {case.guarantee} in cycle {cycle}, "
        f"the case in cycle {case.cycle}"
    )
    place = "source" if case.guarantee in OF_CHANGES else "port"
    assert port == case.place, (
        f"{case.guarantee} was violated on {place} {port}, "
        f"where the case has it on {place} {case.place}"
    )


class _Out:
    """Offers what a case offers on a stream, and watches when it is taken."""

    def __init__(self, who: str, bus: Any, packer: Packer, stream: str, offers: tuple[Offer, ...]):
        self._who = who
        self._bus = bus
        self._packer = packer
        self._stream = stream
        self._offers = offers
        self._noun = stream.removesuffix("s")
        self._current: Offer | None = None

    def drive(self, cycle: int) -> None:
        offer = next((offer for offer in self._offers if offer.covers(cycle)), None)
        waited = offer is not None and offer.taken is None and offer is self._current
        if waited and self._bus.ready.value:
            # The case has ended before it was taken, and now that has happened.
            self._offers, offer = (), None
        self._current = offer
        self._bus.valid.value = int(offer is not None)
        self._bus.payload.value = self._packer.pack({} if offer is None else offer.fields)

    def look(self, cycle: int) -> None:
        offer = self._current
        if offer is None:
            return
        taken, expected = bool(self._bus.ready.value), cycle == offer.taken
        assert taken == expected, (
            f"cycle {cycle}, {self._who}: the {self._noun} is {'' if taken else 'not '}taken, "
            f"in the narrow table it is{'' if expected else ' not'}"
        )


class _In:
    """Accepts when a case accepts, and compares what is offered."""

    def __init__(
        self,
        who: str,
        bus: Any,
        packer: Packer,
        stream: str,
        offers: tuple[Offer, ...],
        accepts: tuple[int, ...],
        compared: tuple[str, ...],
    ):
        self._who = who
        self._bus = bus
        self._packer = packer
        self._stream = stream
        self._offers = offers
        self._accepts = frozenset(accepts)
        self._noun = stream.removesuffix("s")
        self._compared = compared

    def drive(self, cycle: int) -> None:
        self._bus.ready.value = int(cycle in self._accepts)

    def look(self, cycle: int) -> None:
        fields = None
        if self._bus.valid.value:
            words = self._packer.unpack(self._bus.payload.value.to_unsigned())
            fields = {name: words[name] for name in self._compared if words[name]}
        offer = next((offer for offer in self._offers if offer.covers(cycle)), None)
        expected = None if offer is None else dict(offer.fields)
        assert fields == expected, (
            f"cycle {cycle}, {self._who}: the table offers {self._text(fields)}, "
            f"in the narrow table it offers {self._text(expected)}"
        )

    def _text(self, fields: dict[str, int] | None) -> str:
        if fields is None:
            return f"no {self._noun}"
        return f"a {self._noun}: {described(self._stream, fields)}"


class _Port:
    """One port: its requester and its DMA engine."""

    def __init__(self, dut: Any, config: TableConfig, number: int, port: PortCase):
        self._who = f"port {number}"
        self._lookup = _Out(
            self._who,
            open_bus(dut, f"lookup__{number}", "payload", "valid", "ready"),
            Packer(lookup_layout(config)),
            "lookups",
            port.lookups,
        )
        self._beat = _In(
            self._who,
            open_bus(dut, f"beat__{number}", "payload", "valid", "ready"),
            Packer(beat_layout(config)),
            "beats",
            port.beats,
            port.accepts,
            BEAT,
        )
        self._dma = open_bus(dut, f"dma__{number}", "tag", "valid")
        self._retire = open_bus(dut, f"retire__{number}", "payload", "valid")
        self._issued = dict(port.dma)
        self._returned = dict(port.retires)

    def drive(self, cycle: int) -> None:
        """Drives the inputs of a cycle."""
        self._lookup.drive(cycle)
        self._beat.drive(cycle)
        self._dma.valid.value = int(cycle in self._issued)
        self._dma.tag.value = self._issued.get(cycle, 0)
        self._retire.valid.value = int(cycle in self._returned)
        self._retire.payload.value = self._returned.get(cycle, 0)

    def look(self, cycle: int) -> None:
        """Sees the values at the end of a cycle."""
        self._lookup.look(cycle)
        self._beat.look(cycle)


class _Source:
    """One command source."""

    def __init__(self, dut: Any, config: TableConfig, number: int, source: SourceCase):
        self._who = f"source {number}"
        self._command = _Out(
            self._who,
            open_bus(dut, f"command__{number}", "payload", "valid", "ready"),
            Packer(command_layout(config)),
            "commands",
            source.commands,
        )
        self._completion = _In(
            self._who,
            open_bus(dut, f"completion__{number}", "payload", "valid", "ready"),
            Packer(completion_layout(config)),
            "completions",
            source.completions,
            source.hears,
            COMPLETION,
        )

    def drive(self, cycle: int) -> None:
        """Drives the inputs of a cycle."""
        self._command.drive(cycle)
        self._completion.drive(cycle)

    def look(self, cycle: int) -> None:
        """Sees the values at the end of a cycle."""
        self._command.look(cycle)
        self._completion.look(cycle)
