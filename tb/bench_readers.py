"""Many readers on one entry, and nothing that changes it."""

import itertools
import random
from dataclasses import replace
from typing import Any

import cocotb

from rtl.config import ReadStructure
from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.queue_pair import QueuePair
from tb.agents.scenes import ALL_RIGHTS, PAGE, Buffer, shared_buffer
from tb.model.words import Command, EntryKind, Key, Lookup, LookupStatus, Opcode, Rights

FIRST_BEAT = 3
"""Cycles from admission to the first beat."""

REPLAYED = 4
"""Cycles more for a lookup that is replayed once."""


@cocotb.test()
@cocotb.parametrize(
    offers=["always", "half", "bursts"],
    accepts=["always", "half", "rarely", "bursts"],
)
async def many_readers(dut: Any, offers: str, accepts: str) -> None:
    """Every answer is right, whoever is slow."""
    env = Environment(dut)
    await env.start()
    buffer = shared_buffer(env.config)
    await env.command(0, buffer.register())
    for port in env.ports:
        port.offers = GENERATORS[offers](env.fork_rng())
        port.accepts = GENERATORS[accepts](env.fork_rng())
    rng = env.fork_rng()
    pairs = [QueuePair(env, number, number % len(env.ports)) for number in range(24)]
    tasks = [
        cocotb.start_soon(pair.run([lambda: buffer.random_lookup(rng, 3)] * 6)) for pair in pairs
    ]
    for task in tasks:
        await task
    assert not await env.finish()
    assert env.scoreboard.tally.by_status == {LookupStatus.OK: 24 * 6}


@cocotb.test()
async def one_lookup_a_cycle(dut: Any) -> None:
    """With nobody slow, each pipeline takes one lookup and delivers one beat in every cycle."""
    env = Environment(dut)
    await env.start()
    buffer = shared_buffer(env.config)
    await env.command(0, buffer.register())
    count = 40
    # No more lookups than tags: it is the pipeline that is measured, not the DMA engine.
    shared = env.config.read_structure is ReadStructure.SERIALIZED
    lookups = min(count, env.config.tags)
    requests = [
        [port.submit(buffer.lookup(PAGE * (n % 8), 64)) for n in range(lookups)]
        for port in env.ports
    ]
    await env.quiet()
    admitted = sorted(r.admitted for r in itertools.chain(*requests))
    per_cycle = 1 if shared else len(env.ports)
    assert admitted == [admitted[0] + n // per_cycle for n in range(len(admitted))]
    delivered = sorted(r.finished for r in itertools.chain(*requests))
    assert delivered == [cycle + FIRST_BEAT for cycle in admitted]

    # A long walk: one page beat a cycle.
    request = await env.look_up(0, buffer.lookup(0, 8 * PAGE))
    assert request.admitted is not None
    cycles = [cycle for cycle, _ in request.beats]
    assert cycles == [request.admitted + FIRST_BEAT + n for n in range(8)]
    assert not await env.finish()


@cocotb.test()
async def every_status(dut: Any) -> None:
    """Each check fails where it should; the scoreboard compares with the model."""
    env = Environment(dut)
    await env.start()
    config = env.config
    buffer = shared_buffer(config)
    await env.command(0, replace(buffer.register(), translations=7, offset=24))
    await env.command(0, replace(_at(buffer, 6).register(), rights=Rights.REMOTE_READ))
    good = buffer.lookup(0, 64)
    edge = buffer.length
    asked = [
        good,
        replace(good, key=Key(config.entries, 0x11)),
        replace(good, key=Key(2**24 - 1, 0x11)),
        replace(good, key=Key(config.entries + buffer.key.index, 0x11)),
        replace(good, key=Key(buffer.key.index, 0x12)),
        replace(good, key=Key(buffer.key.index + 9, 0)),
        replace(good, pd=good.pd ^ 1),
        replace(good, qpn=77),
        replace(_at(buffer, 6).lookup(0, 64), rights=Rights.REMOTE_READ | Rights.REMOTE_WRITE),
        replace(good, address=buffer.base - 1),
        buffer.lookup(edge - 64, 64),
        buffer.lookup(edge - 64, 65),
        buffer.lookup(0, 2**32 - 1),
        replace(good, address=2**64 - 1, length=1),
        replace(good, address=2**64 - 1, length=2),
        replace(good, rights=Rights.REMOTE_ATOMIC, length=8),
        replace(good, rights=Rights.REMOTE_ATOMIC, length=8, address=buffer.base + 4),
        buffer.lookup(7 * PAGE, 16),
        buffer.lookup(6 * PAGE, PAGE + 16),
        buffer.lookup(0, 0),
        replace(good, length=0, key=Key(2**24 - 1, 0)),
        replace(good, length=0, rights=Rights(0)),
        replace(good, length=0, rights=Rights(0), key=Key(buffer.key.index, 0)),
        replace(good, length=0, rights=Rights.REMOTE_ATOMIC, key=Key(buffer.key.index, 0)),
    ]
    for place, lookup in enumerate(asked):
        await env.look_up(place % len(env.ports), lookup)
    assert not await env.finish()
    seen = set(env.scoreboard.tally.by_status)
    timeless = {s for s in LookupStatus if s.value <= LookupStatus.NO_TRANSLATION.value}
    assert seen == timeless - {LookupStatus.WRONG_QPN}, seen


@cocotb.test()
async def random_lookups(dut: Any) -> None:
    """Lookups of all kinds around the edges of entries of all kinds."""
    env = Environment(dut)
    await env.start()
    rng = env.fork_rng()
    config = env.config
    entries = []
    place = 0
    for index in range(min(8, config.entries)):
        shift = rng.choice([12, 13, 16, 21, 31])
        pages = rng.randint(1, 4)
        offset = rng.randrange(1 << shift)
        length = rng.randint(1, (pages << shift) - offset)
        command = Command(
            Opcode.REGISTER,
            Key(index, rng.randrange(256)),
            rights=Rights(rng.randrange(32)),
            pd=rng.randrange(2),
            base=rng.randrange(2**64 - length + 1),
            length=length,
            page_shift=shift,
            offset=offset,
            first_translation=place,
            translations=rng.randint(0, (offset + length - 1 >> shift) + 1),
            frame=rng.randrange(2**40) >> (shift - 12) << (shift - 12),
        )
        place += pages
        entries.append((command, (await env.command(0, command)).completion))
    for _ in range(400):
        command, _ = rng.choice(entries)
        # Around a boundary: of the entry, or of one of its pages.
        page = rng.randrange(4) << command.page_shift
        edge = rng.choice([0, command.length, page - command.offset, rng.randrange(command.length)])
        lookup = Lookup(
            Key(command.key.index, command.key.variant ^ (rng.random() < 0.05)),
            command.pd ^ (rng.random() < 0.05),
            0,
            command.rights & Rights(rng.randrange(32)) ^ Rights(rng.random() < 0.05),
            max(0, command.base + edge - rng.choice([0, 1, 8, 100])) % 2**64,
            rng.choice([0, 1, 8, 100, rng.randrange(20_000)]),
        )
        rng.choice(env.ports).submit(lookup)
    assert not await env.finish()
    assert env.scoreboard.tally.by_status[LookupStatus.OK] > 20


@cocotb.test()
async def tags_in_use(dut: Any) -> None:
    """A tag in flight is refused with its own status, and can be used again once it is back."""
    env = Environment(dut, dma_pause=(3, 3))
    await env.start()
    buffer = shared_buffer(env.config)
    await env.command(0, buffer.register())
    port = env.ports[-1]
    collisions = 0
    for distance in range(30):
        lookup = replace(buffer.lookup(0, 3 * PAGE), tag=1)
        first = port.submit(lookup, chooses_tag=True)
        await env.wait(distance)
        second = port.submit(lookup, chooses_tag=True)
        await env.quiet()
        assert first.status is LookupStatus.OK
        collisions += second.collides
    assert 5 < collisions < 28
    assert not await env.finish()


@cocotb.test()
async def windows(dut: Any) -> None:
    """A window answers as its region does, within its own bounds and rights."""
    env = Environment(dut)
    await env.start()
    region = shared_buffer(env.config)
    await env.command(0, replace(region.register(), offset=0x123, translations=0))
    pages = Command(
        Opcode.WRITE_TRANSLATION,
        region.key,
        first_translation=region.first_translation,
        translations=9,
        frame=region.frame,
    )
    # Translations belong to the next registration, so they come first.
    await env.command(0, region.deregister())
    await env.command(0, pages)
    await env.command(0, replace(region.register(), offset=0x123, translations=0))
    for kind in (EntryKind.WINDOW_1, EntryKind.WINDOW_2A, EntryKind.WINDOW_2B):
        window = replace(_at(region, 8 + kind.value), pages=3)
        await env.command(0, window.window(kind))
        await env.command(1, replace(window.bind(region, variant=0x44), base=region.base + 5000))
        for lookup in (
            replace(window.lookup(5000, 2 * PAGE), key=Key(window.key.index, 0x44)),
            replace(window.lookup(4999, 10), key=Key(window.key.index, 0x44)),
            replace(window.lookup(5000, 10), key=Key(window.key.index, 0x44), rights=ALL_RIGHTS),
            window.lookup(5000, 10),
        ):
            await env.look_up(0, lookup)
    assert not await env.finish()
    assert env.scoreboard.tally.by_status[LookupStatus.OK] == 3


@cocotb.test()
async def least_recently_used(dut: Any) -> None:
    """The victim of a set is the way whose last use is longest ago, failures not counted."""
    env = Environment(dut)
    await env.start()
    config = env.config
    rng = env.fork_rng()
    order = {s: list(range(config.ways)) for s in range(config.sets)}
    buffers = {}
    for index in range(min(config.entries, config.translations // 2)):
        buffers[index] = Buffer(Key(index, 0), 1, index * PAGE, 1, index, index)
        await env.command(0, buffers[index].register())

    def move(index: int, place: int) -> None:
        ways = order[index % config.sets]
        ways.remove(index // config.sets)
        ways.insert(place if place >= 0 else len(ways), index // config.sets)

    for _ in range(60):
        requests = []
        for port in env.ports:
            index = rng.choice(list(buffers))
            fails = rng.random() < 0.2
            buffer = buffers[index]
            requests.append(port.submit(buffer.lookup(0, PAGE + 1 if fails else 8)))
        await env.quiet()
        # Touches take effect by cycle, and in one cycle by port.
        for request in sorted(requests, key=lambda r: (r.finished, r.port)):
            if request.status is LookupStatus.OK:
                move(request.lookup.key.index, -1)
        if rng.random() < 0.3:
            index = rng.choice(list(buffers))
            await env.command(1, buffers[index].local_invalidate())
            await env.command(1, buffers[index].fast_register())
            move(index, 0)
        await _check_victims(env, order)
    assert not await env.finish()


async def _check_victims(env: Environment, order: dict[int, list[int]]) -> None:
    sets = random.Random(env.cycle).sample(sorted(order), min(4, len(order)))
    for s in sets:
        env.dut.victim__set.value = s
        await env.wait(2)
        victim = env.dut.victim__index.value.to_unsigned()
        assert victim == s + order[s][0] * env.config.sets, (s, victim, order[s])


def _at(buffer: Buffer, index: int) -> Buffer:
    """A buffer at another index, on translations of its own."""
    return replace(
        buffer,
        key=Key(index, buffer.key.variant),
        first_translation=buffer.first_translation + 10,
        frame=buffer.frame + 0x1000,
    )
