"""Who goes first among a few."""

import itertools

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from rtl.component import Component


class Line(Component):
    """Keeps a few in a line: who moves goes to its end, several in the order of their numbers.

    A bit for each pair. A move is seen in the next cycle. Nobody gets ahead of one that stands
    still, so who stands long enough is first.

    Parameters
    ----------
    width : int
        Of the line, at least 1.

    Members
    -------
    moves : In(width)
    ahead : Out(width).array(width)
        Of each, those that stand before it.
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__({"moves": In(width), "ahead": Out(width).array(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for one, other in itertools.combinations(range(self._width), 2):
            first = Signal(init=1, name=f"{one}_before_{other}")
            m.d.comb += [self.ahead[other][one].eq(first), self.ahead[one][other].eq(~first)]
            with m.If(self.moves[other]):
                m.d.sync += first.eq(1)
            with m.Elif(self.moves[one]):
                m.d.sync += first.eq(0)
        return m


class Turns(Component):
    """Chooses one request: of those that there are, whose last turn is longest ago. Combinational.

    Who asks is overtaken by each other at most once, even if it asks now and then only: a request
    that is not there when somebody is served costs no place. So of the times at which somebody is
    served and it asks, at the latest the ``width``-th is its own.

    Parameters
    ----------
    width : int
        Requesters, at least 1.

    Members
    -------
    requests : In(width)
    grant : Out(width)
        At most one bit is high, and only where ``requests`` is.
    served : In(1)
        The granted request is served in this cycle.
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__({"requests": In(width), "grant": Out(width), "served": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.line = line = Line(self._width)
        for requester, ahead in enumerate(line.ahead):
            m.d.comb += [
                self.grant[requester].eq(self.requests[requester] & ~(self.requests & ahead).any()),
                line.moves[requester].eq(self.served & self.grant[requester]),
            ]
        return m
