"""The whole table, as it is simulated, proved and synthesized."""

from functools import cached_property

from amaranth.hdl import Array, Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl import arbiter, recency
from rtl.admission import Admission
from rtl.commands import CommandEngine
from rtl.component import Component
from rtl.config import RetireScope, TableConfig
from rtl.layouts import (
    beat_signature,
    command_signature,
    completion_signature,
    entry_layout,
    is_unpaged,
    lookup_signature,
    tag_signature,
    translation_layout,
)
from rtl.lookup import LookupPipeline, stages
from rtl.monitor import Monitor, violations_signature
from rtl.recency.seam import VictimSignature
from rtl.slots import Slots, TagSignature
from rtl.tables import CopiedMemory, WriteSignature
from rtl.turns import Turns
from rtl.watched import (
    AGE_BITS,
    TermsSignature,
    WatchedChangeSignature,
    WatchedReadsSignature,
    WatchedRecordSignature,
    WatchedStageSignature,
)


class SharedTable(Component):
    """MPT and MTT with lookups on many ports, and an arbiter between them and the commands.

    After reset, at any time, the table is empty; ``ready`` rises when all memories are clear
    (after ``max(entries, translations)`` cycles), and no stream is served before.

    Parameters
    ----------
    config : TableConfig
    watched : bool
        What the pipelines do in each stage is seen outside, for the proofs.

    Members
    -------
    lookup : In(lookup_signature).array(config.ports)
    beat : Out(beat_signature).array(config.ports)
    retire : In(tag_signature).array(config.ports)
        Tags that the DMA engine has finished with. Always ready. Ignored in scope ``lookup``.
    dma : In(TagSignature).array(config.ports)
        The DMA engine issues a beat under this tag; only the monitor looks.
    command : In(command_signature).array(config.sources)
        0: the host. 1: the send queues. 2: the responder.
    completion : Out(completion_signature).array(config.sources)
    victim : In(VictimSignature)
    change : Out(WatchedChangeSignature).array(config.sources)
        R, A and C of the command of each source.
    entry_write : Out(WriteSignature(entry_layout, config.entries))
    translation_write : Out(WriteSignature(translation_layout, config.translations))
        What is written into the tables in this cycle.
    held : Out(config.ports)
        The lookup that this port offers waits because the arbiter says so.
    kill : Out(config.tags).array(config.ports)
        While the bit of a tag is high, the DMA engine issues nothing more under it, and returns it
        when all that it issued has ended. Always low in scope ``lookup``.
    ready : Out(1)
    terms : In(TermsSignature)
    violation : Out(violations_signature)
    unsound : Out(1)
        Sticky: the table has lost track of a lookup. These three only with
        ``config.ghost_version``.
    stage : Out(WatchedStageSignature).array(pipelines, 3)
    reads : Out(WatchedReadsSignature).array(pipelines)
    record : Out(WatchedRecordSignature).array(config.slots)
    age : Out(AGE_BITS).array(config.sources)
    unpaged : Out(config.pipelines)
        An entry that can be used was read, and its pages have a size that the table doesn't know:
        then nobody knows how many beats a lookup has.
    astray, misplaced, misdated : Out(1)
        See :class:`rtl.monitor.Monitor`. All these only if ``watched``, which takes a
        ``config.ghost_version``.
    """

    def __init__(self, config: TableConfig, watched: bool = False):
        self.config = config
        self._watched = watched
        members = {
            "lookup": In(lookup_signature(config)).array(config.ports),
            "beat": Out(beat_signature(config)).array(config.ports),
            "retire": In(tag_signature(config)).array(config.ports),
            "dma": In(TagSignature(config)).array(config.ports),
            "command": In(command_signature(config)).array(config.sources),
            "completion": Out(completion_signature(config)).array(config.sources),
            "victim": In(VictimSignature(config)),
            "change": Out(WatchedChangeSignature(config)).array(config.sources),
            "entry_write": Out(WriteSignature(entry_layout(config), config.entries)),
            "translation_write": Out(
                WriteSignature(translation_layout(config), config.translations)
            ),
            "held": Out(config.ports),
            "kill": Out(config.tags).array(config.ports),
            "occupied": Out(config.slots),
            "ready": Out(1),
        }
        if config.ghost_version:
            members["terms"] = In(TermsSignature())
            members["violation"] = Out(violations_signature(config))
            members["unsound"] = Out(1)
            members["outlived"] = Out(1)
            members["stray"] = Out(1)
            members["slow"] = Out(1)
        if watched:
            members["stage"] = Out(WatchedStageSignature(config)).array(config.pipelines, 3)
            members["reads"] = Out(WatchedReadsSignature(config)).array(config.pipelines)
            members["record"] = Out(WatchedRecordSignature(config)).array(config.slots)
            members["age"] = Out(AGE_BITS).array(config.sources)
            members["unpaged"] = Out(config.pipelines)
            members["astray"] = Out(1)
            members["misplaced"] = Out(1)
            members["misdated"] = Out(1)
        super().__init__(members)

    @cached_property
    def policy(self) -> arbiter.Arbiter:
        """The policy in this table."""
        return arbiter.policy(self.config.arbiter)(self.config)

    @cached_property
    def engine(self) -> CommandEngine:
        """The command engine in this table."""
        return CommandEngine(self.config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        ports, sources = range(config.ports), range(config.sources)
        pipelines = config.pipelines
        policy = self.policy
        token_width = policy.token_width(config)

        # One more copy of the entries is the command engine's.
        m.submodules.mpt = mpt = CopiedMemory(entry_layout(config), config.entries, pipelines + 1)
        m.submodules.mtt = mtt = CopiedMemory(
            translation_layout(config), config.translations, pipelines
        )
        m.submodules.slots = slots = Slots(config, token_width)
        m.submodules.arbiter = policy
        m.submodules.recency = recency_policy = recency.POLICIES[config.recency](config)
        m.submodules.commands = engine = self.engine

        ready = [mpt.ready, mtt.ready, engine.ready, recency_policy.ready]
        connect(m, engine.entry_read, mpt.read[pipelines])
        connect(m, engine.entry_write, mpt.write)
        connect(m, engine.translation_write, mtt.write)
        connect(m, engine.invalidate, recency_policy.invalidate)
        for name in ("entry_write", "translation_write"):
            write, seen = getattr(engine, name), getattr(self, name)
            m.d.comb += [
                seen.enable.eq(write.enable),
                seen.address.eq(write.address),
                seen.data.eq(write.data),
            ]
        connect(m, flipped(self.victim), recency_policy.victim)
        m.d.comb += [
            policy.occupied.eq(slots.occupied),
            self.occupied.eq(slots.occupied),
            engine.start.eq(self.ready),
        ]
        for slot in range(config.slots):
            connect(m, slots.slot[slot], policy.slot[slot])
        for source in sources:
            connect(m, flipped(self.command[source]), engine.command[source])
            connect(m, engine.completion[source], flipped(self.completion[source]))
            connect(m, engine.event[source], flipped(self.change[source]))
            connect(m, engine.change[source], policy.change[source])
            m.d.comb += [
                slots.index[source].eq(engine.change[source].index),
                policy.match[source].eq(slots.match[source]),
            ]

        monitor = None
        if config.ghost_version:
            m.submodules.monitor = monitor = Monitor(config, stages(policy.replays))
            ready.append(monitor.ready)
            connect(m, monitor.violation, flipped(self.violation))
            connect(m, flipped(self.terms), monitor.terms)
            monitor_write = monitor.translation_write
            m.d.comb += [
                monitor.start.eq(self.ready),
                self.unsound.eq(monitor.unsound),
                self.outlived.eq(monitor.outlived),
                self.stray.eq(monitor.stray),
                self.slow.eq(monitor.slow),
                monitor.occupied.eq(slots.occupied),
                monitor_write.enable.eq(engine.translation_write.enable),
                monitor_write.address.eq(engine.translation_write.address),
                monitor_write.data.eq(engine.translation_write.data),
            ]
            for source in sources:
                completion = self.completion[source]
                m.d.comb += [
                    monitor.match[source].eq(slots.match[source]),
                    monitor.unheard[source].eq(completion.valid & ~completion.ready),
                ]
                for name in monitor.change[source].signature.members:
                    watched = getattr(monitor.change[source], name)
                    m.d.comb += watched.eq(getattr(engine.event[source], name))
            for port in ports:
                connect(m, flipped(self.dma[port]), monitor.dma[port])
            if self._watched:
                m.d.comb += [
                    self.astray.eq(monitor.astray.any()),
                    self.misplaced.eq(monitor.misplaced),
                    self.misdated.eq(monitor.misdated),
                ]
                for slot in range(config.slots):
                    connect(m, monitor.record[slot], flipped(self.record[slot]))
                m.d.comb += [self.age[source].eq(monitor.age[source]) for source in sources]
        m.d.comb += self.ready.eq(Cat(ready).all())

        doors = []
        for port in ports:
            m.submodules[f"admission_{port}"] = door = Admission(config, port, token_width)
            doors.append(door)
            connect(m, door.query, slots.query[port])
            connect(m, door.admit, policy.admit[port])
            connect(m, door.take, slots.take[port])
            lookup, retire = self.lookup[port], self.retire[port]
            m.d.comb += [
                door.lookup.payload.eq(lookup.payload),
                door.lookup.valid.eq(lookup.valid & self.ready),
                lookup.ready.eq(door.lookup.ready & self.ready),
                self.held[port].eq(door.held),
                retire.ready.eq(1),
            ]
            if monitor is not None:
                watched = monitor.door[port]
                m.d.comb += [
                    watched.valid.eq(door.lookup.valid),
                    watched.index.eq(door.take.index),
                    watched.held.eq(door.held),
                    watched.refused.eq(door.refused),
                    watched.leaves.eq(door.lookup.valid & door.lookup.ready),
                ]
            if config.scope is RetireScope.DMA:
                m.d.comb += [
                    slots.returned[port].valid.eq(retire.valid),
                    slots.returned[port].tag.eq(retire.payload),
                    self.kill[port].eq(policy.kill[port * config.tags :]),
                ]

        for number in range(pipelines):
            m.submodules[f"pipeline_{number}"] = pipeline = LookupPipeline(config, policy.replays)
            connect(m, pipeline.entry, mpt.read[number])
            if self._watched:
                m.d.comb += self.unpaged[number].eq(is_unpaged(config, mpt.read[number].data))
            connect(m, pipeline.translation, mtt.read[number])
            served = [number] if pipelines > 1 else list(ports)
            m.submodules[f"turn_{number}"] = turn = Turns(len(served))
            m.d.comb += turn.served.eq(pipeline.admitted.valid & pipeline.admitted.ready)
            if monitor is not None:
                m.d.comb += [
                    monitor.replayed[number].eq(pipeline.offer.replayed),
                    monitor.astray[number].eq(pipeline.astray),
                ]
                connect(m, pipeline.issue, monitor.issue[number])
                for place, stage in enumerate(pipeline.stage):
                    connect(m, stage, monitor.stage[number][place])
            if self._watched:
                connect(m, pipeline.reads, flipped(self.reads[number]))
                for place, stage in enumerate(self.stage[number]):
                    connect(m, pipeline.stage[place], flipped(stage))
            for place, port in enumerate(served):
                door, beat, delivery = doors[port], self.beat[port], pipeline.delivery
                mine = delivery.payload.port == port if pipelines < config.ports else Const(1)
                m.d.comb += [
                    turn.requests[place].eq(door.admitted.valid),
                    beat.payload.eq(delivery.payload.beat),
                    beat.valid.eq(delivery.valid & mine),
                ]
                with m.If(turn.grant[place]):
                    m.d.comb += [
                        pipeline.admitted.valid.eq(1),
                        pipeline.admitted.payload.eq(door.admitted.payload),
                        door.admitted.ready.eq(pipeline.admitted.ready),
                    ]
                with m.If(mine):
                    m.d.comb += delivery.ready.eq(beat.ready)
                self._decide(m, port, mine, pipeline, slots, policy)
                accepted = Signal(name=f"accepted_{port}")
                m.d.comb += [
                    accepted.eq(beat.valid & beat.ready),
                    slots.answered[port].valid.eq(accepted & delivery.payload.retires),
                    slots.answered[port].tag.eq(beat.payload.tag),
                    recency_policy.touch[port].valid.eq(accepted & delivery.payload.touches),
                    recency_policy.touch[port].index.eq(delivery.payload.index),
                ]
                if monitor is not None:
                    m.d.comb += [
                        monitor.beat[port].valid.eq(accepted),
                        monitor.waiting[port].eq(beat.valid & ~beat.ready),
                        monitor.beat[port].admitted.eq(delivery.payload.admitted),
                        monitor.beat[port].beat.eq(beat.payload),
                        monitor.take[port].valid.eq(door.take.valid),
                        monitor.take[port].tag.eq(door.take.tag),
                        monitor.take[port].index.eq(door.take.index),
                    ]

        return m

    def _decide(
        self,
        m: Module,
        port: int,
        mine: Value,
        pipeline: LookupPipeline,
        slots: Slots,
        policy: arbiter.Arbiter,
    ) -> None:
        """Asks the policy what becomes of the beat that is offered to a port, and kills for it."""
        config = self.config
        offer, deliver = pipeline.offer, policy.deliver[port]
        tag = pipeline.delivery.payload.beat.tag
        own = [slots.slot[port * config.tags + t] for t in range(config.tags)]

        def held(name: str) -> Value:
            return Array(getattr(slot, name) for slot in own)[tag]

        asked = Signal(name=f"asked_{port}")
        kill = policy.kill[port * config.tags : (port + 1) * config.tags].bit_select(tag, 1)
        m.d.comb += [
            # A lookup outside the table is in flight on no entry.
            asked.eq(mine & offer.valid & offer.admitted & held("indexed")),
            deliver.valid.eq(asked),
            deliver.fixed.eq(offer.fixed),
            deliver.index.eq(held("index")),
        ]
        with m.If(asked):
            m.d.comb += [offer.abort.eq(deliver.abort | kill), offer.replay.eq(deliver.replay)]
        if slots.token_width:
            renew = slots.renew[port]
            m.d.comb += [
                deliver.token.eq(held("token")),
                renew.valid.eq(mine & offer.replayed),
                renew.tag.eq(tag),
                renew.token.eq(deliver.renewed),
            ]
