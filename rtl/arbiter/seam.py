"""What a policy sees and drives."""

from abc import abstractmethod
from typing import ClassVar

from amaranth.hdl import Module, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import OnPending, RetireScope, StepOrder, TableConfig
from rtl.monitor import Guarantee
from rtl.slots import SlotSignature, token_member


class AdmitSignature(wiring.Signature):
    """A lookup asks one port to be admitted, seen from the port.

    With neither ``grant`` nor ``refuse`` the lookup waits. A granted lookup is admitted in this
    cycle or, where the pipeline is busy, asks again in the next. With it, ``token`` is stored in
    its slot.
    """

    def __init__(self, config: TableConfig, token_width: int = 0):
        super().__init__(
            {
                "valid": Out(1),
                "index": Out(config.index_bits),
                "grant": In(1),
                "refuse": In(1),
                **token_member(token_width, In),
            }
        )


class DeliverSignature(wiring.Signature):
    """A beat of an admitted lookup is about to be offered, seen from the port.

    ``index`` and ``token`` are those of its slot. With neither ``replay`` nor ``abort`` the beat
    passes. An aborted lookup ends with an ``ABORTED`` beat in place of this one. A replayed one
    starts anew from its entry, and with ``token`` renewed as ``renewed`` says; if a beat of it has
    been offered before, it is aborted instead. A beat that has been offered can't be withdrawn:
    while ``fixed`` is high it stays what it was, whatever is answered, until it is taken.
    """

    def __init__(self, config: TableConfig, token_width: int = 0):
        super().__init__(
            {
                "valid": Out(1),
                "fixed": Out(1),
                "index": Out(config.index_bits),
                **token_member(token_width, Out),
                "replay": In(1),
                "abort": In(1),
                **({"renewed": In(token_width)} if token_width else {}),
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

    A lookup that is admitted in some cycle is seen in ``occupied``, ``match`` and ``slot`` from the
    next cycle on, until the cycle in which it retires, inclusive. So in the cycle after A they
    hold all lookups that saw the old entry and haven't retired, and no other.

    A hook that a policy leaves alone costs nothing in the netlist.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    admit : In(AdmitSignature).array(config.ports)
    deliver : In(DeliverSignature).array(config.ports)
    change : In(ChangeSignature).array(config.sources)
    slot : In(SlotSignature).array(config.slots)
        What each slot holds. Slot ``s`` is that of port ``s // tags`` and tag ``s % tags``.
    match : In(config.slots).array(config.sources)
        Which slots hold a lookup of the entry that ``change`` of this source names.
    occupied : In(config.slots)
        Which slots hold a lookup.
    kill : Out(config.slots)
        While the bit of a slot is high, the next beat of its lookup is an ``ABORTED`` one, and its
        DMA engine issues nothing more.
    """

    choices: ClassVar[tuple[str, ...]] = ("span", "on_pending")
    """Which of the parameters that are there for policies this one listens to."""

    replays = False
    """Whether the policy ever answers ``replay``: the pipelines then remember what to replay."""

    def __init__(self, config: TableConfig):
        self.config = config
        token = self.token_width(config)
        super().__init__(
            {
                "admit": In(AdmitSignature(config, token)).array(config.ports),
                "deliver": In(DeliverSignature(config, token)).array(config.ports),
                "change": In(ChangeSignature(config)).array(config.sources),
                "slot": In(SlotSignature(config, token)).array(config.slots),
                "match": In(config.slots).array(config.sources),
                "occupied": In(config.slots),
                "kill": Out(config.slots),
            }
        )

    @classmethod
    @abstractmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        """What this policy gives under this configuration."""

    @classmethod
    def token_width(cls, config: TableConfig) -> int:
        """Bits of the token that this policy stores in a slot; 0 for none."""
        return 0

    def is_current(self, slot: int) -> ValueLike:
        """Whether the policy takes the lookup in a slot for one whose entry has not changed.

        Only for proofs, as :meth:`awaits`: a policy that goes by what it remembers says here how,
        and a proof looks first whether that is right. Combinational, from what the policy sees and
        from registers that its constructor makes.
        """
        return 0

    def awaits(self, source: int, port: int) -> ValueLike:
        """Whether C of the change of a source waits for the beat that is offered to a port."""
        return 0

    def hold_back(self, m: Module, port: int, blocked: ValueLike) -> None:
        """Admits the lookup of a port, or treats it as ``on_pending`` says while ``blocked``."""
        blocked = Value.cast(blocked)
        m.d.comb += self.admit[port].grant.eq(~blocked)
        if self.config.on_pending is OnPending.REFUSE:
            m.d.comb += self.admit[port].refuse.eq(blocked)


def fresh_guarantees(config: TableConfig) -> set[Guarantee]:
    """Guarantees of every policy whose C waits for the lookups that saw the old entry.

    Without the scope ``dma`` a lookup is over with its last beat, and nobody waits for its DMA.
    Translations that are removed first are missed by the lookups that are still in flight.
    """
    given = {
        Guarantee.FRESH_ADMIT,
        Guarantee.FRESH_ANSWER,
        Guarantee.NO_EARLY_REUSE,
        Guarantee.BOUNDED_INVALIDATION,
    }
    if config.scope is RetireScope.DMA:
        given.add(Guarantee.FRESH_DMA)
    if config.step_order is StepOrder.ENTRY_FIRST:
        given.add(Guarantee.UNTORN)
    return given
