"""Deliberate faults in the policies: each is put where the proofs have the policy, and is found."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from rtl import arbiter
from rtl.arbiter import (
    ApplyNow,
    Arbiter,
    DrainFence,
    GracePeriod,
    PendingBit,
    Squash,
    VersionCheck,
)
from rtl.config import OnPending, RetireScope, TableConfig
from rtl.lookup import LookupPipeline
from rtl.monitor import Guarantee
from rtl.worker import Worker
from sim.netlist import Design
from sim.prover import Verdict, model, refute
from tb.formal.graphs import DEPTH, LAWFUL, design, table_graph
from tb.formal.harness import SMALL
from tb.mutation import mutate


@dataclass(frozen=True)
class Fault:
    """A change of the source of one policy, and the guarantee that falls with it.

    Parameters
    ----------
    cls : type
    right, wrong : str
        ``right`` stands once in the module of the class, and becomes ``wrong``.
    violates : Guarantee
        The policy declares it.
    choices : dict
        What the configuration needs.
    """

    cls: type[Arbiter]
    right: str
    wrong: str
    violates: Guarantee
    choices: dict[str, Any] = dataclasses.field(default_factory=dict)


FAULTS = {
    "apply_now: a lookup waits for a change": Fault(
        ApplyNow,
        "admit.grant.eq(1)",
        "admit.grant.eq(~self.change[0].request)",
        Guarantee.LOOKUP_NEVER_WAITS,
    ),
    "apply_now: everybody is turned away during a change": Fault(
        ApplyNow,
        "admit.grant.eq(1)",
        "[admit.grant.eq(1), admit.refuse.eq(self.change[0].wait)]",
        Guarantee.ISOLATED_LOOKUPS,
    ),
    "apply_now: lookups are killed during a change": Fault(
        ApplyNow,
        "change.complete.eq(1)]",
        "change.complete.eq(1)]\n            with m.If(change.wait):\n"
        "                m.d.comb += [self.kill.eq(self.match[0])]",
        Guarantee.LOSSLESS,
    ),
    "pending_bit: nobody is waited for": Fault(
        PendingBit, "mine & ~match.any()", "mine", Guarantee.FRESH_DMA
    ),
    "pending_bit: a slot is forgotten": Fault(
        PendingBit, "mine & ~match.any()", "mine & ~match[1:].any()", Guarantee.FRESH_ANSWER
    ),
    "pending_bit: the apply may come in the cycle in which the bit is set": Fault(
        PendingBit,
        "mine & ~match.any()",
        "change.request & ~match.any()",
        Guarantee.FRESH_DMA,
    ),
    "pending_bit: the bit of the neighbour is read": Fault(
        PendingBit,
        "pending.bit_select(admit.index, 1)",
        "pending.bit_select(admit.index ^ 1, 1)",
        Guarantee.FRESH_ANSWER,
    ),
    "pending_bit: every lookup is turned away": Fault(
        PendingBit,
        "pending.bit_select(admit.index, 1)",
        "pending.any()",
        Guarantee.ISOLATED_LOOKUPS,
        {"on_pending": OnPending.REFUSE},
    ),
    "drain_fence: nobody is waited for": Fault(
        DrainFence, "owner[source] & ~inside.any()", "owner[source]", Guarantee.FRESH_ANSWER
    ),
    "drain_fence: the fence is open": Fault(
        DrainFence,
        "Mux(owner.any(), same, 0)",
        "Mux(owner.any(), same, 0) & 0",
        Guarantee.FRESH_DMA,
    ),
    "drain_fence: the slots of the last tag are forgotten": Fault(
        DrainFence,
        "owner[source] & ~inside.any()",
        "owner[source] & ~inside[:-1].any()",
        Guarantee.FRESH_ANSWER,
    ),
    "drain_fence: no fence is needed to apply": Fault(
        DrainFence,
        "owner[source] & ~inside.any()",
        "~inside.any()",
        Guarantee.FRESH_ANSWER,
    ),
    "grace_period: the snapshot comes at A, and misses who was admitted then": Fault(
        GracePeriod,
        "Mux(after_apply, inside, snapshot & self.occupied)",
        "Mux(change.applied, inside, snapshot & self.occupied)",
        Guarantee.FRESH_ANSWER,
    ),
    "grace_period: C is a cycle early": Fault(
        GracePeriod,
        "change.complete.eq(~remaining.any())",
        "change.complete.eq(after_apply | ~remaining.any())",
        Guarantee.FRESH_DMA,
    ),
    "grace_period: a slot is forgotten": Fault(
        GracePeriod,
        "change.complete.eq(~remaining.any())",
        "change.complete.eq(~remaining[1:].any())",
        Guarantee.FRESH_ANSWER,
    ),
    "grace_period: all lookups are waited for": Fault(
        GracePeriod,
        "else self.match[source]",
        "else self.occupied",
        Guarantee.ISOLATED_INVALIDATION,
    ),
    "squash: the kill lasts one cycle": Fault(
        Squash, "surviving = killed & self.occupied", "surviving = killed & 0", Guarantee.FRESH_DMA
    ),
    "squash: who is admitted at A is not found": Fault(
        Squash,
        "found[source].eq(Mux(after_apply, match, 0))",
        "found[source].eq(Mux(change.applied, match, 0))",
        Guarantee.FRESH_ANSWER,
    ),
    "squash: nobody waits for the killed": Fault(
        Squash,
        "change.complete.eq(~(match & self.kill).any())",
        "change.complete.eq(1)",
        Guarantee.FRESH_ANSWER,
    ),
    "squash: everybody is killed": Fault(
        Squash,
        "found[source].eq(Mux(after_apply, match, 0))",
        "found[source].eq(Mux(after_apply, self.occupied, 0))",
        Guarantee.ISOLATED_LOOKUPS,
    ),
    "version_check: nothing is checked": Fault(
        VersionCheck,
        "deliver.replay.eq(deliver.token != version(deliver.index))",
        "deliver.replay.eq(0)",
        Guarantee.FRESH_ANSWER,
        {"scope": RetireScope.LOOKUP},
    ),
    "version_check: C doesn't wait for beats on offer": Fault(
        VersionCheck,
        "change.complete.eq(~remaining.any())",
        "change.complete.eq(1)",
        Guarantee.FRESH_ANSWER,
    ),
    "version_check: the DMA goes on": Fault(
        VersionCheck,
        "kill.eq(slot.occupied & slot.indexed & ~self.is_current(number))",
        "kill.eq(0)",
        Guarantee.FRESH_DMA,
    ),
    "version_check: a version in use is given again": Fault(
        VersionCheck,
        "~in_use.any() if",
        "1 if",
        Guarantee.FRESH_DMA,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_it_is_refuted(fault: Fault, monkeypatch: pytest.MonkeyPatch):
    """The broken policy violates, after a few cycles, a guarantee that it still declares."""
    name = next(n for n, cls in arbiter.POLICIES.items() if cls is fault.cls)
    config = TableConfig(**{**SMALL, "ports": 1, "sources": 1, "arbiter": name, **fault.choices})
    assert fault.violates in fault.cls.guarantees(config)
    mutate(fault.cls, fault.right, fault.wrong, monkeypatch)
    broken = table_graph(config, fault=fault.wrong)
    result = refute(broken, fault.violates, LAWFUL, ("unsound",), 120, DEPTH)
    assert result.verdict is Verdict.REFUTED


TOO_MUCH = "report.plan.count.eq(owned)", "report.plan.count.eq(config.translations)"

OF_THE_TABLE: dict[str, tuple[type, str, str]] = {
    "adrift": (LookupPipeline, "retires & ~answered & ~ok", "retires & ~answered"),
    "outgrown": (LookupPipeline, "walk_translation + 1", "walk_translation + 2"),
    "disordered": (Worker, *TOO_MUCH),
    "squeezed": (Worker, *TOO_MUCH),
    "interrupted": (Worker, "m.If(job.begin & ~job.finishing)", "m.If(~job.finishing)"),
}
"""Lemmas about the table, and a change of the source of a part of it with which each falls: a slot
is free while its DMA goes on, a page is passed over, a change gives up what isn't its own, or the
worker begins without a command."""


@pytest.mark.parametrize("lemma", OF_THE_TABLE)
def test_a_lemma_is_refuted(lemma: str, monkeypatch: pytest.MonkeyPatch):
    config = TableConfig(**{**SMALL, "ports": 1, "sources": 1, "arbiter": "squash"})
    sound = design(config)
    cls, right, wrong = OF_THE_TABLE[lemma]
    mutate(cls, right, wrong, monkeypatch)
    broken = Design(sound.name, sound.factory, f"{sound.key} {wrong!r}")
    assert refute(model(broken), lemma, LAWFUL, (), 120, DEPTH).verdict is Verdict.REFUTED


def test_each_policy_has_three():
    for cls in arbiter.POLICIES.values():
        assert sum(fault.cls is cls for fault in FAULTS.values()) >= 3
