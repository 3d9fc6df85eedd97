"""The latencies that ``docs/timing.md`` states, each to the cycle."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from rtl.arbiter import own
from rtl.config import (
    FenceSpan,
    OnPending,
    OnWrap,
    ReadStructure,
    RetireScope,
    StepOrder,
    TableConfig,
)
from rtl.monitor import Guarantee
from tb.agents.environment import CLOCK_NS, Environment
from tb.agents.generators import GENERATORS
from tb.agents.ports import Port
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import PAGE, shared_buffer
from tb.bench_readers import FIRST_BEAT, REPLAYED
from tb.model.words import Command, CommandStatus, EntryKind, Key, Lookup, LookupStatus, Opcode

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


DRAINING = ("pending_bit", "drain_fence")
"""Policies that apply when the lookups in flight are over.

Of a policy of somebody's own no cycle is known; what depends on one is left out for it.
"""


def _wait(config: TableConfig) -> int:
    """Cycles from R to A with nothing in flight."""
    return int(config.arbiter in DRAINING)


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
    if own.is_own(config.arbiter):
        return
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
    await check(1, replace(moved.fast_register(), translations=0), CHECKED, 0, APPLIED)
    await check(2, moved.remote_invalidate(), CHECKED, wait, APPLIED)
    await check(0, moved.deregister(), CHECKED + removed_first, wait, APPLIED + removed_last)
    await check(0, replace(buffer.register(), translations=0), CHECKED, 0, APPLIED)

    window = replace(buffer, key=Key(9, 0), pages=1)
    bind = window.bind(buffer, variant=0)
    await check(0, window.window(EntryKind.WINDOW_1), CHECKED, 0, APPLIED)
    await check(1, bind, CHECKED + REGION_CHECKED, wait, APPLIED)
    await check(1, bind, CHECKED + REGION_CHECKED, wait, APPLIED + RELEASE)
    await check(1, replace(bind, length=0), CHECKED, wait, APPLIED + RELEASE)
    await check(0, window.deallocate(), CHECKED, wait, APPLIED)
    # Registered on what was allocated for it, and less than that.
    spare = buffer.moved(24, 0x300)
    allocate = replace(window.moved(24, 0).allocate(), translations=3)
    await check(0, allocate, CHECKED, 0, APPLIED)
    fast = replace(spare, key=window.key, pages=2)
    await check(1, fast.fast_register(), CHECKED + 2, 0, APPLIED)
    await check(0, fast.deregister(), CHECKED + removed_first, wait, APPLIED + removed_last)

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
    assert request.completion.status is CommandStatus.PARENT_STATE
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
    if config.arbiter not in DRAINING:
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
    if own.is_own(config.arbiter):
        return
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
        assert (first.applied < second.applied) == (config.arbiter not in DRAINING)
    await env.finish()


async def _meet(
    env: Environment, offset: int, port: Port, lookups: list[Lookup], command: Command
) -> tuple[CommandRequest, list[LookupRequest]]:
    """Submits lookups, and ``offset`` cycles later (or earlier) a command of the host."""
    if offset < 0:
        change = env.sources[0].submit(command)
        await env.wait(-offset)
        return change, [port.submit(lookup) for lookup in lookups]
    requests = [port.submit(lookup) for lookup in lookups]
    await env.wait(offset)
    return env.sources[0].submit(command), requests


async def _retirements(
    env: Environment, requests: Iterable[LookupRequest]
) -> dict[LookupRequest, int]:
    """When all is quiet: the cycle in which the slot of each lookup was given back."""
    tasks = {r: cocotb.start_soon(_end(env, r)) for r in requests}
    await env.quiet()
    return {request: await task for request, task in tasks.items()}


async def _end(env: Environment, request: LookupRequest) -> int:
    await request.done.wait()
    return await _retirement(env, request) if request.has_ok_beat else request.finished


def _in_flight(
    change: CommandRequest, retired: dict[LookupRequest, int], index: int | None
) -> list[int]:
    """When those lookups retired that were in flight at A, all or those of an entry."""
    assert change.applied is not None
    return [
        end
        for request, end in retired.items()
        if request.admitted is not None
        and request.admitted <= change.applied < end
        and index in (None, request.lookup.key.index)
    ]


@cocotb.test()
async def grace_periods(dut: Any) -> None:
    """C comes 2 cycles after the last lookup that was in flight at A retired, or after A.

    Lookups that are admitted after A don't matter, nor, with span ``entry``, do those of others.
    Each of three changes that wait at once has its own to wait for.
    """
    env = Environment(dut, dma_pause=(3, 3))
    await env.start()
    config = env.config
    if config.arbiter != "grace_period":
        return
    for port in env.ports:
        port.accepts = GENERATORS["half"](env.fork_rng())
    buffers = [
        replace(shared_buffer(config, pages=8), key=Key(index, 0x11)).moved(8 * index, 64 * index)
        for index in range(3)
    ]
    for buffer in buffers:
        await env.command(0, buffer.register())
    overtaken = waited = together = 0
    for distance in range(30):
        requests = []
        for number, port in enumerate(reversed(env.ports)):
            requests.append(port.submit(buffers[number % 3].lookup(0, 8 * PAGE)))
            await env.wait(distance % 3)
        await env.wait(distance)
        changes = [
            env.sources[n].submit(replace(b.reregister(b), translations=0))
            for n, b in enumerate(buffers[: config.sources])
        ]
        for n in range(9):
            requests.append(env.ports[n % len(env.ports)].submit(buffers[n % 3].lookup(0, 64)))
            await env.wait(1)
        retired = await _retirements(env, requests)
        for change in changes:
            assert change.applied is not None
            assert change.completed is not None
            assert change.cycles_to_apply == _wait(config)
            index = change.command.key.index if config.span is FenceSpan.ENTRY else None
            old = _in_flight(change, retired, index)
            assert change.completed == max([change.applied, *old]) + APPLIED, (change, retired)
            assert all(not request.held for request in requests)
            waited += bool(old)
            overtaken += max(retired.values()) > change.completed
        cycles = [(change.applied, change.completed) for change in changes]
        together += max(a for a, _ in cycles if a) < min(c for _, c in cycles if c)
    assert waited > 5, waited
    assert overtaken > 5, overtaken
    assert together > 5, together
    assert not await env.finish() & env.declared


@cocotb.test()
async def squashing(dut: Any) -> None:
    """The beat offered in the cycle after A is ``ABORTED``, and the DMA stops with that cycle.

    C comes 2 cycles after the last of the lookups that were in flight at A retired, or after A.
    """
    env = Environment(dut, dma_pause=(2, 2))
    await env.start()
    config = env.config
    if config.arbiter != "squash":
        return
    pages = 8
    buffer = shared_buffer(config, pages=pages)
    other = replace(buffer, key=Key(9, 0x11)).moved(8, 0x200)
    await env.command(0, buffer.register())
    await env.command(0, other.register())
    change_it = replace(buffer.reregister(buffer), translations=0)
    port = env.ports[-1]
    aborted = stopped = 0
    for offset in range(-8, 40):
        given_up = port.dma.given_up
        lookups = [buffer.lookup(0, pages * PAGE), other.lookup(0, 64)]
        change, (request, behind) = await _meet(env, offset, port, lookups, change_it)
        issued = cocotb.start_soon(_issued_after(env, change))
        retired = await _retirements(env, [request, behind])
        assert request.admitted is not None
        assert change.applied is not None
        assert change.completed is not None
        assert change.cycles_to_apply == _wait(config)
        due = [request.admitted + FIRST_BEAT + n for n in range(pages)]
        cycles = [cycle for cycle, _ in request.beats]
        if request.admitted <= change.applied < due[-1]:
            aborted += 1
            last = max(due[0], change.applied + 1)
            assert request.status is LookupStatus.ABORTED
            assert cycles == [cycle for cycle in due if cycle <= last]
        else:
            assert request.status is LookupStatus.OK
            assert cycles == due
        assert behind.status is LookupStatus.OK
        assert behind.admitted == request.admitted + 1
        # The cycle after a short walk is that of an abort, in which nothing moves up.
        assert behind.finished >= request.finished + 1
        killed = request.admitted <= change.applied < retired[request]
        if killed and config.scope is RetireScope.DMA:
            # One beat of the lookup behind is all that comes under no kill.
            assert await issued <= 1, (change, request)
            stopped += port.dma.given_up > given_up
        old = _in_flight(change, {request: retired[request]}, buffer.key.index)
        assert change.completed == max([change.applied, *old]) + APPLIED, (change, request)
    assert aborted == pages + FIRST_BEAT - 1, aborted
    assert stopped > 5 or config.scope is RetireScope.LOOKUP
    assert not await env.finish() & env.declared


async def _issued_after(env: Environment, change: CommandRequest) -> int:
    """When all is quiet: how many DMA beats were issued after the cycle after A."""
    while change.applied is None:
        await env.wait(1)
    # Told of a cycle, the engines have decided about the next one.
    await env.wait(change.applied + 1 - env.cycle)
    before = env.dma_beats
    await env.quiet()
    return env.dma_beats - before


@cocotb.test()
async def replaying(dut: Any) -> None:
    """A lookup whose entry changes before its first beat is answered 4 cycles later, in order.

    So are those behind it. Where a beat was offered before, the next is ``ABORTED``. C comes 2
    cycles after the beat that was on offer at A is taken, or after A.
    """
    env = Environment(dut)
    await env.start()
    config = env.config
    if config.arbiter != "version_check":
        return
    pages = 3
    buffer = shared_buffer(config, pages=pages)
    other = replace(buffer, key=Key(9, 0x11)).moved(8, 0x200)
    await env.command(0, buffer.register())
    await env.command(0, other.register())
    change_it = replace(buffer.reregister(buffer), translations=0)
    port = env.ports[-1]
    seen = {"replayed": 0, "aborted": 0, "waited": 0}
    for accepts, offset in itertools.product((0, 20), range(-8, 24)):
        ready = env.cycle + 2 + accepts
        port.accepts = itertools.chain(itertools.repeat(False, accepts), itertools.repeat(True))
        lookups = [buffer.lookup(0, pages * PAGE), *[other.lookup(0, 64)] * 3]
        change, (request, *behind) = await _meet(env, offset, port, lookups, change_it)
        await env.quiet()
        assert request.admitted is not None
        assert change.applied is not None
        assert change.completed is not None
        assert change.cycles_to_apply == _wait(config)
        offered = request.admitted + FIRST_BEAT
        if request.admitted <= change.applied < offered:
            seen["replayed"] += 1
            offered += REPLAYED
        first = max(offered, ready)
        due = [first + n for n in range(pages)]
        # Within the walk, the beat that is offered right after A.
        if offered <= change.applied < due[-1]:
            seen["aborted"] += 1
            last = next(cycle for cycle in due if cycle > change.applied)
            if last == first:
                # On offer already.
                last += 1
            due = [cycle for cycle in due if cycle <= last]
            assert request.status is LookupStatus.ABORTED, (change, request)
        else:
            assert request.status is LookupStatus.OK, (change, request)
        assert [cycle for cycle, _ in request.beats] == due, (change, request)
        assert [r.status for r in behind] == [LookupStatus.OK] * 3
        ends = [r.finished for r in behind]
        assert due[-1] < ends[0] < ends[1] < ends[2]
        on_offer = due[0] if offered <= change.applied < due[0] else change.applied
        seen["waited"] += on_offer > change.applied
        assert change.completed == on_offer + APPLIED, (change, request)
    assert seen["replayed"] == 2 * FIRST_BEAT, seen
    assert seen["aborted"] > 4, seen
    assert seen["waited"] > 4, seen
    assert not await env.finish() & env.declared


@cocotb.test()
async def replays_keep_their_order(dut: Any) -> None:
    """Lookups of one page in every cycle: one is replayed, and those behind it follow it."""
    env = Environment(dut)
    await env.start()
    config = env.config
    if config.arbiter != "version_check":
        return
    buffer = shared_buffer(config, pages=1)
    other = replace(buffer, key=Key(9, 0x11)).moved(8, 0x200)
    await env.command(0, buffer.register())
    await env.command(0, other.register())
    change_it = replace(buffer.reregister(buffer), translations=0)
    port = env.ports[-1]
    replayed = 0
    for distance in range(12):
        change = env.sources[0].submit(change_it)
        await env.wait(distance)
        request = port.submit(buffer.lookup(0, 64))
        behind = [port.submit(other.lookup(64 * n, 64)) for n in range(config.tags - 1)]
        await env.quiet()
        assert request.admitted is not None
        assert change.applied is not None
        hit = request.admitted <= change.applied < request.admitted + FIRST_BEAT
        replayed += hit
        first = request.admitted + FIRST_BEAT + (REPLAYED if hit else 0)
        answered = [r.finished for r in (request, *behind)]
        assert answered == [first + n for n in range(config.tags)], (change, request)
    assert replayed == FIRST_BEAT
    await env.finish()


@cocotb.test()
async def versions_come_round(dut: Any) -> None:
    """Two changes while a lookup waits behind another: with one bit its version is current again.

    With ``ignore`` it is answered from the old entry, after C. With ``wait`` the second A comes
    when the lookup has a new token: 2 cycles after the one before it is taken.
    """
    env = Environment(dut)
    await env.start()
    config = env.config
    if config.arbiter != "version_check":
        return
    buffer = shared_buffer(config, pages=1)
    other = replace(buffer, key=Key(9, 0x11)).moved(8, 0x200)
    await env.command(0, buffer.register())
    await env.command(0, other.register())
    port = env.ports[-1]
    port.accepts = itertools.chain(itertools.repeat(False, 60), itertools.repeat(True))
    ahead = port.submit(other.lookup(0, 64))
    request = port.submit(buffer.lookup(0, 64))
    await env.wait(8)
    moved = buffer.moved(buffer.first_translation, 0x300)
    first = await env.command(0, buffer.local_invalidate())
    await env.command(0, moved.fast_register())
    second = env.sources[0].submit(moved.local_invalidate())
    await env.quiet()
    assert first.cycles_to_complete == APPLIED
    assert second.completed is not None
    short = config.version_bits == 1
    if short and config.on_wrap is OnWrap.WAIT:
        assert second.applied == ahead.finished + 2
    else:
        assert second.cycles_to_complete == APPLIED
        assert second.completed < ahead.finished
    violated = await env.finish()
    stale = short and config.on_wrap is OnWrap.IGNORE
    assert (request.status is LookupStatus.OK) == stale
    assert bool(env.scoreboard.tally.stale) == stale
    assert (Guarantee.FRESH_ANSWER in violated) == stale


@cocotb.test()
async def deadlines(dut: Any) -> None:
    """C in time, C one cycle late, and C that is late because its own source doesn't take it."""
    env = Environment(dut)
    await env.start()
    if own.is_own(env.config.arbiter):
        return
    buffer = shared_buffer(env.config, pages=3)
    from_r_to_c = _wait(env.config) + APPLIED
    patience = 30

    async def late(deadline: int, withheld: int) -> bool:
        await env.command(0, buffer.register())
        env.set_terms(deadline, patience)
        before = env.violations()[Guarantee.BOUNDED_INVALIDATION]
        # Counted from the submission, which is 2 cycles before the acceptance.
        willing = itertools.chain(itertools.repeat(False, withheld), itertools.repeat(True))
        env.sources[1].accepts = willing
        await env.command(1, buffer.local_invalidate())
        env.set_terms(0, 0)
        await env.wait(2)
        await env.command(0, buffer.deregister())
        return env.violations()[Guarantee.BOUNDED_INVALIDATION] != before

    assert not await late(from_r_to_c, 0)
    assert await late(from_r_to_c - 1, 0)
    assert not await late(from_r_to_c + patience - 10, patience - 10)
    assert await late(from_r_to_c, patience - 10)
    assert not await late(from_r_to_c + patience, 2 * patience)
    assert await env.settle() == {Guarantee.BOUNDED_INVALIDATION}
