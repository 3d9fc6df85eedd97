"""The shipped table, with contents that are given from outside."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Array, Module, Signal, Value, ValueLike

from rtl.config import TableConfig
from rtl.layouts import entry_layout, translation_layout
from rtl.top import SharedTable


class GivenTable(SharedTable):
    """A table whose pipelines read what they are given, and not what was written.

    After reset the memories hold nothing, and without a command every lookup would fail. Here a
    pipeline reads, as synchronously as ever, the value that a row has at the end of the cycle
    of the read. Everything else is the shipped table.

    Parameters
    ----------
    config : TableConfig
    entry : sequence of entry_layout
        What each entry holds in this cycle.
    row : sequence of translation_layout
        What each translation holds in this cycle.
    watched : bool
        See :class:`rtl.top.SharedTable`.
    """

    def __init__(
        self,
        config: TableConfig,
        entry: Sequence[ValueLike],
        row: Sequence[ValueLike],
        watched: bool = False,
    ):
        super().__init__(config, watched)
        self._entry = entry
        self._row = row

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        config = self.config
        for number in range(config.pipelines):
            pipeline: Any = m.submodules[f"pipeline_{number}"]
            reads = (
                ("entry", pipeline.entry, self._entry, entry_layout(config)),
                ("row", pipeline.translation, self._row, translation_layout(config)),
            )
            for name, read, given, layout in reads:
                data = Signal(layout, name=f"given_{name}_{number}")
                with m.If(read.enable):
                    m.d.sync += Value.cast(data).eq(
                        Array(Value.cast(item) for item in given)[read.address]
                    )
                # The last assignment wins, and the memory's came first.
                m.d.comb += read.data.eq(data)
        return m
