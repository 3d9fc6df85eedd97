"""From an admitted lookup to its beats."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.admission import admitted_layout
from rtl.check import AccessCheck
from rtl.component import Component
from rtl.config import RetireScope, TableConfig
from rtl.layouts import LookupStatus, beat_layout, entry_layout, translation_layout
from rtl.replay import DEPTH, ReplayBuffer
from rtl.tables import ReadSignature
from rtl.watched import WatchedReadsSignature, WatchedStageSignature


def delivery_layout(config: TableConfig) -> data.StructLayout:
    """A beat, and what the rest of the table has to know of it.

    ``admitted`` says that the lookup has a slot, ``retires`` that it gives it back with this beat,
    ``touches`` that the beat ends a lookup whose entry was used.
    """
    return data.StructLayout(
        {
            "beat": beat_layout(config),
            "port": admitted_layout(config)["port"].shape,
            "index": config.index_bits,
            "admitted": 1,
            "retires": 1,
            "touches": 1,
        }
    )


class OfferSignature(wiring.Signature):
    """The beat at the end of a pipeline, seen from the pipeline, and what becomes of it.

    ``admitted`` says that its lookup has a slot, and only then it is asked what becomes of it:
    with ``abort`` it is an ``ABORTED`` one, with ``replay`` its lookup starts anew, or is aborted
    if a beat of it has been offered before. While ``fixed`` is high, the beat has been offered,
    and no answer counts. In a cycle in which the lookup starts anew, ``replayed`` is high, and
    nothing is offered.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "valid": Out(1),
                "admitted": Out(1),
                "fixed": Out(1),
                "replayed": Out(1),
                "abort": In(1),
                "replay": In(1),
            }
        )


class LookupPipeline(Component):
    """Check, walk and deliver: one lookup a cycle in, one beat a cycle out.

    Both tables are read synchronously, the MPT in the cycle of admission, the MTT two cycles
    later for the first page and one page a cycle from then on. The first beat is offered three
    cycles after admission unless something is in its way. A beat that is not accepted holds up
    everything behind it. A page without translation ends its lookup, and so does an abort.

    With ``replays``, a lookup whose first beat may not be offered starts anew, and so does every
    lookup behind it. The first beat then comes four cycles later.

    Parameters
    ----------
    config : TableConfig
    replays : bool
        A lookup can start anew.

    Members
    -------
    admitted : In(stream.Signature(admitted_layout))
    entry : Out(ReadSignature(entry_layout, config.entries))
    translation : Out(ReadSignature(translation_layout, config.translations))
    delivery : Out(stream.Signature(delivery_layout))
    offer : Out(OfferSignature)
    stage : Out(WatchedStageSignature).array(stages(replays))
        The lookups in check, walk and deliver, and those that are to start anew.
    issue : Out(WatchedStageSignature)
        The lookup whose entry is read in this cycle.
    astray : Out(1)
        What is kept for a replay isn't what is in the pipeline.
    reads : Out(WatchedReadsSignature)
        Only with ``config.ghost_version``.
    """

    def __init__(self, config: TableConfig, replays: bool = False):
        self._config = config
        self._replays = replays
        members = {
            "admitted": In(stream.Signature(admitted_layout(config))),
            "entry": Out(ReadSignature(entry_layout(config), config.entries)),
            "translation": Out(ReadSignature(translation_layout(config), config.translations)),
            "delivery": Out(stream.Signature(delivery_layout(config))),
            "offer": Out(OfferSignature(config)),
            "stage": Out(WatchedStageSignature(config)).array(stages(replays)),
            "issue": Out(WatchedStageSignature(config)),
            "astray": Out(1),
        }
        if config.ghost_version:
            members["reads"] = Out(WatchedReadsSignature(config))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        offer = self.offer

        admitted, buffer = self.admitted, None
        if self._replays:
            m.submodules.buffer = buffer = ReplayBuffer(config)
            connect(m, flipped(self.admitted), buffer.admitted)
            admitted = buffer.issued

        # Check: the entry has been read.
        check_valid = Signal()
        check_item = Signal(admitted_layout(config))
        check_moves = Signal()
        m.submodules.check = check = AccessCheck(config)
        m.d.comb += [
            check.lookup.eq(check_item.lookup),
            check.entry.eq(self.entry.data),
            self.entry.address.eq(admitted.payload.lookup.key.index),
            self.entry.enable.eq(admitted.valid & admitted.ready),
            admitted.ready.eq(~check_valid | check_moves),
        ]
        with m.If(admitted.ready):
            m.d.sync += check_valid.eq(admitted.valid)
        with m.If(self.entry.enable):
            m.d.sync += check_item.eq(admitted.payload)
        m.d.comb += [
            self.issue.valid.eq(self.entry.enable),
            self.issue.admitted.eq(admitted.payload.verdict == LookupStatus.OK),
            self.issue.port.eq(admitted.payload.port),
            self.issue.tag.eq(admitted.payload.lookup.tag),
            self.issue.index.eq(admitted.payload.lookup.key.index),
        ]

        # Walk: one page a cycle. Everything that all beats of a lookup share travels in `common`.
        common_layout = data.StructLayout(
            {
                "tag": config.tag_bits,
                "port": admitted_layout(config)["port"].shape,
                "index": config.index_bits,
                "status": LookupStatus,
                "admitted": 1,
                "bypass": 1,
                "page_shift": entry_layout(config)["page_shift"].shape,
                "ghost": entry_layout(config)["ghost"].shape,
            }
        )
        walk_valid = Signal()
        walk = Signal(common_layout)
        walk_first = Signal()
        walk_translation = Signal(config.translation_bits)
        walk_offset = Signal(config.page_shift_max)
        walk_remaining = Signal(config.length_width)
        walk_moves = Signal()
        walk_cut = Signal()
        walk_last = Signal()
        walk_leaves = Signal()

        room = Signal(config.page_shift_max + 1)
        m.d.comb += [
            room.eq((1 << walk.page_shift) - walk_offset),
            walk_last.eq(walk_remaining <= room),
            walk_leaves.eq(walk_moves & walk_last | walk_cut),
            check_moves.eq(check_valid & (~walk_valid | walk_leaves)),
        ]
        with m.If(check_moves):
            verdict = check_item.verdict
            passed = (verdict == LookupStatus.OK) & (check.status == LookupStatus.OK)
            m.d.sync += [
                walk_valid.eq(1),
                walk.tag.eq(check_item.lookup.tag),
                walk.port.eq(check_item.port),
                walk.index.eq(check_item.lookup.key.index),
                walk.status.eq(Mux(verdict == LookupStatus.OK, check.status, verdict)),
                walk.admitted.eq(verdict == LookupStatus.OK),
                walk.bypass.eq(check.bypass),
                walk.page_shift.eq(self.entry.data.page_shift),
                walk.ghost.eq(self.entry.data.ghost),
                walk_first.eq(1),
                walk_translation.eq(check.translation),
                walk_offset.eq(check.page_offset),
                walk_remaining.eq(Mux(passed, check_item.lookup.length, 0)),
            ]
        with m.Elif(walk_leaves):
            m.d.sync += walk_valid.eq(0)
        with m.Elif(walk_moves):
            m.d.sync += [
                walk_first.eq(0),
                walk_translation.eq(walk_translation + 1),
                walk_offset.eq(0),
                walk_remaining.eq(walk_remaining - room),
            ]
        m.d.comb += [
            self.translation.enable.eq(walk_moves),
            self.translation.address.eq(walk_translation),
        ]

        # Deliver: the translation has been read.
        out_valid = Signal()
        out = Signal(common_layout)
        out_first = Signal()
        out_last = Signal()
        out_offset = Signal(config.page_shift_max)
        out_length = Signal(config.length_width)
        out_leaves = Signal()
        missing = Signal()
        aborted = Signal()
        m.d.comb += [
            out_leaves.eq(self.delivery.valid & self.delivery.ready),
            missing.eq((out_length != 0) & ~self.translation.data.present),
            # What is left of a lookup whose page was missing never gets here.
            walk_cut.eq(walk_valid & ~walk_first & out_valid & (missing | aborted)),
            walk_moves.eq(walk_valid & ~walk_cut & (~out_valid | out_leaves)),
        ]
        with m.If(walk_moves):
            m.d.sync += [
                out_valid.eq(1),
                out.eq(walk),
                out_first.eq(walk_first),
                out_last.eq(walk_last),
                out_offset.eq(walk_offset),
                out_length.eq(Mux(walk_last, walk_remaining, room)),
            ]
        with m.Elif(out_leaves):
            m.d.sync += out_valid.eq(0)

        delivery = self.delivery.payload
        beat = delivery.beat
        ok = Signal()
        m.d.comb += [
            self.delivery.valid.eq(out_valid & ~offer.replayed),
            beat.tag.eq(out.tag),
            beat.status.eq(
                Mux(
                    aborted,
                    LookupStatus.ABORTED,
                    Mux(missing, LookupStatus.NO_TRANSLATION, out.status),
                )
            ),
            beat.first.eq(out_first),
            beat.last.eq(out_last | missing | aborted),
            ok.eq(beat.status == LookupStatus.OK),
            delivery.port.eq(out.port),
            delivery.index.eq(out.index),
            delivery.admitted.eq(out.admitted),
            delivery.touches.eq(ok & beat.last & ~out.bypass),
        ]
        with m.If(ok & (out_length != 0)):
            m.d.comb += [
                beat.length.eq(out_length),
                beat.address.eq(
                    (self.translation.data.frame << config.page_shift_min) | out_offset
                ),
            ]
        if config.ghost_version:
            m.d.comb += [
                beat.ghost.version.eq(out.ghost.version),
                beat.ghost.expected.eq(out.ghost.stamp),
                beat.ghost.found.eq(self.translation.data.stamp),
            ]

        # What becomes of a beat is decided when it is offered, once: then it can't change any more.
        fixed = Signal()
        fixed_abort = Signal()
        asked = out_valid & out.admitted & ~fixed
        m.d.sync += [
            fixed.eq(self.delivery.valid & ~self.delivery.ready),
            fixed_abort.eq(aborted),
        ]
        m.d.comb += [
            offer.valid.eq(out_valid),
            offer.admitted.eq(out.admitted),
            offer.fixed.eq(fixed),
            aborted.eq(
                Mux(
                    fixed,
                    fixed_abort,
                    asked & ~offer.replayed & (offer.abort | offer.replay),
                )
            ),
        ]
        if buffer is not None:
            m.d.comb += [
                offer.replayed.eq(asked & offer.replay & out_first),
                buffer.settled.eq(self.delivery.valid & out_first & ~fixed),
                buffer.rewind.eq(offer.replayed),
            ]
            with m.If(offer.replayed):
                m.d.sync += [check_valid.eq(0), walk_valid.eq(0), out_valid.eq(0)]

        stages = (
            (check_valid, check_item.verdict == LookupStatus.OK, 0, check_item),
            (walk_valid, walk.admitted, ~walk_first, walk),
            (out_valid, out.admitted, 0, out),
        )
        for stage, (valid, has_slot, begun, item) in zip(self.stage, stages, strict=False):
            common = item is not check_item
            m.d.comb += [
                stage.valid.eq(valid),
                stage.admitted.eq(has_slot),
                stage.begun.eq(begun),
                stage.port.eq(item.port),
                stage.tag.eq(item.tag if common else item.lookup.tag),
                stage.index.eq(item.index if common else item.lookup.key.index),
            ]

        if config.ghost_version:
            reads = self.reads
            first, rest = reads.check, reads.walk
            passed = (check_item.verdict == LookupStatus.OK) & (check.status == LookupStatus.OK)
            m.d.comb += [
                first.translation.eq(check.translation),
                first.offset.eq(check.page_offset),
                first.remaining.eq(Mux(passed, check_item.lookup.length, 0)),
                first.page_shift.eq(self.entry.data.page_shift),
                first.stamp.eq(self.entry.data.ghost.stamp),
                first.status.eq(
                    Mux(check_item.verdict == LookupStatus.OK, check.status, check_item.verdict)
                ),
                rest.translation.eq(walk_translation),
                rest.offset.eq(walk_offset),
                rest.remaining.eq(walk_remaining),
                rest.page_shift.eq(walk.page_shift),
                rest.stamp.eq(walk.ghost.stamp),
                rest.status.eq(walk.status),
                reads.delivers.eq(out_length),
                reads.expects.eq(out.ghost.stamp),
                reads.reads_entry.eq(self.entry.enable),
                reads.of.eq(self.entry.address),
                reads.entry.eq(self.entry.data),
                reads.reads_row.eq(self.translation.enable),
                reads.at.eq(self.translation.address),
                reads.row.eq(self.translation.data),
            ]

        if buffer is not None:
            self._watch_buffer(
                m,
                buffer,
                (out_valid & out_first & ~fixed, walk_valid & walk_first, check_valid),
            )

        retires = beat.last & out.admitted
        if config.scope is RetireScope.DMA:
            # Whoever got an OK beat keeps its slot until the DMA engine returns the tag.
            answered = Signal()
            with m.If(out_leaves):
                m.d.sync += answered.eq(~beat.last & (answered | ok))
            retires = retires & ~answered & ~ok
        m.d.comb += delivery.retires.eq(retires)
        return m

    def _watch_buffer(
        self, m: Module, buffer: ReplayBuffer, unsettled: tuple[ValueLike, ValueLike, ValueLike]
    ) -> None:
        """Compares what is kept with what is in the pipeline, from deliver back to check."""
        place: ValueLike = 0
        differs = []
        for number, present in enumerate(unsettled):
            stage = self.stage[2 - number]
            kept = data.View(
                admitted_layout(self._config),
                Array(Value.cast(item) for item in buffer.item)[place],
            )
            same = (
                (kept.lookup.tag == stage.tag)
                & (kept.lookup.key.index[: len(stage.index)] == stage.index)
                & (kept.port == stage.port)
                & ((kept.verdict == LookupStatus.OK) == stage.admitted)
            )
            differs.append(present & ~same)
            place = place + Value.cast(present)
        m.d.comb += self.astray.eq(Cat(differs).any() | (place != buffer.issued_count))
        for number, item in enumerate(buffer.item):
            waits = self.stage[3 + number]
            m.d.comb += [
                waits.valid.eq((number >= buffer.issued_count) & (number < buffer.kept_count)),
                waits.admitted.eq(item.verdict == LookupStatus.OK),
                waits.port.eq(item.port),
                waits.tag.eq(item.lookup.tag),
                waits.index.eq(item.lookup.key.index),
            ]


def stages(replays: bool) -> int:
    """Lookups that a pipeline can hold, those among them that wait to start anew."""
    return 3 + (DEPTH if replays else 0)
