"""Nothing that comes out of the table is X or Z."""

from typing import Any

from cocotb.triggers import RisingEdge

from rtl.config import TableConfig
from rtl.layouts import beat_layout
from tb.agents.packing import Packer

CLEARING = ("victim__index",)
"""Outputs that are read from a memory in any cycle, and known when all memories are clear."""

_FOUND = ("ghost.found.owner", "ghost.found.version")


def _exempt(config: TableConfig) -> dict[str, int]:
    """Per output the bits that need not be known.

    The stamp on a translation comes as it was read last, and before the first time it was not. It
    counts in beats with bytes alone, and the monitor, whose outputs have to be known, looks at it.
    """
    if not config.ghost_version:
        return {}
    mask = Packer(beat_layout(config)).mask(*_FOUND)
    return {f"beat__{port}__payload": mask for port in range(config.ports)}


async def all_known(dut: Any, config: TableConfig) -> None:
    """Looks at every output in every cycle from the end of the first cycle of a reset on.

    Payloads are looked at whether they are valid or not. Only :data:`CLEARING` have time until
    ``ready`` is high.

    Raises
    ------
    AssertionError
        If one has a bit that is neither 0 nor 1; the message names them.
    """
    # The agents can do without the table's own sources.
    from sim.verilog import ports

    exempt = _exempt(config)
    outputs = [
        (port.name, getattr(dut, port.name), exempt.get(port.name, 0))
        for port in ports(config)
        if port.direction == "output"
    ]
    edge = RisingEdge(dut.clk)
    await edge
    cycle = 0
    while True:
        await edge
        cycle += 1
        ready = dut.ready.value
        clear = ready.is_resolvable and bool(ready)
        unknown = [
            f"{name} is {handle.value}"
            for name, handle, mask in outputs
            if not handle.value.is_resolvable
            and not _is_known(str(handle.value), mask)
            and (clear or name not in CLEARING)
        ]
        assert not unknown, f"cycle {cycle} after the start: {', '.join(unknown)}"


def _is_known(bits: str, exempt: int) -> bool:
    """Whether all bits but the exempt ones are 0 or 1; the most significant comes first."""
    return all(bit in "01" or exempt >> place & 1 for place, bit in enumerate(reversed(bits)))
