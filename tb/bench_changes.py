"""Changes against changes of one entry: a row of ``docs/races.md`` each, at every distance."""

import itertools
from dataclasses import replace
from typing import Any

import cocotb

from rtl.config import SecondInvalidate
from tb.agents.encounters import PATIENCE, status_of
from tb.agents.environment import Environment
from tb.agents.generators import Gate
from tb.agents.requests import CommandRequest
from tb.agents.scenes import PAGE, Buffer, shared_buffer
from tb.model.words import (
    Command,
    CommandStatus,
    EntryKind,
    EntryState,
    Key,
    LookupStatus,
    Opcode,
)

OK = CommandStatus.OK


async def _query(env: Environment, buffer: Buffer) -> CommandRequest:
    request = await env.command(2, Command(Opcode.QUERY, buffer.key))
    assert request.completion is not None
    return request


@cocotb.test()
async def r12_two_invalidations(dut: Any) -> None:
    """Two sources invalidate an entry, or one deregisters it, in each order and at each distance.

    Both complete. Whoever is second finds the entry free, which is an error if the table was built
    that way, or finds nobody.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    absorbed = env.config.second_invalidate is SecondInvalidate.SUCCESS
    changes = {0: buffer.deregister, 1: buffer.local_invalidate, 2: buffer.remote_invalidate}
    overtaken = 0
    for (first, second), distance in itertools.product(
        itertools.permutations(changes, 2), range(8)
    ):
        await env.command(0, buffer.register())
        for port in env.ports:
            port.submit(buffer.lookup(100, 3 * PAGE - 200))
        await env.wait(2)
        requests = [env.sources[first].submit(changes[first]())]
        await env.wait(distance)
        requests.append(env.sources[second].submit(changes[second]()))
        await env.quiet()
        winner, loser = sorted(requests, key=lambda r: r.completed or 0)
        assert status_of(winner) is OK
        overtaken += loser.accepted is not None and loser.accepted < (winner.applied or 0)
        if winner.command.opcode is Opcode.DEREGISTER:
            assert status_of(loser) is CommandStatus.WRONG_STATE
        elif loser.command.opcode is Opcode.DEREGISTER or absorbed:
            assert status_of(loser) is OK
        else:
            assert status_of(loser) is CommandStatus.ALREADY_FREE
        await env.command(0, buffer.deregister())
    assert overtaken > 10, overtaken
    await env.finish()


@cocotb.test()
@cocotb.parametrize(opcode=["REGISTER", "FAST_REGISTER"])
async def r13_invalidate_meets_a_registration(dut: Any, opcode: str) -> None:
    """An invalidate, or a deregistration, at each distance from a registration of many pages.

    It finds what was there before, or all of the new entry; no lookup finds a part of it.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    buffer = shared_buffer(env.config, pages=8)
    fast = opcode == "FAST_REGISTER"
    register = buffer.fast_register() if fast else buffer.register()
    changes = [buffer.local_invalidate(), buffer.remote_invalidate(), buffer.deregister()]
    before = after = 0
    for distance in range(-8, 16):
        if fast:
            await env.command(0, buffer.allocate())
        change = changes[distance % 3]
        made = env.sources[0].submit(register) if distance >= 0 else None
        await env.wait(distance)
        request = env.sources[1 + distance % 2].submit(change)
        await env.wait(-distance)
        made = made or env.sources[0].submit(register)
        lookups = []
        for _ in range(5):
            lookups += [port.submit(buffer.lookup(7 * PAGE, 64)) for port in env.ports]
            await env.wait(5)
        await env.quiet()
        assert made.completed is not None
        assert request.completed is not None
        late = request.completed > made.completed
        if late:
            assert (status_of(made), status_of(request)) == (OK, OK)
        elif not fast:
            assert (status_of(made), status_of(request)) == (OK, CommandStatus.WRONG_STATE)
        elif change.opcode is Opcode.DEREGISTER:
            assert (status_of(made), status_of(request)) == (CommandStatus.WRONG_STATE, OK)
        elif env.config.second_invalidate is SecondInvalidate.ERROR:
            assert (status_of(made), status_of(request)) == (OK, CommandStatus.ALREADY_FREE)
        before += not late
        after += late
        statuses = {lookup.status for lookup in lookups}
        assert LookupStatus.NO_TRANSLATION not in statuses, "half of an entry was looked up"
        await env.command(0, buffer.deregister())
    assert before > 2, before
    assert after > 2, after
    await env.finish()


@cocotb.test()
async def r15_writes_in_order(dut: Any) -> None:
    """Three sources write the same translations, at each distance: the last one given counts."""
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    queued = 0
    for order, distance in itertools.product(itertools.permutations(range(3)), range(4)):
        writes: list[CommandRequest] = []
        for number, source in enumerate(order):
            frame = 0x1000 * (number + 1)
            write = replace(buffer.register(), opcode=Opcode.WRITE_TRANSLATION, frame=frame)
            writes.append(env.sources[source].submit(write))
            await env.wait(distance)
        await env.quiet()
        assert [status_of(write) for write in writes] == [OK] * 3
        accepted = [write.accepted or 0 for write in writes]
        completed = [write.completed or 0 for write in writes]
        if distance:
            assert completed == sorted(completed), "written in another order than given"
            queued += accepted[2] < completed[0]
        last = max(writes, key=lambda write: write.completed or 0).command
        await env.command(0, replace(buffer.register(), translations=0))
        for page, port in zip(range(3), itertools.cycle(env.ports), strict=False):
            request = await env.look_up(port.number, buffer.lookup(page * PAGE, 8))
            assert request.beats[0][1].address == (last.frame + page) * PAGE, (request, writes)
        await env.command(0, buffer.deregister())
    assert queued > 10, queued
    await env.finish()


@cocotb.test()
@cocotb.parametrize(kind=["WINDOW_1", "WINDOW_2A", "WINDOW_2B"])
async def r19_deregister_with_a_window(dut: Any, kind: str) -> None:
    """A deregistration at each distance from the bind of a window: one of the two fails.

    If the window was first, the region is as before, and its index is nobody else's.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    region = shared_buffer(env.config, pages=3)
    window = replace(region, key=Key(9, 0))
    bound = gone = 0
    for distance in range(-6, 6):
        await env.command(0, region.register())
        await env.command(0, window.window(EntryKind[kind]))
        before = await _query(env, region)
        commands = [(0, region.deregister()), (1, window.bind(region, variant=1))]
        (first, command), (second, other) = commands if distance < 0 else commands[::-1]
        requests = {first: env.sources[first].submit(command)}
        await env.wait(abs(distance))
        requests[second] = env.sources[second].submit(other)
        await env.quiet()
        if status_of(requests[1]) is OK:
            bound += 1
            for refused in (region.deregister(), region.reregister(region.moved(8, 0x200))):
                assert status_of(await env.command(0, refused)) is CommandStatus.WINDOWS_BOUND
            assert status_of(requests[0]) is CommandStatus.WINDOWS_BOUND
            after = await _query(env, region)
            assert after.completion == before.completion
            taken = await env.command(2, region.register())
            assert status_of(taken) is CommandStatus.WRONG_STATE, "the index was given away"
            for port in env.ports:
                request = await env.look_up(port.number, region.lookup(0, 3 * PAGE))
                assert request.status is LookupStatus.OK
        else:
            gone += 1
            assert status_of(requests[0]) is OK
            assert status_of(requests[1]) is CommandStatus.PARENT_STATE
        await env.command(1, window.deallocate())
        last = await env.command(0, region.deregister())
        assert (status_of(last) is OK) == (status_of(requests[1]) is OK)
    assert bound > 3, bound
    assert gone > 3, gone
    await env.finish()


@cocotb.test()
async def r21_register_while_an_invalidate_waits(dut: Any) -> None:
    """A registration of the index at each distance from its invalidate, which lookups hold up.

    It fails, or waits for the invalidate. Invalidates that fail leave the entry ``VALID``.
    """
    env = Environment(dut, (4, 4), PATIENCE)
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    new = buffer.renamed(0x12)
    waited = failed = 0
    for distance in range(-4, 20):
        await env.command(0, buffer.register())
        for port in env.ports:
            port.submit(buffer.lookup(100, 3 * PAGE - 200))
        await env.wait(2)
        register = new.fast_register() if distance % 2 else new.register()
        commands = [(1, buffer.local_invalidate()), (2, register)]
        (first, command), (second, other) = commands if distance >= 0 else commands[::-1]
        requests = {first: env.sources[first].submit(command)}
        await env.wait(abs(distance))
        requests[second] = env.sources[second].submit(other)
        await env.quiet()
        invalidated, registered = requests[1], requests[2]
        assert status_of(invalidated) is OK
        assert registered.accepted is not None
        assert invalidated.completed is not None
        if status_of(registered) is OK:
            assert registered.applied is not None
            assert registered.applied > invalidated.completed, "registered before C"
            waited += registered.accepted < invalidated.completed
        else:
            assert status_of(registered) is CommandStatus.WRONG_STATE
            failed += 1
        await env.command(0, buffer.deregister())
    assert waited > 1, waited
    assert failed > 5, failed

    await env.command(0, buffer.register())
    window = replace(buffer, key=Key(9, 0))
    await env.command(0, window.window(EntryKind.WINDOW_2A))
    good, remote = buffer.local_invalidate(), buffer.remote_invalidate()
    failing = [
        replace(good, key=new.key),
        replace(good, pd=buffer.pd ^ 1),
        replace(remote, header_valid=False),
        replace(remote, key=new.key),
        replace(remote, pd=buffer.pd ^ 1),
    ]
    bind = window.bind(buffer, variant=0)
    for number, command in enumerate([*failing, bind, good, remote]):
        lookups = [port.submit(buffer.lookup(100, 3 * PAGE - 200)) for port in env.ports]
        await env.wait(number % 4)
        request = await env.command(1 + number % 2, command)
        assert (status_of(request) is OK) == (command is bind), request
        assert request.applied is None or command is bind
        query = await _query(env, buffer)
        assert query.completion is not None
        assert query.completion.entry.state is EntryState.VALID, f"{command} counted"
        await env.quiet()
        # A fence for all entries may turn some away while the bind waits.
        assert {lookup.status for lookup in lookups} <= {LookupStatus.OK, LookupStatus.RETRY}
    await env.finish()


@cocotb.test()
async def r27_invalidates_while_a_deregistration_waits(dut: Any) -> None:
    """Two more invalidates of the entry arrive while its deregistration waits for a lookup.

    As in a callback, the lookup is taken only when both have been accepted. Nobody waits forever.
    """
    env = Environment(dut, patience=300)
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    waiting = 0
    for distance, gap in itertools.product(range(-2, 8), (0, 3)):
        await env.command(0, buffer.register())
        gate = Gate()
        for port in env.ports:
            port.accepts = gate
            port.submit(buffer.lookup(100, 3 * PAGE - 200))
        await env.wait(8)
        first = env.sources[0].submit(buffer.deregister()) if distance >= 0 else None
        await env.wait(distance)
        second = env.sources[1].submit(buffer.local_invalidate())
        await env.wait(gap)
        third = env.sources[2].submit(buffer.remote_invalidate())
        await env.wait(-distance)
        first = first or env.sources[0].submit(buffer.deregister())
        while None in (second.accepted, third.accepted):
            await env.wait(1)
        waiting += first.completed is None
        gate.is_open = True
        await env.quiet()
        assert OK in [status_of(request) for request in (first, second, third)]
        assert status_of(first) is OK
        await env.command(0, buffer.deregister())
    assert waiting > 5, waiting
    await env.finish()
