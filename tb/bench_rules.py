"""The rules of regions and windows, one after another; the scoreboard compares with the model."""

from dataclasses import replace
from typing import Any

import cocotb

from rtl.config import SecondInvalidate, ZeroLength
from tb.agents.environment import Environment
from tb.agents.scenes import PAGE, shared_buffer
from tb.model.words import Command, CommandStatus, EntryKind, Key, LookupStatus, Rights


async def do(env: Environment, source: int, command: Command, status: CommandStatus) -> None:
    """Does a command, which has to complete like this."""
    request = await env.command(source, command)
    assert request.completion is not None
    assert request.completion.status is status, request


@cocotb.test()
async def second_invalidate(dut: Any) -> None:
    """Of an entry that is FREE: it fails, or succeeds without R and A, as the table was built."""
    env = Environment(dut)
    await env.start()
    buffer = shared_buffer(env.config)
    succeeds = env.config.second_invalidate is SecondInvalidate.SUCCESS
    expected = CommandStatus.OK if succeeds else CommandStatus.ALREADY_FREE
    await do(env, 0, buffer.register(), CommandStatus.OK)
    await do(env, 1, buffer.local_invalidate(), CommandStatus.OK)
    for command in (buffer.local_invalidate(), buffer.remote_invalidate()):
        again = await env.command(2, command)
        assert again.completion is not None
        assert again.completion.status is expected
        assert again.requested is None
        assert again.applied is None
        await do(env, 2, replace(command, pd=buffer.pd ^ 1), CommandStatus.WRONG_PD)
        stranger = replace(command, key=buffer.renamed(0x12).key)
        await do(env, 2, stranger, CommandStatus.WRONG_VARIANT)
        nobody = replace(command, key=Key(buffer.key.index + 1, 0))
        await do(env, 2, nobody, CommandStatus.WRONG_STATE)
    assert not await env.finish()


@cocotb.test()
async def zero_length(dut: Any) -> None:
    """A remote read or write of no bytes passes whatever its key, or is checked, as was built."""
    env = Environment(dut)
    await env.start()
    buffer = shared_buffer(env.config)
    nothing = replace(buffer, key=Key(buffer.key.index + 1, 0x11))
    await do(env, 0, buffer.register(), CommandStatus.OK)
    empty = replace(nothing.register(), length=0, translations=0)
    await do(env, 0, empty, CommandStatus.OK)
    checked = env.config.zero_length is ZeroLength.CHECK
    good = buffer.lookup(0, 0)
    for lookup, status in (
        (good, LookupStatus.OK),
        (replace(good, key=Key(2**24 - 1, 0)), LookupStatus.INDEX_OUT_OF_RANGE),
        (replace(good, key=buffer.renamed(0x12).key), LookupStatus.WRONG_VARIANT),
        (replace(good, pd=buffer.pd ^ 1), LookupStatus.WRONG_PD),
        (replace(good, address=0), LookupStatus.OUT_OF_BOUNDS),
        (nothing.lookup(0, 0), LookupStatus.OUT_OF_BOUNDS),
    ):
        for rights in (Rights.REMOTE_READ, Rights.REMOTE_WRITE):
            request = await env.look_up(0, replace(lookup, rights=rights))
            assert request.status is (status if checked else LookupStatus.OK), lookup
    # Of others, the key counts in any case.
    stranger = replace(good, pd=buffer.pd ^ 1, rights=Rights(0))
    assert (await env.look_up(0, stranger)).status is LookupStatus.WRONG_PD
    assert not await env.finish()


@cocotb.test()
async def zero_based(dut: Any) -> None:
    """Addresses in a zero-based region or window count from its first byte."""
    env = Environment(dut)
    await env.start()
    region = shared_buffer(env.config)
    whole = region.register()
    await do(env, 0, replace(whole, zero_based=True), CommandStatus.OK)
    for address, status in (
        (0, LookupStatus.OK),
        (region.length - 8, LookupStatus.OK),
        (region.length - 7, LookupStatus.OUT_OF_BOUNDS),
        (region.base, LookupStatus.OUT_OF_BOUNDS),
    ):
        request = await env.look_up(0, replace(region.lookup(0, 8), address=address))
        assert request.status is status

    window = replace(region, key=Key(region.key.index + 1, 0x11), pages=2)
    for kind in (EntryKind.WINDOW_1, EntryKind.WINDOW_2A, EntryKind.WINDOW_2B):
        await do(env, 0, window.window(kind), CommandStatus.OK)
        bind = replace(
            window.bind(region, variant=0x22, qpn=7), base=region.base + 5000, zero_based=True
        )
        if kind is EntryKind.WINDOW_1:
            await do(env, 1, bind, CommandStatus.ZERO_BASED)
        else:
            await do(env, 1, bind, CommandStatus.PARENT_ZERO_BASED)
            # As it is usable, the region has to become another one first.
            there = replace(region.reregister(region), translations=0)
            await do(env, 0, there, CommandStatus.OK)
            await do(env, 1, bind, CommandStatus.OK)
            inside = replace(window.renamed(0x22).lookup(0, 2 * PAGE, qpn=7), address=0)
            request = await env.look_up(0, inside)
            frames = [beat.address for _, beat in request.beats]
            assert frames == [region.frame * PAGE + at for at in (5000, 2 * PAGE, 3 * PAGE)]
            outside = replace(inside, address=1)
            assert (await env.look_up(0, outside)).status is LookupStatus.OUT_OF_BOUNDS
            await do(env, 0, replace(there, zero_based=True), CommandStatus.WINDOWS_BOUND)
            await do(env, 1, window.renamed(0x22).local_invalidate(), CommandStatus.OK)
            await do(env, 0, replace(there, zero_based=True), CommandStatus.OK)
        await do(env, 0, window.deallocate(), CommandStatus.OK)
    assert not await env.finish()


@cocotb.test()
async def windows_of_a_queue_pair(dut: Any) -> None:
    """A window of type 2B takes the queue pair of its bind, and answers and obeys nobody else."""
    env = Environment(dut)
    await env.start()
    region = shared_buffer(env.config)
    window = replace(region, key=Key(region.key.index + 1, 0x11), pages=2)
    await do(env, 0, region.register(), CommandStatus.OK)
    for kind in (EntryKind.WINDOW_2A, EntryKind.WINDOW_2B):
        await do(env, 0, window.window(kind), CommandStatus.OK)
        for qpn, variant in ((7, 0x22), (8, 0x33)):
            await do(env, 1, window.bind(region, variant=variant, qpn=qpn), CommandStatus.OK)
            bound = window.renamed(variant)
            again = replace(window.bind(region, variant=0, qpn=qpn), key=bound.key)
            await do(env, 1, again, CommandStatus.ALREADY_BOUND)
            for asker in (7, 8):
                request = await env.look_up(0, bound.lookup(0, 8, qpn=asker))
                belongs = kind is EntryKind.WINDOW_2A or asker == qpn
                assert request.status is (LookupStatus.OK if belongs else LookupStatus.WRONG_QPN), (
                    kind,
                    qpn,
                    asker,
                )
            if kind is EntryKind.WINDOW_2B:
                stranger = replace(bound.remote_invalidate(), qpn=qpn ^ 1)
                await do(env, 2, stranger, CommandStatus.WRONG_QPN)
            # A local invalidate comes from the owner, whoever that is.
            end = bound.local_invalidate() if qpn == 7 else bound.remote_invalidate()
            await do(env, 2, replace(end, qpn=qpn), CommandStatus.OK)
            window = bound
        await do(env, 0, window.deallocate(), CommandStatus.OK)
    assert not await env.finish()


@cocotb.test()
async def who_owns_what(dut: Any) -> None:
    """A region owns translations from its allocation to its end, whatever part of them it uses."""
    env = Environment(dut)
    await env.start()
    whole = replace(shared_buffer(env.config), pages=4).moved(8, 0x100)
    part = replace(whole, pages=2)
    for command, status in (
        (whole.fast_register(), CommandStatus.WRONG_STATE),
        (whole.allocate(), CommandStatus.OK),
        (whole.allocate(), CommandStatus.WRONG_STATE),
        (whole.register(), CommandStatus.WRONG_STATE),
        (whole.deallocate(), CommandStatus.WRONG_KIND),
        (replace(part.fast_register(), pd=part.pd ^ 1), CommandStatus.WRONG_PD),
        (part.moved(9, 0x100).fast_register(), CommandStatus.RANGE_NOT_OWNED),
        (part.moved(20, 0x100).fast_register(), CommandStatus.RANGE_NOT_OWNED),
        (replace(whole, pages=5).fast_register(), CommandStatus.RANGE_NOT_OWNED),
    ):
        await do(env, 0, command, status)
        assert (await env.look_up(0, whole.lookup(0, 8))).status is not LookupStatus.OK
    for usable in (whole, part):
        await do(env, 1, usable.fast_register(), CommandStatus.OK)
        await env.look_up(0, usable.lookup(0, usable.length))
        assert (await env.look_up(0, whole.lookup(3 * PAGE, 8))).status is (
            LookupStatus.OK if usable is whole else LookupStatus.OUT_OF_BOUNDS
        )
        at_the_end = part.moved(11, 0x200)
        await do(env, 0, usable.reregister(at_the_end), CommandStatus.RANGE_IN_USE)
        await do(env, 1, usable.local_invalidate(), CommandStatus.OK)
    await do(env, 0, whole.deregister(), CommandStatus.OK)
    await do(env, 0, whole.deregister(), CommandStatus.WRONG_STATE)
    # Somebody else's, who expects nothing in it.
    await do(env, 0, replace(whole.register(), translations=0), CommandStatus.OK)
    for page in range(4):
        request = await env.look_up(0, whole.lookup(page * PAGE, 8))
        assert request.status is LookupStatus.NO_TRANSLATION

    window = replace(part, key=Key(whole.key.index + 1, 0))
    for kind in (EntryKind.WINDOW_1, EntryKind.WINDOW_2A, EntryKind.WINDOW_2B):
        await do(env, 0, window.window(kind), CommandStatus.OK)
        await do(env, 0, window.window(kind), CommandStatus.WRONG_STATE)
        await do(env, 0, window.deregister(), CommandStatus.WRONG_KIND)
        await do(env, 1, window.bind(whole, variant=0), CommandStatus.OK)
        await do(env, 0, whole.deregister(), CommandStatus.WINDOWS_BOUND)
        await do(env, 0, window.deallocate(), CommandStatus.OK)
        await do(env, 0, window.deallocate(), CommandStatus.WRONG_STATE)
    await do(env, 0, whole.deregister(), CommandStatus.OK)
    assert not await env.finish()
