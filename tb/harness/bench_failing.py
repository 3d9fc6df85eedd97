"""A bench of which one test fails."""

from typing import Any

import cocotb

from tb.harness.common import count, start


@cocotb.test()
async def passes(dut: Any) -> None:
    await start(dut)


@cocotb.test()
async def fails(dut: Any) -> None:
    await start(dut)
    assert await count(dut, 1, 1) == 2, "one and one"
