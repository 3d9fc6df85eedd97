"""Anything, anywhere, at any time, for a long time."""

import random
from dataclasses import replace
from typing import Any

import cocotb

from sim.run import bench_parameters
from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.scenes import ALL_RIGHTS, PAGE
from tb.model.allocator import STRUCTURAL, Allocator
from tb.model.words import (
    COUNTS,
    Command,
    Entry,
    EntryKind,
    EntryState,
    Key,
    Lookup,
    LookupStatus,
    Opcode,
    Rights,
)

INDICES = range(7)
TRANSLATIONS = range(24)
"""Few, so that what somebody gives up is what somebody else is waiting for."""

PAGES = 4
"""Most pages of a region."""

QPNS = (5, 6)

MANY = 50
"""Answers with bytes, at least, or the run was about something else."""

SOON = 3
"""Cycles within which what came back is given out again, at least once in a run."""


@cocotb.test()
async def anything(dut: Any) -> None:
    """Three sources change a few entries that all ports look up; the model explains everything."""
    cycles = bench_parameters().get("cycles", 2000)
    env = Environment(dut, dma_pause=(0, 9))
    await env.start()
    dut._log.info(f"seed {cocotb.RANDOM_SEED}")
    host = Host(env)
    sources = [
        cocotb.start_soon(_commands(env, host, source.number, cycles)) for source in env.sources
    ]
    ports = [cocotb.start_soon(_lookups(env, port.number, cycles)) for port in env.ports]
    for task in (*sources, *ports):
        await task
    await env.finish()
    tally = env.scoreboard.tally
    dut._log.info(f"{tally.by_status} {tally.commands}")
    assert tally.by_status[LookupStatus.OK] > MANY
    assert len(tally.commands) > 4
    assert host.soonest <= SOON


class Host:
    """Gives out what entries are made of, and thinks of commands to them.

    Parameters
    ----------
    env : Environment

    Members
    -------
    soonest : int
        Fewest cycles between the C of a command and the next one that makes something at its index.
    """

    def __init__(self, env: Environment):
        self._env = env
        self._allocator = Allocator(INDICES, TRANSLATIONS)
        self._ended: dict[int, int] = {}
        self.soonest = 2**32

    async def do_something(self, source: int, rng: random.Random) -> None:
        """One command, from the thought to its completion."""
        command = (rng.random() < 0.3 and self._make(rng)) or self._change(rng)
        if command is None:
            return
        structural = command.opcode in STRUCTURAL
        if rng.random() < 0.05:
            command = replace(command, key=Key(command.key.index, rng.randrange(256)))
        if rng.random() < 0.05:
            command = replace(command, pd=command.pd ^ 1)
        if not structural and rng.random() < 0.05:
            command = replace(command, qpn=rng.choice(QPNS))
        request = await self._env.command(source, _with_noise(rng, command))
        assert request.completion is not None
        if structural:
            self._allocator.completed(command, request.completion)
        if command.opcode in (Opcode.DEREGISTER, Opcode.DEALLOCATE):
            self._ended[command.key.index] = self._env.cycle

    def _make(self, rng: random.Random) -> Command | None:
        """Something new at an index of nobody."""
        index = self._allocator.take_index()
        if index is None:
            return None
        if index in self._ended:
            self.soonest = min(self.soonest, self._env.cycle - self._ended[index])
        kind = rng.choice([EntryKind.REGION] * 3 + list(EntryKind))
        allocate = Command(
            Opcode.ALLOCATE,
            Key(index, rng.randrange(4)),
            kind=kind,
            pd=1,
            qpn=rng.choice(QPNS),
            remote_invalidate=rng.random() < 0.8,
        )
        if kind is not EntryKind.REGION:
            return allocate
        run = self._allocator.take_translations(index, rng.randint(1, PAGES))
        if run is None:
            self._allocator.let_go(index)
            return None
        if rng.random() < 0.5:
            return replace(allocate, first_translation=run.start, translations=len(run))
        return _region(rng, Opcode.REGISTER, index, run, len(run))

    def _change(self, rng: random.Random) -> Command | None:
        """Something with what is there."""
        if not self._allocator.owned:
            return None
        entries = self._env.scoreboard.table.entries
        index = rng.choice(list(self._allocator.owned))
        entry = entries[index]
        if rng.random() < 0.05:
            harmless = [opcode for opcode in Opcode if opcode not in STRUCTURAL]
            return Command(rng.choice(harmless), Key(index, entry.variant), pd=1)
        ends = entry.state is EntryState.FREE and rng.random() < 0.1
        if index in self._allocator.idle and (ends or rng.random() < 0.25):
            return self._move_or_end(rng, index, entry)
        if entry.is_window:
            return _window_command(rng, index, entry, entries)
        if entry.state is EntryState.FREE:
            run = self._allocator.owned[index]
            if rng.random() < 0.1:
                run = range(run.start + rng.randrange(2), run.stop + 1)
            pages = rng.randint(1, len(run))
            return _region(rng, Opcode.FAST_REGISTER, index, run, pages)
        invalidates = [Opcode.LOCAL_INVALIDATE, Opcode.REMOTE_INVALIDATE]
        return Command(
            rng.choice([*invalidates, Opcode.QUERY]),
            Key(index, entry.variant),
            pd=entry.pd,
            header_valid=rng.random() < 0.9,
        )

    def _move_or_end(self, rng: random.Random, index: int, entry: Entry) -> Command:
        self._allocator.hold(index)
        if entry.is_window:
            return Command(Opcode.DEALLOCATE, Key(index))
        if rng.random() < 0.5:
            return Command(Opcode.DEREGISTER, Key(index))
        pages = rng.randint(1, PAGES)
        run = self._allocator.take_translations(index, pages) if rng.random() < 0.7 else None
        if run is not None:
            return _region(rng, Opcode.REREGISTER, index, run, pages)
        owned = self._allocator.owned[index]
        stays = _region(rng, Opcode.REREGISTER, index, owned, rng.randint(1, len(owned)))
        return replace(stays, translations=0)


async def _commands(env: Environment, host: Host, source: int, cycles: int) -> None:
    rng = env.fork_rng()
    agent = env.sources[source]
    while env.cycle < cycles:
        agent.accepts = GENERATORS[rng.choice(list(GENERATORS))](env.fork_rng())
        await host.do_something(source, rng)
        await env.wait(rng.choice([1, 1, 1, 5, rng.randrange(60)]))


_WINDOW = frozenset({"kind", "remote_invalidate", "pd", "qpn"})
"""Those that count for the allocation of a window."""


def _with_noise(rng: random.Random, command: Command) -> Command:
    """The same command with anything in the fields that don't count for it."""
    counts = COUNTS[Opcode(command.opcode)]
    if command.opcode is Opcode.ALLOCATE and command.kind is not EntryKind.REGION:
        counts = _WINDOW
    anything: dict[str, Any] = {
        "variant": rng.randrange(2**8),
        "kind": rng.choice(list(EntryKind)),
        "rights": Rights(rng.randrange(2**5)),
        "remote_invalidate": rng.random() < 0.5,
        "zero_based": rng.random() < 0.5,
        "header_valid": rng.random() < 0.5,
        "pd": rng.randrange(2**24),
        "qpn": rng.randrange(2**24),
        "base": rng.randrange(2**64),
        "length": rng.randrange(2**65),
        "page_shift": rng.randrange(2**5),
        "offset": rng.randrange(2**31),
        "first_translation": rng.randrange(32),
        "translations": rng.randrange(8),
        "frame": rng.randrange(2**40),
        "parent": Key(rng.randrange(2**24), rng.randrange(2**8)),
    }
    return replace(command, **{name: v for name, v in anything.items() if name not in counts})


def _region(rng: random.Random, opcode: Opcode, index: int, run: range, pages: int) -> Command:
    """A region that needs so many pages, on a run of translations."""
    offset = rng.randrange(PAGE)
    length = rng.randint((pages - 1) * PAGE + 1, pages * PAGE) - offset
    if length <= 0:
        offset, length = 0, PAGE
    return Command(
        opcode,
        Key(index, rng.randrange(4)),
        variant=rng.randrange(4),
        rights=rng.choice([ALL_RIGHTS, ALL_RIGHTS, Rights(rng.randrange(32))]),
        remote_invalidate=rng.random() < 0.8,
        zero_based=rng.random() < 0.2,
        pd=1,
        base=rng.randrange(2**20) * 8,
        length=length,
        offset=offset,
        first_translation=run.start,
        translations=pages,
        frame=rng.randrange(2**40),
    )


def _window_command(rng: random.Random, index: int, entry: Entry, entries: list[Entry]) -> Command:
    key = Key(index, entry.variant)
    if entry.state is EntryState.VALID and rng.random() < 0.35:
        return Command(
            rng.choice([Opcode.LOCAL_INVALIDATE, Opcode.REMOTE_INVALIDATE]),
            key,
            pd=entry.pd,
            qpn=entry.qpn,
            header_valid=rng.random() < 0.9,
        )
    # Of most, the region could be one.
    regions = [i for i in INDICES if entries[i].state is EntryState.VALID]
    parent = rng.choice(regions if regions and rng.random() < 0.95 else INDICES)
    region = entries[parent]
    size = max(1, region.limit - region.base)
    start = rng.randrange(size)
    zero_based = rng.random() < (0.05 if entry.kind is EntryKind.WINDOW_1 else 0.3)
    return Command(
        Opcode.BIND,
        key,
        variant=rng.randrange(4),
        rights=Rights.REMOTE_READ | Rights.REMOTE_WRITE,
        zero_based=zero_based,
        pd=entry.pd,
        qpn=rng.choice(QPNS),
        base=region.base + start,
        length=rng.randint(0, size - start),
        parent=Key(parent, region.variant),
    )


async def _lookups(env: Environment, number: int, cycles: int) -> None:
    rng = env.fork_rng()
    port = env.ports[number]
    entries = env.scoreboard.table.entries
    while env.cycle < cycles:
        port.offers = GENERATORS[rng.choice(list(GENERATORS))](env.fork_rng())
        port.accepts = GENERATORS[rng.choice(list(GENERATORS))](env.fork_rng())
        for _ in range(rng.randrange(20)):
            usable = [i for i in INDICES if entries[i].state is EntryState.VALID]
            index = rng.choice(usable if usable and rng.random() < 0.8 else INDICES)
            entry = entries[index]
            size = max(1, entry.limit - entry.base)
            start = rng.randrange(size)
            length = rng.choice([0, 8, rng.randint(1, size - start), size - start])
            port.submit(
                Lookup(
                    Key(index, entry.variant if rng.random() < 0.9 else rng.randrange(4)),
                    1,
                    entry.qpn if rng.random() < 0.9 else rng.choice(QPNS),
                    entry.rights & Rights(rng.randrange(8)),
                    entry.base + start,
                    length,
                )
            )
        while not port.idle and env.cycle < cycles:
            await env.wait(rng.randrange(1, 20))
