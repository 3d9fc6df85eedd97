"""One command meets one lookup: its first beat is on offer at R and A."""

from typing import Any

import cocotb

from tb.agents.environment import Environment
from tb.agents.generators import always
from tb.agents.scenes import shared_buffer


@cocotb.test()
async def meet(dut: Any) -> None:
    """The consumer takes nothing until the entry has been invalidated."""
    env = Environment(dut, (0, 0))
    await env.start()
    buffer = shared_buffer(env.config)
    await env.command(0, buffer.register())
    port = env.ports[0]
    port.accepts = iter(lambda: False, None)
    port.submit(buffer.lookup(0, 8))
    await env.wait(10)
    await env.command(1, buffer.local_invalidate())
    port.accepts = always()
    await env.settle()
