"""Nobody is overtaken without end: neither who asks for a turn, nor a command."""

import itertools

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.commands import CommandEngine, CommandState
from rtl.component import Component
from rtl.config import TableConfig
from rtl.layouts import Opcode, command_signature, entry_layout
from rtl.monitor import any_of
from rtl.turns import Turns
from tb.formal.environment import clocked


class TurnsHarness(Component):
    """Requests that come and go as they like, served whenever it pleases nobody knows whom.

    Parameters
    ----------
    width : int

    Members
    -------
    clk : In(1)
    requests : In(width)
    serves : In(1)
        A request is served, if there is one.
    idle : Out(1)
        There are requests, and none of them is chosen.
    several : Out(1)
        More than one is chosen, or one that isn't there.
    overtaken : Out(1)
        One is served while another one asks that it has been preferred to since that was served.
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            {
                "clk": In(1),
                "requests": In(width),
                "serves": In(1),
                "idle": Out(1),
                "several": Out(1),
                "overtaken": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        m.submodules.turns = turns = Turns(self._width)
        requests, grant = self.requests, turns.grant
        m.d.comb += [
            turns.requests.eq(requests),
            turns.served.eq(self.serves & grant.any()),
            self.idle.eq(requests.any() & ~grant.any()),
            self.several.eq((grant & (grant - 1)).any() | (grant & ~requests).any()),
        ]
        again = []
        for one, other in itertools.permutations(range(self._width), 2):
            preferred = Signal(name=f"{other}_preferred_to_{one}")
            overtakes = turns.served & grant[other] & requests[one]
            again.append(overtakes & preferred)
            with m.If(turns.served & grant[one]):
                m.d.sync += preferred.eq(0)
            with m.Elif(overtakes):
                m.d.sync += preferred.eq(1)
        m.d.comb += self.overtaken.eq(any_of(*again))
        return m


class OrderHarness(Component):
    """A command engine that is given any commands, reads any entries, and is granted anything.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    clk : In(1)
    command : In(command_signature).array(config.sources)
    apply, complete, takes : In(config.sources)
        Grants of an arbiter, and whether a completion is taken.
    entry : In(entry_layout)
        What is read.
    overtaken : Out(1)
        A command has been started, and one that was accepted before it, names one of its entries
        and is not complete.
    """

    def __init__(self, config: TableConfig):
        self._config = config
        super().__init__(
            {
                "clk": In(1),
                "command": In(command_signature(config)).array(config.sources),
                "apply": In(config.sources),
                "complete": In(config.sources),
                "takes": In(config.sources),
                "entry": In(entry_layout(config)),
                "overtaken": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        sources = range(self._config.sources)
        m.submodules.engine = engine = CommandEngine(self._config)
        m.d.comb += [engine.start.eq(engine.ready), engine.entry_read.data.eq(self.entry)]
        for source in sources:
            connect(m, flipped(self.command[source]), engine.command[source])
            m.d.comb += [
                engine.change[source].apply.eq(self.apply[source]),
                engine.change[source].complete.eq(self.complete[source]),
                engine.completion[source].ready.eq(self.takes[source]),
            ]

        overtaken = []
        for one, other in itertools.permutations(sources, 2):
            older, younger = engine.context[one], engine.context[other]
            command = engine.command[other]
            gone = older.state == CommandState.IDLE
            behind = Signal(name=f"{other}_behind_{one}")
            with m.If(gone):
                m.d.sync += behind.eq(0)
            with m.Elif(command.valid & command.ready):
                m.d.sync += behind.eq(1)
            waits = younger.state == CommandState.ACCEPTED
            overtaken.append(behind & ~gone & ~waits & _meet(older.command, younger.command))
        m.d.comb += self.overtaken.eq(any_of(*overtaken))
        return m


def _meet(one: data.View, other: data.View) -> Value:
    """Both name one entry. A bind names two, but two binds of one region don't meet there."""
    return any_of(
        one.key.index == other.key.index,
        (one.opcode == Opcode.BIND) & (one.parent.index == other.key.index),
        (other.opcode == Opcode.BIND) & (other.parent.index == one.key.index),
    )
