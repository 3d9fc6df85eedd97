"""What may never happen, whatever the policy."""

from enum import StrEnum

from amaranth.hdl import Array, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import LookupStatus, beat_layout, translation_layout
from rtl.slots import TagSignature, TakeSignature
from rtl.tables import CopiedMemory, WriteSignature


class Guarantee(StrEnum):
    """A statement that holds in every cycle, or is violated.

    R, A and C are the cycles in which a command first asks the arbiter, is written to the table,
    and is reported to its requester. A lookup whose table read falls in the cycle A or before saw
    the old entry.
    """

    UNTORN = "untorn"
    """All beats of one lookup come from one version of the entry, or it ends ``ABORTED``."""
    FRESH_ADMIT = "fresh_admit"
    """A lookup admitted after A is never answered from the version before A."""
    FRESH_ANSWER = "fresh_answer"
    """No OK beat from the version before A is delivered after C."""
    FRESH_DMA = "fresh_dma"
    """No DMA beat under a translation from before A is issued after C."""
    NO_EARLY_REUSE = "no_early_reuse"
    """Neither the index nor its translations are handed to a new owner before C."""


class AcceptedBeatSignature(wiring.Signature):
    """A beat is accepted in this cycle; ``admitted`` says that its lookup has a slot."""

    def __init__(self, config: TableConfig):
        super().__init__({"valid": Out(1), "admitted": Out(1), "beat": Out(beat_layout(config))})


class WatchedChangeSignature(wiring.Signature):
    """What the command of one source does in this cycle, for whoever watches.

    ``requested``, ``applied`` and ``completed`` are high in the cycles R, A and C of a command that
    changes its entry. From R to C ``in_progress`` is high, and ``first`` and ``count`` name the
    translations that the entry had before the command. ``version`` is that of the new entry.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "index": Out(config.index_bits),
                "in_progress": Out(1),
                "requested": Out(1),
                "applied": Out(1),
                "completed": Out(1),
                "first": Out(config.translation_bits),
                "count": Out(config.translation_bits + 1),
                "version": Out(config.ghost_width),
            }
        )


class ViolationSignature(wiring.Signature):
    """Sticky record of the violations of one guarantee.

    ``count`` saturates. ``cycle`` (0 is the first in which the table is ready) and ``port`` are
    those of the first violation; for ``no_early_reuse`` ``port`` is the command source whose
    change was overtaken.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "seen": Out(1),
                "count": Out(32),
                "cycle": Out(40),
                "port": Out(max(2, config.port_bits)),
            }
        )


class Violation(Component):
    """Counts violations and keeps the first. It is seen in the next cycle.

    Parameters
    ----------
    config : TableConfig
    width : int
        Places where the guarantee can be violated in one cycle.

    Members
    -------
    cycle : In(40)
    hits : In(width)
        The guarantee is violated there in this cycle.
    record : Out(ViolationSignature)
    """

    def __init__(self, config: TableConfig, width: int):
        self._width = width
        super().__init__(
            {"cycle": In(40), "hits": In(width), "record": Out(ViolationSignature(config))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        record = self.record
        m.d.comb += record.seen.eq(record.count != 0)
        total = Signal(range((1 << len(record.count)) + self._width))
        m.d.comb += total.eq(record.count + sum(self.hits[i] for i in range(self._width)))
        m.d.sync += record.count.eq(
            Mux(total >> len(record.count), (1 << len(record.count)) - 1, total)
        )
        with m.If(self.hits.any() & ~record.seen):
            m.d.sync += record.cycle.eq(self.cycle)
            for i in reversed(range(self._width)):
                with m.If(self.hits[i]):
                    m.d.sync += record.port.eq(i)
        return m


class Monitor(Component):
    """States each guarantee once, and records whether it held. It drives nothing.

    It knows no policy: it keeps, for the last lookup admitted with each tag of each port, the
    version that was current at its admission, the newest version that has been reported complete
    since, and the version that its first OK beat came from. A lookup of no bytes touches no memory
    and is not judged. DMA activity is judged by the last lookup that was admitted with its tag, so
    a requester must not use a tag again before the DMA under it has ended.

    Versions are compared modulo ``2 ** ghost_width``.

    Parameters
    ----------
    config : TableConfig
        With ``ghost_version``.

    Members
    -------
    take : In(TakeSignature).array(config.ports)
    beat : In(AcceptedBeatSignature).array(config.ports)
    dma : In(TagSignature).array(config.ports)
        The DMA engine of the port issues a beat under this tag.
    change : In(WatchedChangeSignature).array(config.sources)
    translation_write : In(WriteSignature(translation_layout, config.translations))
    violation : Out(ViolationSignature), one for each :class:`Guarantee`
    start : In(1)
        The table is ready; cycles are counted from here on.
    ready : Out(1)
        The monitor's own memories are ready.

    Raises
    ------
    ValueError
        If the configuration has no ``ghost_version``.
    """

    def __init__(self, config: TableConfig):
        if not config.ghost_version:
            raise ValueError("a monitor needs a configuration with ghost_version")
        self._config = config
        super().__init__(
            {
                "take": In(TakeSignature(config)).array(config.ports),
                "beat": In(AcceptedBeatSignature(config)).array(config.ports),
                "dma": In(TagSignature(config)).array(config.ports),
                "change": In(WatchedChangeSignature(config)).array(config.sources),
                "translation_write": In(
                    WriteSignature(translation_layout(config), config.translations)
                ),
                "violation": Out(violations_signature(config)),
                "start": In(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        cycle = Signal(40)
        with m.If(self.start):
            m.d.sync += cycle.eq(cycle + 1)

        hits: dict[Guarantee, Signal] = {}
        for guarantee in Guarantee:
            width = config.sources if guarantee is Guarantee.NO_EARLY_REUSE else config.ports
            m.submodules[guarantee] = violation = Violation(config, width)
            hits[guarantee] = Signal(width, name=f"{guarantee}_hits")
            record = getattr(self.violation, guarantee)
            m.d.comb += [violation.cycle.eq(cycle), violation.hits.eq(hits[guarantee])]
            for name in ("seen", "count", "cycle", "port"):
                m.d.comb += getattr(record, name).eq(getattr(violation.record, name))

        m.submodules.versions = versions = CopiedMemory(
            config.ghost_width, config.entries, config.ports
        )
        m.d.comb += self.ready.eq(versions.ready)
        for change in self.change:
            with m.If(change.applied):
                m.d.comb += [
                    versions.write.enable.eq(1),
                    versions.write.address.eq(change.index),
                    versions.write.data.eq(change.version),
                ]

        # Whose A has been, and whose C has not.
        incomplete = Signal(config.sources)
        for source, change in enumerate(self.change):
            with m.If(change.applied):
                m.d.sync += incomplete[source].eq(1)
            with m.If(change.completed):
                m.d.sync += incomplete[source].eq(0)

        for port in range(config.ports):
            self._watch_port(m, port, versions, incomplete, hits)

        # What a change has not given up yet belongs to it.
        for owner, change in enumerate(self.change):
            others = [c for source, c in enumerate(self.change) if source != owner]
            index_taken = [c.applied & (c.index == change.index) for c in others]
            write = self.translation_write
            translation_taken = (
                write.enable
                & write.data.present
                & (write.address >= change.first)
                & (write.address < change.first + change.count)
            )
            taken = any_of(*index_taken, translation_taken)
            m.d.comb += hits[Guarantee.NO_EARLY_REUSE][owner].eq(change.in_progress & taken)
        return m

    def _watch_port(
        self,
        m: Module,
        port: int,
        versions: CopiedMemory,
        incomplete: Signal,
        hits: dict[Guarantee, Signal],
    ) -> None:
        config = self._config
        take, accepted, dma = self.take[port], self.beat[port], self.dma[port]
        beat = accepted.beat
        read = versions.read[port]
        width = config.ghost_width

        def records(name: str, bits: int) -> list[Signal]:
            return [Signal(bits, name=f"{name}_{port}_{tag}") for tag in range(config.tags)]

        def older(a: ValueLike, b: ValueLike) -> Value:
            return (Value.cast(a) - Value.cast(b))[width - 1]

        index = records("index", config.index_bits)
        current = records("current", width)
        complete = records("complete", width)
        answered = records("answered", 1)
        answer = records("answer", width)

        # The version that was current at admission is known one cycle later.
        taken = Signal(name=f"taken_{port}")
        taken_tag = Signal(config.tag_bits, name=f"taken_tag_{port}")
        m.d.comb += [read.enable.eq(take.valid), read.address.eq(take.index)]
        m.d.sync += [taken.eq(take.valid), taken_tag.eq(take.tag)]

        judged = Signal(name=f"judged_{port}")
        ok = Signal(name=f"ok_{port}")
        m.d.comb += [
            judged.eq(accepted.valid & accepted.admitted),
            ok.eq(judged & (beat.status == LookupStatus.OK) & (beat.length != 0)),
        ]
        for tag in range(config.tags):
            with m.If(taken & (taken_tag == tag)):
                m.d.sync += [current[tag].eq(read.data), complete[tag].eq(read.data)]
                for source, change in enumerate(self.change):
                    with m.If(
                        incomplete[source]
                        & (change.index == index[tag])
                        & (change.version == read.data)
                    ):
                        m.d.sync += complete[tag].eq(read.data - 1)
            for change in self.change:
                with m.If(change.completed & (change.index == index[tag])):
                    m.d.sync += complete[tag].eq(change.version)
            with m.If(ok & (beat.tag == tag)):
                m.d.sync += answered[tag].eq(1)
                with m.If(~answered[tag]):
                    m.d.sync += answer[tag].eq(beat.ghost.version)
            with m.If(take.valid & (take.tag == tag)):
                m.d.sync += [index[tag].eq(take.index), answered[tag].eq(0)]

        was_answered = Array(answered)[beat.tag]
        other_version = was_answered & (Array(answer)[beat.tag] != beat.ghost.version)
        same_stamp = Value.cast(beat.ghost.found) == Value.cast(beat.ghost.expected)
        # A page that was never written has another stamp; one that has it was taken away.
        lost = judged & (beat.status == LookupStatus.NO_TRANSLATION)
        m.d.comb += [
            hits[Guarantee.UNTORN][port].eq(
                (ok & (other_version | ~same_stamp)) | (lost & (other_version | same_stamp))
            ),
            hits[Guarantee.FRESH_ADMIT][port].eq(
                ok & older(beat.ghost.version, Array(current)[beat.tag])
            ),
            hits[Guarantee.FRESH_ANSWER][port].eq(
                ok & older(beat.ghost.version, Array(complete)[beat.tag])
            ),
            hits[Guarantee.FRESH_DMA][port].eq(
                dma.valid
                & Array(answered)[dma.tag]
                & older(Array(answer)[dma.tag], Array(complete)[dma.tag])
            ),
        ]


def violations_signature(config: TableConfig) -> wiring.Signature:
    """One :class:`ViolationSignature` for each guarantee, by its name."""
    return wiring.Signature({g.value: Out(ViolationSignature(config)) for g in Guarantee})


def any_of(*conditions: ValueLike) -> Value:
    """High if one of the conditions is."""
    result = Value.cast(0)
    for condition in conditions:
        result = result | condition
    return result
