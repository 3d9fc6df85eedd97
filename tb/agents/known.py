"""Nothing that comes out of the table is X or Z."""

from collections.abc import Iterator
from typing import Any

from cocotb.triggers import RisingEdge

from rtl.config import TableConfig


def outputs(config: TableConfig) -> Iterator[str]:
    """Names of all outputs of the top level."""
    # The rest of the agents can do without the table's own sources.
    from sim.verilog import ports

    return (port.name for port in ports(config) if port.direction == "output")


CLEARING = ("victim__index",)
"""Outputs that are read from a memory in any cycle, and known when all memories are clear."""


async def all_known(dut: Any, config: TableConfig) -> None:
    """Looks at every output in every cycle from the end of the first cycle of a reset on.

    Payloads are looked at whether they are valid or not. Only :data:`CLEARING` have time until
    ``ready`` is high.

    Raises
    ------
    AssertionError
        If one has a bit that is neither 0 nor 1; the message names it.
    """
    handles = [(name, getattr(dut, name)) for name in outputs(config)]
    edge = RisingEdge(dut.clk)
    await edge
    cycle = 0
    while True:
        await edge
        cycle += 1
        clear = dut.ready.value.is_resolvable and bool(dut.ready.value)
        for name, handle in handles:
            value = handle.value
            if not value.is_resolvable and (clear or name not in CLEARING):
                raise AssertionError(f"cycle {cycle} after the start: {name} is {value}")
