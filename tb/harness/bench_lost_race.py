"""A bench that fails on the table: a buffer is taken back while its data is still on the way."""

from typing import Any

import cocotb

from rtl.monitor import Guarantee
from tb.agents.environment import Environment
from tb.agents.scenes import PAGE, shared_buffer


@cocotb.test()
async def nobody_uses_it_any_more(dut: Any) -> None:
    """Fails under a policy that applies changes at once; it doesn't declare what is asked here."""
    env = Environment(dut, dma_pause=(4, 4))
    await env.start()
    buffer = shared_buffer(env.config, pages=3)
    await env.command(0, buffer.register())
    env.ports[0].submit(buffer.lookup(100, 3 * PAGE - 200))
    await env.command(0, buffer.deregister())
    await env.quiet()
    assert not env.violations()[Guarantee.FRESH_DMA], "the buffer is still in use"
