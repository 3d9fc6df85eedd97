"""What the matrix of guarantees stands on, and what it leaves out: each a proof of its own."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from rtl import arbiter
from rtl.arbiter import DrainFence, GracePeriod, PendingBit, Squash, VersionCheck
from rtl.check import AccessCheck
from rtl.component import Component
from rtl.config import OnPending, ReadStructure, TableConfig
from rtl.lookup import LookupPipeline
from rtl.monitor import Guarantee
from rtl.recency import Lru
from rtl.replay import ReplayBuffer
from sim.netlist import ROOT, Design, source_hash
from sim.prover import Verdict, model, prove, refute
from tb.formal import answers, covers, miter
from tb.formal.answers import answer_design, answer_results
from tb.formal.covers import cover_design, cover_results, expected
from tb.formal.environment import clocked
from tb.formal.graphs import design
from tb.formal.harness import SMALL
from tb.formal.miter import REFERENCE, free_design, free_results
from tb.formal.plan import RULES
from tb.formal.recency import TouchHarness
from tb.formal.small import harness_of
from tb.mutation import mutate
from tb.test_docs import quoted, rows, sections
from tb.variants import name_of_policy, policies

PAGE = ROOT / "docs" / "verification.md"


def defaults() -> dict[str, dict[str, Any]]:
    """Each policy, with what it has by default."""
    usual = dataclasses.asdict(TableConfig())
    found: dict[str, dict[str, Any]] = {}
    for chosen in policies():
        best = found.setdefault(chosen["arbiter"], chosen)
        if _alike(chosen, usual) > _alike(best, usual):
            found[chosen["arbiter"]] = chosen
    return found


def _alike(chosen: dict[str, Any], usual: dict[str, Any]) -> int:
    return sum(usual[name] == value for name, value in chosen.items())


POLICIES = defaults()


def small(**changes: Any) -> TableConfig:
    return TableConfig(**{**SMALL, **changes})


# No command, no difference


FREE = {"ports": 2, "sources": 1}
"""A smaller table is enough here: no source ever orders anything."""


@pytest.mark.conformance
@pytest.mark.parametrize("name", POLICIES, ids=lambda name: name_of_policy(POLICIES[name]))
def test_without_commands_no_policy_is_seen(name: str):
    """Every output of the table, in every cycle, is that of ``apply_now``."""
    graph = model(free_design(small(**POLICIES[name], **FREE)))
    assert prove(graph, miter.PROOF).verdict is Verdict.PROVED


@pytest.mark.parametrize("structure", ReadStructure, ids=str)
def test_while_all_sorts_of_things_happen(structure: ReadStructure):
    """In both read structures; ``version_check`` has the most to hide."""
    config = small(arbiter="version_check", read_structure=structure, **FREE)
    results = free_results(config)
    assert results.pop(miter.PROOF).verdict is Verdict.PROVED
    assert {result.verdict for result in results.values()} == {Verdict.REFUTED}


SLOWER = {
    "a lookup is admitted a cycle late": (
        Squash,
        "m.d.comb += admit.grant.eq(1)",
        "m.d.sync += admit.grant.eq(admit.valid)",
    ),
    "whoever meets another lookup waits": (
        GracePeriod,
        "admit.grant.eq(1)",
        "admit.grant.eq(~self.occupied.any())",
    ),
    "an entry is pending from the start": (
        PendingBit,
        "Signal(self.config.entries)",
        "Signal(self.config.entries, init=1)",
    ),
    "the fence is always up": (DrainFence, "Mux(owner.any(), same, 0)", "same"),
    "every lookup has the wrong version": (
        VersionCheck,
        "admit.token.eq(version(admit.index))",
        "admit.token.eq(~version(admit.index))",
    ),
    "one lookup is kept at a time": (
        ReplayBuffer,
        "(again == 0) & self.issued.ready",
        "(count == 0) & self.issued.ready",
    ),
}


@pytest.mark.parametrize("fault", SLOWER.values(), ids=SLOWER)
def test_a_policy_that_costs_something_is_found(
    fault: tuple[type, str, str], monkeypatch: pytest.MonkeyPatch
):
    cls, right, wrong = fault
    name = next((n for n, policy in arbiter.POLICIES.items() if policy is cls), "version_check")
    config = small(ports=1, sources=1, arbiter=name)
    mutate(cls, right, wrong, monkeypatch)
    result = refute(model(free_design(config, wrong)), miter.PROOF, limit=60, depth=20)
    assert result.verdict is Verdict.REFUTED


# What a lookup is answered


ANSWERS: dict[str, TableConfig] = {
    # A bit more in the key, for indices outside the table.
    "replicated": small(arbiter=REFERENCE, sources=1, ports=2, index_width=3),
    # Pages of two sizes, and lookups of up to four of them.
    "serialized": small(
        arbiter=REFERENCE,
        sources=1,
        ports=2,
        index_width=3,
        page_shift_max=2,
        length_width=3,
        read_structure=ReadStructure.SERIALIZED,
    ),
}


@pytest.mark.parametrize("config", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_depends_on_the_lookup_and_the_contents_alone(config: TableConfig):
    """So both read structures give the same answers, whenever they give them."""
    results = answer_results(config)
    assert results.pop(answers.LEMMA).verdict is Verdict.PROVED
    assert results.pop(answers.PROOF).verdict is Verdict.PROVED
    assert {r.verdict for r in results.values()} == {Verdict.REFUTED}


WRONG = {
    "all beats go to the first port": (
        LookupPipeline,
        "delivery.port.eq(out.port)",
        "delivery.port.eq(0)",
        ReadStructure.SERIALIZED,
    ),
    "the walk stays on its page": (
        LookupPipeline,
        "walk_translation.eq(walk_translation + 1)",
        "walk_translation.eq(walk_translation)",
        ReadStructure.SERIALIZED,
    ),
    "a page that is used to its end is not the last": (
        LookupPipeline,
        "walk_remaining <= room",
        "walk_remaining < room",
        ReadStructure.REPLICATED,
    ),
    "the last byte is out of bounds": (
        AccessCheck,
        "end > entry.limit",
        "end >= entry.limit",
        ReadStructure.REPLICATED,
    ),
}


@pytest.mark.parametrize("fault", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_found(
    fault: tuple[type, str, str, ReadStructure], monkeypatch: pytest.MonkeyPatch
):
    cls, right, wrong, structure = fault
    config = small(arbiter=REFERENCE, sources=1, ports=2, read_structure=structure)
    mutate(cls, right, wrong, monkeypatch)
    result = refute(model(answer_design(config, wrong)), answers.PROOF, limit=60, depth=20)
    assert result.verdict is Verdict.REFUTED


# What is assumed


HAPPENS = {
    **POLICIES,
    "pending_bit-refuse": {"arbiter": "pending_bit", "on_pending": OnPending.REFUSE},
}
"""The columns of the table in the documents."""


@pytest.mark.parametrize("name", HAPPENS)
def test_what_the_proofs_speak_about_happens(name: str):
    """In the harness of the proofs, with all that they assume, and as the documents say."""
    config = small(ports=1, sources=1, **HAPPENS[name])
    results = cover_results(config)
    assert {cover: result.verdict for cover, result in results.items()} == expected(config)
    documented = rows(sections(PAGE)["What happens in the proofs"])
    assert [quoted(row[0]) for row in documented] == [[cover] for cover in covers.COVERS]
    assert all(
        words in row[0] for row, words in zip(documented, covers.COVERS.values(), strict=True)
    )
    column = 1 + list(HAPPENS).index(name)
    for row, cover in zip(documented, covers.COVERS, strict=True):
        result = results.get(cover)
        reached = "" if result is None else str(result.cycles or "never")
        assert row[column] == reached, f"{cover} under {name}"


def test_what_does_not_happen_is_not_found(monkeypatch: pytest.MonkeyPatch):
    config = small(ports=1, sources=1, arbiter="squash")
    mutate(Squash, "self.kill.eq(surviving)", "self.kill.eq(0)", monkeypatch)
    graph = model(cover_design(config, "nobody is killed"))
    for cover in ("aborted", "stopped"):
        assert cover in expected(config)
        result = refute(graph, cover, tuple(RULES), ("unsound",), depth=20)
        assert result.verdict is Verdict.PROVED or result.searched == 20


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_needed(rule: str):
    """With both, ``untorn`` of ``grace_period`` is proved; without one of them, it is refuted."""
    config = small(ports=1, sources=1, arbiter="grace_period")
    assert Guarantee.UNTORN in GracePeriod.guarantees(config)
    others = [other for other in RULES if other != rule]
    result = refute(model(design(config)), Guarantee.UNTORN, others, ("unsound",), depth=30)
    assert result.verdict is Verdict.REFUTED
    documented = {
        quoted(row[0])[0]: row[1] for row in rows(sections(PAGE)["What the rules are for"])
    }
    assert documented[rule] == str(result.cycles)


# What has no state left


class Twins(Component):
    """Two registers that are always the same: a reduction leaves none of them."""

    def __init__(self):
        super().__init__({"clk": In(1), "raised": In(1), "same": Out(1), "other": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        one, two = Signal(), Signal()
        m.d.sync += [one.eq(one ^ self.raised), two.eq(two ^ self.raised)]
        m.d.comb += [
            self.same.eq(self.raised & (one == two)),
            self.other.eq(self.raised & (one != two)),
        ]
        return m


def test_what_has_no_state_is_decided():
    graph = model(Design("twins", Twins, source_hash([Path(__file__)])))
    assert prove(graph, "other").verdict is Verdict.PROVED
    assert refute(graph, "other").verdict is not Verdict.REFUTED
    for engine in (prove, refute):
        result = engine(graph, "same")
        assert result.verdict is Verdict.REFUTED
        assert [cycle["raised"] for cycle in result.trace] == [1]


# Recency


WIDER = small(entries=8, ways=4, index_width=3)


def test_touches_of_one_entry_merge_in_larger_sets():
    """With four ways and three ports, too."""
    graph = model(harness_of("touches", TouchHarness, WIDER))
    assert prove(graph, "differs").verdict is Verdict.PROVED


def test_touches_that_do_not_merge_are_found(monkeypatch: pytest.MonkeyPatch):
    wrong = "enable = event.valid & (1 if place in (0, len(events) - 1) else ~events[0][1].valid)"
    mutate(Lru, "enable = event.valid & ~overtaken", wrong, monkeypatch)
    graph = model(harness_of("touches", TouchHarness, WIDER, wrong))
    assert refute(graph, "differs", depth=20).verdict is Verdict.REFUTED
