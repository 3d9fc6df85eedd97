"""Touches of one entry in one cycle count as one."""

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from rtl import recency
from rtl.component import Component
from rtl.config import TableConfig
from rtl.recency.seam import UseSignature
from tb.formal.environment import clocked


class TouchHarness(Component):
    """Two recency policies; one gets all touches, the other none twice.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    clk : In(1)
    touch : In(UseSignature).array(config.ports)
    invalidate : In(UseSignature)
    set : In(config.set_bits)
    differs : Out(1)
        They name different victims for the set.
    """

    def __init__(self, config: TableConfig):
        self.config = config
        super().__init__(
            {
                "clk": In(1),
                "touch": In(UseSignature(config)).array(config.ports),
                "invalidate": In(UseSignature(config)),
                "set": In(config.set_bits),
                "differs": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        policies = [recency.POLICIES[self.config.recency](self.config) for _ in range(2)]
        m.submodules.all, m.submodules.once = policies
        for policy, once in zip(policies, (False, True), strict=True):
            ready = policy.ready
            m.d.comb += [
                policy.victim.set.eq(self.set),
                policy.invalidate.valid.eq(self.invalidate.valid & ready),
                policy.invalidate.index.eq(self.invalidate.index),
            ]
            for port, touch in enumerate(self.touch):
                valid = touch.valid & ready
                # Touches count in the order of the ports, so the last one of an entry decides.
                for later in self.touch[port + 1 :] if once else ():
                    valid = valid & ~(later.valid & (later.index == touch.index))
                m.d.comb += [
                    policy.touch[port].valid.eq(valid),
                    policy.touch[port].index.eq(touch.index),
                ]
        differ = policies[0].victim.index != policies[1].victim.index
        m.d.comb += self.differs.eq(policies[0].ready & differ)
        return m
