"""Changes under load, and what else happens to a table that is in use."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cocotb
from cocotb.task import Task

from tb.agents.encounters import DMA_PAUSE, EARLIEST, LIFE, PATIENCE, collide
from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.queue_pair import QueuePair
from tb.agents.scenes import PAGE, shared_buffer
from tb.model.words import Command, EntryKind, Key, LookupStatus, Opcode


@cocotb.test()
async def rebind_at_every_offset(dut: Any) -> None:
    """A window moves to another part of its region in each cycle of the life of a lookup."""
    env = Environment(dut, DMA_PAUSE, PATIENCE)
    await env.start()
    region = shared_buffer(env.config, pages=8)
    await env.command(0, region.register())
    window = replace(region, key=Key(9, 0), pages=3)
    await env.command(0, window.window(EntryKind.WINDOW_1))
    await env.command(1, window.bind(region, variant=1))
    met = 0
    for offset in range(EARLIEST, LIFE):
        bound = window.renamed(offset + 7)
        moved = bound.bind(region, variant=offset + 8, first_page=(offset + 7) % 2)
        lookups = [bound.lookup(100, 3 * PAGE - 200)] * len(env.ports)
        meeting = await collide(env, offset, lookups, [(1, moved)])
        met += meeting.met
    assert met > 3, met
    await env.finish()


@cocotb.test()
async def translations_are_not_reused_early(dut: Any) -> None:
    """Somebody writes translations into the range of a buffer while it is deregistered."""
    env = Environment(dut, DMA_PAUSE)
    await env.start()
    old = shared_buffer(env.config, pages=3)
    new = replace(old, key=Key(9, 0x20), frame=0x9000)
    waited = 0
    # Whoever comes before the deregistration writes what is still the old owner's.
    for distance in range(2, 26):
        await env.command(0, old.register())
        for port in env.ports:
            port.submit(old.lookup(100, 3 * PAGE - 200))
        await env.wait(2)
        change = env.sources[0].submit(old.deregister())
        await env.wait(distance)
        reuse = env.sources[1].submit(new.register())
        await env.quiet()
        assert change.completed is not None
        assert reuse.accepted is not None
        assert reuse.applied is not None
        waited += reuse.accepted < change.completed < reuse.applied
        request = await env.look_up(0, new.lookup(0, 3 * PAGE))
        assert request.status is LookupStatus.OK
        await env.command(1, new.deregister())
    assert waited > 3
    await env.finish()


@cocotb.test()
@cocotb.parametrize(kind=["WINDOW_1", "WINDOW_2A", "WINDOW_2B"])
async def rebind_under_load(dut: Any, kind: str) -> None:
    """Queue pairs write through a window that keeps moving over its region."""
    env = Environment(dut)
    await env.start()
    rng = env.fork_rng()
    region = shared_buffer(env.config, pages=8)
    await env.command(0, region.register())
    window = replace(region, key=Key(9, 0), pages=4)
    await env.command(0, window.window(EntryKind[kind]))
    current = [window]
    tasks = _load(env, lambda: current[0].random_lookup(rng, 3), pairs=12, lookups=40)
    variants = itertools.count(1)
    while not all(task.done() for task in tasks):
        old, variant = current[0], next(variants)
        if kind != "WINDOW_1" and variant > 1:
            await env.command(rng.choice([1, 2]), old.local_invalidate())
        bind = old.bind(region, variant=variant, first_page=rng.randrange(5))
        current[0] = old.renamed(variant)
        await env.command(1, bind)
        await env.wait(rng.randrange(20, 60))
    await env.finish()
    assert env.scoreboard.tally.by_status[LookupStatus.OK] > 5


@cocotb.test()
async def reset_in_the_middle(dut: Any) -> None:
    """Reset at any time returns to the empty table, and everything works again after it."""
    env = Environment(dut)
    await env.start()
    rng = env.fork_rng()
    buffer = shared_buffer(env.config, pages=3)
    for _ in range(12):
        await env.command(0, buffer.register())
        tasks = _load(env, lambda: buffer.random_lookup(rng, 3), pairs=6, lookups=1000)
        await env.wait(rng.randrange(20, 60))
        env.sources[0].submit(buffer.deregister())
        await env.wait(rng.randrange(12))
        for task in tasks:
            task.cancel()
        await env.reset()
        for port in range(len(env.ports)):
            request = await env.look_up(port, replace(buffer, key=Key(5, 0)).lookup(0, 64))
            assert request.status is LookupStatus.WRONG_STATE
        query = await env.command(2, Command(Opcode.QUERY, buffer.key))
        assert query.completion is not None
        assert query.completion.entry.base == 0
        await env.finish()


@cocotb.test()
async def completions_can_wait(dut: Any) -> None:
    """A source that doesn't take its completion holds up nobody else's entries."""
    env = Environment(dut)
    await env.start()
    rng = env.fork_rng()
    for source in env.sources:
        source.accepts = GENERATORS["rarely"](env.fork_rng())
    buffers = [
        replace(shared_buffer(env.config, index=i, pages=3)).moved(8 * i, 64 * i) for i in range(3)
    ]
    tasks = _load(env, lambda: rng.choice(buffers).random_lookup(rng, 3), pairs=6, lookups=40)
    for _ in range(12):
        requests = [env.sources[s].submit(b.register()) for s, b in enumerate(buffers)]
        requests += [env.sources[s].submit(b.deregister()) for s, b in enumerate(buffers)]
        for request in requests:
            await request.done.wait()
    for task in tasks:
        await task
    await env.finish()


def _load(
    env: Environment, make: Callable[[], Any], *, pairs: int, lookups: int
) -> list[Task[None]]:
    """Queue pairs that look up what ``make`` makes."""
    return [
        cocotb.start_soon(QueuePair(env, number, number % len(env.ports)).run([make] * lookups))
        for number in range(pairs)
    ]
