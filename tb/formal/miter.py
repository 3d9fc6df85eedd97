"""As long as no command comes, no policy is seen: two tables side by side."""

import dataclasses

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import LookupStatus, entry_layout, translation_layout
from rtl.monitor import any_of
from sim.netlist import Design
from sim.prover import Result, model, prove, refute
from tb.formal.environment import PortChoiceSignature, Requester, clocked
from tb.formal.given import GivenTable
from tb.formal.small import harness_of

REFERENCE = "apply_now"
"""The policy that never does anything to a lookup."""

PROOF = "differs"
"""The output to prove."""

COVERS = ("answered", "walked", "retired", "together")
"""Outputs that have to be reached."""


class FreeHarness(Component):
    """A table and its twin under ``apply_now``, the same lookups on both, and no command ever.

    What an entry or a translation holds is any value in any cycle, the same in both tables. So what
    is proved here doesn't depend on what was written, or when. The requesters and DMA engines
    listen to the first table; up to the first difference, what they do is legal for both.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    clk : In(1)
    port : In(PortChoiceSignature).array(config.ports)
    entry : In(entry_layout).array(config.entries)
    row : In(translation_layout).array(config.translations)
    set : In(config.set_bits)
        Whose victim is compared.
    differs : Out(1)
        Something that leaves the tables in this cycle is not the same.
    answered, walked, retired, together : Out(1)
        Not to be proved, but to be reached: bytes are delivered; those of a second page are; a
        slot is given back; nobody has ever named an entry but the first, and every port is
        answered: in one cycle, or one after the other where the ports share a pipeline.
    """

    def __init__(self, config: TableConfig):
        self.config = config
        super().__init__(
            {
                "clk": In(1),
                "port": In(PortChoiceSignature(config)).array(config.ports),
                "entry": In(entry_layout(config)).array(config.entries),
                "row": In(translation_layout(config)).array(config.translations),
                "set": In(config.set_bits),
                "differs": Out(1),
                "answered": Out(1),
                "walked": Out(1),
                "retired": Out(1),
                "together": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        clocked(m, self.clk)
        plain = dataclasses.replace(config, arbiter=REFERENCE)
        m.submodules.table = table = GivenTable(config, self.entry, self.row)
        m.submodules.twin = twin = GivenTable(plain, self.entry, self.row)
        tables = (table, twin)
        differ: list[Value] = [
            table.ready != twin.ready,
            table.occupied != twin.occupied,
            table.victim.index != twin.victim.index,
        ]
        m.d.comb += [t.victim.set.eq(self.set) for t in tables]
        answered: list[Value] = []
        others: list[Value] = []
        walked: list[Value] = []
        for number in range(config.ports):
            m.submodules[f"requester_{number}"] = requester = Requester(config)
            connect(m, requester.choice, flipped(self.port[number]))
            first = table.beat[number]
            m.d.comb += [
                requester.lookup.ready.eq(table.lookup[number].ready),
                requester.beat.valid.eq(first.valid),
                requester.beat.payload.eq(first.payload),
                requester.retire.ready.eq(table.retire[number].ready),
                requester.kill.eq(table.kill[number]),
            ]
            for t in tables:
                m.d.comb += [
                    t.lookup[number].valid.eq(requester.lookup.valid),
                    t.lookup[number].payload.eq(requester.lookup.payload),
                    t.beat[number].ready.eq(requester.beat.ready),
                    t.retire[number].valid.eq(requester.retire.valid),
                    t.retire[number].payload.eq(requester.retire.payload),
                    t.dma[number].valid.eq(requester.dma.valid),
                    t.dma[number].tag.eq(requester.dma.tag),
                ]
            second = twin.beat[number]
            same = Value.cast(first.payload) == Value.cast(second.payload)
            differ += [
                table.lookup[number].ready != twin.lookup[number].ready,
                table.held[number] != twin.held[number],
                table.kill[number] != twin.kill[number],
                first.valid != second.valid,
                first.valid & ~same,
            ]
            beat = first.payload
            served = first.valid & first.ready & (beat.status == LookupStatus.OK)
            answered.append(served & (beat.length != 0))
            others.append(requester.lookup.valid & (requester.lookup.payload.key.index != 0))
            walked.append(served & (beat.length != 0) & ~beat.first)
        before = Signal(config.slots)
        stranger = Signal()
        # As many cycles as there are ports that share a pipeline.
        turns = config.ports // config.pipelines
        past = [Signal(turns, name=f"past_{number}") for number in range(config.ports)]
        for now, then in zip(answered, past, strict=True):
            m.d.sync += then.eq(Cat(now, then))
        lately = Cat(Cat(now, then)[:turns].any() for now, then in zip(answered, past, strict=True))
        m.d.sync += [before.eq(table.occupied), stranger.eq(stranger | any_of(*others))]
        m.d.comb += [
            self.differs.eq(any_of(*differ)),
            self.answered.eq(any_of(*answered)),
            self.walked.eq(any_of(*walked)),
            self.together.eq(lately.all() & ~stranger),
            self.retired.eq((before & ~table.occupied).any()),
        ]
        return m


def free_design(config: TableConfig, fault: str = "") -> Design:
    """The harness around a table; ``fault`` says what is wrong with it."""
    return harness_of("free_harness", FreeHarness, config, fault)


def free_results(config: TableConfig, limit: int = 120) -> dict[str, Result]:
    """:data:`PROOF`, which is to be proved, and :data:`COVERS`, which are to be refuted."""
    graph = model(free_design(config))
    proof = prove(graph, PROOF, limit=limit)
    return {PROOF: proof, **{cover: refute(graph, cover, limit=limit) for cover in COVERS}}
