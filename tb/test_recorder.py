"""From a trace of the prover to a case: checked, made smaller, and widened."""

from collections.abc import Callable
from typing import Any

import pytest

from rtl.config import TableConfig
from rtl.monitor import Guarantee
from sim.netlist import ROOT, Design, source_hash
from sim.prover import Verdict, model, refute
from sim.simulators import Simulator
from tb.formal.case import Case, CaseError
from tb.formal.harness import Harness
from tb.formal.recorder import (
    ALWAYS,
    NEVER,
    Player,
    case_of,
    wide_address,
    wide_beat,
    wide_command,
    wide_lookup,
    wide_port,
)
from tb.model.words import LookupStatus, Opcode, Rights
from tb.needs import needs_icarus
from tb.test_replay import NARROW, check, narrow


@pytest.fixture(scope="module")
def found() -> tuple[TableConfig, list[dict[str, int]]]:
    """What the prover finds for stale DMA with a policy that never waits."""
    config = narrow(ports=1, sources=1, arbiter="apply_now")
    sources = [*(ROOT / "rtl").rglob("*.py"), *(ROOT / "tb" / "formal").glob("*.py")]
    key = f"{source_hash(sorted(sources))} {config!r}"
    graph = model(Design("replayed_harness", lambda: Harness(config), key))
    result = refute(graph, "fresh_dma", always=ALWAYS, never=NEVER)
    assert result.verdict is Verdict.REFUTED
    return config, [dict(inputs) for inputs in result.trace]


Found = tuple[TableConfig, list[dict[str, int]]]


@needs_icarus
@pytest.mark.parametrize("smaller", [False, True], ids=["as-found", "smaller"])
def test_trace_becomes_a_case(found: Found, smaller: bool):
    config, trace = found
    case = case_of("made", Harness(config), trace, "fresh_dma", smaller=smaller)
    assert Case.from_json(case.to_json()) == case
    assert case.guarantee is Guarantee.FRESH_DMA
    # The flag is up a cycle after the violation, and the table is ready after four.
    assert case.cycle == len(trace) - 2 - 4
    if smaller:
        (port,) = case.ports
        assert (len(port.lookups), len(port.beats), len(port.dma)) == (1, 1, 1)
        assert len(case.sources[0].commands) == 2
    check(case, Simulator.ICARUS)


def test_nothing_more_can_be_left_out(found: Found):
    config, trace = found
    player = Player(Harness(config), "fresh_dma")
    least = player.smaller([{n: v for n, v in i.items() if v and n != "clk"} for i in trace])
    assert player.violates(least)
    for cycle, inputs in enumerate(least):
        for name in inputs:
            without = [dict(i) for i in least]
            del without[cycle][name]
            assert not player.violates(without)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        pytest.param(lambda trace: trace[:-1], "fresh_dma", id="too-short"),
        pytest.param(lambda trace: [*trace, {}], "fresh_dma", id="too-long"),
        pytest.param(lambda trace: trace, "untorn", id="other-guarantee"),
        pytest.param(lambda trace: [{} for _ in trace], "fresh_dma", id="nothing"),
    ],
)
def test_trace_of_nothing(found: Found, change: Callable[[Any], Any], output: str):
    config, trace = found
    with pytest.raises(CaseError, match=f"doesn't show a violation of {output}$"):
        case_of("made", Harness(config), change(trace), output)


@pytest.mark.parametrize("rule", [{"always": ["outlived"]}, {"never": ["ranges_apart"]}])
def test_traces_break_no_rule(found: Found, rule: dict[str, list[str]]):
    config, trace = found
    with pytest.raises(CaseError, match="doesn't show"):
        case_of(
            "made",
            Harness(config),
            trace,
            "fresh_dma",
            always=rule.get("always", ()),
            never=rule.get("never", ()),
        )


def test_widths():
    """Whatever lay at the end of the address space does so again, and pages stay pages."""
    assert wide_address(NARROW, 16) == 2**64
    assert wide_address(NARROW, 3) - wide_address(NARROW, 1) == 4096
    lookup = {"tag": 1, "key.index": 2, "pd": 1, "address": 14, "length": 2}
    wide = wide_lookup(NARROW, lookup)
    assert wide == {**lookup, "address": 2**64 - 4096, "length": 4096}
    assert wide_lookup(NARROW, {}) == {"address": 2**64 - 2**15}
    beat = {"status": 0, "first": 1, "address": 6, "length": 1}
    assert wide_beat(beat) == {**beat, "address": 3 << 12, "length": 2048}
    register = {"base": 13, "offset": 1, "length": 3, "page_shift": 1, "frame": 5}
    assert wide_command(NARROW, register) == {
        "base": 2**64 - 3 * 2048,
        "offset": 2048,
        "length": 3 * 2048,
        "page_shift": 12,
        "frame": 5,
    }
    assert wide_command(NARROW, {})["page_shift"] == 11
    invalidate = {"opcode": Opcode.LOCAL_INVALIDATE.value, "pd": 1, "base": 3}
    assert wide_command(NARROW, invalidate) == {"opcode": 2, "pd": 1}


def test_misaligned_stays_misaligned():
    """An atomic of an odd place would become one of an even place."""
    config = narrow(ports=1, sources=1, arbiter="squash")
    harness = Harness(config)
    player = Player(harness, "lossless")
    atomic = Rights.REMOTE_ATOMIC.value
    region = {"rights": atomic, "length": 4, "page_shift": 1, "translations": 2}
    register = player.packed("command", region)
    inside = player.packed("lookup", {"rights": atomic, "address": 1, "length": 1})
    outside = player.packed("lookup", {"tag": 1, "rights": atomic, "address": 2, "length": 3})
    trace: list[dict[str, int]] = [{} for _ in range(30)]
    trace[4] = {"source__0__orders": 1, "source__0__command": register}
    for cycle, lookup in ((14, inside), (15, outside)):
        trace[cycle] = {"port__0__asks": 1, "port__0__lookup": lookup}
    for inputs in trace:
        inputs |= {"source__0__hears": 1, "port__0__accepts": 1}
    ports, *_ = player.record(trace)
    port = wide_port(config, ports[0])
    statuses = [LookupStatus(offer.fields["status"]) for offer in port.beats]
    assert statuses == [LookupStatus.MISALIGNED, LookupStatus.OUT_OF_BOUNDS]
    base = wide_address(config, 0)
    places = [(o.fields["address"] - base, o.fields["length"]) for o in port.lookups]
    # With the same end.
    assert places == [(2048 + 1, 2048 - 1), (2 * 2048, 3 * 2048)]
