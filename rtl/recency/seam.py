"""What a recency policy sees and drives."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig


class UseSignature(wiring.Signature):
    """One use of an entry, seen from where it is used."""

    def __init__(self, config: TableConfig):
        super().__init__({"valid": Out(1), "index": Out(config.index_bits)})


class VictimSignature(wiring.Signature):
    """Asks for the next victim of a set, seen from who asks. Combinational."""

    def __init__(self, config: TableConfig):
        super().__init__({"set": Out(config.set_bits), "index": In(config.index_bits)})


class Recency(Component):
    """Base of every recency policy.

    The set of an entry is ``index % sets``, its way ``index // sets``. What happens in one cycle
    counts as having happened in this order: touches by port, then the invalidation. It is seen in
    the next cycle. After reset the ways are victims in ascending order.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    touch : In(UseSignature).array(config.ports)
        A lookup of the entry was answered.
    invalidate : In(UseSignature)
        The entry became unusable; it is the next victim of its set.
    victim : In(VictimSignature)
    ready : Out(1)
        The policy's memory is clear; nothing may happen before.
    """

    def __init__(self, config: TableConfig):
        self.config = config
        super().__init__(
            {
                "touch": In(UseSignature(config)).array(config.ports),
                "invalidate": In(UseSignature(config)),
                "victim": In(VictimSignature(config)),
                "ready": Out(1),
            }
        )
