"""A policy without a table: what is put in its place in a graph that all policies share."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import Flow, In, Out

from rtl.arbiter import policy
from rtl.component import Component
from rtl.config import TableConfig
from tb.formal.environment import clocked


class Alone(Component):
    """A policy, with its seam as ports. Reset is at start.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    clk : In(1)
    admit, deliver, change, slot, match, occupied, kill : the policy's
    current : Out(config.slots)
    awaited : Out(config.ports).array(config.sources)
        What the policy says of how it checks its lookups, see
        :meth:`rtl.arbiter.Arbiter.is_current` and :meth:`rtl.arbiter.Arbiter.awaits`.
    """

    def __init__(self, config: TableConfig):
        self.policy = policy(config.arbiter)(config)
        self._config = config
        super().__init__(
            {
                "clk": In(1),
                **self.policy.signature.members,
                "current": Out(config.slots),
                "awaited": Out(config.ports).array(config.sources),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        m.submodules.policy = inner = self.policy
        for path, member, value in inner.signature.flatten(inner):
            outer: Any = self
            for name in path:
                outer = outer[name] if isinstance(name, int) else getattr(outer, name)
            if member.flow is Flow.In:
                m.d.comb += Value.cast(value).eq(Value.cast(outer))
            else:
                m.d.comb += Value.cast(outer).eq(Value.cast(value))
        for slot in range(self._config.slots):
            m.d.comb += self.current[slot].eq(inner.is_current(slot))
        for source, awaited in enumerate(self.awaited):
            for port in range(self._config.ports):
                m.d.comb += awaited[port].eq(inner.awaits(source, port))
        return m
