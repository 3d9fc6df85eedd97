"""Anything, anywhere, at any time, for a long time."""

import random
from dataclasses import replace
from typing import Any

import cocotb

from sim.run import bench_parameters
from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.scenes import ALL_RIGHTS, PAGE
from tb.model.words import (
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

REGIONS = range(4)
WINDOWS = range(4, 7)
TRANSLATIONS = 8
"""Of each region; a re-registration moves between the two halves."""


@cocotb.test()
async def anything(dut: Any) -> None:
    """Three sources change a few entries that all ports look up; the model explains everything."""
    cycles = bench_parameters().get("cycles", 4000)
    env = Environment(dut, dma_pause=(0, 9))
    await env.start()
    dut._log.info(f"seed {cocotb.RANDOM_SEED}")
    sources = [cocotb.start_soon(_commands(env, source.number, cycles)) for source in env.sources]
    ports = [cocotb.start_soon(_lookups(env, port.number, cycles)) for port in env.ports]
    for task in (*sources, *ports):
        await task
    await env.finish()
    tally = env.scoreboard.tally
    dut._log.info(f"{tally.by_status} {tally.commands}")
    assert tally.by_status[LookupStatus.OK] > cycles // 20
    assert len(tally.commands) > 4


async def _commands(env: Environment, source: int, cycles: int) -> None:
    rng = env.fork_rng()
    agent = env.sources[source]
    table = env.scoreboard.table
    while env.cycle < cycles:
        agent.accepts = GENERATORS[rng.choice(list(GENERATORS))](env.fork_rng())
        index = rng.choice([*REGIONS, *WINDOWS])
        make = _region_command if index in REGIONS else _window_command
        command = make(rng, index, table.entries[index], table.entries)
        if rng.random() < 0.05:
            command = replace(command, key=Key(command.key.index, rng.randrange(256)))
        if rng.random() < 0.05:
            command = replace(command, pd=command.pd ^ 1)
        command = _with_noise(rng, command)
        await env.command(source, command)
        await env.wait(rng.choice([0, 0, 1, 5, rng.randrange(60)]))


_RUN = {"first_translation", "translations", "frame", "page_shift"}
_REGION = _RUN | {
    "rights",
    "remote_invalidate",
    "zero_based",
    "pd",
    "qpn",
    "base",
    "length",
    "offset",
}
_COUNTS: dict[Opcode, set[str]] = {
    Opcode.REGISTER: _REGION | {"kind"},
    Opcode.WRITE_TRANSLATION: _RUN,
    Opcode.LOCAL_INVALIDATE: {"pd"},
    Opcode.REMOTE_INVALIDATE: {"pd", "qpn", "header_valid"},
    Opcode.BIND: {"variant", "rights", "zero_based", "pd", "qpn", "base", "length", "parent"},
    Opcode.REREGISTER: _REGION | {"variant"},
    Opcode.DEREGISTER: set(),
    Opcode.QUERY: set(),
}
"""The fields that count for an opcode, besides the opcode and the key."""

_WINDOW = {"kind", "remote_invalidate", "pd", "qpn"}
"""Those that count for the registration of a window."""


def _with_noise(rng: random.Random, command: Command) -> Command:
    """The same command with anything in the fields that don't count for it."""
    counts = _COUNTS[Opcode(command.opcode)]
    if command.opcode is Opcode.REGISTER and command.kind is not EntryKind.REGION:
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


def _region_command(rng: random.Random, index: int, entry: Entry, entries: list[Entry]) -> Command:
    half = TRANSLATIONS // 2
    lower = index * TRANSLATIONS
    other = lower + half if entry.first_translation == lower else lower
    pages = rng.randint(1, half)
    offset = rng.randrange(PAGE)
    length = rng.randint(1, pages * PAGE - offset)
    fresh = Command(
        Opcode.REGISTER,
        Key(index, rng.randrange(4)),
        variant=rng.randrange(4),
        rights=rng.choice([ALL_RIGHTS, ALL_RIGHTS, Rights(rng.randrange(32))]),
        remote_invalidate=rng.random() < 0.8,
        pd=1,
        base=rng.randrange(2**20) * 8,
        length=length,
        offset=offset,
        first_translation=other,
        translations=-(-(offset + length) // PAGE),
        frame=rng.randrange(2**40),
    )
    if entry.state is EntryState.VALID:
        change = rng.choice(
            [
                Opcode.DEREGISTER,
                Opcode.LOCAL_INVALIDATE,
                Opcode.REMOTE_INVALIDATE,
                Opcode.REREGISTER,
                Opcode.QUERY,
            ]
        )
        if change is Opcode.REREGISTER:
            return replace(fresh, opcode=change)
        return Command(
            change, Key(index, entry.variant), pd=entry.pd, header_valid=rng.random() < 0.9
        )
    if rng.random() < 0.1:
        return Command(rng.choice(list(Opcode)), Key(index, entry.variant), pd=1)
    return fresh


def _window_command(rng: random.Random, index: int, entry: Entry, entries: list[Entry]) -> Command:
    key = Key(index, entry.variant)
    if entry.state is EntryState.INVALID:
        kind = rng.choice([EntryKind.WINDOW_1, EntryKind.WINDOW_2A])
        return Command(
            Opcode.REGISTER, Key(index, 0), kind=kind, pd=1, remote_invalidate=rng.random() < 0.8
        )
    choice = rng.random()
    if choice < 0.1:
        return Command(Opcode.DEREGISTER, key)
    if entry.state is EntryState.VALID and choice < 0.4:
        return Command(
            rng.choice([Opcode.LOCAL_INVALIDATE, Opcode.REMOTE_INVALIDATE]), key, pd=entry.pd
        )
    parent = rng.choice(REGIONS)
    region = entries[parent]
    size = max(1, region.limit - region.base)
    start = rng.randrange(size)
    return Command(
        Opcode.BIND,
        key,
        variant=rng.randrange(4),
        rights=Rights.REMOTE_READ | Rights.REMOTE_WRITE,
        pd=entry.pd,
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
            index = rng.choice([*REGIONS, *WINDOWS])
            entry = entries[index]
            size = max(1, entry.limit - entry.base)
            start = rng.randrange(size)
            length = rng.choice([0, 8, rng.randint(1, size - start), size - start])
            port.submit(
                Lookup(
                    Key(index, entry.variant if rng.random() < 0.9 else rng.randrange(4)),
                    1,
                    0,
                    entry.rights & Rights(rng.randrange(8)),
                    entry.base + start,
                    length,
                )
            )
        while not port.idle and env.cycle < cycles:
            await env.wait(rng.randrange(1, 20))
