"""What the benches of the counter share."""

from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from tb.harness.counter import STEP


async def start(dut: Any) -> None:
    """Starts the clock and resets."""
    dut.step__valid.value = 0
    dut.step__payload.value = 0
    dut.rst.value = 1
    # Starting high would be an edge at which Icarus has not seen these values yet.
    Clock(dut.clk, 10, unit="ns").start(start_high=False)
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.rst.value = 0


async def count(dut: Any, by: int, steps: int) -> int:
    """Makes steps, and returns the count after them."""
    dut.step__payload.value = STEP.const({"by": by}).as_bits()
    dut.step__valid.value = 1
    for _ in range(steps):
        await RisingEdge(dut.clk)
    dut.step__valid.value = 0
    await RisingEdge(dut.clk)
    return int(dut.count.value)
