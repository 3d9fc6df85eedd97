"""The command engine under an arbiter that may do anything: what holds whatever the policy."""

from amaranth.hdl import Cat, Module
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.commands import CommandEngine
from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import EntryKind, entry_layout
from rtl.tables import CopiedMemory
from tb.formal.environment import Allocation, Source, SourceChoiceSignature, clocked
from tb.formal.shadow import Shadow


class EngineHarness(Component):
    """Commands from everywhere, granted whenever it pleases nobody knows whom.

    Parameters
    ----------
    config : TableConfig
    """

    def __init__(self, config: TableConfig, windows: bool = True):
        self.config = config
        self.windows = windows
        super().__init__(
            {
                "clk": In(1),
                "source": In(SourceChoiceSignature(config)).array(config.sources),
                "apply": In(config.sources),
                "complete": In(config.sources),
                "ranges_apart": Out(1),
                "pages_written": Out(1),
                "regions_only": Out(1),
                "disagree": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        clocked(m, self.clk)
        m.submodules.engine = engine = CommandEngine(config)
        m.submodules.mpt = mpt = CopiedMemory(entry_layout(config), config.entries, 1)
        m.submodules.allocation = allocation = Allocation(config)
        connect(m, engine.entry_read, mpt.read[0])
        connect(m, engine.entry_write, mpt.write)
        m.d.comb += engine.start.eq(engine.ready & mpt.ready)
        regions = []
        for number in range(config.sources):
            m.submodules[f"source_{number}"] = source = Source(config)
            connect(m, source.choice, flipped(self.source[number]))
            connect(m, source.command, engine.command[number])
            connect(m, engine.completion[number], source.completion)
            connect(m, engine.event[number], allocation.change[number])
            m.d.comb += [
                allocation.busy[number].eq(source.busy),
                allocation.ordered[number].eq(source.ordered),
                allocation.succeeds[number].eq(source.succeeds),
                engine.change[number].apply.eq(self.apply[number]),
                engine.change[number].complete.eq(self.complete[number]),
            ]
            regions.append(
                ~source.command.valid | (source.command.payload.kind == EntryKind.REGION)
            )
        m.d.comb += [
            self.ranges_apart.eq(allocation.ranges_apart),
            self.pages_written.eq(allocation.pages_written),
            self.regions_only.eq(Cat(regions).all()),
        ]

        m.submodules.shadow = shadow = Shadow(config)
        for name in ("entry_write", "translation_write"):
            write, seen = getattr(engine, name), getattr(shadow, name)
            m.d.comb += [
                seen.enable.eq(write.enable),
                seen.address.eq(write.address),
                seen.data.eq(write.data),
            ]
        m.d.comb += self.disagree.eq(~shadow.agree)
        return m
