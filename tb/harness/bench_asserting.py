"""A bench that passes while an assertion of the design fires."""

from typing import Any

import cocotb

from tb.harness.common import count, start


@cocotb.test()
async def provokes(dut: Any) -> None:
    await start(dut)
    await count(dut, 15, 1)
