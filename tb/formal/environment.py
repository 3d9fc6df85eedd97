"""Everybody around the table, free to do whatever the rules permit.

Nothing here is random: each choice is an input of the harness, and a proof holds for every value
of every input in every cycle.
"""

from typing import Any

from amaranth.hdl import Array, Cat, ClockDomain, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import RetireScope, TableConfig
from rtl.layouts import (
    CommandStatus,
    EntryKind,
    LookupStatus,
    Opcode,
    beat_signature,
    command_layout,
    command_signature,
    completion_signature,
    lookup_layout,
    lookup_signature,
    tag_signature,
)
from rtl.slots import TagSignature
from rtl.watched import WatchedChangeSignature


class PortChoiceSignature(wiring.Signature):
    """What a requester and its DMA engine choose in this cycle, seen from who chooses."""

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "asks": Out(1),
                "lookup": Out(lookup_layout(config)),
                "accepts": Out(1),
                "issues": Out(1),
                "issued": Out(config.tag_bits),
                "ends": Out(1),
                "ended": Out(config.tag_bits),
            }
        )


class SourceChoiceSignature(wiring.Signature):
    """What a command source chooses in this cycle, seen from who chooses."""

    def __init__(self, config: TableConfig):
        super().__init__(
            {"orders": Out(1), "command": Out(command_layout(config)), "hears": Out(1)}
        )


class Requester(Component):
    """Asks whatever it likes on one port, takes beats when it likes, and does DMA under them.

    It keeps to the rules of the streams: what it offers stays until it is taken. Its DMA engine
    issues beats and returns tags only as the table permits: under a tag with an OK beat that is not
    killed, and once, after the last beat. In scope ``lookup``, where the table doesn't know of the
    DMA, a tag is not used again before the DMA under it has ended.

    Parameters
    ----------
    config : TableConfig
    patience : int, optional
        Cycles after which it takes a beat, and after the last beat of a lookup its tag is returned,
        at the latest; at least 1. Without it, anything may take forever.

    Members
    -------
    patient : In(1)
        If it is low, ``patience`` doesn't count.
    choice : In(PortChoiceSignature)
    lookup, beat, dma, retire : the table's
    kill : In(config.tags)
    silent : Out(1)
        Something has been asked, and no beat is offered.
    working : Out(config.tags)
        Its DMA may issue beats under these.
    """

    def __init__(self, config: TableConfig, patience: int | None = None):
        self._config = config
        self._patience = patience
        super().__init__(
            {
                "patient": In(1),
                "choice": In(PortChoiceSignature(config)),
                "lookup": Out(lookup_signature(config)),
                "beat": In(beat_signature(config)),
                "dma": Out(TagSignature(config)),
                "retire": Out(tag_signature(config)),
                "kill": In(config.tags),
                "silent": Out(1),
                "working": Out(config.tags),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, choice = self._config, self.choice
        asked = Signal(config.tags)
        """Offered or in flight, up to the last beat."""
        working = self.working
        answered = Signal(config.tags)
        """Its last beat has been."""

        # The engine sees that a tag is killed a cycle later.
        killed = Signal(config.tags)
        m.d.sync += killed.eq(self.kill)

        def bit(bits: Value, tag: ValueLike) -> Value:
            return bits.bit_select(Value.cast(tag), 1)

        permitted = Signal(init=1)
        if config.scope is RetireScope.LOOKUP:
            m.d.comb += permitted.eq(~bit(asked | working, choice.lookup.tag))
        offer(m, self.lookup, choice.asks & permitted, choice.lookup)

        beat = self.beat.payload
        accepted = self.beat.valid & self.beat.ready
        refused = (beat.status == LookupStatus.RETRY) | (beat.status == LookupStatus.TAG_IN_USE)
        ended = Signal.like(choice.ended)
        due = Signal(config.tags)
        m.d.comb += [
            ended.eq(choice.ended),
            self.beat.ready.eq(choice.accepts | is_due(m, self.beat, self.patient, self._patience)),
            self.dma.valid.eq(choice.issues & bit(working & ~(self.kill & killed), choice.issued)),
            self.dma.tag.eq(choice.issued),
            self.retire.valid.eq((choice.ends | due.any()) & bit(working & answered, ended)),
            self.retire.payload.eq(ended),
            self.silent.eq((self.lookup.valid | asked.any()) & ~self.beat.valid),
        ]
        if self._patience is not None and config.scope is RetireScope.DMA:
            # Of two tags, the last beats came in different cycles, so only one is due.
            for tag in range(config.tags):
                waits = working[tag] & answered[tag]
                waited = lasts(m, waits, self._patience)
                is_late = Cat(1, waited)[self._patience - 1]
                m.d.comb += due[tag].eq(self.patient & waits & is_late)
                with m.If(due[tag]):
                    m.d.comb += ended.eq(tag)
        with m.If(self.retire.valid):
            m.d.sync += bit(working, ended).eq(0)
        with m.If(accepted & beat.last):
            m.d.sync += bit(asked, beat.tag).eq(0)
        with m.If(accepted & (beat.status == LookupStatus.OK)):
            m.d.sync += bit(working, beat.tag).eq(1)
        # A tag that is in use may be offered again, and is turned away while its lookup goes on.
        with m.If(accepted & ~refused):
            m.d.sync += bit(answered, beat.tag).eq(beat.last)
        with m.If(self.lookup.valid):
            m.d.sync += bit(asked, self.lookup.payload.tag).eq(1)
        return m


class Source(Component):
    """Orders whatever it likes, and remembers what it has ordered.

    Parameters
    ----------
    config : TableConfig
    patience : int, optional
        Cycles after which it takes a completion at the latest.

    Members
    -------
    patient : In(1)
        If it is low, ``patience`` doesn't count.
    choice : In(SourceChoiceSignature)
    command, completion : the table's
    busy : Out(1)
        The command has been taken, and its completion hasn't.
    ordered : Out(command_layout)
    succeeds : Out(1)
        The command completes in this cycle, and succeeds.
    """

    def __init__(self, config: TableConfig, patience: int | None = None):
        self._config = config
        self._patience = patience
        super().__init__(
            {
                "patient": In(1),
                "choice": In(SourceChoiceSignature(config)),
                "command": Out(command_signature(config)),
                "completion": In(completion_signature(config)),
                "busy": Out(1),
                "ordered": Out(command_layout(config)),
                "succeeds": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, completion = self.command, self.completion
        offer(m, command, self.choice.orders, self.choice.command)
        heard = completion.valid & completion.ready
        m.d.comb += [
            completion.ready.eq(
                self.choice.hears | is_due(m, completion, self.patient, self._patience)
            ),
            self.succeeds.eq(heard & (completion.payload.status == CommandStatus.OK)),
        ]
        with m.If(command.valid & command.ready):
            m.d.sync += [self.busy.eq(1), self.ordered.eq(command.payload)]
        with m.Elif(heard):
            m.d.sync += self.busy.eq(0)
        return m


def range_layout(config: TableConfig) -> data.StructLayout:
    """Translations that somebody has, if ``taken``."""
    return data.StructLayout(
        {
            "taken": 1,
            "first": config.translation_bits,
            "count": config.translation_bits + 1,
        }
    )


class Allocation(Component):
    """Says whether the hosts allocate translations as they must.

    ``ranges_apart``: nobody writes or reserves translations that a region has, but for the
    fast registration of its own, and no two at a time the same ones. ``pages_written``: a
    registration writes all its translations, or keeps the ones it has.

    What is given up may already be ordered for somebody else, and then it is the table that has to
    wait: from R of a deregistration on, and from A of a re-registration on.

    Parameters
    ----------
    config : TableConfig
        With one page size.

    Members
    -------
    busy : In(config.sources)
    ordered : In(command_layout).array(config.sources)
    succeeds : In(config.sources)
    change : In(WatchedChangeSignature).array(config.sources)
    owned : Out(range_layout).array(config.entries)
        What each region has, from when it is made until it is gone.
    applied : Out(config.sources)
        The A of the command has been: what it claimed is its entry's.
    ranges_apart, pages_written : Out(1)
    """

    def __init__(self, config: TableConfig):
        assert config.page_shift_min == config.page_shift_max
        self._config = config
        super().__init__(
            {
                "busy": In(config.sources),
                "ordered": In(command_layout(config)).array(config.sources),
                "succeeds": In(config.sources),
                "change": In(WatchedChangeSignature(config)).array(config.sources),
                "owned": Out(range_layout(config)).array(config.entries),
                "applied": Out(config.sources),
                "ranges_apart": Out(1),
                "pages_written": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        shape = range_layout(config)
        owned = list(self.owned)
        claims = [Signal(shape, name=f"claim_{s}") for s in range(config.sources)]
        leaving = Signal(config.entries)
        clashes: list[Value] = []
        unwritten: list[Value] = []

        def clash(a: data.View, b: data.View) -> Value:
            return (
                a.taken
                & b.taken
                & (a.count != 0)
                & (b.count != 0)
                & (a.first < b.first + b.count)
                & (b.first < a.first + a.count)
            )

        for source, (command, change) in enumerate(zip(self.ordered, self.change, strict=True)):
            claim, busy = claims[source], self.busy[source]
            index = command.key.index
            fast = command.opcode == Opcode.FAST_REGISTER
            registers = (command.opcode == Opcode.REGISTER) | fast
            reserves = (command.opcode == Opcode.ALLOCATE) & (command.kind == EntryKind.REGION)
            reregisters = command.opcode == Opcode.REREGISTER
            deregisters = command.opcode == Opcode.DEREGISTER
            writes = registers | reregisters | (command.opcode == Opcode.WRITE_TRANSLATION)
            own = data.View(shape, Array(Value.cast(o) for o in owned)[index])
            pages = Signal(config.address_width + 2, name=f"pages_{source}")
            page = 1 << config.page_shift_min
            last = command.offset + command.length + page - 1
            applied = self.applied[source]
            m.d.sync += applied.eq(busy & (applied | change.applied))
            m.d.comb += [
                pages.eq(Mux(command.length == 0, 0, last >> config.page_shift_min)),
                claim.taken.eq(busy & ~applied & (writes | reserves)),
                claim.first.eq(command.first_translation),
                claim.count.eq(command.translations),
            ]
            keeps = (
                reregisters
                & (command.translations == 0)
                & own.taken
                & (command.first_translation == own.first)
            )
            unwritten.append(
                busy & (registers | reregisters) & (command.translations != pages) & ~keeps
            )
            with m.If(change.in_progress & deregisters):
                m.d.comb += leaving.bit_select(index, 1).eq(1)
            for place, other in enumerate(owned):
                mine = fast & (index == place)
                clashes.append(clash(claim, other) & ~mine & ~leaving[place])
                # Who registers fast keeps what it has, however little of it is used.
                takes = reserves | registers & ~fast | reregisters & ~keeps
                with m.If(change.applied & takes & (index == place)):
                    m.d.sync += [
                        other.taken.eq(1),
                        other.first.eq(claim.first),
                        other.count.eq(claim.count),
                    ]
                with m.Elif(self.succeeds[source] & deregisters & (index == place)):
                    m.d.sync += other.taken.eq(0)
            clashes += [clash(claim, other) for other in claims[:source]]
        m.d.comb += [
            self.ranges_apart.eq(~Cat(clashes).any()),
            self.pages_written.eq(~Cat(unwritten).any()),
        ]
        return m


def offer(m: Module, stream: Any, wants: ValueLike, payload: data.View) -> None:
    """Offers ``payload`` where ``wants`` is high, and goes on offering it until it is taken."""
    holding = Signal()
    held = Signal(payload.shape())
    m.d.comb += [
        stream.valid.eq(holding | wants),
        Value.cast(stream.payload).eq(Mux(holding, Value.cast(held), Value.cast(payload))),
    ]
    m.d.sync += [holding.eq(stream.valid & ~stream.ready), held.eq(stream.payload)]


def is_due(m: Module, stream: Any, patient: Value, patience: int | None) -> Value:
    """What a stream offers has been refused for as many cycles as are permitted."""
    if patience is None:
        return Value.cast(0)
    return patient & lasts(m, stream.valid & ~stream.ready, patience)[patience - 1]


def lasts(m: Module, condition: ValueLike, cycles: int) -> Signal:
    """How long a condition has held without a break: bit ``n`` is high if it was high in each of
    the last ``n + 1`` cycles, up to the one before this.

    One bit for each number: a proof compares two of these without any arithmetic.
    """
    held = Signal(cycles)
    m.d.sync += held.eq(Mux(condition, Cat(1, held), 0))
    return held


def clocked(m: Module, clk: Value) -> None:
    """Runs a harness on a clock of its own, without a reset: reset is at start, and never again."""
    domain: Any = ClockDomain("sync", reset_less=True)
    m.domains += domain
    m.d.comb += domain.clk.eq(clk)
