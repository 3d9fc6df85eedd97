"""Lookups against an entry that becomes another: a row of ``docs/races.md`` each, at every offset.

As in ``bench_races.py``, monitor and scoreboard hold what the policy declares, and what is asserted
here comes on top.
"""

import itertools
from dataclasses import replace
from typing import Any

import cocotb

from rtl.monitor import Guarantee
from tb.agents.encounters import (
    EARLIEST,
    LIFE,
    PATIENCE,
    across,
    collide,
    epoch_of,
    new_frames,
    pages_reached,
    status_of,
)
from tb.agents.environment import Environment
from tb.agents.generators import Gate
from tb.agents.requests import CommandRequest
from tb.agents.scenes import PAGE, shared_buffer
from tb.model.words import CommandStatus, EntryKind, Key, LookupStatus

OK = CommandStatus.OK


@cocotb.test()
@cocotb.parametrize(change=["fast_register", "reregister", "rebind"])
async def r04_next_variant(dut: Any, change: str) -> None:
    """All ports look up a variant and the next one while the entry goes from one to the other.

    The old one passes up to the A that ends it, the new one after that which makes it.
    """
    env = Environment(dut, (0, 2), PATIENCE)
    await env.start()
    count = len(env.ports)
    region = shared_buffer(env.config, pages=3)
    window = replace(region, key=Key(9, 0))
    status = LookupStatus
    seen = {"old": 0, "new": 0}
    for offset in range(-20, 6):
        await env.command(0, region.register())
        old = region
        if change == "rebind":
            await env.command(0, window.window(EntryKind.WINDOW_1))
            old = window
            await env.command(1, window.bind(region, variant=old.key.variant))
        new = old.renamed(old.key.variant + 1)
        of_old = [status.OK, status.WRONG_VARIANT]
        of_new = [status.WRONG_VARIANT, status.OK]
        if change == "reregister":
            changes = [(0, replace(old.reregister(new), translations=0))]
        elif change == "rebind":
            changes = [(1, old.bind(region, variant=new.key.variant))]
        else:
            changes = [(1, old.local_invalidate()), (1, new.fast_register())]
            of_old.insert(1, status.WRONG_STATE)
            of_new.insert(1, status.WRONG_VARIANT)
        # Both in every cycle, if the ports can take them, and each port both of them.
        asked = [(old, new)[(n % count + n // count) % 2].lookup(0, 64) for n in range(6 * count)]
        meeting = await collide(env, offset, asked, changes)
        assert meeting.statuses == [OK] * len(changes)
        passed: dict[int, list[int]] = {old.key.variant: [], new.key.variant: []}
        for request in meeting.lookups:
            is_new = request.lookup.key == new.key
            epoch_of(env, request, meeting.changes, of_new if is_new else of_old)
            if request.status is status.OK:
                passed[request.lookup.key.variant].append(request.finished)
        olds, news = passed.values()
        if olds and news and not env.policy.replays:
            assert max(olds) < min(news), "both variants passed at a time"
        seen["old"] += bool(olds)
        seen["new"] += bool(news)
        if change == "rebind":
            await env.command(0, new.deallocate())
        await env.command(0, region.renamed(new.key.variant).deregister())
    assert all(count > 3 for count in seen.values()), seen
    await env.finish()


@cocotb.test()
@cocotb.parametrize(fenced=[True, False])
async def r20_back_to_back(dut: Any, fenced: bool) -> None:
    """A lookup, an invalidate, a registration of the next variant and a lookup of that, without a
    pause; with a fence the last one is given when the registration is complete.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    buffer = shared_buffer(env.config, pages=2)
    await env.command(0, buffer.register())
    status = LookupStatus
    epochs: set[int | None] = set()
    for turn in range(16):
        new = replace(buffer.moved(0, 0x2000 + 16 * turn)).renamed(buffer.key.variant + 1)
        before = [port.submit(buffer.lookup(100, 2 * PAGE - 200)) for port in env.ports]
        await env.wait(turn // 4)
        changes = [
            env.sources[1].submit(c) for c in (buffer.local_invalidate(), new.fast_register())
        ]
        if fenced:
            await changes[-1].done.wait()
        else:
            await env.wait(3 * turn)
        after = [port.submit(new.lookup(100, 2 * PAGE - 200)) for port in env.ports]
        await env.quiet()
        assert [status_of(change) for change in changes] == [OK, OK]
        for lookup in before:
            epoch_of(env, lookup, changes, [status.OK, status.WRONG_STATE, status.WRONG_VARIANT])
        for lookup in after:
            known = [status.WRONG_VARIANT, status.WRONG_VARIANT, status.OK]
            epochs.add(epoch_of(env, lookup, changes, known))
            if fenced:
                assert lookup.status is status.OK, lookup
                assert pages_reached(lookup, new) == 2, lookup
        buffer = new
    # Without a fence, some came too early.
    assert epochs == {2} if fenced else len(epochs) > 1 and 2 in epochs, epochs
    await env.finish()


@cocotb.test()
@cocotb.parametrize(sources=[1, 2])
async def r24_two_reregistrations(dut: Any, sources: int) -> None:
    """Two re-registrations on other translations, of one source or of two, in each cycle of long
    lookups: each lookup gets all of its pages from one of the three.
    """
    env = Environment(dut, (2, 2), PATIENCE)
    await env.start()
    frames = new_frames()
    met = middle = 0
    for offset in range(-20, 12):
        owners = [
            shared_buffer(env.config, pages=3).moved(8 * place, next(frames)) for place in range(3)
        ]
        first, second, third = owners
        await env.command(0, first.register())
        meeting = await collide(
            env,
            offset,
            across(first, len(env.ports)),
            [(0, first.reregister(second)), (sources - 1, second.reregister(third))],
        )
        assert meeting.statuses == [OK, OK]
        met += meeting.met
        for request in meeting.lookups:
            reached = [owner for owner in owners if pages_reached(request, owner)]
            middle += second in reached
            if Guarantee.UNTORN in env.declared and request.status is not LookupStatus.ABORTED:
                assert len(reached) <= 1, request
        # Two sources may come in either order.
        last = max(meeting.changes, key=lambda c: c.applied or 0)
        await env.command(0, replace(third, key=last.command.key).deregister())
    assert met > 3, met
    assert middle > 2, middle
    await env.finish()


@cocotb.test()
async def r26_variants_come_round(dut: Any) -> None:
    """256 rebinds of a window, so that its variant comes round, while one lookup is parked.

    It waits behind a beat of another entry that nobody takes. If a rebind waits for it, the beat is
    taken after a while. The window goes to and fro between two regions of the same addresses.
    """
    env = Environment(dut, patience=PATIENCE)
    await env.start()
    here = shared_buffer(env.config, pages=2)
    there = replace(here, key=Key(6, 0x11)).moved(2, 0x200)
    other = replace(here, key=Key(9, 0x11)).moved(4, 0x300)
    window = replace(here, key=Key(10, 0))
    for buffer in (here, there, other):
        await env.command(0, buffer.register())
    await env.command(0, window.window(EntryKind.WINDOW_1))
    await env.command(1, window.bind(here, variant=0))
    port = env.ports[-1]
    port.accepts = gate = Gate()
    port.submit(other.lookup(0, 64))
    request = port.submit(window.lookup(0, window.length))
    await env.wait(8)
    rebinds: list[CommandRequest] = []
    for number, region in zip(range(256), itertools.cycle([there, here]), strict=False):
        bind = window.renamed(number).bind(region, variant=number + 1)
        rebinds.append(env.sources[1].submit(bind))
        if not await _completes(env, rebinds[-1], 40):
            break
    gate.is_open = True
    await env.quiet()
    assert [status_of(rebind) for rebind in rebinds] == [OK] * len(rebinds)
    first = rebinds[0].completed
    assert first is not None
    late = pages_reached(request, here, after=first)
    if Guarantee.FRESH_ANSWER in env.declared:
        assert not late, f"the variant came round: {request}"
    else:
        assert len(rebinds) == 256
        assert late
    assert not pages_reached(request, there), request
    violated = await env.finish()
    assert Guarantee.FRESH_ANSWER in env.declared | violated


async def _completes(env: Environment, request: CommandRequest, cycles: int) -> bool:
    """Whether a command is complete within so many cycles."""
    until = env.cycle + cycles
    while request.completed is None and env.cycle < until:
        await env.wait(1)
    return request.completed is not None


@cocotb.test()
@cocotb.parametrize(part=["first_page", "all_but_the_first"])
async def r35_part_of_a_lookup_in_flight(dut: Any, part: str) -> None:
    """The first page of a long lookup is all that stays registered, or what goes.

    It is the entry that changes, so C waits for the whole lookup, whichever part goes.
    """
    env = Environment(dut, (2, 2), PATIENCE)
    await env.start()
    # The lookup begins in the second page.
    region = shared_buffer(env.config, pages=4)
    lookup = region.lookup(PAGE + 100, 3 * PAGE - 200)
    change = replace(region.reregister(replace(region, pages=2)), translations=0)
    if part == "all_but_the_first":
        left = replace(region, pages=2, base=region.base + 2 * PAGE).moved(8, region.frame + 2)
        change = region.reregister(left)
    met = 0
    for offset in range(EARLIEST, 2 * LIFE // 3):
        await env.command(0, region.register())
        meeting = await collide(env, offset, [lookup] * len(env.ports), [(0, change)])
        assert meeting.statuses == [OK]
        met += meeting.met
        completed = meeting.changes[0].completed
        assert completed is not None
        if Guarantee.FRESH_ANSWER in env.declared:
            # One that comes later asks for more than what is left.
            late = [r for r in meeting.lookups if pages_reached(r, region, after=completed)]
            assert not late, f"C didn't wait for {late}"
        await env.command(0, region.deregister())
    assert met > 3, met
    await env.finish()
