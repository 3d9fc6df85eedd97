"""What a lookup is answered follows from the lookup and the contents, however they are read."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import (
    EntryKind,
    EntryState,
    LookupStatus,
    Rights,
    beat_layout,
    entry_layout,
    lookup_layout,
    translation_layout,
)
from rtl.monitor import any_of
from sim.netlist import Design
from sim.prover import Result, Verdict, induct, model, prove, refute
from tb.formal.environment import PortChoiceSignature, Requester, clocked
from tb.formal.given import GivenTable
from tb.formal.small import harness_of

LEMMA, PROOF = "mislaid", "differs"
"""The outputs to prove: the first from itself, the second from the first."""

COVERS = ("walked", "failed", "refused")
"""Outputs that have to be reached."""


class Answer(Component):
    """The beats of a lookup, of an entry and translations that don't change. Combinational.

    Written once more from the contract, as if there were no clock and no stages.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    lookup : In(lookup_layout)
    in_use : In(1)
        Its tag was in flight when it came.
    entry : In(entry_layout)
        That of its index.
    row : In(translation_layout).array(config.translations)
    number : In(config.length_width)
        Which beat, from 0 on.
    beat : Out(beat_layout)
        Without the ghost.
    status : Out(LookupStatus)
        Whatever the translations hold.
    translation : Out(config.translation_bits)
    offset : Out(config.page_shift_max)
        Where in its page the beat begins.
    remaining : Out(config.length_width)
        Bytes from there on.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "lookup": In(lookup_layout(config)),
                "in_use": In(1),
                "entry": In(entry_layout(config)),
                "row": In(translation_layout(config)).array(config.translations),
                "number": In(config.length_width),
                "beat": Out(beat_layout(config)),
                "status": Out(LookupStatus),
                "translation": Out(config.translation_bits),
                "offset": Out(config.page_shift_max),
                "remaining": Out(config.length_width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, beat = self._config, self.beat
        lookup, entry = self.lookup, self.entry

        # Who may do what, where.
        asked, granted = Value.cast(lookup.rights), Value.cast(entry.rights)
        atomic = (asked & Rights.REMOTE_ATOMIC.value) != 0
        remote = (asked & (Rights.REMOTE_READ.value | Rights.REMOTE_WRITE.value)) != 0
        wide = config.address_width + 1
        position = Signal(wide)
        m.d.comb += position.eq(entry.offset + lookup.address - entry.base)
        inside = (entry.base <= lookup.address) & (lookup.address + lookup.length <= entry.limit)
        verdict = self.status
        with m.If(self.in_use):
            m.d.comb += verdict.eq(LookupStatus.TAG_IN_USE)
        with m.Elif((lookup.length == 0) & remote & ~atomic):
            m.d.comb += verdict.eq(LookupStatus.OK)
        with m.Elif(lookup.key.index >= config.entries):
            m.d.comb += verdict.eq(LookupStatus.INDEX_OUT_OF_RANGE)
        with m.Elif(lookup.key.variant != entry.variant):
            m.d.comb += verdict.eq(LookupStatus.WRONG_VARIANT)
        with m.Elif(entry.state != EntryState.VALID):
            m.d.comb += verdict.eq(LookupStatus.WRONG_STATE)
        with m.Elif(lookup.pd != entry.pd):
            m.d.comb += verdict.eq(LookupStatus.WRONG_PD)
        with m.Elif((entry.kind == EntryKind.WINDOW_2B) & (lookup.qpn != entry.qpn)):
            m.d.comb += verdict.eq(LookupStatus.WRONG_QPN)
        with m.Elif((asked & granted) != asked):
            m.d.comb += verdict.eq(LookupStatus.RIGHTS_MISSING)
        with m.Elif(~inside | (entry.base == entry.limit)):
            m.d.comb += verdict.eq(LookupStatus.OUT_OF_BOUNDS)
        with m.Elif(atomic & (position % 8 != 0)):
            m.d.comb += verdict.eq(LookupStatus.MISALIGNED)

        # Page after page: of the bytes up to `end`, this beat has those from `start` to `stop`.
        page = Signal(wide + 1)
        start = Signal(wide + 2)
        stop = Signal(wide + 2)
        end = Signal(wide + 2)
        behind = (page + 1) << entry.page_shift
        m.d.comb += [
            page.eq((position >> entry.page_shift) + self.number),
            start.eq(Mux(self.number == 0, position, page << entry.page_shift)),
            end.eq(position + lookup.length),
            stop.eq(Mux(behind < end, behind, end)),
            self.translation.eq(entry.first_translation + page),
            self.offset.eq(start & ((1 << entry.page_shift) - 1)),
            self.remaining.eq(Mux(verdict == LookupStatus.OK, end - start, 0)),
        ]
        row = data.View(
            translation_layout(config),
            Array(Value.cast(row) for row in self.row)[self.translation],
        )
        m.d.comb += [
            beat.tag.eq(lookup.tag),
            beat.first.eq(self.number == 0),
            beat.last.eq(1),
            beat.status.eq(verdict),
        ]
        with m.If((verdict == LookupStatus.OK) & (lookup.length != 0)):
            with m.If(row.present):
                m.d.comb += [
                    beat.last.eq(stop == end),
                    beat.length.eq(stop - start),
                    beat.address.eq((row.frame << config.page_shift_min) | self.offset),
                ]
            with m.Else():
                m.d.comb += beat.status.eq(LookupStatus.NO_TRANSLATION)
        return m


class AnswerHarness(Component):
    """The table with contents that stay what they are, and one lookup of each port that is watched.

    Entries and translations hold anything, but a usable entry has pages of a size that there is;
    an entry that no watched lookup names may hold something else in each cycle. Any lookup can be
    the one that is watched.

    Parameters
    ----------
    config : TableConfig
        Under ``apply_now``, whose pipelines have nothing but the three stages.

    Members
    -------
    clk : In(1)
    port : In(PortChoiceSignature).array(config.ports)
    watch : In(config.ports)
        The lookup that comes in this cycle is to be watched.
    index : In(config.index_bits)
        Of the entry that stays what it is: the last value before the table is ready.
    entry : In(entry_layout).array(config.entries)
    row : In(translation_layout).array(config.translations)
        The same of what they hold.
    mislaid : Out(1)
        A watched lookup isn't where its turn is, or what a stage holds of it is not what its next
        beat must be; or a beat is on offer, and no lookup waits for one.
    differs : Out(1)
        A beat of a watched lookup is not what it must be.
    walked, failed, refused : Out(1)
        Not to be proved, but to be reached: a second page is delivered; a second page is missing;
        a tag is in use.
    """

    def __init__(self, config: TableConfig):
        self.config = config
        super().__init__(
            {
                "clk": In(1),
                "port": In(PortChoiceSignature(config)).array(config.ports),
                "watch": In(config.ports),
                "index": In(config.index_bits),
                "entry": In(entry_layout(config)).array(config.entries),
                "row": In(translation_layout(config)).array(config.translations),
                "mislaid": Out(1),
                "differs": Out(1),
                "walked": Out(1),
                "failed": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        clocked(m, self.clk)
        index = Signal(config.index_bits)
        kept = Signal(entry_layout(config))
        rows = [Signal(translation_layout(config), name=f"row_{n}") for n in range(len(self.row))]
        entries = [Signal(entry_layout(config), name=f"entry_{n}") for n in range(config.entries)]
        for number, (entry, given) in enumerate(zip(entries, self.entry, strict=True)):
            least = config.page_shift_min
            with m.If(index == number):
                m.d.comb += entry.eq(kept)
            with m.Else():
                m.d.comb += entry.eq(given)
            shift = Mux(index == number, kept.page_shift, given.page_shift)
            with m.If((shift < least) | (shift > config.page_shift_max)):
                m.d.comb += entry.page_shift.eq(least)
        entry = data.View(entry_layout(config), Array(Value.cast(e) for e in entries)[index])
        m.submodules.table = table = GivenTable(config, entries, rows, watched=True)
        with m.If(~table.ready):
            m.d.sync += [index.eq(self.index), kept.eq(self.entry[0])]
            m.d.sync += [row.eq(given) for row, given in zip(rows, self.row, strict=True)]

        watches: list[Watch] = []
        for number in range(config.ports):
            m.submodules[f"requester_{number}"] = requester = Requester(config)
            connect(m, requester.choice, flipped(self.port[number]))
            connect(m, requester.lookup, table.lookup[number])
            connect(m, table.beat[number], requester.beat)
            connect(m, requester.dma, table.dma[number])
            connect(m, requester.retire, table.retire[number])
            m.submodules[f"watch_{number}"] = watch = Watch(table, number, index, entry, rows)
            m.d.comb += [
                requester.kill.eq(table.kill[number]),
                watch.starts.eq(self.watch[number]),
            ]
            watches.append(watch)
        for name in (LEMMA, PROOF, *COVERS):
            m.d.comb += getattr(self, name).eq(any_of(*(getattr(w, name) for w in watches)))
        return m


class Watch(Component):
    """Follows one lookup of a port from its admission to its last beat, then perhaps another.

    Parameters
    ----------
    table : GivenTable
    port : int
    index : Signal
        Only lookups of this entry are followed.
    entry : entry_layout
        What it holds.
    row : sequence of translation_layout

    Members
    -------
    starts : In(1)
        Follow the lookup that comes in this cycle, if none is followed.
    mislaid, differs, walked, failed, refused : Out(1)
        The harness's.
    """

    def __init__(
        self,
        table: GivenTable,
        port: int,
        index: Signal,
        entry: Any,
        row: Sequence[ValueLike],
    ):
        self._table, self._port = table, port
        self._index, self._entry, self._row = index, entry, row
        names = (LEMMA, PROOF, *COVERS)
        super().__init__({"starts": In(1), **{name: Out(1) for name in names}})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        table, port, config = self._table, self._port, self._table.config
        lookup, beat = table.lookup[port], table.beat[port]
        comes, leaves = lookup.valid & lookup.ready, beat.valid & beat.ready
        ends = leaves & beat.payload.last

        followed = Signal()
        request = Signal(lookup_layout(config))
        in_use = Signal()
        # Lookups of this port that came and have not had their last beat; those before this one.
        unanswered = Signal(range(5))
        ahead = Signal(range(4))
        number = Signal(config.length_width)
        turn = followed & (ahead == 0)
        m.d.sync += unanswered.eq(unanswered + comes - ends)
        named = lookup.payload.key.index[: len(self._index)] == self._index
        own = table.occupied[port * config.tags : (port + 1) * config.tags]
        with m.If(followed):
            with m.If(turn & leaves):
                m.d.sync += number.eq(number + 1)
            with m.If(turn & ends):
                m.d.sync += followed.eq(0)
            with m.Elif(ends):
                m.d.sync += ahead.eq(ahead - 1)
        with m.Elif(self.starts & comes & named):
            m.d.sync += [
                followed.eq(1),
                request.eq(lookup.payload),
                in_use.eq(own.bit_select(lookup.payload.tag, 1)),
                ahead.eq(unanswered - ends),
                number.eq(0),
            ]

        # This beat, and the one behind it.
        m.submodules.this = this = Answer(config)
        m.submodules.next = following = Answer(config)
        for answer, place in ((this, number), (following, number + 1)):
            m.d.comb += [
                answer.lookup.eq(request),
                answer.in_use.eq(in_use),
                Value.cast(answer.entry).eq(Value.cast(self._entry)),
                answer.number.eq(place),
            ]
            for to, row in zip(answer.row, self._row, strict=True):
                m.d.comb += Value.cast(to).eq(Value.cast(row))
        right = this.beat
        fields = ("tag", "status", "first", "last", "address", "length")
        wrong = any_of(*(getattr(right, name) != getattr(beat.payload, name) for name in fields))

        # Where the lookups of this port are, the oldest first.
        pipeline = port if config.pipelines > 1 else 0
        needs = table.reads[pipeline]
        check, walk, deliver = table.stage[pipeline]
        here = [
            stage.valid & ((stage.port == port) if config.pipelines < config.ports else 1)
            for stage in (check, walk, deliver)
        ]
        fresh = here[1] & ~walk.begun
        begun = here[1] & walk.begun
        place_of_walk = Value.cast(here[2])
        place_of_check = place_of_walk + fresh

        def unlike(need: Any, answer: Answer) -> Value:
            """What a stage holds is not what is needed for an answer."""
            where = any_of(
                need.translation != answer.translation,
                need.offset != answer.offset,
                need.page_shift != self._entry.page_shift,
            )
            return any_of(
                need.status != answer.status,
                need.remaining != answer.remaining,
                (answer.remaining != 0) & where,
            )

        missing = (needs.delivers != 0) & ~needs.row.present
        in_check = followed & here[0] & (ahead == place_of_check)
        in_walk = followed & fresh & (ahead == place_of_walk)
        goes_on = begun & turn & ~missing
        m.d.comb += [
            self.mislaid.eq(
                any_of(
                    unanswered != place_of_check + here[0],
                    followed & (ahead >= unanswered),
                    begun & ~here[2],
                    here[2] & ~beat.payload.last & ~begun,
                    begun & ~missing & beat.payload.last,
                    in_check & ((number != 0) | (check.tag != request.tag)),
                    in_check & unlike(needs.check, this),
                    in_walk & ((number != 0) | (walk.tag != request.tag)),
                    in_walk & unlike(needs.walk, this),
                    goes_on & (walk.tag != request.tag),
                    goes_on & ((needs.walk.remaining == 0) | unlike(needs.walk, following)),
                    turn & here[2] & wrong,
                    beat.valid & (unanswered == 0),
                    ~table.ready & (unanswered != 0),
                )
            ),
            self.differs.eq(beat.valid & turn & wrong),
            self.walked.eq(turn & leaves & ~right.first & (right.length != 0)),
            self.failed.eq(
                turn & leaves & ~right.first & (right.status == LookupStatus.NO_TRANSLATION)
            ),
            self.refused.eq(turn & leaves & (right.status == LookupStatus.TAG_IN_USE)),
        ]
        return m


def answer_design(config: TableConfig, fault: str = "") -> Design:
    """The harness around a table; ``fault`` says what is wrong with it."""
    return harness_of("answer_harness", AnswerHarness, config, fault)


def answer_results(config: TableConfig, limit: int = 120) -> dict[str, Result]:
    """:data:`LEMMA` and :data:`PROOF`, to be proved, and :data:`COVERS`, to be refuted.

    With the policy ``apply_now``; that the others don't differ is what :mod:`tb.formal.miter` is
    about.
    """
    graph = model(answer_design(config))
    lemma = induct(graph, LEMMA, limit=limit)
    known = [LEMMA] if lemma.verdict is Verdict.PROVED else []
    proof = prove(graph, PROOF, never=known, limit=limit)
    covers = {cover: refute(graph, cover, limit=limit) for cover in COVERS}
    return {LEMMA: lemma, PROOF: proof, **covers}
