"""The shipped table among symbolic requesters, DMA engines and command sources."""

from typing import Any

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.component import Component
from rtl.config import RetireScope, TableConfig
from rtl.layouts import is_unpaged
from rtl.monitor import Guarantee, any_of
from rtl.top import SharedTable
from tb.formal.checking import CHECKING, checking
from tb.formal.environment import (
    Allocation,
    PortChoiceSignature,
    Requester,
    Source,
    SourceChoiceSignature,
    clocked,
)
from tb.formal.lengths import (
    judge,
    lengths,
    members,
    miscounted,
    phases,
    timed,
    unsummed,
)
from tb.formal.readers import Readers
from tb.formal.room import squeezed
from tb.formal.shadow import Shadow

SMALL: dict[str, Any] = {
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
    patience : int, optional
        Cycles that consumers and DMA take at most, where they are ``patient``. Without it they may
        take forever, and ``bounded_invalidation`` is judged with a patience of 1.

    Members
    -------
    clk : In(1)
    patient : In(1)
        If it is low, consumers and DMA may take forever all the same. To be fixed before anything
        is proved.
    port : In(PortChoiceSignature).array(config.ports)
    source : In(SourceChoiceSignature).array(config.sources)
    deadline : In(8)
        Cycles within which C has to follow R, if not 0: ``bounded_invalidation`` is judged by it.
        To be fixed before anything is proved.
    asked, waited : In(8)
        Cycles that the first two phases of a change take at most, for ``unsummed``; to be fixed,
        too.
    ranges_apart, pages_written : Out(1)
        Rules.
    disagree, disturbed, disordered : Out(1)
        What is proved low by :class:`tb.formal.engine.EngineHarness`, for every policy.
    misread, misled, outgrown, exposed : Out(1)
        See :class:`tb.formal.readers.Readers`.
    lingering : Out(1)
        A lookup that has been let go still has its slot.
    squeezed : Out(1)
        See :func:`tb.formal.room.squeezed`.
    astray, misplaced, misdated, unsound : Out(1)
        See :class:`rtl.monitor.Monitor`.
    adrift : Out(1)
        In scope ``dma``, a DMA engine may issue beats under a tag that no lookup in flight has.
    slow : Out(1)
        Somebody takes longer than ``patience``, as the table sees it.
    misfiled, crowded, mistaken, unnoticed, late : Out(1)
        See :func:`tb.formal.checking.checking`.
    unpaged, unpaged_write : Out(1)
        An entry that can be used is read, or written, with pages of a size that there is not.
    miscounted, unsummed : Out(1)
        Only with ``patience``: see :mod:`tb.formal.lengths`.
    beyond : Out(1), one for each of :data:`tb.formal.lengths.LONGEST` and each number
        of cycles
        Only with ``patience``.
    violated : Out(1), one for each :class:`Guarantee`

    Attributes
    ----------
    table : SharedTable
    """

    def __init__(self, config: TableConfig, patience: int | None = None):
        self.config = config
        self.patience = patience
        self.table = SharedTable(config, watched=True)
        # Counting costs registers, and only who is patient is asked how long anything takes.
        self._lengths = [] if patience is None else lengths(config)
        super().__init__(
            {
                "clk": In(1),
                "patient": In(1),
                "port": In(PortChoiceSignature(config)).array(config.ports),
                "source": In(SourceChoiceSignature(config)).array(config.sources),
                "deadline": In(8),
                "asked": In(8),
                "waited": In(8),
                "ranges_apart": Out(1),
                "pages_written": Out(1),
                "disagree": Out(1),
                "disturbed": Out(1),
                "disordered": Out(1),
                "misread": Out(1),
                "misled": Out(1),
                "outgrown": Out(1),
                "exposed": Out(1),
                "lingering": Out(1),
                "squeezed": Out(1),
                "astray": Out(1),
                "misplaced": Out(1),
                "misdated": Out(1),
                "unsound": Out(1),
                "outlived": Out(1),
                "adrift": Out(1),
                "stray": Out(1),
                "slow": Out(1),
                **{name: Out(1) for name in CHECKING},
                "unpaged": Out(1),
                "unpaged_write": Out(1),
                **{str(guarantee): Out(1) for guarantee in Guarantee},
                "miscounted": Out(1),
                "unsummed": Out(1),
                **members(self._lengths),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        clocked(m, self.clk)
        m.submodules.table = table = self.table
        m.submodules.allocation = allocation = Allocation(config)
        lasting: dict[tuple[str, int | None], list[Value]] = {key: [] for key in lengths(config)}
        adrift: list[Value] = []
        for number in range(config.ports):
            m.submodules[f"requester_{number}"] = requester = Requester(config, self.patience)
            m.d.comb += requester.patient.eq(self.patient)
            connect(m, requester.choice, flipped(self.port[number]))
            connect(m, requester.lookup, table.lookup[number])
            connect(m, table.beat[number], requester.beat)
            connect(m, requester.dma, table.dma[number])
            connect(m, requester.retire, table.retire[number])
            m.d.comb += requester.kill.eq(table.kill[number])
            lasting["quiet", number].append(requester.silent & table.ready)
            own = table.occupied[number * config.tags : (number + 1) * config.tags]
            lasting["life", number] += [*own]
            if config.scope is RetireScope.DMA:
                adrift.append((requester.working & ~own).any())
        for number in range(config.sources):
            m.submodules[f"source_{number}"] = source = Source(config, self.patience)
            m.d.comb += source.patient.eq(self.patient)
            connect(m, source.choice, flipped(self.source[number]))
            connect(m, source.command, table.command[number])
            connect(m, table.completion[number], source.completion)
            connect(m, table.change[number], allocation.change[number])
            change = table.change[number]
            lasting["change", None].append(change.in_progress & ~change.requested)
            for phase, now in phases(config, table.engine.context[number]).items():
                lasting[phase, None].append(now)
            lasting["command", None].append(source.busy)
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
            self.lingering.eq((readers.gone & table.occupied).any()),
        ]

        for name, wrong in checking(table, readers.gone, shadow.replaced).items():
            m.d.comb += getattr(self, name).eq(wrong)

        written = table.entry_write
        m.d.comb += [
            self.unpaged.eq(table.unpaged.any()),
            self.unpaged_write.eq(written.enable & is_unpaged(config, written.data)),
        ]
        past = {
            (length, port): timed(m, length, lasting[length, port])
            for length, port in self._lengths
        }
        for (length, port), things in past.items():
            judge(m, self, length, port, things)
        if past:
            change, asks, waits, ends = (
                past[length, None] for length in ("change", "asks", "waits", "ends")
            )
            counts = [*map(miscounted, change, table.age)]
            sums = [
                unsummed(*of_a_source, self.asked, self.waited)
                for of_a_source in zip(change, asks, waits, ends, strict=True)
            ]
            m.d.comb += [self.miscounted.eq(any_of(*counts)), self.unsummed.eq(any_of(*sums))]

        m.d.comb += [
            self.ranges_apart.eq(allocation.ranges_apart),
            self.pages_written.eq(allocation.pages_written),
            self.disagree.eq(~shadow.agree),
            self.disturbed.eq(~shadow.kept),
            self.disordered.eq(shadow.disordered),
            self.outgrown.eq(readers.outgrown),
            self.squeezed.eq(squeezed(table)),
            self.astray.eq(table.astray),
            self.misplaced.eq(table.misplaced),
            self.misdated.eq(table.misdated),
            self.unsound.eq(table.unsound),
            self.outlived.eq(table.outlived),
            self.adrift.eq(Cat(adrift).any()),
            self.stray.eq(table.stray),
            self.slow.eq(table.slow),
            table.terms.patience.eq(self.patience or 1),
            table.terms.deadline.eq(self.deadline),
        ]
        for guarantee in Guarantee:
            seen = getattr(table.violation, guarantee).seen
            m.d.comb += getattr(self, guarantee).eq(seen)
        return m
