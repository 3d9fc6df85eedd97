"""Lookups against an entry that is taken away: a row of ``docs/races.md`` each, at every offset.

What a policy declares is held by the monitor and the scoreboard, in every bench. What is asserted
here comes on top: that the race took place, that the changes completed as they must, and what can
be told from the answers alone.
"""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import cocotb

from rtl.config import OnWrap
from rtl.monitor import Guarantee
from tb.agents.encounters import (
    DMA_PAUSE,
    EARLIEST,
    LIFE,
    PATIENCE,
    across,
    collide,
    epoch_of,
    is_met,
    new_frames,
    pages_reached,
    status_of,
)
from tb.agents.environment import Environment
from tb.agents.requests import CommandRequest, LookupRequest
from tb.agents.scenes import PAGE, shared_buffer
from tb.model.scoreboard import READ_BEFORE
from tb.model.words import CommandStatus, EntryKind, Key, LookupStatus

OK = CommandStatus.OK
OFFSETS = range(EARLIEST, LIFE)


def _shown(env: Environment, violated: frozenset[Guarantee], shown: Iterable[Guarantee]) -> None:
    """What the row is about and the policy doesn't declare must have been seen violated."""
    missing = frozenset(shown) - env.declared - violated
    if env.config.arbiter == "version_check" and env.config.on_wrap is OnWrap.IGNORE:
        # That goes wrong when a version comes round again while a lookup lives, as in R26.
        missing -= {Guarantee.UNTORN, Guarantee.FRESH_ANSWER, Guarantee.FRESH_DMA}
    assert not missing, f"nothing violated {sorted(missing)}, which {env.config.arbiter} permits"


@cocotb.test()
@cocotb.parametrize(accepts=["always", "half"])
async def r01_invalidate_in_flight(dut: Any, accepts: str) -> None:
    """An invalidate in each cycle of the life of long lookups, then the same key on other pages.

    With fast consumers it is a local one, with slow ones a remote one.
    """
    env = Environment(dut, DMA_PAUSE, PATIENCE)
    await env.start()
    old = shared_buffer(env.config, pages=3)
    met = 0
    for offset, frame in zip(OFFSETS, new_frames(), strict=False):
        await env.command(0, old.register())
        new = old.moved(0, frame)
        source = 1 if accepts == "always" else 2
        invalidate = old.local_invalidate() if source == 1 else old.remote_invalidate()
        meeting = await collide(
            env,
            offset,
            across(old, len(env.ports)),
            [(source, invalidate), (source, new.fast_register())],
            accepts,
        )
        assert meeting.statuses == [OK, OK]
        met += meeting.met
        completed = meeting.changes[0].completed
        assert completed is not None
        if Guarantee.FRESH_ANSWER in env.declared:
            late = [r for r in meeting.lookups if pages_reached(r, old, after=completed)]
            assert not late, f"old pages after C: {late}"
        await env.command(0, new.deregister())
    assert met > 3, met
    await env.finish()


@cocotb.test()
async def r02_invalidate_within_a_long_read(dut: Any) -> None:
    """Each port does a long READ as one lookup a page; the key is invalidated after some of them.

    Once a part fails, so do all that follow, and no slot is left taken. A READ has more parts than
    a port has tags, so that some of it comes late enough.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    parts = env.config.tags + 2
    buffer = shared_buffer(env.config, pages=parts)
    failed = 0
    for done, delay in itertools.product(range(parts + 1), range(0, 12, 3)):
        await env.command(0, buffer.register())
        reads = [
            [port.submit(buffer.lookup(part * PAGE, PAGE)) for part in range(parts)]
            for port in env.ports
        ]
        if done:
            await reads[-1][done - 1].done.wait()
        await env.wait(delay)
        change = await env.command(1, buffer.local_invalidate())
        await env.quiet()
        assert status_of(change) is OK
        for read in reads:
            passed = [part.status is LookupStatus.OK for part in read]
            assert passed == sorted(passed, reverse=True), read
            for part in read:
                epoch_of(env, part, [change], [LookupStatus.OK, LookupStatus.WRONG_STATE])
            failed += not passed[-1] and passed[0]
        assert [part.status for part in reads[-1][:done]] == [LookupStatus.OK] * done
        await env.wait(2)
        assert not dut.occupied.value.to_unsigned(), "in flight, and all is answered"
        await env.command(0, buffer.deregister())
    assert failed > 5, failed
    await env.finish()


@cocotb.test()
@cocotb.parametrize(kind=["WINDOW_1", "WINDOW_2A", "WINDOW_2B"])
async def r03_window_or_region_goes(dut: Any, kind: str) -> None:
    """A window is unbound, and its region deregistered, in each cycle of lookups through both.

    The region goes only once nothing is bound to it, and no lookup finds half of either.
    """
    env = Environment(dut, (0, 2), PATIENCE)
    await env.start()
    region = shared_buffer(env.config, pages=4)
    window = replace(region, key=Key(9, 0), pages=3)
    await env.command(0, window.window(EntryKind[kind]))
    ends = region.deregister()
    met = refused = 0
    for offset in range(EARLIEST, LIFE // 2):
        await env.command(0, region.register())
        await env.command(1, window.bind(region, variant=offset % 256, first_page=1))
        window = window.renamed(offset % 256)
        through = replace(window, base=region.base + PAGE)
        if kind == "WINDOW_1":
            unbind = replace(window.bind(region, variant=0), length=0)
        else:
            unbind = window.remote_invalidate() if offset % 2 else window.local_invalidate()
        meeting = await collide(
            env,
            offset,
            [*across(through, len(env.ports)), *across(region, len(env.ports))],
            [(0, ends), (1, unbind), (0, ends), (1, ends)],
        )
        first, unbound, *others = meeting.changes
        assert status_of(unbound) is OK
        (gone,) = (change for change in (first, *others) if status_of(change) is OK)
        assert gone.applied is not None
        assert unbound.applied is not None
        assert gone.applied > unbound.applied, "the region went before its window"
        met += meeting.met
        refused += status_of(first) is CommandStatus.WINDOWS_BOUND
        if Guarantee.UNTORN in env.declared:
            statuses = {r.status for r in meeting.lookups}
            assert LookupStatus.NO_TRANSLATION not in statuses, meeting.lookups
        if kind == "WINDOW_1":
            window = window.renamed(0)
    assert met > 3, met
    assert refused > 5 or kind == "WINDOW_1", refused
    await env.finish()


@cocotb.test()
@cocotb.parametrize(change=["local_invalidate", "remote_invalidate", "deregister"])
async def r11_ports_agree(dut: Any, change: str) -> None:
    """All ports look the entry up in the same cycle, and in the next, around an apply."""
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    over = LookupStatus.WRONG_STATE
    # An index of nobody has variant 0.
    over = LookupStatus.WRONG_VARIANT if change == "deregister" else over
    seen: set[int | None] = set()
    for offset in range(14):
        await env.command(0, buffer.register())
        request = env.sources[offset % 3].submit(getattr(buffer, change)())
        await env.wait(offset)
        lookups: list[LookupRequest] = []
        for _ in range(2):
            lookups += [port.submit(buffer.lookup(0, 64)) for port in env.ports]
            await env.wait(1)
        await env.quiet()
        assert status_of(request) is OK
        seen |= {epoch_of(env, lookup, [request], [LookupStatus.OK, over]) for lookup in lookups}
        await env.command(0, buffer.deregister())
    assert {0, 1} <= seen, seen
    await env.finish()


@cocotb.test()
async def r16_new_owner_meets_a_parked_lookup(dut: Any) -> None:
    """An index and its translations go to a new owner, with the same key, at once, while the last
    beats of a lookup of the old owner wait to be taken.
    """
    env = Environment(dut, DMA_PAUSE, PATIENCE)
    await env.start()
    old = shared_buffer(env.config, pages=3)
    parked = 0
    frames = new_frames()
    for taken, offset in itertools.product(range(3), range(10)):
        new = old.moved(0, next(frames))
        await env.command(0, old.register())
        port = env.ports[offset % len(env.ports)]
        request = port.submit(old.lookup(100, old.length - 200))
        # It takes so many beats, the first of which come at this time, and then no more for long.
        beats = itertools.chain([False] * 6, [True] * taken, [False] * 24)
        port.accepts = itertools.chain(beats, itertools.repeat(True))
        await env.wait(offset)
        changes = [env.sources[0].submit(c) for c in (old.deregister(), new.register())]
        await env.quiet()
        assert [status_of(change) for change in changes] == [OK, OK]
        parked += is_met(request, changes[0])
        if {Guarantee.UNTORN, Guarantee.FRESH_ANSWER} <= env.declared and _offered_before(
            request, changes[0]
        ):
            assert not pages_reached(request, new), f"the new owner's pages: {request}"
        await env.command(0, new.deregister())
    assert parked > 10, parked
    shown = {Guarantee.UNTORN, Guarantee.FRESH_ANSWER, Guarantee.LOSSLESS}
    _shown(env, await env.finish(), shown)


def _offered_before(lookup: LookupRequest, change: CommandRequest) -> bool:
    """Its first beat was offered when the change was applied: nothing is replayed any more."""
    assert lookup.admitted is not None
    assert change.applied is not None
    return lookup.admitted + READ_BEFORE < change.applied


@cocotb.test()
async def r25_teardown_meets_dma(dut: Any) -> None:
    """A deregistration in each cycle of the life of a lookup, until its DMA is over, and somebody
    else moves in at once.
    """
    env = Environment(dut, DMA_PAUSE, PATIENCE)
    await env.start()
    old = shared_buffer(env.config, pages=3)
    outstanding = 0
    for offset, frame in zip(OFFSETS, new_frames(), strict=False):
        await env.command(0, old.register())
        new = replace(old, key=Key(old.key.index, 0x77)).moved(0, frame)
        meeting = await collide(
            env, offset, across(old, len(env.ports)), [(0, old.deregister()), (0, new.register())]
        )
        assert meeting.statuses == [OK, OK]
        change = meeting.changes[0]
        assert change.requested is not None
        # An engine pauses before each beat, so it has some to issue for longer than this.
        outstanding += any(
            r.has_ok_beat and r.finished <= change.requested < r.finished + DMA_PAUSE[0]
            for r in meeting.lookups
        )
        await env.command(0, new.deregister())
    assert outstanding > 3, outstanding
    _shown(env, await env.finish(), {Guarantee.FRESH_DMA, Guarantee.LOOKUP_NEVER_WAITS})
