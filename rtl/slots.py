"""The record of every lookup in flight."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In, Member, Out

from rtl.component import Component
from rtl.config import TableConfig


def token_member(width: int, flow: Flow) -> dict[str, Member]:
    """The policy's token as a member of a signature; none at all for a policy without one."""
    return {"token": flow(width)} if width else {}


class TakeSignature(wiring.Signature):
    """A port takes the slot of a tag in this cycle, seen from the port.

    ``indexed`` is low for a lookup whose index lies outside the table; it has a slot, since its
    tag is in use, but is in flight on no entry. ``token`` is what the policy stores in the slot.
    """

    def __init__(self, config: TableConfig, token_width: int = 0):
        super().__init__(
            {
                "valid": Out(1),
                "tag": Out(config.tag_bits),
                "index": Out(config.index_bits),
                "indexed": Out(1),
                **token_member(token_width, Out),
            }
        )


class RenewSignature(wiring.Signature):
    """A lookup starts anew and gets another token in this cycle, seen from where it starts."""

    def __init__(self, config: TableConfig, token_width: int):
        super().__init__(
            {"valid": Out(1), "tag": Out(config.tag_bits), **token_member(token_width, Out)}
        )


class SlotSignature(wiring.Signature):
    """What a slot holds, seen from the slot; ``index`` and ``token`` count while ``occupied``."""

    def __init__(self, config: TableConfig, token_width: int = 0):
        super().__init__(
            {
                "occupied": Out(1),
                "indexed": Out(1),
                "index": Out(config.index_bits),
                **token_member(token_width, Out),
            }
        )


class TagSignature(wiring.Signature):
    """Something happens to a tag in this cycle, seen from where it happens."""

    def __init__(self, config: TableConfig):
        super().__init__({"valid": Out(1), "tag": Out(config.tag_bits)})


class BusySignature(wiring.Signature):
    """Asks whether a tag is in flight, seen from who asks. Combinational."""

    def __init__(self, config: TableConfig):
        super().__init__({"tag": Out(config.tag_bits), "busy": In(1)})


class Slots(Component):
    """One slot a port and tag, from the cycle after admission to the cycle of retirement.

    Slot ``s`` is that of port ``s // tags`` and tag ``s % tags``. A tag that retires in some cycle
    can be taken again in the next.

    Parameters
    ----------
    config : TableConfig
    token_width : int
        Bits of the policy's token.

    Members
    -------
    take : In(TakeSignature).array(config.ports)
    answered : In(TagSignature).array(config.ports)
        The lookup retires with the beat that is accepted in this cycle.
    returned : In(TagSignature).array(config.ports)
        The DMA engine returns the tag. A tag that is not in flight is ignored.
    renew : In(RenewSignature).array(config.ports)
        Only with a token.
    query : In(BusySignature).array(config.ports)
    slot : Out(SlotSignature).array(config.slots)
    index : In(config.index_bits).array(config.sources)
        Entries to match the slots against.
    match : Out(config.slots).array(config.sources)
        Which slots hold a lookup of that entry. Combinational.
    occupied : Out(config.slots)
        Which slots hold a lookup.
    """

    def __init__(self, config: TableConfig, token_width: int = 0):
        self._config = config
        self.token_width = token_width
        members = {
            "take": In(TakeSignature(config, token_width)).array(config.ports),
            "answered": In(TagSignature(config)).array(config.ports),
            "returned": In(TagSignature(config)).array(config.ports),
            "query": In(BusySignature(config)).array(config.ports),
            "slot": Out(SlotSignature(config, token_width)).array(config.slots),
            "index": In(config.index_bits).array(config.sources),
            "match": Out(config.slots).array(config.sources),
            "occupied": Out(config.slots),
        }
        if token_width:
            members["renew"] = In(RenewSignature(config, token_width)).array(config.ports)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        for port in range(config.ports):
            take, answered = self.take[port], self.answered[port]
            returned, query = self.returned[port], self.query[port]
            busy = []
            for tag in range(config.tags):
                slot = port * config.tags + tag
                valid = Signal(name=f"valid_{port}_{tag}")
                indexed = Signal(name=f"indexed_{port}_{tag}")
                index = Signal(config.index_bits, name=f"index_{port}_{tag}")
                with m.If(
                    (answered.valid & (answered.tag == tag))
                    | (returned.valid & (returned.tag == tag))
                ):
                    m.d.sync += valid.eq(0)
                # A tag is taken only while it is free, so the two never meet.
                with m.If(take.valid & (take.tag == tag)):
                    m.d.sync += [valid.eq(1), indexed.eq(take.indexed), index.eq(take.index)]
                seen = self.slot[slot]
                m.d.comb += [
                    self.occupied[slot].eq(valid),
                    seen.occupied.eq(valid),
                    seen.indexed.eq(indexed),
                    seen.index.eq(index),
                ]
                if self.token_width:
                    renew = self.renew[port]
                    token = Signal(self.token_width, name=f"token_{port}_{tag}")
                    m.d.comb += seen.token.eq(token)
                    with m.If(renew.valid & (renew.tag == tag)):
                        m.d.sync += token.eq(renew.token)
                    with m.If(take.valid & (take.tag == tag)):
                        m.d.sync += token.eq(take.token)
                for source in range(config.sources):
                    m.d.comb += self.match[source][slot].eq(
                        valid & indexed & (index == self.index[source])
                    )
                busy.append(valid)
            m.d.comb += query.busy.eq(Array(busy)[query.tag])
        return m
