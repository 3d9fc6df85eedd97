"""May this command do what it asks, and what would the entry be then?"""

from amaranth.hdl import Module, Mux, Signal, ValueLike
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import SecondInvalidate, TableConfig
from rtl.layouts import (
    CommandStatus,
    EntryKind,
    EntryState,
    Opcode,
    Rights,
    any_right,
    command_layout,
    entry_layout,
)


class PageCount(Component):
    """How many pages a range touches. Combinational.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    offset : In(config.page_shift_max)
        Place of the first byte in the first page.
    length : In(config.address_width + 1)
        Bytes.
    page_shift : In
    pages : Out(config.address_width + 1)
        0 for no bytes.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "offset": In(config.page_shift_max),
                "length": In(config.address_width + 1),
                "page_shift": In(range(config.page_shift_max + 1)),
                "pages": Out(config.address_width + 1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last_byte = Signal(self._config.address_width + 2)
        m.d.comb += last_byte.eq(self.offset + self.length - 1)
        with m.If(self.length != 0):
            m.d.comb += self.pages.eq((last_byte >> self.page_shift) + 1)
        return m


class Legality(Component):
    """Checks a command against its entry and makes the entry that it asks for. Combinational.

    The first failure wins, in the order in which the rules of an opcode stand below.
    ``entry_status`` is the verdict on the command and its own entry. A bind that passes it has to
    pass ``parent_status``, the verdict on the region of the window, too.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    command : In(command_layout)
    entry : In(entry_layout)
        The entry that the command names.
    windows : In(1)
        Windows are bound to that entry.
    parent : In(entry_layout)
        The entry that ``command.parent`` names.
    entry_status, parent_status : Out(CommandStatus)
    pages : Out(config.translation_bits + 1)
        Translations of the region that the command describes.
    idle : Out(1)
        If the command succeeds, nothing changes.
    keeps_translations : Out(1)
        A re-registration keeps the translations as they are.
    bound : Out(1)
        The entry is a bound window.
    changed : Out(entry_layout)
        What becomes of the entry if the command succeeds.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "command": In(command_layout(config)),
                "entry": In(entry_layout(config)),
                "windows": In(1),
                "parent": In(entry_layout(config)),
                "entry_status": Out(CommandStatus),
                "parent_status": Out(CommandStatus),
                "pages": Out(config.translation_bits + 1),
                "idle": Out(1),
                "keeps_translations": Out(1),
                "bound": Out(1),
                "changed": Out(entry_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        command, entry, parent = self.command, self.entry, self.parent

        is_region = entry.kind == EntryKind.REGION
        is_window_1 = entry.kind == EntryKind.WINDOW_1
        asks_region = command.kind == EntryKind.REGION

        entry_count = PageCount(config)
        m.submodules.entry_count = entry_count
        m.d.comb += [
            entry_count.offset.eq(entry.offset),
            entry_count.length.eq(entry.limit - entry.base),
            entry_count.page_shift.eq(entry.page_shift),
            self.bound.eq(
                ~is_region & (entry.state == EntryState.VALID) & (entry.base != entry.limit)
            ),
        ]

        command_count = PageCount(config)
        m.submodules.command_count = command_count
        # In the address space of the region that a window is to be bound to.
        end = Signal(config.address_width + 2)
        # In that of the entry itself.
        base = Signal(config.address_width)
        limit = Signal.like(end)
        page_mask = Signal(config.page_shift_max)
        misaligned = Signal()
        bad_shift = Signal()
        m.d.comb += [
            command_count.offset.eq(command.offset),
            command_count.length.eq(command.length),
            command_count.page_shift.eq(command.page_shift),
            self.pages.eq(command_count.pages),
            end.eq(command.base + command.length),
            base.eq(Mux(command.zero_based, 0, command.base)),
            limit.eq(base + command.length),
            page_mask.eq((1 << command.page_shift) - 1),
            bad_shift.eq(
                (command.page_shift < config.page_shift_min)
                | (command.page_shift > config.page_shift_max)
            ),
            misaligned.eq((command.frame & (page_mask >> config.page_shift_min)).any()),
        ]
        bad_page = (
            bad_shift
            | ((command.translations != 0) & misaligned)
            | (command.offset & ~page_mask).any()
        )
        outside = (
            (limit > 1 << config.address_width)
            | (command.first_translation + command_count.pages > config.translations)
            | (command.translations > command_count.pages)
        )
        same_range = command.first_translation == entry.first_translation
        overlap = (
            (command_count.pages != 0)
            & (entry.translations != 0)
            & (command.first_translation < entry.first_translation + entry.translations)
            & (entry.first_translation < command.first_translation + command_count.pages)
        )
        is_free = entry.state == EntryState.FREE
        not_owned = ~same_range | (command_count.pages > entry.translations)
        keeps = self.keeps_translations
        m.d.comb += keeps.eq(same_range & (command.translations == 0))

        Status = CommandStatus
        not_valid = entry.state != EntryState.VALID
        wrong_variant = command.key.variant != entry.variant
        wrong_pd = command.pd != entry.pd
        windows_bound = is_region & self.windows

        def verdict(target: Signal, *failures: tuple[ValueLike, CommandStatus]) -> None:
            for failed, status in reversed(failures):
                with m.If(failed):
                    m.d.comb += target.eq(status)

        invalidates = (command.opcode == Opcode.LOCAL_INVALIDATE) | (
            command.opcode == Opcode.REMOTE_INVALIDATE
        )
        m.d.comb += self.idle.eq((command.opcode == Opcode.QUERY) | (invalidates & not_valid))

        status = self.entry_status
        known = Signal(init=1)
        invalidate_rules = (
            (entry.state == EntryState.INVALID, Status.WRONG_STATE),
            (wrong_variant, Status.WRONG_VARIANT),
            # o10-37.2.26
            (is_window_1, Status.WRONG_KIND),
            (wrong_pd, Status.WRONG_PD),
        )
        refuses_second = config.second_invalidate is SecondInvalidate.ERROR
        last_invalidate_rules = (
            (windows_bound, Status.WINDOWS_BOUND),
            (not_valid & refuses_second, Status.ALREADY_FREE),
        )
        with m.Switch(command.opcode):
            with m.Case(Opcode.REGISTER):
                verdict(
                    status,
                    (entry.state != EntryState.INVALID, Status.WRONG_STATE),
                    (bad_page, Status.BAD_PAGE),
                    (outside, Status.OUT_OF_BOUNDS),
                )
            with m.Case(Opcode.FAST_REGISTER):
                verdict(
                    status,
                    (~is_free, Status.WRONG_STATE),
                    (~is_region, Status.WRONG_KIND),
                    (wrong_pd, Status.WRONG_PD),
                    (bad_page, Status.BAD_PAGE),
                    (outside, Status.OUT_OF_BOUNDS),
                    (not_owned, Status.RANGE_NOT_OWNED),
                )
            with m.Case(Opcode.ALLOCATE):
                verdict(
                    status,
                    (entry.state != EntryState.INVALID, Status.WRONG_STATE),
                    (
                        asks_region
                        & (command.first_translation + command.translations > config.translations),
                        Status.OUT_OF_BOUNDS,
                    ),
                )
            with m.Case(Opcode.DEALLOCATE):
                verdict(
                    status,
                    (entry.state == EntryState.INVALID, Status.WRONG_STATE),
                    (is_region, Status.WRONG_KIND),
                )
            with m.Case(Opcode.WRITE_TRANSLATION):
                verdict(
                    status,
                    (bad_shift | misaligned, Status.BAD_PAGE),
                    (
                        command.first_translation + command.translations > config.translations,
                        Status.OUT_OF_BOUNDS,
                    ),
                )
            with m.Case(Opcode.REREGISTER):
                verdict(
                    status,
                    (not_valid, Status.WRONG_STATE),
                    (~is_region, Status.WRONG_KIND),
                    (windows_bound, Status.WINDOWS_BOUND),
                    (bad_page, Status.BAD_PAGE),
                    (outside, Status.OUT_OF_BOUNDS),
                    (keeps & (command_count.pages > entry_count.pages), Status.OUT_OF_BOUNDS),
                    (keeps & (command.page_shift != entry.page_shift), Status.BAD_PAGE),
                    (~keeps & overlap, Status.RANGE_IN_USE),
                )
            with m.Case(Opcode.DEREGISTER):
                verdict(
                    status,
                    (entry.state == EntryState.INVALID, Status.WRONG_STATE),
                    (~is_region, Status.WRONG_KIND),
                    (windows_bound, Status.WINDOWS_BOUND),
                )
            with m.Case(Opcode.LOCAL_INVALIDATE):
                verdict(status, *invalidate_rules, *last_invalidate_rules)
            with m.Case(Opcode.REMOTE_INVALIDATE):
                verdict(
                    status,
                    # o9-5.2.1
                    (~command.header_valid, Status.HEADER_INVALID),
                    *invalidate_rules,
                    (
                        (entry.kind == EntryKind.WINDOW_2B) & (command.qpn != entry.qpn),
                        Status.WRONG_QPN,
                    ),
                    (~entry.remote_invalidate, Status.NOT_ENABLED),
                    *last_invalidate_rules,
                )
            with m.Case(Opcode.BIND):
                verdict(
                    status,
                    (entry.state == EntryState.INVALID, Status.WRONG_STATE),
                    (wrong_variant, Status.WRONG_VARIANT),
                    (is_region, Status.WRONG_KIND),
                    # o10-37.2.30
                    (~is_window_1 & ~not_valid, Status.ALREADY_BOUND),
                    # C10-72
                    (wrong_pd, Status.WRONG_PD),
                    # o10-37.2.40
                    (~is_window_1 & (command.length == 0), Status.ZERO_LENGTH),
                    # o10-36.2.2
                    (is_window_1 & command.zero_based, Status.ZERO_BASED),
                )
            with m.Case(Opcode.QUERY):
                pass
            with m.Default():
                m.d.comb += [status.eq(Status.UNKNOWN_OPCODE), known.eq(0)]
        with m.If(known):
            verdict(status, (command.key.index >= config.entries, Status.INDEX_OUT_OF_RANGE))

        needs_local_write = any_right(command.rights, Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
        verdict(
            self.parent_status,
            (command.parent.index >= config.entries, Status.PARENT_OUT_OF_RANGE),
            (parent.state != EntryState.VALID, Status.PARENT_STATE),
            (command.parent.variant != parent.variant, Status.PARENT_VARIANT),
            (parent.kind != EntryKind.REGION, Status.PARENT_KIND),
            # C10-72
            (command.pd != parent.pd, Status.PARENT_PD),
            (parent.zero_based, Status.PARENT_ZERO_BASED),
            # C10-73
            (~any_right(parent.rights, Rights.BIND), Status.BIND_NOT_ALLOWED),
            # C10-74
            (
                needs_local_write & ~any_right(parent.rights, Rights.LOCAL_WRITE),
                Status.LOCAL_WRITE_MISSING,
            ),
            # C10-75
            ((command.base < parent.base) | (end > parent.limit), Status.OUTSIDE_PARENT),
        )

        changed = self.changed
        position = Signal(config.address_width + 1)
        m.d.comb += position.eq(command.base - parent.base + parent.offset)
        with m.Switch(command.opcode):
            with m.Case(Opcode.ALLOCATE):
                m.d.comb += [
                    changed.state.eq(
                        Mux(command.kind == EntryKind.WINDOW_1, EntryState.VALID, EntryState.FREE)
                    ),
                    changed.kind.eq(command.kind),
                    changed.variant.eq(command.key.variant),
                    changed.pd.eq(command.pd),
                    changed.qpn.eq(command.qpn),
                    changed.remote_invalidate.eq(command.remote_invalidate),
                ]
                with m.If(asks_region):
                    m.d.comb += [
                        changed.first_translation.eq(command.first_translation),
                        changed.translations.eq(command.translations),
                        changed.parent.eq(command.key.index),
                    ]
            with m.Case(Opcode.REGISTER, Opcode.FAST_REGISTER, Opcode.REREGISTER):
                fast = command.opcode == Opcode.FAST_REGISTER
                reregisters = command.opcode == Opcode.REREGISTER
                m.d.comb += [
                    changed.state.eq(EntryState.VALID),
                    changed.kind.eq(EntryKind.REGION),
                    changed.variant.eq(Mux(reregisters, command.variant, command.key.variant)),
                    changed.pd.eq(command.pd),
                    changed.qpn.eq(command.qpn),
                    changed.remote_invalidate.eq(command.remote_invalidate),
                    changed.zero_based.eq(command.zero_based),
                    changed.rights.eq(command.rights),
                    changed.base.eq(base),
                    changed.limit.eq(limit),
                    changed.page_shift.eq(command.page_shift),
                    changed.offset.eq(command.offset),
                    changed.first_translation.eq(command.first_translation),
                    # What keeps its range keeps all of it.
                    changed.translations.eq(
                        Mux(fast | reregisters & keeps, entry.translations, command_count.pages)
                    ),
                    changed.parent.eq(command.key.index),
                ]
            with m.Case(Opcode.LOCAL_INVALIDATE, Opcode.REMOTE_INVALIDATE):
                m.d.comb += [changed.eq(entry), changed.state.eq(EntryState.FREE)]
                with m.If(~is_region):
                    m.d.comb += [
                        changed.zero_based.eq(0),
                        changed.base.eq(0),
                        changed.limit.eq(0),
                    ]
            with m.Case(Opcode.BIND):
                m.d.comb += [
                    changed.eq(entry),
                    changed.state.eq(EntryState.VALID),
                    changed.variant.eq(command.variant),
                    changed.base.eq(0),
                    changed.limit.eq(0),
                    changed.rights.eq(0),
                ]
                with m.If(command.length != 0):
                    m.d.comb += [
                        changed.zero_based.eq(command.zero_based),
                        changed.rights.eq(command.rights),
                        changed.base.eq(base),
                        changed.limit.eq(limit),
                        changed.page_shift.eq(parent.page_shift),
                        changed.offset.eq(position & ((1 << parent.page_shift) - 1)),
                        changed.first_translation.eq(
                            parent.first_translation + (position >> parent.page_shift)
                        ),
                        changed.parent.eq(command.parent.index),
                    ]
                with m.If(entry.kind == EntryKind.WINDOW_2B):
                    m.d.comb += changed.qpn.eq(command.qpn)
        if config.ghost_version:
            m.d.comb += [
                changed.ghost.eq(entry.ghost),
                changed.ghost.version.eq(entry.ghost.version + 1),
            ]
            registers = (command.opcode == Opcode.REGISTER) | (
                command.opcode == Opcode.FAST_REGISTER
            )
            replaces = (command.opcode == Opcode.REREGISTER) & ~keeps
            with m.If(registers | replaces):
                m.d.comb += [
                    changed.ghost.registrations.eq(entry.ghost.registrations + 1),
                    changed.ghost.stamp.owner.eq(command.key.index),
                    changed.ghost.stamp.version.eq(entry.ghost.registrations + 1),
                ]
            with m.Elif((command.opcode == Opcode.BIND) & (command.length != 0)):
                m.d.comb += changed.ghost.stamp.eq(parent.ghost.stamp)
        return m
