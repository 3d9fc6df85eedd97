"""Nobody waits forever for a turn, whatever the others do."""

import itertools
from dataclasses import replace
from typing import Any

import cocotb

from rtl.arbiter import own
from tb.agents.environment import Environment
from tb.agents.scenes import PAGE, shared_buffer
from tb.bench_timing import CHECKED
from tb.model.words import Command, CommandStatus, EntryKind, Key, Opcode


@cocotb.test()
async def a_bind_gets_its_turn(dut: Any) -> None:
    """A bind needs two entries, and each of them has a source that never leaves it alone.

    What came before the bind goes first, and nothing that came after it.
    """
    env = Environment(dut)
    await env.start()
    if env.config.sources < 3:
        return
    region = shared_buffer(env.config, pages=3)
    window = replace(region, key=Key(9, 0), pages=1)
    await env.command(0, region.register())
    await env.command(0, window.window(EntryKind.WINDOW_1))
    others = [
        env.sources[source].submit(Command(Opcode.QUERY, key))
        for _ in range(20)
        for source, key in ((0, window.key), (2, region.key))
    ]
    await env.wait(12)
    bind = await env.command(1, window.bind(region, variant=1))
    await env.quiet()
    assert bind.completion is not None
    assert bind.completion.status is CommandStatus.OK
    assert bind.accepted is not None
    assert bind.completed is not None
    later = 0
    for other in others:
        assert other.accepted is not None
        assert other.completed is not None
        if other.accepted > bind.accepted:
            later += 1
            assert other.completed > bind.completed, (bind, other)
    # There was a crowd before it, and one behind.
    assert 20 < later < len(others)
    await env.finish()


@cocotb.test()
async def only_who_names_its_entries_waits_for_a_bind(dut: Any) -> None:
    """A bind waits for its region: its window waits with it, and no other entry does."""
    env = Environment(dut)
    await env.start()
    if env.config.sources < 3:
        return
    host, queues, responder = env.sources
    region = shared_buffer(env.config, pages=3)
    window = replace(region, key=Key(9, 0), pages=1)
    await env.command(0, region.register())
    await env.command(0, window.window(EntryKind.WINDOW_1))
    responder.accepts = itertools.chain(itertools.repeat(False, 60), itertools.repeat(True))
    first = responder.submit(Command(Opcode.QUERY, region.key))
    await env.wait(2 * CHECKED)
    bind = queues.submit(window.bind(region, variant=1))
    await env.wait(2 * CHECKED)
    stranger = await env.command(0, Command(Opcode.QUERY, Key(3, 0)))
    younger = host.submit(Command(Opcode.QUERY, window.key))
    await env.quiet()
    assert stranger.accepted is not None
    assert stranger.completed == stranger.accepted + CHECKED
    cycles = [first.completed, bind.completed, younger.completed]
    assert None not in cycles
    assert cycles == sorted(cycles, key=lambda cycle: cycle or 0)
    assert younger.completion is not None
    assert younger.completion.entry.base == region.base, "it saw the window as it was bound"
    await env.finish()


@cocotb.test()
async def a_held_lookup_gets_its_turn(dut: Any) -> None:
    """One entry changes again and again; the other ports always have something to look up.

    A shared pipeline takes a lookup of four pages from each of two ports while one change lasts. A
    policy that drains holds the lookup back in one cycle of a change, and at one of the offsets
    that is the cycle in which the pipeline takes one of those two.
    """
    env = Environment(dut, dma_pause=(0, 0))
    await env.start()
    if env.config.ports < 3 or own.is_own(env.config.arbiter):
        return
    restless = shared_buffer(env.config, pages=3)
    calm = replace(restless, key=Key(9, 0), pages=4).moved(8, 0x200)
    await env.command(0, restless.register())
    await env.command(0, calm.register())
    change = replace(restless.reregister(restless), translations=0)
    for offset in range(PERIOD):
        for port in env.ports[1:3]:
            for _ in range(10):
                port.submit(calm.lookup(0, 4 * PAGE))
        await env.wait(offset)
        for _ in range(10):
            env.sources[0].submit(change)
        await env.wait(2 * PERIOD)
        held = env.ports[0].submit(restless.lookup(0, 64))
        await env.quiet()
        assert held.offered is not None
        assert held.admitted is not None
        assert held.admitted - held.offered <= 3 * PERIOD, (offset, held)
    await env.finish()


PERIOD = 8
"""Cycles from one change to the next, under a policy that drains."""
