"""Fair choice among a few requesters."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from rtl.component import Component


class RoundRobin(Component):
    """Chooses one request: the first behind the one that was served last. Combinational.

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
        width = self._width
        last = Signal(range(max(2, width)))
        with m.Switch(last):
            for served in range(width):
                with m.Case(served):
                    # The last assignment wins, so the nearest successor is written last.
                    for distance in range(width, 0, -1):
                        requester = (served + distance) % width
                        with m.If(self.requests[requester]):
                            m.d.comb += self.grant.eq(1 << requester)
        for requester in range(width):
            with m.If(self.served & self.grant[requester]):
                m.d.sync += last.eq(requester)
        return m
