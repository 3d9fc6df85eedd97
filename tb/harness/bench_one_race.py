"""A lookup on each port, and a deregistration while they are in flight: a dump worth a look."""

from typing import Any

import cocotb

from tb.agents.environment import Environment
from tb.agents.scenes import PAGE, shared_buffer


@cocotb.test()
async def one_race(dut: Any) -> None:
    """Deregisters a buffer under lookups of it. Asks no monitor, since there may be none."""
    env = Environment(dut, dma_pause=(4, 4))
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    await env.command(0, buffer.register())
    for port in env.ports:
        port.submit(buffer.lookup(100, 3 * PAGE - 200))
    await env.command(0, buffer.deregister())
    await env.quiet()
