"""The main job: many queue pairs on one shared entry that keeps changing, all of it measured."""

import itertools
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Event

from rtl.monitor import Guarantee
from sim.parameters import CHANGES, SLIDE
from sim.run import bench_parameters
from tb.agents.capture import Capture, read_capture
from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.queue_pair import QueuePair
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import PAGE_SHIFT, Buffer, shared_buffer
from tb.model.words import Command, CommandStatus, EntryKind, Lookup, LookupStatus, Rights

HOST, SEND_QUEUE, RESPONDER = range(3)

PROGRESS = Path("progress")
"""File in the folder of the run that says how many lookups have been answered."""

MEASURED = Path("measured.json")
"""File in the folder of the run that says what was measured."""


class SharedEntry:
    """The entry that all queue pairs use, and the driver program that keeps changing it.

    Its owner announces each new key to the queue pairs when the command that makes it is complete.
    Until then they go on with the old one, and whoever is turned away waits for the announcement.

    Parameters
    ----------
    environment : Environment
    pages : int
        Pages of the buffer.
    kind : str
        One of :data:`sim.parameters.COMMANDS`.
    rng : random.Random
    windows : bool
        ``mixed`` may make the entry a window.
    """

    def __init__(
        self, environment: Environment, pages: int, kind: str, rng: random.Random, windows: bool
    ):
        self._environment = environment
        self._kind = kind
        self._rng = rng
        self._windows = windows
        self._generation = 0
        self._half = 0
        self._announced = Event()
        self._is_window = False
        config = environment.config
        index = min(5, config.entries - 2)
        self.buffer = shared_buffer(config, index=index, pages=pages)
        # What windows are bound to. It lies behind the two ranges that the entry's own
        # translations alternate between.
        self._region = replace(
            shared_buffer(config, index=index + 1, pages=pages + SLIDE),
            first_translation=2 * pages,
            frame=2**24,
        )
        self.changes: list[CommandRequest] = []

    async def set_up(self) -> None:
        """Registers the entry, or binds it."""
        if self._kind in ("rebind", "mixed") and self._windows:
            await self._command(HOST, self._region.register())
        if self._kind == "rebind":
            await self._make_window()
        else:
            await self._register(HOST)

    async def change(self) -> None:
        """Changes the entry once, and makes it usable again."""
        kind = self._kind
        if kind == "mixed":
            of_windows = ("rebind", "rebind", "deregister")
            of_regions = CHANGES[:-1]
            kind = self._rng.choice(of_windows if self._is_window else of_regions)
        old = self.buffer
        if kind == "deregister":
            give_back = old.deallocate() if self._is_window else old.deregister()
            await self._change(HOST, give_back)
            if self._kind == "mixed" and self._windows and self._rng.random() < 0.5:
                await self._make_window()
            else:
                await self._register(HOST)
        elif kind == "local_invalidate":
            await self._change(SEND_QUEUE, old.local_invalidate())
            await self._fast_register()
        elif kind == "remote_invalidate":
            await self._change(RESPONDER, old.remote_invalidate())
            await self._fast_register()
        elif kind == "reregister":
            new = self._renewed()
            await self._change(HOST, old.reregister(new))
            self._announce(new)
        else:
            await self._bind(counts=True)

    async def announcement(self, known: Buffer) -> None:
        """Returns once the buffer is announced as another one than ``known``."""
        while self.buffer is known:
            await self._announced.wait()

    def _renewed(self, *, moves: bool = True) -> Buffer:
        """The same buffer under the next variant, on other pages.

        A region that is free is registered on the translations that it has; else it ``moves`` to
        the others.
        """
        self._generation += 1
        self._half ^= moves
        pages = self.buffer.pages
        new = self.buffer.renamed(self.buffer.key.variant + 1)
        # Frames count in the smallest pages.
        step = 1 << (PAGE_SHIFT - self._environment.config.page_shift_min)
        frame = 2**20 + self._generation * pages * step
        return new.moved(self._half * pages, frame)

    async def _fast_register(self) -> None:
        new = self._renewed(moves=False)
        await self._command(SEND_QUEUE, new.fast_register())
        self._announce(new)

    async def _register(self, source: int) -> None:
        new = self._renewed()
        await self._command(source, new.register())
        self._is_window = False
        self._announce(new)

    async def _make_window(self) -> None:
        await self._command(HOST, self.buffer.window(EntryKind.WINDOW_1))
        self._is_window = True
        await self._bind(counts=False)

    async def _bind(self, *, counts: bool) -> None:
        old = self.buffer
        variant = (old.key.variant + 1) % 256
        bind = old.bind(self._region, variant=variant, first_page=self._rng.randrange(SLIDE + 1))
        issue = self._change if counts else self._command
        await issue(SEND_QUEUE, bind)
        self._announce(replace(old.renamed(variant), base=bind.base))

    def _announce(self, new: Buffer) -> None:
        self.buffer = new
        self._announced.set()
        self._announced.clear()

    async def _change(self, source: int, command: Command) -> None:
        self.changes.append(await self._command(source, command))

    async def _command(self, source: int, command: Command) -> CommandRequest:
        number = min(source, self._environment.config.sources - 1)
        request = await self._environment.command(number, command)
        assert request.completion is not None
        assert request.completion.status is CommandStatus.OK, request
        return request


Flow = Iterable[Callable[[Buffer], Lookup]]
"""What one queue pair looks up, one after another, each made for the buffer as then announced."""


async def _run_pair(pair: QueuePair, entry: SharedEntry, flow: Flow) -> None:
    for make in flow:
        known = entry.buffer
        request = await pair.look_up(make(known))
        if request.status is not LookupStatus.OK:
            await entry.announcement(known)


def _random_flow(rng: random.Random, qpn: int, count: int, pages: int) -> Flow:
    for _ in range(count):
        yield lambda buffer: buffer.random_lookup(rng, pages, qpn)


class _ReceiveBuffer:
    """Places packets one behind another, from the start again where one doesn't fit."""

    def __init__(self) -> None:
        self._next = 0

    def place(self, buffer: Buffer, qpn: int, length: int) -> Lookup:
        """The lookup of a packet that lands at the next offset."""
        if self._next + length > buffer.length:
            self._next = 0
        start = self._next
        self._next += length
        lookup = buffer.lookup(start, length, qpn)
        return replace(lookup, rights=Rights.LOCAL_WRITE)


def captured_flows(capture: Capture, pairs: int) -> list[tuple[int, list[int]]]:
    """As many flows as queue pairs, each a number and the lengths of its packets.

    First come the capture's own, then copies that start further on, under numbers of their own.
    """
    flows: dict[int, list[int]] = {}
    for send in capture.sends:
        flows.setdefault(send.qpn, []).append(send.payload_length)
    own = list(flows.items())
    # Queue pairs 0 and 1 belong to the management of the network.
    unused = (number for number in itertools.count(2) if number not in flows)
    result = list(own)
    for copy in range(pairs - len(own)):
        _, lengths = own[copy % len(own)]
        shift = (copy // len(own) + 1) % len(lengths)
        result.append((next(unused), lengths[shift:] + lengths[:shift]))
    return result


def _captured_flow(receive: _ReceiveBuffer, qpn: int, lengths: list[int]) -> Flow:
    for length in lengths:
        yield lambda buffer, length=length: receive.place(buffer, qpn, length)


def _flows(parameters: dict[str, Any], rng: random.Random) -> list[tuple[int, Flow]]:
    """Per queue pair its number and what it looks up."""
    pairs, lookups = parameters["qps"], parameters["lookups"]
    if "capture" in parameters:
        receive = _ReceiveBuffer()
        flows = captured_flows(read_capture(parameters["capture"]), pairs)
        return [(qpn, _captured_flow(receive, qpn, lengths)) for qpn, lengths in flows]
    return [
        (
            number,
            _random_flow(
                random.Random(rng.getrandbits(64)),
                number,
                lookups // pairs + (number < lookups % pairs),
                parameters["pages"],
            ),
        )
        for number in range(pairs)
    ]


@cocotb.test()
async def traffic(dut: Any) -> None:
    """Lookups from all queue pairs, changes of the entry in between, and what came of it."""
    parameters = bench_parameters()
    pause = parameters["dma_cycles"]
    # A change waits for lookups whose DMA engine pauses before each page and the end, and shares
    # its cycles with up to 256 others; its own translations take a few cycles each.
    patience = 5_000 + (parameters["buffer_pages"] + 1) * (pause + 256)
    env = Environment(dut, dma_pause=(0, pause), patience=patience)
    await env.start()
    rng = env.fork_rng()
    for port in env.ports:
        port.accepts = GENERATORS[parameters["backpressure"]](env.fork_rng())
    entry = SharedEntry(
        env,
        parameters["buffer_pages"],
        parameters["command"],
        env.fork_rng(),
        windows="capture" not in parameters,
    )
    await entry.set_up()

    flows = _flows(parameters, rng)
    pairs = [
        cocotb.start_soon(_run_pair(QueuePair(env, qpn, place % len(env.ports)), entry, flow))
        for place, (qpn, flow) in enumerate(flows)
    ]
    meter = Meter(env)
    changes = cocotb.start_soon(_changes(meter, entry, parameters, rng))
    while not all(pair.done() for pair in pairs):
        await env.wait(64)
        meter.collect()
        PROGRESS.write_text(str(meter.answered))
    await changes
    for pair in pairs:
        await pair
    violated = await env.settle()
    meter.collect()
    MEASURED.write_text(json.dumps(meter.result(entry.changes, violated)))


async def _changes(
    meter: "Meter", entry: SharedEntry, parameters: dict[str, Any], rng: random.Random
) -> None:
    """Spreads the changes over the run, each at a random place of its share of the lookups."""
    count, lookups = parameters["invalidations"], parameters["lookups"]
    for number in range(count):
        share = lookups / count
        await meter.until_answered(int(share * (number + rng.random())))
        await entry.change()


class Meter:
    """Counts and measures what the agents report.

    Parameters
    ----------
    environment : Environment
    """

    def __init__(self, environment: Environment):
        self._environment = environment
        self._latencies: list[int] = []
        self._admissions: list[int] = []
        self._counts = {"waited": 0, "refused": 0, "aborted": 0, "beats": 0}
        self.answered = 0

    async def until_answered(self, lookups: int) -> None:
        """Returns when so many lookups have been answered."""
        self.collect()
        while self.answered < lookups:
            await self._environment.wait(4)
            self.collect()

    def collect(self) -> None:
        """Takes over what has been answered since the last time."""
        for port in self._environment.ports:
            for request in port.finished:
                self._count(request)
            port.finished.clear()

    def _count(self, request: LookupRequest) -> None:
        self._counts["waited"] += bool(request.held)
        self._counts["beats"] += len(request.beats)
        if request.status is LookupStatus.RETRY:
            self._counts["refused"] += 1
            return
        if request.status is LookupStatus.ABORTED:
            self._counts["aborted"] += 1
            return
        assert request.admitted is not None
        assert request.since is not None
        self.answered += 1
        self._admissions.append(request.admitted)
        self._latencies.append(request.finished - request.since + 1)

    def result(
        self, changes: list[CommandRequest], violated: frozenset[Guarantee]
    ) -> dict[str, Any]:
        """Everything that was measured, as JSON can say it."""
        env = self._environment
        tally = env.scoreboard.tally
        busy = max(self._admissions) - min(self._admissions) + 1
        return {
            "cycles": env.last_activity + 1,
            "lookups": self.answered,
            "lookups_per_cycle": self.answered / busy,
            "latency_cycles": distribution(self._latencies),
            "apply_cycles": distribution([c.cycles_to_apply for c in changes]),
            "invalidation_cycles": distribution([c.cycles_to_complete for c in changes]),
            "invalidations": len(changes),
            **self._counts,
            "statuses": {
                s.name: n for s, n in sorted(tally.by_status.items(), key=lambda i: i[0].value)
            },
            "dma_beats": env.dma_beats,
            **env.verdicts(),
            "torn_lookups": len(tally.torn),
            "stale_lookups": len(tally.stale),
            "trace_digest": env.trace_digest,
        }


def distribution(values: list[int]) -> dict[str, int | None]:
    """Median, 99th percentile and maximum, each a value that occurred; ``None`` of nothing."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": None, "p99": None, "max": None}
    return {
        "p50": ordered[(len(ordered) - 1) // 2],
        "p99": ordered[-(-len(ordered) * 99 // 100) - 1],
        "max": ordered[-1],
    }
