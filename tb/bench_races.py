"""An entry changes while lookups of it are in flight, at every offset."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cocotb
from cocotb.task import Task

from rtl.config import OnWrap, TableConfig
from rtl.monitor import Guarantee
from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.queue_pair import QueuePair
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import PAGE, Buffer, shared_buffer
from tb.bench_readers import FIRST_BEAT, REPLAYED
from tb.model.words import Command, CommandStatus, EntryKind, Key, LookupStatus, Opcode

DMA_PAUSE = (4, 4)
"""Long enough that a DMA engine still has beats to issue when nobody waits for it."""

LIFE = 40
"""More cycles than a lookup of three pages lives, from its offer to its retirement."""


@cocotb.test()
async def deregister_at_every_offset(dut: Any) -> None:
    """A deregistration in each cycle of the life of a lookup, and somebody else moves in at once.

    The directed control, too: what the policy doesn't declare and :func:`_shown` lists must be seen
    violated here. Torn and stale answers take slow consumers (where every beat is taken at once, a
    walk outruns even a removal that nobody holds back), stale DMA takes fast ones (else it is over
    before the answer).
    """
    env = Environment(dut, DMA_PAUSE)
    await env.start()
    old = shared_buffer(env.config, pages=3)
    frames = itertools.count(0x2000, 16)
    for accepts, offset in itertools.product(["always", "rarely"], range(-6, LIFE)):
        new = replace(old, key=Key(old.key.index, 0x77)).moved(0, next(frames))
        await _race(env, accepts, old, offset, [(0, old.deregister()), (0, new.register())])
        await env.command(0, new.deregister())
    violated = await env.finish()
    missing = _shown(env.config) - env.declared - violated
    assert not missing, f"nothing violated {sorted(missing)}, which {env.config.arbiter} permits"


def _shown(config: TableConfig) -> frozenset[Guarantee]:
    """What the scene shows violated under a policy that doesn't declare it.

    It has lookups of one entry only, and changes one at a time, so what concerns other entries
    can't be seen, and no version comes round again while a lookup lives.
    """
    fresh = {Guarantee.UNTORN, Guarantee.FRESH_ANSWER, Guarantee.FRESH_DMA}
    if config.arbiter == "version_check" and config.on_wrap is OnWrap.IGNORE:
        fresh.clear()
    return frozenset(fresh | {Guarantee.LOOKUP_NEVER_WAITS, Guarantee.LOSSLESS})


@cocotb.test()
@cocotb.parametrize(accepts=["always", "half"])
async def invalidate_at_every_offset(dut: Any, accepts: str) -> None:
    """An invalidate in each cycle of the life of a lookup, then the same key on other pages.

    With fast consumers it is a local one, with slow ones a remote one.
    """
    env = Environment(dut, DMA_PAUSE)
    await env.start()
    old = shared_buffer(env.config, pages=3)
    for offset in range(-6, LIFE):
        new = old.moved(0, 0x2000 + 16 * offset + 256)
        remote = accepts != "always"
        invalidate = old.remote_invalidate() if remote else old.local_invalidate()
        source = 2 if remote else 1
        await _race(
            env,
            accepts,
            old,
            offset,
            [(source, invalidate), (source, new.fast_register())],
        )
        await env.command(0, new.deregister())
    await env.finish()


@cocotb.test()
async def reregister_at_every_offset(dut: Any) -> None:
    """A re-registration on other translations in each cycle of the life of a lookup."""
    env = Environment(dut, DMA_PAUSE)
    await env.start()
    old = shared_buffer(env.config, pages=3)
    for offset in range(-6, LIFE):
        new = old.moved(8, 0x2000 + 16 * offset + 256)
        await _race(env, "always", old, offset, [(0, old.reregister(new))])
        await env.command(0, new.deregister())
    await env.finish()


@cocotb.test()
async def rebind_at_every_offset(dut: Any) -> None:
    """A window moves to another part of its region in each cycle of the life of a lookup."""
    env = Environment(dut, DMA_PAUSE)
    await env.start()
    region = shared_buffer(env.config, pages=8)
    await env.command(0, region.register())
    window = replace(region, key=Key(9, 0), pages=3)
    await env.command(0, window.window(EntryKind.WINDOW_1))
    await env.command(1, window.bind(region, variant=1))
    for offset in range(-6, LIFE):
        bound = window.renamed(offset + 7)
        moved = [(1, bound.bind(region, variant=offset + 8, first_page=(offset + 7) % 2))]
        await _collide(env, "always", bound, offset, moved)
    await env.finish()


async def _race(
    env: Environment,
    accepts: str,
    buffer: Buffer,
    offset: int,
    commands: list[tuple[int, Command]],
) -> None:
    """Registers a buffer, and lets lookups of it meet commands."""
    await env.command(0, buffer.register())
    await _collide(env, accepts, buffer, offset, commands)


async def _collide(
    env: Environment,
    accepts: str,
    buffer: Buffer,
    offset: int,
    commands: list[tuple[int, Command]],
) -> None:
    """Offers lookups on some ports, and ``offset`` cycles later (or earlier) the first command.

    The lookups are one cycle apart. Each later command follows as soon as its source can take it.
    """

    rng = random.Random(f"{offset} {accepts}")
    ports = rng.sample(env.ports, rng.randint(1, len(env.ports)))
    pages = rng.choice([1, 3])

    async def look_up() -> None:
        for port in ports:
            port.accepts = GENERATORS[accepts](env.fork_rng())
            port.submit(buffer.lookup(100, pages * PAGE - 200))
            await env.wait(1)

    async def change() -> None:
        for source, command in commands:
            env.sources[source].submit(command)

    first, second = (look_up, change) if offset >= 0 else (change, look_up)
    task = cocotb.start_soon(first())
    await env.wait(abs(offset))
    await second()
    await task
    await env.quiet()


@cocotb.test()
async def two_changes_in_one_cycle(dut: Any) -> None:
    """The responder invalidates the entry that the host deregisters, at every distance."""
    env = Environment(dut)
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    sources = itertools.permutations(range(3), 2)
    changes = {0: buffer.deregister, 1: buffer.local_invalidate, 2: buffer.remote_invalidate}
    for (first, second), distance in itertools.product(sources, range(12)):
        await env.command(0, buffer.register())
        for port in env.ports:
            port.submit(buffer.lookup(100, 3 * PAGE - 200))
        await env.wait(2)
        requests = [env.sources[first].submit(changes[first]())]
        await env.wait(distance)
        requests.append(env.sources[second].submit(changes[second]()))
        await env.quiet()
        statuses = [r.completion.status for r in requests if r.completion is not None]
        # Who comes second finds the entry FREE, or finds nobody.
        first_done = min(requests, key=lambda r: r.completed or 0)
        assert first_done.completion is not None
        assert first_done.completion.status is CommandStatus.OK, statuses
        await env.command(0, buffer.deregister())
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
async def all_ports_agree_on_the_apply(dut: Any) -> None:
    """All ports look the entry up in the same cycles around an apply, and see the same entry."""
    env = Environment(dut)
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    for offset in range(16):
        await env.command(0, buffer.register())
        change = env.sources[0].submit(buffer.deregister())
        requests: list[LookupRequest] = []
        await env.wait(offset)
        for port in env.ports:
            requests.append(port.submit(buffer.lookup(0, 64)))
        await env.quiet()
        _agree(env, change, requests)
    await env.finish()


def _agree(env: Environment, change: CommandRequest, requests: list[LookupRequest]) -> None:
    assert change.applied is not None
    for request in requests:
        if request.status is LookupStatus.RETRY:
            continue
        assert request.admitted is not None
        read_old = request.admitted <= change.applied
        saw_old = request.status in (LookupStatus.OK, LookupStatus.NO_TRANSLATION)
        if request.status is LookupStatus.ABORTED:
            assert read_old, (change, request)
        elif read_old and not saw_old:
            # It was replayed, which takes its time.
            assert env.policy.replays, (change, request)
            assert request.finished >= request.admitted + FIRST_BEAT + REPLAYED, (change, request)
        else:
            assert saw_old == read_old, (change, request)


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
