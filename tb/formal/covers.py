"""What the proofs speak about really happens in the harness, with all that they assume."""

from typing import Any

from amaranth.hdl import Cat, ClockDomain, Module, Signal, Value
from amaranth.lib.wiring import In, Out, connect, flipped

from rtl.arbiter import policy
from rtl.component import Component
from rtl.config import OnPending, RetireScope, TableConfig
from rtl.layouts import LookupStatus
from rtl.monitor import Guarantee, any_of
from sim.netlist import Design
from sim.prover import Result, Verdict, model, prove, refute
from tb.formal.environment import PortChoiceSignature, SourceChoiceSignature
from tb.formal.harness import Harness
from tb.formal.plan import RULES
from tb.formal.small import harness_of

COVERS = {
    "answered": "bytes are delivered to a lookup",
    "walked": "those of a second page are",
    "met": "at R, a lookup of the entry has not had its last beat",
    "raced": "at A, a lookup of the entry has not had its last beat",
    "outstanding_at_r": "at R, the DMA of a lookup of the entry goes on",
    "outstanding_at_a": "at A, the DMA of a lookup of the entry goes on",
    "completed": "C of a change that met a lookup, which has been delivered bytes since",
    "held": "the arbiter makes a lookup wait",
    "refused": "the arbiter turns a lookup away",
    "aborted": "an admitted lookup ends with an aborted beat",
    "stopped": "the DMA of a lookup that was delivered bytes is stopped",
    "replayed": "a lookup starts anew",
}
"""By the output of :class:`CoverHarness`: what it takes to be high."""


class CoverHarness(Component):
    """The harness, and one output for each thing to be reached.

    Parameters
    ----------
    config : TableConfig

    Members
    -------
    clk, port, source : the harness's
    ranges_apart, pages_written, unsound : Out(1)
        The harness's: what the proofs assume.
    answered, walked, ... : Out(1), one for each of :data:`COVERS`
    """

    def __init__(self, config: TableConfig):
        self.config = config
        super().__init__(
            {
                "clk": In(1),
                "port": In(PortChoiceSignature(config)).array(config.ports),
                "source": In(SourceChoiceSignature(config)).array(config.sources),
                **{rule: Out(1) for rule in RULES},
                "unsound": Out(1),
                **{cover: Out(1) for cover in COVERS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        # The harness has its own, under the usual name.
        domain: Any = ClockDomain("cover", reset_less=True)
        m.domains += domain
        m.d.comb += domain.clk.eq(self.clk)
        m.submodules.harness = harness = Harness(config)
        table = harness.table
        for number in range(config.ports):
            connect(m, harness.port[number], flipped(self.port[number]))
        for number in range(config.sources):
            connect(m, harness.source[number], flipped(self.source[number]))
        m.d.comb += harness.clk.eq(self.clk)
        m.d.comb += [getattr(self, name).eq(getattr(harness, name)) for name in (*RULES, "unsound")]

        bytes_to: list[Value] = []
        seen: dict[str, list[Value]] = {cover: [] for cover in COVERS}
        for port in range(config.ports):
            beat = table.beat[port]
            accepted = beat.valid & beat.ready
            status = beat.payload.status
            served = accepted & (status == LookupStatus.OK) & (beat.payload.length != 0)
            bytes_to.append(served)
            seen["answered"].append(served)
            seen["walked"].append(served & ~beat.payload.first)
            seen["held"].append(table.held[port])
            seen["refused"].append(accepted & (status == LookupStatus.RETRY))
            seen["aborted"].append(accepted & (status == LookupStatus.ABORTED))
        # Of these two, a policy that replays does only one.
        moved = harness.lookup_never_waits
        seen["replayed"].append(moved & ~any_of(*seen["held"], *seen["refused"]))

        # Lookups with bytes under DMA: delivered, and in flight still.
        under = [Signal(name=f"under_{slot}") for slot in range(config.slots)]
        for slot, working in enumerate(under):
            port, tag = divmod(slot, config.tags)
            with m.If(bytes_to[port] & (table.beat[port].payload.tag == tag)):
                m.d.cover += working.eq(1)
            with m.Elif(~table.occupied[slot]):
                m.d.cover += working.eq(0)
            seen["stopped"].append(table.kill[port][tag] & working & table.occupied[slot])

        for source in range(config.sources):
            change = table.change[source]
            waiting = [r.walking & (r.index == change.index) for r in table.record]
            working = [
                ~r.walking & (r.index == change.index) & used & table.occupied[slot]
                for slot, (r, used) in enumerate(zip(table.record, under, strict=True))
            ]
            at_r, at_a = change.arbitrated & change.requested, change.arbitrated & change.applied
            # Whom it met, and then who of those has been delivered bytes.
            met = Signal(config.slots, name=f"met_{source}")
            late = Signal(name=f"late_{source}")
            served = Cat(
                bytes_to[slot // config.tags]
                & (table.beat[slot // config.tags].payload.tag == slot % config.tags)
                for slot in range(config.slots)
            )
            with m.If(at_r):
                m.d.cover += [met.eq(Cat(waiting)), late.eq(0)]
            with m.Elif((met & served).any()):
                m.d.cover += late.eq(1)
            seen["met"].append(at_r & any_of(*waiting))
            seen["raced"].append(at_a & any_of(*waiting))
            seen["outstanding_at_r"].append(at_r & any_of(*working))
            seen["outstanding_at_a"].append(at_a & any_of(*working))
            seen["completed"].append(change.completed & change.in_progress & late)
        for cover, values in seen.items():
            m.d.comb += getattr(self, cover).eq(any_of(*values))
        return m


def expected(config: TableConfig) -> dict[str, Verdict]:
    """What is reached under this policy, and what never is, in the order of :data:`COVERS`.

    A policy that holds lookups back waits for those in flight before A; any other meets them at A.
    What a policy has nothing to do with is left out.
    """
    cls = policy(config.arbiter)
    given = cls.guarantees(config)
    drains = not cls.replays and Guarantee.LOOKUP_NEVER_WAITS not in given
    dma = config.scope is RetireScope.DMA
    at_a = Verdict.PROVED if drains else Verdict.REFUTED
    held_back = "refused" if config.on_pending is OnPending.REFUSE else "held"
    aborts = Guarantee.LOSSLESS not in given
    found = {"answered", "walked", "met", "raced", "completed"}
    found |= {"outstanding_at_r", "outstanding_at_a"} if dma else set()
    found |= {held_back} if drains else set()
    found |= {"aborted"} if aborts else set()
    found |= {"stopped"} if aborts and dma else set()
    found |= {"replayed"} if cls.replays else set()
    return {
        cover: at_a if cover in ("raced", "outstanding_at_a") else Verdict.REFUTED
        for cover in COVERS
        if cover in found
    }


def cover_design(config: TableConfig, fault: str = "") -> Design:
    """The harness around a table; ``fault`` says what is wrong with it."""
    return harness_of("cover_harness", CoverHarness, config, fault)


def cover_results(config: TableConfig, limit: int = 120, depth: int = 40) -> dict[str, Result]:
    """What came of each of those that something is expected of.

    Refuted is reached, by a trace that keeps to all that the proofs assume.
    """
    graph = model(cover_design(config))
    never = ("unsound",)
    return {
        cover: refute(graph, cover, tuple(RULES), never, limit, depth)
        if verdict is Verdict.REFUTED
        else prove(graph, cover, tuple(RULES), never, limit)
        for cover, verdict in expected(config).items()
    }
