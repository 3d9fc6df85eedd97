"""Scenes in which a bin that is left may be hit, one after another; run by `make coverage`."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cocotb

from rtl.config import OnPending
from sim.run import bench_parameters
from tb.agents.environment import Environment
from tb.agents.ports import Port
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import PAGE, shared_buffer
from tb.coverage.bins import Bin, Company, Moment, Phase
from tb.coverage.unreachable import Where, reachable
from tb.model.words import Command, EntryKind, EntryState, Key, Lookup, Opcode

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
