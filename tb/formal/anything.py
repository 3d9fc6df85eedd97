"""Policies that may do anything: what is proved with one of them holds with any of its shape.

None of them is ever simulated: a proof takes out what it drives, see :func:`any_policy`.
"""

import dataclasses

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import Flow

from rtl.arbiter import policy
from rtl.arbiter.seam import Arbiter
from rtl.config import TableConfig
from rtl.monitor import Guarantee


class Anything(Arbiter):
    """Whatever it drives comes from everything that it sees, so that nothing of it is constant."""

    choices = ()

    def __init__(self, config: TableConfig):
        super().__init__(config)
        # Named as the pins of :class:`tb.formal.alone.Alone`.
        self._current = Signal(config.slots, name="current")
        self._awaited = [
            Signal(config.ports, name=f"awaited__{source}") for source in range(config.sources)
        ]

    @classmethod
    def guarantees(cls, config: TableConfig) -> frozenset[Guarantee]:
        return frozenset()

    def is_current(self, slot: int) -> Value:
        return self._current[slot]

    def awaits(self, source: int, port: int) -> Value:
        return self._awaited[source][port]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        members = [
            (member.flow, Value.cast(value))
            for _, member, value in self.signature.flatten(self)
            if len(Value.cast(value))
        ]
        members += [(Flow.Out, said) for said in (self._current, *self._awaited)]
        seen = Cat(value for flow, value in members if flow is Flow.In)
        for number, (flow, value) in enumerate(members):
            if flow is Flow.Out:
                # No two of them are the same, or Yosys makes one of both. What is inverted isn't
                # named after what it comes from.
                mixed = Signal.like(value, name=f"mixed_{number}")
                m.d.sync += mixed.eq(mixed + seen.xor() + Cat(seen[number:], 1).xor())
                m.d.comb += value.eq(~mixed)
        return m


class AnythingWithToken(Anything):
    """It has a token, of ``version_bits``."""

    @classmethod
    def token_width(cls, config: TableConfig) -> int:
        return config.version_bits


class AnythingThatReplays(Anything):
    """It replays."""

    replays = True


class AnythingWithTokenThatReplays(AnythingWithToken):
    """It has a token, of ``version_bits``, and replays."""

    replays = True


def any_policy(config: TableConfig) -> TableConfig:
    """The configuration with a policy that may do anything, but has the same seam.

    Two configurations that differ in nothing but what only their policies listen to become one.
    """
    cls = policy(config.arbiter)
    token = cls.token_width(config)
    name = "Anything" + "WithToken" * bool(token) + "ThatReplays" * cls.replays
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(TableConfig)
        if field.name in OF_POLICIES
    }
    defaults["version_bits"] = token or defaults["version_bits"]
    return dataclasses.replace(config, arbiter=f"{PLACE}:{name}", **defaults)


PLACE = "tb/formal/anything.py"
"""This file, as a configuration names it."""

OF_POLICIES = ("span", "on_pending", "on_wrap", "version_bits")
"""Parameters that nobody but policies listens to."""
