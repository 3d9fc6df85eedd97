"""The latencies that ``docs/timing.md`` states, each to the cycle."""

import itertools
from dataclasses import replace
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from rtl.config import OnPending, ReadStructure, RetireScope, StepOrder, TableConfig
from tb.agents.environment import CLOCK_NS, Environment
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import PAGE, shared_buffer
from tb.bench_readers import FIRST_BEAT
from tb.model.table import (
    Command,
    CommandStatus,
    EntryKind,
    Key,
    LookupStatus,
    Opcode,
)

CHECKED = 4
"""Cycles from the acceptance of a command to R, or to the completion if it asks for nothing."""

REGION_CHECKED = 2
"""Cycles more, for a window's region."""

APPLIED = 2
"""Cycles from A to C."""

REMOVAL = 1
"""Cycles more before the first of the translations is removed; then one cycle for each."""

RELEASE = 3
"""Cycles more if a region has one bound window less."""


def _wait(config: TableConfig) -> int:
    """Cycles from R to A with nothing in flight."""
    return 0 if config.arbiter == "apply_now" else 1


@cocotb.test()
async def clearing(dut: Any) -> None:
    """After reset the table is ready when its largest memory is clear, and serves nobody before."""
    env = Environment(dut)
    dut.victim__set.value = 0
    dut.rst.value = 1
    Clock(dut.clk, CLOCK_NS, unit="ns").start(start_high=False)
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    for port in env.ports:
        getattr(dut, f"lookup__{port.number}__valid").value = 1
    lookups = [getattr(dut, f"lookup__{port.number}__ready") for port in env.ports]
    commands = [getattr(dut, f"command__{source.number}__ready") for source in env.sources]
    cycles = 0
    await RisingEdge(dut.clk)
    while not dut.ready.value:
        assert not any(stream.value for stream in (*lookups, *commands))
        cycles += 1
        await RisingEdge(dut.clk)
    assert cycles == max(env.config.entries, env.config.translations)
    shared = env.config.read_structure is ReadStructure.SERIALIZED
    assert sum(int(stream.value) for stream in lookups) == (1 if shared else len(env.ports))
    assert all(stream.value for stream in commands)


@cocotb.test()
async def commands(dut: Any) -> None:
    """Each command, with nothing in flight: from its acceptance to R, to A and to C."""
    env = Environment(dut)
    await env.start()
    config = env.config
    buffer = shared_buffer(config, pages=3)
    at_once = config.step_order is StepOrder.TRANSLATIONS_FIRST
    removed_first, removed_last = (3, 0) if at_once else (0, REMOVAL + 3)

    async def check(source: int, command: Command, requested: int, wait: int, after: int) -> None:
        request = await env.command(source, command)
        assert _cycles(request) == (requested, wait, after), (command, _cycles(request))

    wait = _wait(config)
    query = Command(Opcode.QUERY, buffer.key)
    pages = Command(Opcode.WRITE_TRANSLATION, buffer.key, first_translation=16, translations=5)
    moved = buffer.moved(8, 0x200)
    await check(0, buffer.register(), CHECKED + 3, 0, APPLIED)
    await check(0, buffer.reregister(moved), CHECKED + 3, wait, APPLIED + REMOVAL + 3)
    kept = replace(moved.reregister(moved), translations=0)
    await check(0, kept, CHECKED, wait, APPLIED)
    await check(1, moved.local_invalidate(), CHECKED, wait, APPLIED)
    await check(1, replace(moved.register(), translations=0), CHECKED, 0, APPLIED)
    await check(2, moved.remote_invalidate(), CHECKED, wait, APPLIED)
    await check(0, moved.deregister(), CHECKED + removed_first, wait, APPLIED + removed_last)
    await check(0, replace(buffer.register(), translations=0), CHECKED, 0, APPLIED)

    window = replace(buffer, key=Key(9, 0), pages=1)
    bind = window.bind(buffer, variant=0)
    await check(0, window.window(EntryKind.WINDOW_1), CHECKED, 0, APPLIED)
    await check(1, bind, CHECKED + REGION_CHECKED, wait, APPLIED)
    await check(1, bind, CHECKED + REGION_CHECKED, wait, APPLIED + RELEASE)
    await check(1, replace(bind, length=0), CHECKED, wait, APPLIED + RELEASE)
    await check(0, window.deregister(), CHECKED, wait, APPLIED)

    for command, cycles in (
        (query, CHECKED),
        (pages, CHECKED + 5),
        (replace(pages, translations=0), CHECKED),
        (buffer.register(), CHECKED),
    ):
        request = await env.command(0, command)
        assert request.requested is None
        assert _since_accepted(request, request.completed) == cycles, request
    # A window whose region doesn't exist: it takes the look at the region to know.
    await env.command(0, window.window(EntryKind.WINDOW_1))
    request = await env.command(1, replace(bind, parent=Key(10, 0)))
    assert request.completion is not None
    assert request.completion.status is CommandStatus.WRONG_STATE
    assert _since_accepted(request, request.completed) == CHECKED + REGION_CHECKED
    assert not await env.finish()


def _since_accepted(request: CommandRequest, cycle: int | None) -> int:
    assert request.accepted is not None
    assert cycle is not None
    return cycle - request.accepted


def _cycles(request: CommandRequest) -> tuple[int, int, int]:
    """From acceptance to R, from R to A, from A to C."""
    return (
        _since_accepted(request, request.requested),
        request.cycles_to_apply,
        request.cycles_to_complete - request.cycles_to_apply,
    )


@cocotb.test()
async def next_command(dut: Any) -> None:
    """A source that always has a command: the next is accepted in the cycle after a completion."""
    env = Environment(dut)
    await env.start()
    query = Command(Opcode.QUERY, Key(3, 0))
    requests = [env.sources[0].submit(query) for _ in range(4)]
    await env.quiet()
    accepted = [r.accepted for r in requests]
    first = accepted[0]
    assert first is not None
    assert accepted == [first + n * (CHECKED + 1) for n in range(4)]


@cocotb.test()
async def every_answer_takes_as_long(dut: Any) -> None:
    """The first beat of any lookup, refused ones included, comes as soon as that of a good one."""
    env = Environment(dut, dma_pause=(9, 9))
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    await env.command(0, buffer.register())
    good = buffer.lookup(0, 64)
    port = env.ports[-1]
    requests: list[LookupRequest] = []
    for lookup in (
        good,
        replace(good, key=Key(buffer.key.index, buffer.key.variant ^ 1)),
        replace(good, key=Key(env.config.entries, 0)),
        buffer.lookup(3 * PAGE, 1),
        buffer.lookup(0, 0),
    ):
        requests.append(port.submit(lookup))
        await env.quiet()
    # The second comes while the tag of the first is in flight.
    tagged = replace(buffer.lookup(0, 3 * PAGE), tag=1)
    requests += [port.submit(tagged, chooses_tag=True) for _ in range(2)]
    await env.quiet()
    assert requests[-1].status is LookupStatus.TAG_IN_USE
    for request in requests[:-1]:
        assert request.admitted is not None
        assert request.beats[0][0] == request.admitted + FIRST_BEAT, request
    # Behind a walk of three pages.
    assert requests[-1].finished == requests[-2].finished + 1
    assert not await env.finish()


@cocotb.test()
async def walks_follow_each_other(dut: Any) -> None:
    """Lookups of several pages, one behind another: still one beat in every cycle."""
    env = Environment(dut)
    await env.start()
    buffer = shared_buffer(env.config, pages=8)
    await env.command(0, buffer.register())
    lookups = [buffer.lookup(0, pages * PAGE) for pages in (3, 1, 4, 2)]
    shared = env.config.read_structure is ReadStructure.SERIALIZED
    ports = [env.ports[0]] if shared else env.ports
    requests = [[port.submit(lookup) for lookup in lookups] for port in ports]
    await env.quiet()
    for of_port in requests:
        cycles = [cycle for request in of_port for cycle, _ in request.beats]
        assert of_port[0].admitted is not None
        first = of_port[0].admitted + FIRST_BEAT
        assert cycles == list(range(first, first + 10))
    assert not await env.finish()


@cocotb.test()
async def draining(dut: Any) -> None:
    """A policy that drains applies in the cycle after the last lookup has retired, or after R.

    What it makes wait is admitted in the cycle after A; what it refuses is refused from the cycle
    after R to A.
    """
    env = Environment(dut, dma_pause=(3, 3))
    await env.start()
    config = env.config
    if config.arbiter == "apply_now":
        return
    old = shared_buffer(config, pages=3)
    for distance in range(24):
        await env.command(0, old.register())
        port = env.ports[-1]
        in_flight = port.submit(old.lookup(0, 3 * PAGE))
        retired = cocotb.start_soon(_retirement(env, in_flight))
        await env.wait(distance)
        change = env.sources[0].submit(old.local_invalidate())
        await env.wait(CHECKED + 3)
        assert change.requested is not None
        late = env.ports[0].submit(old.lookup(0, 64))
        await env.quiet()
        assert change.applied is not None
        assert in_flight.admitted is not None
        assert change.applied == max(change.requested, await retired) + 1, (change, in_flight)
        assert late.admitted is not None
        assert late.offered is not None
        assert late.offered > change.requested
        pending = late.offered <= change.applied
        if config.on_pending is OnPending.REFUSE:
            assert late.admitted == late.offered
            assert (late.status is LookupStatus.RETRY) == pending, (change, late)
        else:
            assert late.admitted == max(late.offered, change.applied + 1), (change, late)
            assert late.status is LookupStatus.WRONG_STATE
        await env.command(0, old.deregister())
    await env.finish()


async def _retirement(env: Environment, request: LookupRequest) -> int:
    """The cycle in which the slot of a lookup that gets an OK beat is given back."""
    await request.done.wait()
    if env.config.scope is RetireScope.DMA:
        await request.returned.wait()
        return env.cycle
    return request.finished


@cocotb.test()
async def one_fence_many_bits(dut: Any) -> None:
    """Another entry's change waits for the fence until two cycles after A, and for no bit."""
    env = Environment(dut)
    await env.start()
    config = env.config
    busy = shared_buffer(config, pages=3)
    quiet = replace(busy, key=Key(9, 0)).moved(8, 0x200)
    await env.command(0, busy.register())
    await env.command(0, quiet.register())
    # Nobody takes the beats for a while, so the lookup is in flight for as long.
    env.ports[0].accepts = itertools.chain(itertools.repeat(False, 40), itertools.repeat(True))
    env.ports[0].submit(busy.lookup(0, 3 * PAGE))
    await env.wait(2)
    first = env.sources[0].submit(busy.local_invalidate())
    await env.wait(CHECKED)
    second = env.sources[1].submit(quiet.local_invalidate())
    await env.quiet()
    assert first.applied is not None
    assert second.applied is not None
    if config.arbiter == "drain_fence":
        assert second.applied == first.applied + 2
    else:
        assert second.cycles_to_apply == _wait(config)
        assert (first.applied < second.applied) == (config.arbiter == "apply_now")
    await env.finish()
