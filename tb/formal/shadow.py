"""What the tables hold, seen from their writes."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import EntryState, entry_layout, stamp_layout, translation_layout
from rtl.legality import PageCount
from rtl.monitor import any_of
from rtl.tables import WriteSignature
from rtl.watched import WatchedChangeSignature


def row_layout(config: TableConfig) -> data.StructLayout:
    """What counts of a translation."""
    return data.StructLayout({"present": 1, "stamp": stamp_layout(config)})


def replaced_layout(config: TableConfig) -> data.StructLayout:
    """An entry that a change has replaced, while lookups may still stand on it."""
    return data.StructLayout(
        {"valid": 1, "index": config.index_bits, "entry": entry_layout(config)}
    )


class Shadow(Component):
    """Says whether the two tables agree: a usable entry has all its translations, and its own.

    The entry that an arbitrated change replaces is remembered, and has to have them, too, from the
    cycle after A until the arbiter grants the completion, inclusive.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    entry_write : In(WriteSignature(entry_layout, config.entries))
    translation_write : In(WriteSignature(translation_layout, config.translations))
    change : In(WatchedChangeSignature).array(config.sources)
    entry : Out(entry_layout).array(config.entries)
    row : Out(row_layout).array(config.translations)
    replaced : Out(replaced_layout).array(config.sources)
    agree : Out(1)
    kept : Out(1)
        Replaced entries have their translations, there is at most one of each index, and what is
        replaced without the arbiter was not usable.
    disordered : Out(1)
        Of the entries alone, whatever the rows hold: a usable one lies outside the table, is
        replaced without the arbiter, or covers what the change of another has to give up.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "entry_write": In(WriteSignature(entry_layout(config), config.entries)),
                "translation_write": In(
                    WriteSignature(translation_layout(config), config.translations)
                ),
                "change": In(WatchedChangeSignature(config)).array(config.sources),
                "entry": Out(entry_layout(config)).array(config.entries),
                "row": Out(row_layout(config)).array(config.translations),
                "replaced": Out(replaced_layout(config)).array(config.sources),
                "agree": Out(1),
                "kept": Out(1),
                "disordered": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        write, written = self.entry_write, self.translation_write
        for index, entry in enumerate(self.entry):
            with m.If(write.enable & (write.address == index)):
                m.d.sync += entry.eq(write.data)
        for place, row in enumerate(self.row):
            with m.If(written.enable & (written.address == place)):
                m.d.sync += [row.present.eq(written.data.present), row.stamp.eq(written.data.stamp)]

        has = [usable_span(m, config, entry) for entry in self.entry]
        broken: list[Value] = []
        disordered: list[Value] = []
        for change, old in zip(self.change, self.replaced, strict=True):
            current = choose(self.entry, change.index)
            with m.If(change.applied & change.arbitrated):
                m.d.sync += [
                    old.valid.eq(1),
                    old.index.eq(change.index),
                    Value.cast(old.entry).eq(current),
                ]
            with m.Elif(~change.held):
                m.d.sync += old.valid.eq(0)
            earlier = any_of(*(o.valid & (o.index == change.index) for o in self.replaced))
            usable = data.View(entry_layout(config), current).state == EntryState.VALID
            unasked = change.applied & ~change.arbitrated & usable
            given_up = places(config, change.first, change.count)
            disordered += [
                unasked,
                old.valid & (old.index != change.index),
                change.in_progress & (change.first + change.count > config.translations),
                *(
                    change.in_progress & (change.index != index) & ((given_up & other) != 0)
                    for index, other in enumerate(has)
                ),
            ]
            broken += [
                change.applied & earlier,
                unasked,
                old.valid & ~has_its_rows(m, config, old.entry, self.row),
            ]
        complete = [has_its_rows(m, config, entry, self.row) for entry in self.entry]
        disordered += [
            (entry.state == EntryState.VALID) & ~is_formed(m, config, entry) for entry in self.entry
        ]
        m.d.comb += [
            self.agree.eq(Cat(complete).all()),
            self.kept.eq(~Cat(broken).any()),
            self.disordered.eq(Cat(disordered).any()),
        ]
        return m


def choose(items: Iterable[ValueLike], index: ValueLike) -> Value:
    """One of several views, as bits."""
    return Array(Value.cast(item) for item in items)[Value.cast(index)]


def same(one: ValueLike, other: ValueLike) -> Value:
    """Bit by bit."""
    return Value.cast(one) == Value.cast(other)


def places(config: TableConfig, first: Value, count: Value) -> Value:
    """A range of translations, as one bit each."""
    return Cat((place >= first) & (place < first + count) for place in range(config.translations))


def pages(m: Module, config: TableConfig, entry: data.View) -> Value:
    """How many translations an entry covers, whatever its state."""
    m.submodules += (count := PageCount(config))
    m.d.comb += [
        count.offset.eq(entry.offset),
        count.length.eq(entry.limit - entry.base),
        count.page_shift.eq(entry.page_shift),
    ]
    return count.pages


def is_formed(m: Module, config: TableConfig, entry: data.View) -> Value:
    """The bounds of an entry are in order, and what it covers is in the table."""
    inside = (
        (entry.offset < 1 << config.page_shift_min)
        & (entry.page_shift == config.page_shift_min)
        & (entry.first_translation + pages(m, config, entry) <= config.translations)
    )
    return (
        (entry.base <= entry.limit)
        & (entry.limit <= 1 << config.address_width)
        & ((entry.base == entry.limit) | inside)
    )


def span(m: Module, config: TableConfig, entry: data.View) -> Value:
    """The translations that an entry covers, whatever its state, as one bit each."""
    covered = Signal(config.translations, name="covered")
    count = pages(m, config, entry)
    m.d.comb += covered.eq(places(config, entry.first_translation, count))
    return covered


def usable_span(m: Module, config: TableConfig, entry: data.View) -> Value:
    """The translations that lookups of an entry find, as one bit each."""
    return Mux(entry.state == EntryState.VALID, span(m, config, entry), 0)


def owned_span(config: TableConfig, entry: data.View) -> Value:
    """The translations that an entry owns, as one bit each."""
    return places(config, entry.first_translation, entry.translations)


def holds(rows: Iterable[Any], wanted: Value, stamp: ValueLike) -> Value:
    """The wanted translations are there, with this stamp."""
    wrong = [
        wanted[place] & ~(row.present & same(row.stamp, stamp)) for place, row in enumerate(rows)
    ]
    return ~any_of(*wrong)


def has_its_rows(m: Module, config: TableConfig, entry: data.View, rows: Iterable[Any]) -> Value:
    """The entry isn't usable, or lies in the table and has all its translations."""
    usable = entry.state == EntryState.VALID
    present = holds(rows, span(m, config, entry), entry.ghost.stamp)
    return ~usable | is_formed(m, config, entry) & present
