"""Benches for bins that nothing else reaches soon, always the same; run by `make coverage`."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cocotb

from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.scenes import ALL_RIGHTS, PAGE, Buffer, shared_buffer
from tb.model.words import (
    Command,
    CommandStatus,
    EntryKind,
    Key,
    Lookup,
    LookupStatus,
    Opcode,
    Rights,
)

HELD_BACK = 30
"""Cycles for which completions are held back, so that everything that can come to wait does."""


@cocotb.test()
async def together(dut: Any) -> None:
    """All sources give commands in one cycle, on the same entries or others, and wait."""
    env = Environment(dut)
    await env.start()
    rng = env.fork_rng()
    buffers = [
        replace(shared_buffer(env.config, index=i, pages=2)).moved(4 * i, 64 * i) for i in range(3)
    ]
    subsets = [s for size in (2, 3) for s in itertools.combinations(range(3), size)]
    for sources, names in itertools.product(subsets, ["AAA", "ABC", "AAB", "ABA", "ABB"]):
        for buffer in buffers:
            await env.command(0, buffer.register())
        chosen = [buffers["ABC".index(names[place])] for place in range(len(sources))]
        gates = [iter(_Closed()) for _ in sources]
        for source, gate in zip(sources, gates, strict=True):
            env.sources[source].accepts = gate
        for port in env.ports:
            port.submit(rng.choice(buffers).lookup(0, 2 * PAGE))
        await env.wait(rng.randrange(6))
        for source, buffer in zip(sources, chosen, strict=True):
            env.sources[source].submit(buffer.deregister())
        await env.wait(HELD_BACK)
        for gate in gates:
            gate.is_open = True
        await env.quiet()
        for buffer in buffers:
            await env.command(0, buffer.deregister())
    await env.finish()


class _Closed:
    """Takes nothing until it opens."""

    def __init__(self):
        self.is_open = False

    def __iter__(self) -> "_Closed":
        return self

    def __next__(self) -> bool:
        return self.is_open


@cocotb.test()
async def touches(dut: Any) -> None:
    """Entries are used in one cycle, and one of them or another ends in it."""
    env = Environment(dut, (0, 0))
    await env.start()
    sets = env.config.sets
    buffers = {
        index: Buffer(Key(index, 0), 1, index * PAGE, 1, index, index)
        for index in (1, 1 + sets, 2, 2 + sets)
    }
    for buffer in buffers.values():
        await env.command(0, buffer.register())
    ended = buffers[1]
    for used in itertools.product(buffers.values(), repeat=len(env.ports)):
        for port, buffer in zip(env.ports, used, strict=True):
            port.submit(buffer.lookup(0, 8))
        await env.quiet()
    neighbour, stranger = buffers[1 + sets], buffers[2]
    # A policy may wait for the lookups of the entry, so there are scenes without any, too.
    for order in ([ended, neighbour, stranger], [neighbour, neighbour, stranger]):
        await _touch_at_the_end(env, ended, order)
    await env.finish()


async def _touch_at_the_end(env: Environment, ended: Buffer, order: Sequence[Buffer]) -> None:
    """All ports use some entries, and in each cycle around that one entry ends."""
    for offset, turn in itertools.product(range(8), range(len(order))):
        change = env.sources[1].submit(ended.local_invalidate())
        await env.wait(offset)
        for port in env.ports:
            port.submit(order[(port.number + turn) % len(order)].lookup(0, 8))
        await change.done.wait()
        await env.quiet()
        await env.command(1, ended.fast_register())


OUT = CommandStatus.OUT_OF_BOUNDS


@cocotb.test()
async def statuses(dut: Any) -> None:
    """Every command fails by every rule of its own, and with an index outside the table."""
    env = Environment(dut)
    await env.start()
    Status = CommandStatus
    size, rows = env.config.entries, env.config.translations
    region = shared_buffer(env.config, pages=4)
    free = replace(region, key=Key(6, 0x11)).moved(8, 0x200)
    readable = replace(region, key=Key(7, 0x11)).moved(12, 0x300)
    unbindable = replace(region, key=Key(8, 0x11)).moved(20, 0x400)
    foreign = replace(region, key=Key(11, 0x11), pd=region.pd ^ 1, pages=2).moved(24, 0x500)
    based = replace(region, key=Key(14, 0x11), pages=2).moved(26, 0x600)
    window = replace(region, key=Key(9, 0x11), pages=2)
    bound = replace(window, key=Key(12, 0x11))
    unbound = replace(window, key=Key(13, 0x11))
    nobody = replace(region, key=Key(10, 0x11))
    outside = replace(region, key=Key(size, 0x11))
    for command in (
        region.register(),
        free.allocate(),
        replace(readable.register(), rights=Rights.BIND | Rights.REMOTE_READ),
        replace(unbindable.register(), rights=ALL_RIGHTS & ~Rights.BIND),
        foreign.register(),
        replace(based.register(), zero_based=True, remote_invalidate=False),
        window.window(EntryKind.WINDOW_1),
        bound.window(EntryKind.WINDOW_2B),
        bound.bind(region, variant=0x11, qpn=7),
        unbound.window(EntryKind.WINDOW_2A),
    ):
        await _complete(env, command, Status.OK)

    def strange(buffer: Buffer) -> Buffer:
        return buffer.renamed(0x12)

    def at(command: Command, buffer: Buffer) -> Command:
        return replace(command, key=buffer.key)

    bind = window.bind(region, variant=0)
    fast = free.fast_register()
    stays = replace(readable.reregister(readable), translations=0)
    writes = replace(region.register(), opcode=Opcode.WRITE_TRANSLATION, first_translation=16)
    remote = bound.remote_invalidate()
    for command, status in (
        *(
            (at(command, outside), Status.INDEX_OUT_OF_RANGE)
            for command in (
                region.register(),
                writes,
                region.local_invalidate(),
                region.remote_invalidate(),
                bind,
                region.reregister(region),
                region.deregister(),
                Command(Opcode.QUERY, region.key),
                region.allocate(),
                window.deallocate(),
                fast,
            )
        ),
        (Command(15, region.key), Status.UNKNOWN_OPCODE),
        (region.register(), Status.WRONG_STATE),
        (replace(nobody.register(), offset=PAGE), Status.BAD_PAGE),
        (replace(nobody.register(), base=2**64 - PAGE), OUT),
        (replace(writes, page_shift=11), Status.BAD_PAGE),
        (replace(writes, first_translation=rows - 1, translations=2), OUT),
        *(
            case
            for make in (Buffer.local_invalidate, Buffer.remote_invalidate)
            for case in (
                (make(nobody), Status.WRONG_STATE),
                (make(strange(region)), Status.WRONG_VARIANT),
                (make(window), Status.WRONG_KIND),
                (replace(make(region), pd=foreign.pd), Status.WRONG_PD),
                (make(region), Status.WINDOWS_BOUND),
                (make(free), Status.ALREADY_FREE),
            )
        ),
        (replace(remote, header_valid=False), Status.HEADER_INVALID),
        (replace(remote, qpn=8), Status.WRONG_QPN),
        (based.remote_invalidate(), Status.NOT_ENABLED),
        (at(bind, nobody), Status.WRONG_STATE),
        (at(bind, strange(window)), Status.WRONG_VARIANT),
        (at(bind, region), Status.WRONG_KIND),
        (at(bind, bound), Status.ALREADY_BOUND),
        (replace(bind, pd=foreign.pd), Status.WRONG_PD),
        (replace(at(bind, unbound), length=0), Status.ZERO_LENGTH),
        (replace(bind, zero_based=True), Status.ZERO_BASED),
        (replace(bind, parent=outside.key), Status.PARENT_OUT_OF_RANGE),
        (replace(bind, parent=free.key), Status.PARENT_STATE),
        (replace(bind, parent=strange(region).key), Status.PARENT_VARIANT),
        (replace(bind, parent=bound.key), Status.PARENT_KIND),
        (replace(bind, parent=foreign.key), Status.PARENT_PD),
        (replace(bind, parent=based.key), Status.PARENT_ZERO_BASED),
        (replace(bind, parent=unbindable.key), Status.BIND_NOT_ALLOWED),
        (replace(bind, parent=readable.key), Status.LOCAL_WRITE_MISSING),
        (replace(bind, length=region.length + 1), Status.OUTSIDE_PARENT),
        (free.reregister(free), Status.WRONG_STATE),
        (at(stays, window), Status.WRONG_KIND),
        (region.reregister(region), Status.WINDOWS_BOUND),
        (replace(stays, page_shift=13), Status.BAD_PAGE),
        (replace(stays, length=stays.length + PAGE), OUT),
        (readable.reregister(readable), Status.RANGE_IN_USE),
        (nobody.deregister(), Status.WRONG_STATE),
        (window.deregister(), Status.WRONG_KIND),
        (region.deregister(), Status.WINDOWS_BOUND),
        (region.allocate(), Status.WRONG_STATE),
        (replace(nobody.allocate(), first_translation=rows - 1), OUT),
        (nobody.deallocate(), Status.WRONG_STATE),
        (region.deallocate(), Status.WRONG_KIND),
        (at(fast, region), Status.WRONG_STATE),
        (at(fast, unbound), Status.WRONG_KIND),
        (replace(fast, pd=foreign.pd), Status.WRONG_PD),
        (replace(fast, page_shift=11), Status.BAD_PAGE),
        (replace(fast, first_translation=rows - 1), OUT),
        (replace(fast, first_translation=16), Status.RANGE_NOT_OWNED),
    ):
        await _complete(env, command, status)
    # And what succeeds, one after another.
    for command in (
        replace(writes, first_translation=28),
        replace(writes, translations=0),
        Command(Opcode.QUERY, region.key),
        stays,
        replace(remote, qpn=7),
        window.deallocate(),
        region.local_invalidate(),
        fast,
        region.deregister(),
    ):
        await _complete(env, command, Status.OK)
    await env.finish()


async def _complete(
    env: Environment, command: Command, status: CommandStatus, source: int = 0
) -> None:
    request = await env.command(source, command)
    assert request.completion is not None
    assert request.completion.status is status, request


@cocotb.test()
async def everywhere(dut: Any) -> None:
    """Every source changes every entry, every tag looks it up, every check fails on every port."""
    env = Environment(dut, (0, 0))
    await env.start()
    config = env.config
    buffer = shared_buffer(config, pages=1)
    for index, source in itertools.product(range(config.entries), range(len(env.sources))):
        here = replace(buffer, key=Key(index, 0))
        await _complete(env, here.register(), CommandStatus.OK, source)
        for port, tag in itertools.product(env.ports, range(config.tags)):
            port.submit(replace(here.lookup(0, 8), tag=tag), chooses_tag=True)
        await env.quiet()
        # So often that versions begin again.
        for _ in range(4):
            await _complete(env, here.local_invalidate(), CommandStatus.OK, source)
            await _complete(env, here.fast_register(), CommandStatus.OK, source)
        await _complete(env, here.deregister(), CommandStatus.OK, source)
    window = replace(buffer, key=Key(9, 0x11))
    for command in (
        replace(buffer.register(), length=2 * PAGE, translations=1),
        window.window(EntryKind.WINDOW_2B),
        window.bind(buffer, variant=0x11, qpn=7),
    ):
        await _complete(env, command, CommandStatus.OK)
    good = window.lookup(0, 8, qpn=7)
    atomic = replace(buffer.lookup(4, 8), rights=Rights.REMOTE_ATOMIC)
    for port, (lookup, status) in itertools.product(
        range(len(env.ports)),
        (
            (good, LookupStatus.OK),
            (replace(good, key=Key(config.entries, 0)), LookupStatus.INDEX_OUT_OF_RANGE),
            (replace(good, key=Key(9, 0x12)), LookupStatus.WRONG_VARIANT),
            (replace(good, key=Key(3, 0)), LookupStatus.WRONG_STATE),
            (replace(good, pd=good.pd ^ 1), LookupStatus.WRONG_PD),
            (replace(good, qpn=8), LookupStatus.WRONG_QPN),
            (replace(good, rights=Rights.REMOTE_ATOMIC), LookupStatus.RIGHTS_MISSING),
            (replace(good, length=PAGE + 1), LookupStatus.OUT_OF_BOUNDS),
            (atomic, LookupStatus.MISALIGNED),
            (buffer.lookup(PAGE, 8), LookupStatus.NO_TRANSLATION),
        ),
    ):
        assert (await env.look_up(port, lookup)).status is status, lookup
    await env.finish()


@cocotb.test()
async def a_range_is_awaited(dut: Any) -> None:
    """Each source writes translations that another one still has to give up."""
    env = Environment(dut, (4, 4))
    await env.start()
    old = shared_buffer(env.config, pages=3)
    new = replace(old, key=Key(9, 0x20), frame=0x9000)
    for source, distance in itertools.product(range(3), range(2, 12)):
        await env.command(0, old.register())
        for port in env.ports:
            port.submit(old.lookup(100, 3 * PAGE - 200))
        await env.wait(2)
        env.sources[(source + 1) % 3].submit(old.deregister())
        await env.wait(distance)
        later = env.sources[source].submit(new.register())
        await env.quiet()
        assert later.completion is not None
        assert later.completion.status is CommandStatus.OK
        await env.command(0, new.deregister())
        # Whoever was first had the range.
        await env.command(0, Command(Opcode.QUERY, old.key))
    await env.finish()


@cocotb.test()
async def wide_values(dut: Any) -> None:
    """Every bit of every field is high at times, and low at others."""
    env = Environment(dut, (0, 0))
    await env.start()
    rng = env.fork_rng()
    config = env.config
    for port in env.ports:
        # By the page, a lookup of some gigabytes would take a million cycles.
        port.dma.beat_bytes = 2**32
    for number in range(60):
        shift = rng.choice([12, rng.randrange(12, 32), 30, 31])
        pages = rng.randint(1, 5)
        offset = rng.randrange(1 << shift)
        length = rng.randint(1, (pages << shift) - offset)
        room = 2**64 - length
        base = room if number % 4 == 0 else rng.randrange(room + 1)
        key = Key(rng.randrange(config.entries), rng.randrange(256))
        needed = (offset + length - 1 >> shift) + 1
        region = Command(
            Opcode.REGISTER,
            key,
            rights=Rights(rng.randrange(32)) | Rights.REMOTE_WRITE,
            remote_invalidate=rng.random() < 0.5,
            zero_based=rng.random() < 0.2,
            pd=rng.randrange(2**24),
            qpn=rng.randrange(2**24),
            base=base,
            length=length,
            page_shift=shift,
            offset=offset,
            first_translation=rng.randrange(config.translations - needed + 1),
            translations=needed,
            frame=rng.randrange(2**40) >> (shift - 12) << (shift - 12),
        )
        source = rng.randrange(len(env.sources))
        await _complete(env, region, CommandStatus.OK, source)
        await _complete(env, Command(Opcode.QUERY, key), CommandStatus.OK, source)
        start = 0 if region.zero_based else base
        for port in env.ports:
            port.accepts = GENERATORS[rng.choice([*GENERATORS])](env.fork_rng())
            for _ in range(rng.randint(1, 3)):
                place = rng.choice([0, rng.randrange(length)])
                most = min(length - place, 2**32 - 1)
                asked = rng.choice([most, rng.randint(1, most)])
                address = start + place
                rights = Rights.REMOTE_WRITE
                port.submit(Lookup(key, region.pd, region.qpn, rights, address, asked))
            elsewhere = Key(rng.randrange(2**24), rng.randrange(256))
            port.submit(
                Lookup(
                    elsewhere,
                    pd=rng.randrange(2**24),
                    qpn=rng.randrange(2**24),
                    rights=Rights(rng.randrange(32)),
                    address=rng.randrange(2**64),
                    length=rng.randrange(2**32),
                )
            )
        # Nobody has such an index, so that nothing of all this is done.
        outside = Key(rng.randrange(config.entries, 2**24), rng.randrange(256))
        noise = Command(
            rng.choice(list(Opcode)),
            outside,
            variant=rng.randrange(256),
            kind=rng.choice(list(EntryKind)),
            rights=Rights(rng.randrange(32)),
            remote_invalidate=rng.random() < 0.5,
            zero_based=rng.random() < 0.5,
            header_valid=rng.random() < 0.5,
            pd=rng.randrange(2**24),
            qpn=rng.randrange(2**24),
            base=rng.randrange(2**64),
            length=rng.randrange(2**65),
            page_shift=rng.randrange(32),
            offset=rng.randrange(2**31),
            first_translation=rng.randrange(config.translations),
            translations=rng.randrange(2 * config.translations),
            frame=rng.randrange(2**40),
            parent=Key(rng.randrange(2**24), rng.randrange(256)),
        )
        if noise.opcode is not Opcode.REMOTE_INVALIDATE:
            await _complete(env, noise, CommandStatus.INDEX_OUT_OF_RANGE, source)
        # The lookups are still there when their entry changes, though not in what they see of it.
        stays = replace(region, opcode=Opcode.REREGISTER, variant=key.variant, translations=0)
        await _complete(env, stays, CommandStatus.OK, source)
        await env.quiet()
        for port in env.ports:
            for _ in range(2):
                twice = Lookup(key, region.pd, 0, Rights.REMOTE_WRITE, start, 1, tag=0)
                port.submit(twice, chooses_tag=True)
        await env.quiet()
        await _complete(env, Command(Opcode.DEREGISTER, key), CommandStatus.OK, source)
    whole = Command(Opcode.WRITE_TRANSLATION, Key(0, 0), translations=config.translations)
    await _complete(env, whole, CommandStatus.OK)
    await env.finish()
