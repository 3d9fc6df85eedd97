"""The shipped table among symbolic requesters, DMA engines and command sources."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.component import Component
from rtl.config import TableConfig
from rtl.monitor import Guarantee
from rtl.top import SharedTable
from tb.formal.environment import (
    Allocation,
    PortChoiceSignature,
    Requester,
    Source,
    SourceChoiceSignature,
    clocked,
)
from tb.formal.readers import Readers
from tb.formal.shadow import Shadow

SMALL = {
    "ports": 3,
    "entries": 4,
    "translations": 4,
    "ways": 2,
    "tags": 2,
    "sources": 2,
    "address_width": 4,
    "length_width": 2,
    "physical_width": 4,
    "index_width": 2,
    "variant_width": 1,
    "pd_width": 1,
    "qpn_width": 1,
    "page_shift_min": 1,
    "page_shift_max": 1,
    "ghost_width": 2,
    "version_bits": 1,
}
"""Real control logic, narrow data: pages of two bytes, lookups of at most two pages."""


class Harness(Component):
    """The table with reset at start, and one output for each thing to prove.

    An output is bad if it can be high, but for the rules, which are assumed to be.

    Parameters
    ----------
    config : TableConfig
    deadline : int
        Cycles within which C has to follow R; ``bounded_invalidation`` is judged by it.
    patience : int
        Cycles that consumers and DMA may take then.

    Members
    -------
    clk : In(1)
    port : In(PortChoiceSignature).array(config.ports)
    source : In(SourceChoiceSignature).array(config.sources)
    earlier : In(1)
        In the first cycle: judge by one cycle less.
    ranges_apart, pages_written : Out(1)
        Rules.
    disagree, disturbed : Out(1)
        What is proved low by :class:`tb.formal.engine.EngineHarness`, for every policy.
    misread, misled, exposed : Out(1)
        See :class:`tb.formal.readers.Readers`.
    unsound : Out(1)
    violated : Out(1), one for each :class:`Guarantee`

    Attributes
    ----------
    table : SharedTable
    """

    def __init__(
        self, config: TableConfig, deadline: int = 0, patience: int = 1, lifetime: int = 15
    ):
        self.config = config
        self.deadline = deadline
        self.patience = patience
        self.lifetime = lifetime
        self.table = SharedTable(config, watched=True)
        super().__init__(
            {
                "clk": In(1),
                "port": In(PortChoiceSignature(config)).array(config.ports),
                "source": In(SourceChoiceSignature(config)).array(config.sources),
                "earlier": In(1),
                "ranges_apart": Out(1),
                "pages_written": Out(1),
                "disagree": Out(1),
                "disturbed": Out(1),
                "misread": Out(1),
                "misled": Out(1),
                "exposed": Out(1),
                "unsound": Out(1),
                "outlived": Out(1),
                "stray": Out(1),
                "patient": Out(1),
                "overstayed": Out(1),
                **{str(guarantee): Out(1) for guarantee in Guarantee},
                "deadline_is_tight": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        clocked(m, self.clk)
        m.submodules.table = table = self.table
        m.submodules.allocation = allocation = Allocation(config)
        for number in range(config.ports):
            m.submodules[f"requester_{number}"] = requester = Requester(config)
            connect(m, requester.choice, flipped(self.port[number]))
            connect(m, requester.lookup, table.lookup[number])
            connect(m, table.beat[number], requester.beat)
            connect(m, requester.dma, table.dma[number])
            connect(m, requester.retire, table.retire[number])
            m.d.comb += requester.kill.eq(table.kill[number])
        for number in range(config.sources):
            m.submodules[f"source_{number}"] = source = Source(config)
            connect(m, source.choice, flipped(self.source[number]))
            connect(m, source.command, table.command[number])
            connect(m, table.completion[number], source.completion)
            connect(m, table.change[number], allocation.change[number])
            m.d.comb += [
                allocation.busy[number].eq(source.busy),
                allocation.ordered[number].eq(source.ordered),
                allocation.succeeds[number].eq(source.succeeds),
            ]

        m.submodules.shadow = shadow = Shadow(config)
        connect(m, table.entry_write, shadow.entry_write)
        connect(m, table.translation_write, shadow.translation_write)
        m.submodules.readers = readers = Readers(config)
        for number in range(config.sources):
            connect(m, table.change[number], shadow.change[number])
            m.d.comb += [
                readers.replaced[number].eq(shadow.replaced[number]),
                readers.held[number].eq(table.change[number].held),
            ]
        for number in range(config.pipelines):
            connect(m, table.reads[number], readers.reads[number])
            for place, stage in enumerate(table.stage[number]):
                connect(m, stage, readers.stage[number][place])
        for slot in range(config.slots):
            connect(m, table.record[slot], readers.record[slot])
        for number in range(config.ports):
            beat = table.beat[number]
            m.d.comb += [
                readers.accepted[number].eq(beat.valid & beat.ready),
                readers.beat[number].eq(beat.payload),
            ]
        m.d.comb += [
            *(readers.entry[i].eq(entry) for i, entry in enumerate(shadow.entry)),
            *(readers.row[i].eq(row) for i, row in enumerate(shadow.row)),
            self.misread.eq(readers.misread),
            self.misled.eq(readers.misled),
            self.exposed.eq(readers.exposed),
        ]

        overstayed = []
        for number in range(config.slots):
            age = Signal(range(self.lifetime + 2), name=f"age_{number}")
            with m.If(~table.occupied[number]):
                m.d.sync += age.eq(0)
            with m.Elif(age <= self.lifetime):
                m.d.sync += age.eq(age + 1)
            overstayed.append(age > self.lifetime)
        m.d.comb += self.overstayed.eq(Cat(overstayed).any())

        started = Signal()
        tight = Signal()
        m.d.sync += started.eq(1)
        with m.If(~started):
            m.d.sync += tight.eq(self.earlier)
        m.d.comb += [
            self.ranges_apart.eq(allocation.ranges_apart),
            self.pages_written.eq(allocation.pages_written),
            self.disagree.eq(~shadow.agree),
            self.disturbed.eq(~shadow.kept),
            self.unsound.eq(table.unsound),
            self.outlived.eq(table.outlived),
            self.stray.eq(table.stray),
            self.patient.eq(~table.slow),
            table.terms.patience.eq(self.patience),
            table.terms.deadline.eq(Mux(tight, max(0, self.deadline - 1), self.deadline)),
        ]
        for guarantee in Guarantee:
            seen = getattr(table.violation, guarantee).seen
            m.d.comb += getattr(self, guarantee).eq(seen)
        late = table.violation.bounded_invalidation.seen
        m.d.comb += [
            self.bounded_invalidation.eq(late & ~tight),
            self.deadline_is_tight.eq(late & tight),
        ]
        return m
