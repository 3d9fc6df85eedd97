"""What a lookup is answered when nothing races: the rows of ``docs/races.md`` about contents."""

import itertools
from dataclasses import replace
from typing import Any

import cocotb

from tb.agents.encounters import PATIENCE, status_of
from tb.agents.environment import Environment
from tb.agents.scenes import PAGE, Buffer, shared_buffer
from tb.model.words import Command, CommandStatus, EntryKind, Key, LookupStatus, Opcode, Rights


@cocotb.test()
async def r05_same_pages_again(dut: Any) -> None:
    """A buffer is registered, invalidated and registered again, on the same pages and on others,
    with the same translations: every physical address is that of the last registration.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    whole = shared_buffer(env.config, pages=8)
    await env.command(0, whole.register())
    await env.command(1, whole.local_invalidate())
    for pages, frame in itertools.product((1, 2, 5, 8), (0x200, 0x200, 0x310)):
        buffer = replace(whole, pages=pages, frame=frame)
        await env.command(1, buffer.fast_register())
        requests = [port.submit(buffer.lookup(0, buffer.length)) for port in env.ports]
        await env.quiet()
        for request in requests:
            reached = [beat.address // PAGE for _, beat in request.beats]
            assert reached == [*range(frame, frame + pages)], request
        await env.command(1, buffer.local_invalidate())
    assert not await env.finish()


@cocotb.test()
async def r06_every_right(dut: Any) -> None:
    """Each set of rights is asked of each set that is granted: all of them, or nothing."""
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    buffer = shared_buffer(env.config, pages=1)
    await env.command(0, buffer.register())
    keep = replace(buffer.reregister(buffer), translations=0)
    every = [Rights(value) for value in range(2 ** len(Rights))]
    asked = [replace(buffer.lookup(64, 8), rights=rights) for rights in every]
    for granted in every:
        await env.command(0, replace(keep, rights=granted))
        for lookup, port in zip(asked, itertools.cycle(env.ports), strict=False):
            port.submit(lookup)
        await env.quiet()
        requests = [request for port in env.ports for request in port.finished]
        assert len(requests) == len(every)
        for request in requests:
            is_granted = request.lookup.rights & granted == request.lookup.rights
            expected = LookupStatus.OK if is_granted else LookupStatus.RIGHTS_MISSING
            assert request.status is expected, f"{request.lookup} passed with {granted!r}"
        for port in env.ports:
            port.finished.clear()
    assert not await env.finish()


@cocotb.test()
async def r08_end_of_the_address_space(dut: Any) -> None:
    """A range may end at 2**64 and must not wrap; no range of an entry may wrap, either."""
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    top = replace(shared_buffer(env.config, pages=8), base=2**64 - 8 * PAGE)
    bottom = replace(top, key=Key(7, 0x11), base=0).moved(8, 0x200)
    window = replace(top, key=Key(9, 0), pages=2, base=2**64 - 2 * PAGE)
    for buffer in (top, bottom):
        await env.command(0, buffer.register())
    await env.command(0, window.window(EntryKind.WINDOW_1))
    await env.command(1, window.bind(top, variant=0, first_page=6))
    last = 0xFFFF_FFFF_FFFF_FC00
    for buffer, rights, port in itertools.product(
        (top, window, bottom), (Rights.REMOTE_READ, Rights.REMOTE_WRITE), env.ports
    ):
        for length in (0x3FF, 0x400, 0x401, 2**32 - 1):
            lookup = replace(buffer.lookup(0, length), address=last, rights=rights)
            request = await env.look_up(port.number, lookup)
            inside = buffer is not bottom and length <= 0x400
            expected = LookupStatus.OK if inside else LookupStatus.OUT_OF_BOUNDS
            assert request.status is expected, f"{length:#x} bytes to the end: {request}"
    register = replace(top.register(), key=Key(8, 0), translations=0)
    for command in (
        replace(register, base=2**64 - PAGE, length=PAGE + 1),
        replace(register, base=2**64 - 1, length=2),
        replace(register, base=1, length=2**64),
        # Allowed, but for its pages, of which the table has not as many.
        replace(register, base=0, length=2**64, page_shift=31),
    ):
        request = await env.command(0, command)
        assert status_of(request) is CommandStatus.OUT_OF_BOUNDS, request
    assert not await env.finish()


@cocotb.test()
async def r33_victim_of_a_full_set(dut: Any) -> None:
    """All ways of a set are filled and all but one used, by all ports at once: that one has to go.

    A use that fails, a query, and what happens in other sets, don't count.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    config = env.config
    for chosen in range(min(config.sets, 3)):
        ways = [_small(chosen + way * config.sets) for way in range(config.ways)]
        neighbour = _small(chosen + 1 if chosen + 1 < config.sets else 0)
        for buffer in (*ways, neighbour):
            await env.command(0, buffer.register())
        env.dut.victim__set.value = chosen
        for spared in ways:
            requests = [env.ports[0].submit(spared.lookup(0, 8))]
            await env.quiet()
            used = [way for way in ways if way is not spared]
            requests += [
                port.submit(buffer.lookup(0, 8))
                for buffer, port in zip(used, itertools.cycle(env.ports), strict=False)
            ]
            requests.append(env.ports[-1].submit(neighbour.lookup(0, 8)))
            await env.quiet()
            failing = [port.submit(spared.lookup(0, PAGE + 1)) for port in env.ports]
            await env.command(2, Command(Opcode.QUERY, spared.key))
            await env.quiet()
            assert {r.status for r in requests} == {LookupStatus.OK}
            assert {r.status for r in failing} == {LookupStatus.OUT_OF_BOUNDS}
            await env.wait(2)
            victim = env.dut.victim__index.value.to_unsigned()
            assert victim == spared.key.index, f"{victim} has to go, not {spared.key.index}"
        for buffer in (*ways, neighbour):
            await env.command(0, buffer.deregister())
    assert not await env.finish()


def _small(index: int) -> Buffer:
    """A buffer of one page, on the translation of its index."""
    return Buffer(Key(index, 0), 1, index * PAGE, 1, index, 0x100 + index)
