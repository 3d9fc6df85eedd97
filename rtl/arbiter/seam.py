"""What a policy sees and drives."""

from abc import abstractmethod

from amaranth.hdl import Module, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import OnPending, RetireScope, StepOrder, TableConfig
from rtl.monitor import Guarantee


class AdmitSignature(wiring.Signature):
    """A lookup asks one port to be admitted, seen from the port.

    With neither ``grant`` nor ``refuse`` the lookup waits. A granted lookup is admitted in this
    cycle or, where the pipeline is busy, asks again in the next.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "valid": Out(1),
                "index": Out(config.index_bits),
                "grant": In(1),
                "refuse": In(1),
            }
        )


class ChangeSignature(wiring.Signature):
    """A command that changes an entry, seen from the command engine.

    ``request`` is high from R to A, and from R on ``index`` counts. The engine writes the table in
    a cycle in which ``apply`` is granted, not necessarily the first; that cycle is A, and
    ``applied`` is high in it. ``wait`` is high from the cycle after A until ``complete`` is
    granted. No two commands in progress have the same index.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "index": Out(config.index_bits),
                "request": Out(1),
                "apply": In(1),
                "applied": Out(1),
                "wait": Out(1),
                "complete": In(1),
            }
        )


class Arbiter(Component):
    """Base of every policy.

    A lookup that is admitted in some cycle is seen in ``occupied`` and ``match`` from the next
    cycle on, until the cycle in which it retires, inclusive.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    admit : In(AdmitSignature).array(config.ports)
    change : In(ChangeSignature).array(config.sources)
    match : In(config.slots).array(config.sources)
        Which slots hold a lookup of the entry that ``change`` of this source names.
    occupied : In(config.slots)
        Which slots hold a lookup.
    """

    def __init__(self, config: TableConfig):
        self.config = config
        super().__init__(
            {
                "admit": In(AdmitSignature(config)).array(config.ports),
                "change": In(ChangeSignature(config)).array(config.sources),
                "match": In(config.slots).array(config.sources),
                "occupied": In(config.slots),
            }
        )

    @classmethod
    @abstractmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        """What this policy gives under this configuration."""

    def hold_back(self, m: Module, port: int, blocked: ValueLike) -> None:
        """Admits the lookup of a port, or treats it as ``on_pending`` says while ``blocked``."""
        blocked = Value.cast(blocked)
        m.d.comb += self.admit[port].grant.eq(~blocked)
        if self.config.on_pending is OnPending.REFUSE:
            m.d.comb += self.admit[port].refuse.eq(blocked)


def drain_guarantees(config: TableConfig) -> frozenset[Guarantee]:
    """Guarantees of a policy that applies when no lookup of the entry is in flight.

    Without the scope ``dma`` a lookup is over with its last beat, and nobody waits for its DMA.
    Translations that are removed first are missed by the lookups that are still being drained.
    """
    given = {Guarantee.FRESH_ADMIT, Guarantee.FRESH_ANSWER, Guarantee.NO_EARLY_REUSE}
    if config.scope is RetireScope.DMA:
        given.add(Guarantee.FRESH_DMA)
    if config.step_order is StepOrder.ENTRY_FIRST:
        given.add(Guarantee.UNTORN)
    return frozenset(given)
