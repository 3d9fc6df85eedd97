"""What the tables hold, seen from their writes."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import EntryState, entry_layout, stamp_layout, translation_layout
from rtl.legality import PageCount
from rtl.tables import WriteSignature


class Shadow(Component):
    """Says whether the two tables agree: a usable entry has all its translations, and its own.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    entry_write : In(WriteSignature(entry_layout, config.entries))
    translation_write : In(WriteSignature(translation_layout, config.translations))
    agree : Out(1)
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "entry_write": In(WriteSignature(entry_layout(config), config.entries)),
                "translation_write": In(
                    WriteSignature(translation_layout(config), config.translations)
                ),
                "agree": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        # Of each entry, which translations it has: fewer bits than arithmetic on ranges later.
        entry = data.StructLayout({"has": config.translations, "stamp": stamp_layout(config)})
        row = data.StructLayout({"present": 1, "stamp": stamp_layout(config)})
        entries = [Signal(entry, name=f"entry_{i}") for i in range(config.entries)]
        rows = [Signal(row, name=f"row_{t}") for t in range(config.translations)]

        write = self.entry_write
        m.submodules.count = count = PageCount(config)
        m.d.comb += [
            count.offset.eq(write.data.offset),
            count.length.eq(write.data.limit - write.data.base),
            count.page_shift.eq(write.data.page_shift),
        ]
        first = write.data.first_translation
        usable = write.data.state == EntryState.VALID
        has = Signal(config.translations)
        for place in range(config.translations):
            inside = (place >= first) & (place < first + count.pages)
            m.d.comb += has[place].eq(usable & inside)
        for index, item in enumerate(entries):
            with m.If(write.enable & (write.address == index)):
                m.d.sync += [item.has.eq(has), item.stamp.eq(write.data.ghost.stamp)]
        written = self.translation_write
        for place, item in enumerate(rows):
            with m.If(written.enable & (written.address == place)):
                m.d.sync += [
                    item.present.eq(written.data.present),
                    item.stamp.eq(written.data.stamp),
                ]
        wrong = [
            entry.has[place] & ~(row.present & (row.stamp.as_value() == entry.stamp.as_value()))
            for entry in entries
            for place, row in enumerate(rows)
        ]
        m.d.comb += self.agree.eq(~Cat(wrong).any())
        return m
