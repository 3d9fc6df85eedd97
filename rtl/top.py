"""The whole table, as it is simulated, proved and synthesized."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl import arbiter, recency
from rtl.admission import Admission
from rtl.commands import CommandEngine
from rtl.component import Component
from rtl.config import ReadStructure, RetireScope, TableConfig
from rtl.layouts import (
    beat_signature,
    command_signature,
    completion_signature,
    entry_layout,
    lookup_signature,
    tag_signature,
    translation_layout,
)
from rtl.lookup import LookupPipeline
from rtl.monitor import Monitor, WatchedChangeSignature, violations_signature
from rtl.recency.seam import VictimSignature
from rtl.round_robin import RoundRobin
from rtl.slots import Slots, TagSignature
from rtl.tables import CopiedMemory


class SharedTable(Component):
    """MPT and MTT with lookups on many ports, and an arbiter between them and the commands.

    After reset, at any time, the table is empty; ``ready`` rises when all memories are clear
    (after ``max(entries, translations)`` cycles), and no stream is served before.

    Parameters
    ----------
    config : TableConfig

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
    held : Out(config.ports)
        The lookup that this port offers waits because the arbiter says so.
    ready : Out(1)
    violation : Out(violations_signature)
        Only with ``config.ghost_version``.
    """

    def __init__(self, config: TableConfig):
        self.config = config
        members = {
            "lookup": In(lookup_signature(config)).array(config.ports),
            "beat": Out(beat_signature(config)).array(config.ports),
            "retire": In(tag_signature(config)).array(config.ports),
            "dma": In(TagSignature(config)).array(config.ports),
            "command": In(command_signature(config)).array(config.sources),
            "completion": Out(completion_signature(config)).array(config.sources),
            "victim": In(VictimSignature(config)),
            "change": Out(WatchedChangeSignature(config)).array(config.sources),
            "held": Out(config.ports),
            "ready": Out(1),
        }
        if config.ghost_version:
            members["violation"] = Out(violations_signature(config))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        ports, sources = range(config.ports), range(config.sources)
        pipelines = config.ports if config.read_structure is ReadStructure.REPLICATED else 1

        # One more copy of the entries is the command engine's.
        m.submodules.mpt = mpt = CopiedMemory(entry_layout(config), config.entries, pipelines + 1)
        m.submodules.mtt = mtt = CopiedMemory(
            translation_layout(config), config.translations, pipelines
        )
        m.submodules.slots = slots = Slots(config)
        m.submodules.arbiter = policy = arbiter.POLICIES[config.arbiter](config)
        m.submodules.recency = recency_policy = recency.POLICIES[config.recency](config)
        m.submodules.commands = engine = CommandEngine(config)

        ready = [mpt.ready, mtt.ready, engine.ready, recency_policy.ready]
        connect(m, engine.entry_read, mpt.read[pipelines])
        connect(m, engine.entry_write, mpt.write)
        connect(m, engine.translation_write, mtt.write)
        connect(m, engine.invalidate, recency_policy.invalidate)
        connect(m, flipped(self.victim), recency_policy.victim)
        m.d.comb += [policy.occupied.eq(slots.occupied), engine.start.eq(self.ready)]
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
            m.submodules.monitor = monitor = Monitor(config)
            ready.append(monitor.ready)
            connect(m, monitor.violation, flipped(self.violation))
            monitor_write = monitor.translation_write
            m.d.comb += [
                monitor.start.eq(self.ready),
                monitor_write.enable.eq(engine.translation_write.enable),
                monitor_write.address.eq(engine.translation_write.address),
                monitor_write.data.eq(engine.translation_write.data),
            ]
            for source in sources:
                for name in monitor.change[source].signature.members:
                    watched = getattr(monitor.change[source], name)
                    m.d.comb += watched.eq(getattr(engine.event[source], name))
            for port in ports:
                connect(m, flipped(self.dma[port]), monitor.dma[port])
        m.d.comb += self.ready.eq(Cat(ready).all())

        doors = []
        for port in ports:
            m.submodules[f"admission_{port}"] = door = Admission(config, port)
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
            if config.scope is RetireScope.DMA:
                m.d.comb += [
                    slots.returned[port].valid.eq(retire.valid),
                    slots.returned[port].tag.eq(retire.payload),
                ]

        for number in range(pipelines):
            m.submodules[f"pipeline_{number}"] = pipeline = LookupPipeline(config)
            connect(m, pipeline.entry, mpt.read[number])
            connect(m, pipeline.translation, mtt.read[number])
            served = [number] if pipelines > 1 else list(ports)
            m.submodules[f"turn_{number}"] = turn = RoundRobin(len(served))
            m.d.comb += turn.served.eq(pipeline.admitted.valid & pipeline.admitted.ready)
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
                        monitor.beat[port].admitted.eq(delivery.payload.admitted),
                        monitor.beat[port].beat.eq(beat.payload),
                        monitor.take[port].valid.eq(door.take.valid),
                        monitor.take[port].tag.eq(door.take.tag),
                        monitor.take[port].index.eq(door.take.index),
                    ]

        return m
