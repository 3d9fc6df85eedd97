"""The command engine under an arbiter that may do anything: what holds whatever the policy."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.commands import CommandEngine
from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import entry_layout
from rtl.tables import CopiedMemory
from tb.formal.environment import Allocation, Source, SourceChoiceSignature, clocked
from tb.formal.ledger import Ledger
from tb.formal.lengths import judge, members, phases, timed
from tb.formal.shadow import Shadow, choose


class EngineHarness(Component):
    """Commands from everywhere, granted whenever it pleases nobody knows whom.

    An output is bad if it can be high, but for the rules, which are assumed to be.

    Parameters
    ----------
    config : TableConfig
    patience : int, optional
        Cycles that a completion waits to be heard at most.

    Members
    -------
    clk : In(1)
    source : In(SourceChoiceSignature).array(config.sources)
    apply, complete : In(config.sources)
        Grants.
    starts : In(1)
        The rest of the table becomes ready, at the latest.
    ranges_apart, pages_written : Out(1)
        Rules.
    misread : Out(1)
        What the engine has read last is not what was written.
    unaccounted : Out(1)
        See :class:`tb.formal.ledger.Ledger`.
    disagree, disturbed, disordered : Out(1)
        See :class:`tb.formal.shadow.Shadow`.
    beyond : Out(1), one for each number of cycles
        Only with ``patience``: how long it ``ends``, and ``ends_sparing``, see
        :mod:`tb.formal.lengths`.
    """

    def __init__(self, config: TableConfig, patience: int | None = None):
        self.config = config
        self.patience = patience
        self._lengths: list[tuple[str, int | None]] = (
            [] if patience is None else [("ends", None), ("ends_sparing", None)]
        )
        super().__init__(
            {
                "clk": In(1),
                "source": In(SourceChoiceSignature(config)).array(config.sources),
                "apply": In(config.sources),
                "complete": In(config.sources),
                "starts": In(1),
                "ranges_apart": Out(1),
                "pages_written": Out(1),
                "disagree": Out(1),
                "disturbed": Out(1),
                "disordered": Out(1),
                "misread": Out(1),
                "unaccounted": Out(1),
                **members(self._lengths),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        clocked(m, self.clk)
        m.submodules.engine = engine = CommandEngine(config)
        m.submodules.mpt = mpt = CopiedMemory(entry_layout(config), config.entries, 1)
        m.submodules.allocation = allocation = Allocation(config)
        connect(m, engine.entry_read, mpt.read[0])
        connect(m, engine.entry_write, mpt.write)
        # The rest of the table may be ready later.
        started = Signal()
        m.d.comb += engine.start.eq(engine.ready & mpt.ready & (self.starts | started))
        m.d.sync += started.eq(engine.start)
        m.submodules.shadow = shadow = Shadow(config)
        m.submodules.ledger = ledger = Ledger(config)
        lasting: dict[str, list[Value]] = {length: [] for length, _ in self._lengths}
        for number in range(config.sources):
            m.submodules[f"source_{number}"] = source = Source(config, self.patience)
            m.d.comb += source.patient.eq(1)
            connect(m, source.choice, flipped(self.source[number]))
            connect(m, source.command, engine.command[number])
            connect(m, engine.completion[number], source.completion)
            connect(m, engine.event[number], allocation.change[number])
            m.d.comb += [
                allocation.busy[number].eq(source.busy),
                allocation.ordered[number].eq(source.ordered),
                allocation.succeeds[number].eq(source.succeeds),
                engine.change[number].apply.eq(self.apply[number]),
                engine.change[number].complete.eq(self.complete[number]),
            ]
            connect(m, engine.event[number], shadow.change[number])
            for length, now in phases(config, engine.context[number]).items():
                if length in lasting:
                    lasting[length].append(now)
            m.d.comb += [
                ledger.busy[number].eq(source.busy),
                ledger.ordered[number].eq(source.ordered),
                ledger.context[number].eq(engine.context[number]),
                ledger.replaced[number].eq(shadow.replaced[number]),
                ledger.in_progress[number].eq(engine.event[number].in_progress),
            ]
        for length, port in self._lengths:
            judge(m, self, length, port, timed(m, length, lasting[length]))
        m.d.comb += [
            self.ranges_apart.eq(allocation.ranges_apart),
            self.pages_written.eq(allocation.pages_written),
        ]

        for name in ("entry_write", "translation_write"):
            write, seen = getattr(engine, name), getattr(shadow, name)
            m.d.comb += [
                seen.enable.eq(write.enable),
                seen.address.eq(write.address),
                seen.data.eq(write.data),
            ]
        connect(m, engine.worker, ledger.worker)
        fetched = Signal(entry_layout(config))
        with m.If(engine.entry_read.enable):
            m.d.sync += Value.cast(fetched).eq(choose(shadow.entry, engine.entry_read.address))
        m.d.comb += [
            ledger.worker_state.eq(engine.worker_state),
            ledger.working_for.eq(engine.working_for),
            ledger.fetched.eq(fetched),
            ledger.applied.eq(allocation.applied),
            *(ledger.entry[i].eq(entry) for i, entry in enumerate(shadow.entry)),
            *(ledger.row[i].eq(row) for i, row in enumerate(shadow.row)),
            *(ledger.owned[i].eq(owned) for i, owned in enumerate(allocation.owned)),
            self.misread.eq(
                ledger.misread | (Value.cast(engine.entry_read.data) != Value.cast(fetched))
            ),
            self.disagree.eq(~shadow.agree),
            self.disturbed.eq(~shadow.kept),
            self.disordered.eq(shadow.disordered),
            self.unaccounted.eq(ledger.unaccounted),
        ]
        return m
