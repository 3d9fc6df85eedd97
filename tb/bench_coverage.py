"""Scenes for the bins that nothing else reaches soon; run by `make coverage`."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cocotb

from rtl.config import OnPending
from sim.run import bench_parameters
from tb.agents.environment import Environment
from tb.agents.generators import GENERATORS
from tb.agents.ports import Port
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import ALL_RIGHTS, PAGE, Buffer, shared_buffer
from tb.coverage.bins import Bin, Company, Moment, Phase
from tb.coverage.unreachable import Where, reachable
from tb.model.words import (
    Command,
    CommandStatus,
    EntryKind,
    EntryState,
    Key,
    Lookup,
    LookupStatus,
    Opcode,
    Rights,
)

PAGES = 4
"""Pages of the entry that changes."""

PARKED = 14
"""Cycles after which lookups that are held up stand where they will stand."""

SCENES = 600
"""Most scenes for entries of one kind; what is left over then is left to the report."""

TRIES = 4
"""Scenes in which one bin is aimed at before another one is."""

HELD = 22
"""Cycles from the first command until the beat is taken that it waits for."""

PATIENCE = 30
"""Cycles that beats are held up for a command that doesn't come."""

STEP = 7
"""Cycles from the first command to the last of the beats that are taken before the rest."""

_FREE, _VALID, _INVALID = EntryState.FREE, EntryState.VALID, EntryState.INVALID

_WINDOW_2 = {
    _INVALID: {Opcode.ALLOCATE: _FREE},
    _FREE: {Opcode.BIND: _VALID, Opcode.DEALLOCATE: _INVALID},
    _VALID: {
        Opcode.LOCAL_INVALIDATE: _FREE,
        Opcode.REMOTE_INVALIDATE: _FREE,
        Opcode.DEALLOCATE: _INVALID,
    },
}

LIFE: Mapping[EntryKind, Mapping[EntryState, Mapping[Opcode, EntryState]]] = {
    EntryKind.REGION: {
        _INVALID: {Opcode.REGISTER: _VALID, Opcode.ALLOCATE: _FREE},
        _FREE: {Opcode.FAST_REGISTER: _VALID, Opcode.DEREGISTER: _INVALID},
        _VALID: {
            Opcode.DEREGISTER: _INVALID,
            Opcode.LOCAL_INVALIDATE: _FREE,
            Opcode.REMOTE_INVALIDATE: _FREE,
            Opcode.REREGISTER: _VALID,
        },
    },
    EntryKind.WINDOW_1: {
        _INVALID: {Opcode.ALLOCATE: _FREE},
        # It is VALID from the start, and of use once it is bound.
        _FREE: {Opcode.BIND: _VALID, Opcode.DEALLOCATE: _INVALID},
        _VALID: {Opcode.BIND: _VALID, Opcode.DEALLOCATE: _INVALID},
    },
    EntryKind.WINDOW_2A: _WINDOW_2,
    EntryKind.WINDOW_2B: _WINDOW_2,
}
"""What becomes of an entry of each kind in each state, by command. ``VALID`` stands for usable."""


def way(kind: EntryKind, start: EntryState, end: EntryState) -> list[Opcode]:
    """The fewest commands from one state to another."""
    ways: dict[EntryState, list[Opcode]] = {start: []}
    while end not in ways:
        for state, so_far in list(ways.items()):
            for opcode, then in LIFE[kind][state].items():
                ways.setdefault(then, [*so_far, opcode])
    return ways[end]


class Subject:
    """An entry that is changed again and again. Its key, PD and addresses are always the same.

    So a lookup is answered from the old entry, from the new one or from neither by its time alone.

    Parameters
    ----------
    env : Environment
    kind : EntryKind

    Members
    -------
    state : EntryState
        As :data:`LIFE` has it, after all commands so far.
    """

    def __init__(self, env: Environment, kind: EntryKind):
        self._env = env
        self._kind = kind
        self.state = _INVALID
        self._region = shared_buffer(env.config, pages=PAGES)
        self._window = replace(self._region, key=Key(9, 0x11))
        self._ranges = itertools.cycle([0, 8])
        self._frames = itertools.count(0x100, 16)
        self.index = (self._region if kind is EntryKind.REGION else self._window).key.index

    async def start(self) -> None:
        """Makes the region that windows need."""
        if self._kind is not EntryKind.REGION:
            await self._env.command(0, self._region.register())

    def lookup(self, pages: int) -> Lookup:
        """A lookup of so many pages. One of no bytes passes whatever the entry is."""
        buffer = self._region if self._kind is EntryKind.REGION else self._window
        return buffer.lookup(100, pages * PAGE - 200) if pages else buffer.lookup(0, 0)

    def change(self, opcode: Opcode) -> tuple[int, Command]:
        """The next command, and its source."""
        self.state = LIFE[self._kind][self.state][opcode]
        region, window = self._region, self._window
        if self._kind is not EntryKind.REGION:
            return {
                Opcode.ALLOCATE: lambda: (0, window.window(self._kind)),
                Opcode.DEALLOCATE: lambda: (0, window.deallocate()),
                Opcode.BIND: lambda: (1, window.bind(region, variant=window.key.variant)),
                Opcode.LOCAL_INVALIDATE: lambda: (1, window.local_invalidate()),
                Opcode.REMOTE_INVALIDATE: lambda: (2, window.remote_invalidate()),
            }[opcode]()
        if opcode in (Opcode.REGISTER, Opcode.ALLOCATE, Opcode.REREGISTER):
            self._region = region.moved(next(self._ranges), next(self._frames))
        return {
            Opcode.REGISTER: lambda: (0, self._region.register()),
            Opcode.ALLOCATE: lambda: (0, self._region.allocate()),
            Opcode.FAST_REGISTER: lambda: (1, region.fast_register()),
            Opcode.REREGISTER: lambda: (0, region.reregister(self._region)),
            Opcode.DEREGISTER: lambda: (0, region.deregister()),
            Opcode.LOCAL_INVALIDATE: lambda: (1, region.local_invalidate()),
            Opcode.REMOTE_INVALIDATE: lambda: (2, region.remote_invalidate()),
        }[opcode]()

    async def become(self, state: EntryState) -> None:
        """Goes to a state, and is quiet there."""
        for opcode in way(self._kind, self.state, state):
            await self._env.command(*self.change(opcode))


class Gate:
    """Takes beats of the first lookup that has not had its last, up to a number, until it opens.

    Parameters
    ----------
    port : Port
    beats : int
    """

    def __init__(self, port: Port, beats: int):
        self._port = port
        self.beats = beats
        self.is_open = False

    def __iter__(self) -> "Gate":
        return self

    def __next__(self) -> bool:
        head = next(iter(self._port.awaiting), None)
        taken = 0 if head is None else len(head.beats)
        return self.is_open or taken < self.beats


@dataclass(frozen=True)
class Scene:
    """How a command is made to meet lookups.

    Parameters
    ----------
    ports : sequence of int
        Where the racing lookups are offered, one after another.
    pages : int
    offset : int
        Cycles from the first lookup to the first command; the other way round if negative.
    blockers : int
        Lookups of another entry that are offered first on the first of the ports.
    beats : int, optional
        Beats of each port that are taken before the others are held up; without it all are.
    opens : int, optional
        Cycles from the first command until they are taken again; without it when the last command
        has been applied, or it has been waiting for some time.
    dma_pause : int
    keeper : bool
        Another lookup of the entry is in DMA before all that, on the first of the ports.
    holder : bool
        Another one is there on another port, and its beat is not taken for some time, so that a
        change which waits for it waits as long.
    step : bool
        The last of the ``beats`` is taken a few cycles after the first command, and not before.
    """

    ports: Sequence[int]
    pages: int
    offset: int
    blockers: int = 0
    beats: int | None = None
    opens: int | None = None
    dma_pause: int = 2
    keeper: bool = False
    holder: bool = False
    step: bool = False

    def moved(self, cycles: int) -> "Scene":
        """The same, with the command so many cycles later in the life of the lookup."""
        if self.opens is not None:
            return replace(self, opens=max(0, self.opens - cycles))
        return replace(self, offset=self.offset + cycles)


def stage(rng: random.Random, ports: int, target: Bin) -> Scene:
    """A scene in which a bin may be hit."""
    *_, phase, company = target
    first = rng.randrange(ports)
    chosen = [first]
    if company == Company.SAME_PORT:
        chosen.append(first)
    elif company == Company.OTHER_PORT:
        chosen.append((first + rng.randrange(1, ports)) % ports)
    some = Scene(chosen, pages=rng.choice([1, 3]), offset=rng.randrange(-8, 8))
    held = replace(some, offset=PARKED, beats=0)
    step = rng.random() < 0.5
    match phase:
        case Phase.WAITING if rng.random() < 0.5:
            return replace(held, blockers=rng.randrange(1, 5))
        case Phase.WAITING | Phase.REFUSED:
            late = replace(
                some,
                offset=-rng.randrange(24),
                blockers=rng.randrange(2),
                holder=rng.random() < 0.5,
            )
            if company == Company.SAME_PORT and rng.random() < 0.7:
                # What is in DMA is the company: another one before it would make A wait.
                return replace(late, ports=[first], keeper=True, blockers=0)
            return replace(late, keeper=rng.random() < 0.5)
        case Phase.READING:
            return replace(held, blockers=rng.randrange(3))
        case Phase.FIRST_OFFERED:
            return held
        case Phase.LATER_OFFERED:
            return replace(held, pages=PAGES, beats=rng.randrange(3), step=step)
        case Phase.BEAT_1:
            return replace(held, opens=10)
        case Phase.BEAT_2:
            return replace(held, opens=10, beats=1, pages=rng.randrange(2, PAGES), step=step)
        case Phase.BEAT_3:
            return replace(held, opens=10, beats=2, pages=PAGES, step=step)
        case Phase.DMA:
            return replace(some, pages=rng.randrange(2), offset=PARKED, dma_pause=25)
        case Phase.RETIRED:
            pause = rng.choice([8, 16])
            return replace(some, pages=rng.randrange(2), offset=PARKED, dma_pause=pause)
    return some


def shown(request: LookupRequest, phase: str) -> int | None:
    """The cycle of a phase that is there for a single one."""
    match phase:
        case Phase.ADMITTED | Phase.REFUSED:
            return request.admitted
        case Phase.RETIRED:
            return request.retired
        case Phase.BEAT_1 | Phase.BEAT_2 | Phase.BEAT_3:
            place = (Phase.BEAT_1, Phase.BEAT_2, Phase.BEAT_3).index(Phase(phase))
            return request.beats[place][0] if place < len(request.beats) else None
    return None


@cocotb.test()
@cocotb.parametrize(kind=[kind.name for kind in EntryKind])
async def races(dut: Any, kind: str) -> None:
    """Commands meet lookups of their entry in every phase; goes on until every bin was hit.

    A phase of one cycle is aimed at: how far off the last scene was says how to move the next.
    """
    env = Environment(dut)
    await env.start()
    assert env.sampler is not None
    rng = env.fork_rng()
    subject = Subject(env, EntryKind[kind])
    await subject.start()
    where = Where(env.config.arbiter, env.config.scope)
    before = {tuple(names) for names in bench_parameters().get("hit", [])}
    wanted = {names for names in reachable(where, "race") if names[1] == kind} - before
    if env.config.on_pending is OnPending.STALL:
        # Another run of the same policy does that.
        wanted = {names for names in wanted if names[3] != Phase.REFUSED}
    scenes = 0
    while scenes < SCENES and (left := sorted(wanted - env.sampler.hit("race"))):
        target = rng.choice(left)
        scene = stage(rng, len(env.ports), target)
        usable = rng.random() < 0.5
        for _ in range(TRIES):
            scenes += 1
            off = await _play(env, subject, target, scene, usable)
            if not off or target in env.sampler.hit("race"):
                break
            scene = scene.moved(off)
    dut._log.info(f"{scenes} scenes, left over: {sorted(wanted - env.sampler.hit('race'))}")
    await env.finish()


async def _play(
    env: Environment, subject: Subject, target: Bin, scene: Scene, usable: bool
) -> int | None:
    """Lets a command meet lookups; returns by how many cycles it came too early for the phase.

    If the entry is ``usable`` before, other commands may have to come right before this one.
    """
    assert env.sampler is not None
    opcode, kind, moment, phase, _ = target
    life = LIFE[EntryKind[kind]]
    starts = [state for state, changes in life.items() if Opcode[opcode] in changes]
    begin = EntryState.VALID if usable else starts[0]
    await subject.become(begin)
    to = min(starts, key=lambda state: len(way(EntryKind[kind], begin, state)))
    opcodes = [*way(EntryKind[kind], begin, to), Opcode[opcode]]
    if scene.keeper:
        env.ports[scene.ports[0]].dma.pause = lambda: 25
        # Of no bytes: so it passes also while the entry can't be used.
        await env.look_up(scene.ports[0], subject.lookup(0))
    gates = []
    for port in env.ports:
        port.dma.pause = lambda: scene.dma_pause
        port.accepts = gate = Gate(port, max(0, (scene.beats or 0) - scene.step))
        gate.is_open = scene.beats is None
        gates.append(gate)
    requests: list[LookupRequest] = []
    if scene.holder:
        other = next(port for port in range(len(env.ports)) if port not in scene.ports)
        gates[other].is_open = False
        env.ports[other].submit(subject.lookup(1))
        await env.wait(PARKED)

    async def let_go() -> None:
        await env.wait(HELD)
        for gate in gates:
            gate.is_open = True

    async def look_up() -> None:
        nobody = replace(subject.lookup(1), key=Key(subject.index ^ 1, 0))
        for _ in range(scene.blockers):
            env.ports[scene.ports[0]].submit(nobody)
        for port in scene.ports:
            requests.append(env.ports[port].submit(subject.lookup(scene.pages)))

    changes: list[CommandRequest] = []

    async def change() -> None:
        for opcode in opcodes:
            source, command = subject.change(opcode)
            if changes and changes[-1].source != source:
                await changes[-1].done.wait()
            changes.append(env.sources[source].submit(command))

    first, second = (look_up, change) if scene.offset >= 0 else (change, look_up)
    tasks = [cocotb.start_soon(first())]
    if scene.holder:
        tasks.append(cocotb.start_soon(let_go()))
    await env.wait(abs(scene.offset))
    tasks.append(cocotb.start_soon(second()))
    if scene.beats is not None:
        for waited in range(scene.opens or PATIENCE):
            if waited == STEP:
                for gate in gates:
                    gate.beats = scene.beats
            if scene.opens is None and len(changes) == len(opcodes) and changes[-1].applied:
                break
            await env.wait(1)
        for gate in gates:
            gate.is_open = True
    for task in tasks:
        await task
    await env.quiet()
    env.sampler.count()
    happened = changes[-1].requested if moment == Moment.R else changes[-1].applied
    # On the port of another, the one that comes later is the one in company at first.
    wished = shown(requests[-1 if phase in (Phase.ADMITTED, Phase.REFUSED) else 0], phase)
    return None if wished is None or happened is None else wished - happened


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
        await env.wait(PATIENCE)
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
