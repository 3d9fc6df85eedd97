"""The door of a port."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from rtl.arbiter.seam import AdmitSignature
from rtl.component import Component
from rtl.config import ReadStructure, TableConfig
from rtl.layouts import LookupStatus, lookup_layout, lookup_signature
from rtl.slots import BusySignature, TakeSignature


def admitted_layout(config: TableConfig) -> data.StructLayout:
    """A lookup on its way into the pipeline.

    ``verdict`` is ``OK`` for an admitted lookup, ``RETRY`` or ``TAG_IN_USE`` for one that was
    refused: it takes no slot, and travels on so that its beat comes out in order. ``port`` has no
    bits where each port has its own pipeline.
    """
    shared = config.read_structure is ReadStructure.SERIALIZED
    return data.StructLayout(
        {
            "lookup": lookup_layout(config),
            "verdict": LookupStatus,
            "port": config.port_bits if shared else 0,
        }
    )


class Admission(Component):
    """Lets the lookups of one port in, turns them away, or makes them wait. Combinational.

    A lookup whose tag is in flight is refused at once. A lookup whose index lies inside the table
    asks the arbiter; any other has no entry whose change could matter to it.

    Parameters
    ----------
    config : TableConfig
    port : int
    token_width : int
        Bits of the policy's token.

    Members
    -------
    lookup : In(lookup_signature)
    query : Out(BusySignature)
    admit : Out(AdmitSignature)
    take : Out(TakeSignature)
        The lookup is admitted in this cycle.
    admitted : Out(stream.Signature(admitted_layout))
    held : Out(1)
        A lookup waits because the arbiter says so.
    refused : Out(1)
        A lookup is turned away because the arbiter says so.
    """

    def __init__(self, config: TableConfig, port: int, token_width: int = 0):
        self._config = config
        self._port = port
        self._token_width = token_width
        super().__init__(
            {
                "lookup": In(lookup_signature(config)),
                "query": Out(BusySignature(config)),
                "admit": Out(AdmitSignature(config, token_width)),
                "take": Out(TakeSignature(config, token_width)),
                "admitted": Out(stream.Signature(admitted_layout(config))),
                "held": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lookup, admitted = self.lookup, self.admitted
        index = lookup.payload.key.index
        indexed = Signal()
        refused = self.refused
        m.d.comb += [
            indexed.eq(index < self._config.entries),
            self.query.tag.eq(lookup.payload.tag),
            self.admit.valid.eq(lookup.valid & indexed & ~self.query.busy),
            self.admit.index.eq(index),
            refused.eq(self.admit.valid & self.admit.refuse),
            self.held.eq(self.admit.valid & ~self.admit.grant & ~self.admit.refuse),
            admitted.payload.lookup.eq(lookup.payload),
            admitted.payload.verdict.eq(
                Mux(
                    self.query.busy,
                    LookupStatus.TAG_IN_USE,
                    Mux(refused, LookupStatus.RETRY, LookupStatus.OK),
                )
            ),
            admitted.payload.port.eq(self._port),
            admitted.valid.eq(lookup.valid & ~self.held),
            lookup.ready.eq(admitted.ready & ~self.held),
            self.take.valid.eq(
                lookup.valid & lookup.ready & (admitted.payload.verdict == LookupStatus.OK)
            ),
            self.take.tag.eq(lookup.payload.tag),
            self.take.index.eq(index),
            self.take.indexed.eq(indexed),
        ]
        if self._token_width:
            m.d.comb += self.take.token.eq(self.admit.token)
        return m
