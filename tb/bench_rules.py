"""The rules of regions and windows, one after another; the scoreboard compares with the model."""

from dataclasses import replace
from typing import Any

import cocotb

from rtl.config import SecondInvalidate, ZeroLength
from tb.agents.environment import Environment
from tb.agents.scenes import shared_buffer
from tb.model.words import Command, CommandStatus, Key, LookupStatus, Rights


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
