"""May this lookup use this entry?"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig, ZeroLength
from rtl.layouts import (
    EntryKind,
    EntryState,
    LookupStatus,
    Rights,
    any_right,
    entry_layout,
    lookup_layout,
)


class AccessCheck(Component):
    """Checks a lookup against its entry and finds the first byte. Combinational.

    The first failure wins, in the order of :class:`rtl.layouts.LookupStatus`. A remote read or
    write of no bytes passes without any check (IBTA C9-88), unless the configuration wants it
    checked. Bounds are computed with one bit more
    than an address, so a range that wraps never passes and one that ends at the end of the address
    space does. An entry of length 0 admits nothing else.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    lookup : In(lookup_layout)
    entry : In(entry_layout)
    status : Out(LookupStatus)
        Never ``NO_TRANSLATION`` or later: those are found elsewhere.
    bypass : Out(1)
        The lookup passes without having used the entry.
    translation : Out(config.translation_bits)
        Index of the translation of the first page.
    page_offset : Out(config.page_shift_max)
        Place of the first byte in its page.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "lookup": In(lookup_layout(config)),
                "entry": In(entry_layout(config)),
                "status": Out(LookupStatus),
                "bypass": Out(1),
                "translation": Out(config.translation_bits),
                "page_offset": Out(config.page_shift_max),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        lookup, entry = self.lookup, self.entry

        remote_access = any_right(lookup.rights, Rights.REMOTE_READ | Rights.REMOTE_WRITE)
        atomic = any_right(lookup.rights, Rights.REMOTE_ATOMIC)

        end = Signal(config.address_width + 1)
        position = Signal(config.address_width + 1)
        page = Signal(config.address_width + 1)
        m.d.comb += [
            end.eq(lookup.address + lookup.length),
            position.eq(lookup.address - entry.base + entry.offset),
            page.eq(position >> entry.page_shift),
            self.translation.eq(entry.first_translation + page),
            self.page_offset.eq(position & ((1 << entry.page_shift) - 1)),
        ]
        if config.zero_length is ZeroLength.BYPASS:
            m.d.comb += self.bypass.eq((lookup.length == 0) & remote_access & ~atomic)

        failures = (
            (lookup.key.index >= config.entries, LookupStatus.INDEX_OUT_OF_RANGE),
            (lookup.key.variant != entry.variant, LookupStatus.WRONG_VARIANT),
            (entry.state != EntryState.VALID, LookupStatus.WRONG_STATE),
            (lookup.pd != entry.pd, LookupStatus.WRONG_PD),
            (
                (entry.kind == EntryKind.WINDOW_2B) & (lookup.qpn != entry.qpn),
                LookupStatus.WRONG_QPN,
            ),
            (any_right(lookup.rights, ~entry.rights), LookupStatus.RIGHTS_MISSING),
            (
                (lookup.address < entry.base) | (end > entry.limit) | (entry.base == entry.limit),
                LookupStatus.OUT_OF_BOUNDS,
            ),
            (atomic & Cat(position[:3]).any(), LookupStatus.MISALIGNED),
        )
        m.d.comb += self.status.eq(LookupStatus.OK)
        for failed, status in reversed(failures):
            with m.If(failed):
                m.d.comb += self.status.eq(status)
        with m.If(self.bypass):
            m.d.comb += self.status.eq(LookupStatus.OK)
        return m
