"""Coverage: what a sampler counts, what runs come to together, and what the page says of it."""

import json
from pathlib import Path

import pytest

from rtl.arbiter import POLICIES
from rtl.config import RetireScope, TableConfig
from sim import coverage, rtl_coverage, simulators
from sim.coverage import Hardware, bins_report, failures, hardware_report
from sim.netlist import ROOT
from sim.rtl_coverage import CONSTANT, Constants, Point, explain
from sim.run import run
from tb.agents.requests import LookupRequest
from tb.coverage.bins import GROUPS, STATUSES, Company, Moment, Phase
from tb.coverage.merged import judge, union
from tb.coverage.model import Model
from tb.coverage.page import with_tables
from tb.coverage.sampler import FILE, phase_of
from tb.coverage.unreachable import RULES, Where, reachable
from tb.model.words import Beat, Key, Lookup, LookupStatus, Opcode, Rights
from tb.test_docs import rules
from tb.variants import SIZE

PAGE = ROOT / "docs" / "coverage.md"
HERE = Where("apply_now", RetireScope.DMA)
CONFIG = TableConfig(**SIZE, arbiter="apply_now")


class TestModel:
    def test_a_bin_is_one_name_of_each_dimension(self):
        model = Model()
        names = ("DEREGISTER", "REGION", Moment.A, Phase.DMA, Company.ALONE)
        model.sample("race", *names)
        model.sample("race", *names)
        model.sample("lookup_status", "OK")
        expected = {group: [] for group in GROUPS}
        assert model.hits() == {**expected, "race": [names], "lookup_status": [("OK",)]}
        assert model.hit("race") == {names}

    def test_a_new_one_has_nothing(self):
        Model().sample("lookup_status", "OK")
        assert not any(Model().hits().values())

    def test_what_is_no_bin_is_an_error(self):
        with pytest.raises(KeyError, match="lookup_status has no status 'FINE'"):
            Model().sample("lookup_status", "FINE")


def lookup(admitted: int | None = None, *beats: int, last: bool = False) -> LookupRequest:
    """A lookup whose beats were taken in these cycles."""
    asked = Lookup(Key(1, 0), 1, 0, Rights(0), 0, 8)
    taken = [
        (cycle, Beat(LookupStatus.OK, not place, last and place == len(beats) - 1))
        for place, cycle in enumerate(beats)
    ]
    return LookupRequest(asked, 0, offered=1, admitted=admitted, beats=taken)


@pytest.mark.parametrize(
    ("request_", "on_offer", "phase"),
    [
        (lookup(), False, Phase.WAITING),
        (lookup(9), False, Phase.ADMITTED),
        (lookup(8), False, Phase.READING),
        (lookup(5), True, Phase.FIRST_OFFERED),
        (lookup(5, 8), True, Phase.LATER_OFFERED),
        (lookup(5, 8), False, Phase.BETWEEN),
        (lookup(5, 9), False, Phase.BEAT_1),
        (lookup(5, 8, 9), False, Phase.BEAT_2),
        (lookup(5, 6, 7, 8, 9, last=True), False, Phase.BEAT_3),
        (lookup(5, 8, last=True), False, Phase.DMA),
    ],
)
def test_phases(request_: LookupRequest, on_offer: bool, phase: Phase):
    """At the end of cycle 9."""
    assert phase_of(request_, 9, on_offer=on_offer) is phase


def test_the_phase_in_which_the_tag_comes_back():
    request_ = lookup(5, 8, last=True)
    request_.retired = 9
    assert phase_of(request_, 9, on_offer=False) is Phase.RETIRED


def test_a_scene_gives_its_bins_and_no_others(tmp_path: Path):
    ran = run(
        CONFIG,
        simulators.available()[-1],
        "tb.harness.bench_one_meeting",
        parameters={"coverage": True},
        run_dir=tmp_path,
    )
    hits = union([json.loads((ran.run_dir / FILE).read_text())])
    met = ("LOCAL_INVALIDATE", "REGION")
    expected = {
        "race": {(*met, moment, Phase.FIRST_OFFERED, Company.ALONE) for moment in ("R", "A")},
        "lookup_status": {("OK",)},
        "command_status": {("REGISTER", "OK"), ("LOCAL_INVALIDATE", "OK")},
    }
    assert hits == {group: expected.get(group, set()) for group in GROUPS}


def test_nothing_is_sampled_unless_it_is_asked_for(tmp_path: Path):
    simulator = simulators.available()[-1]
    ran = run(CONFIG, simulator, "tb.harness.bench_one_meeting", run_dir=tmp_path)
    assert not (ran.run_dir / FILE).exists()


def test_a_policy_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With the short ones of the scenes: what they are there for is hit."""
    monkeypatch.setattr(coverage, "FOLDER", tmp_path)
    monkeypatch.setattr(coverage, "TESTS", ["statuses", "touches"])
    hits = coverage.sample(HERE, 1)
    assert set(map(tuple, hits["touches"])) == reachable(HERE, "touches")
    assert set(map(tuple, hits["touch_and_end"])) == reachable(HERE, "touch_and_end")
    assert set(map(tuple, hits["command_status"])) == reachable(HERE, "command_status")
    assert not any(result.wrong for result in judge({HERE: hits}))


class TestMerged:
    OTHER = Where("squash", RetireScope.DMA)

    def test_each_policy_and_scope_for_itself(self):
        """Or once for all, where a group is."""
        hits = {
            HERE: {"lookup_status": [("OK",)], "touches": [("0 and 1", "same set")]},
            self.OTHER: {"lookup_status": [("OK",), ("ABORTED",)]},
        }
        results = {result.group: result for result in judge(hits)}
        status = results["lookup_status"]
        assert status.hit == 3
        assert status.bins == 2 * len(LookupStatus)
        assert status.unreachable.total() == 3
        assert results["touches"].hit == 1
        assert results["touches"].bins == 9

    def test_runs_add_up(self):
        assert union([{"touches": [("a",)]}, {"touches": [["b"]]}])["touches"] == {("a",), ("b",)}  # pyright: ignore[reportArgumentType]

    def test_a_hole_is_named(self):
        """And makes the whole a failure."""
        hits = {HERE: {group: reachable(HERE, group) for group in GROUPS}}
        assert not failures(judge(hits), [], is_own=False)
        missing = ("OK",)
        hits[HERE]["lookup_status"] = hits[HERE]["lookup_status"] - {missing}
        results = judge(hits)
        said = [part for part in bins_report(results) if isinstance(part, str)]
        assert said == ["hole     lookup_status: apply_now, dma, OK"]
        assert failures(results, [], is_own=False) == 1
        assert not failures(results, [], is_own=True)

    def test_what_can_not_be_hit_and_is_is_wrong(self):
        hits = {HERE: {group: reachable(HERE, group) for group in GROUPS}}
        hits[HERE]["lookup_status"] |= {("RETRY",)}
        results = judge(hits)
        said = [part for part in bins_report(results) if isinstance(part, str)]
        assert said == ["wrong    lookup_status: apply_now, dma, RETRY was hit, though it can't be"]
        assert failures(results, [], is_own=True) == 1

    def test_a_hole_of_the_hardware_is_named(self):
        found = Hardware("squash", {"line": 2, "toggle": 0}, {"line": 1, "toggle": 0}, {}, ["x"])
        said = [part for part in hardware_report([found]) if isinstance(part, str)]
        assert said == ["hole     squash: x"]
        assert failures([], [found], is_own=False) == 1


class TestUnreachable:
    def test_every_rule_is_needed(self):
        """Each is the reason for some bin, somewhere."""
        everywhere = [Where(arbiter, scope) for arbiter in POLICIES for scope in RetireScope]
        used = {
            (result.group, reason)
            for where in everywhere
            for result in judge({where: {}})
            for reason in result.unreachable
        }
        assert used == {(rule.group, rule.reason) for rule in RULES}

    def test_of_an_unknown_policy_less_is_said(self):
        own = Where("mine.py:Mine", RetireScope.DMA)
        assert reachable(own, "race") >= reachable(HERE, "race")
        assert reachable(own, "lookup_status") == {(s.name,) for s in LookupStatus}

    @pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
    def test_a_command_has_the_statuses_of_its_rules(self, opcode: Opcode):
        known = rules()
        expected = set(known[opcode.name])
        if opcode is Opcode.BIND:
            expected |= set(known["parent"])
        assert {status.name for status in STATUSES[opcode.name]} == expected


class TestHardware:
    TEXT = """module top(a, b);
  assign _1_ = a & 1'h0;
  assign _2_ = ~ _1_;
  assign _3_ = b | _2_;
  always_comb begin
    if (a) begin
    end else if (_1_) begin
    end
    if (_3_) begin
    end
  end
  assign c = _1_ ? a : b;
endmodule
module other(b);
    if (_1_) begin
    end
endmodule
"""

    @pytest.mark.parametrize(
        ("line", "branch", "never"),
        [
            (6, "if", False),
            (7, "elsif", True),
            (9, "if", False),
            (9, "else", True),
            (12, "cond_then", True),
            (12, "cond_else", False),
            (15, "if", False),
        ],
    )
    def test_branches_that_are_never_taken(self, line: int, branch: str, never: bool):
        """Names belong to one module."""
        point = Point("line", "top", "", branch, line, 0)
        assert Constants(self.TEXT).never(point) == never

    def test_what_a_simulation_counted(self, tmp_path: Path):
        path = tmp_path / rtl_coverage.DATA
        toggle = {"page": "v_toggle/m", "o": "a___05F0___05Fb[3]:0->1", "l": 7}
        line = {"page": "v_line/m", "o": "elsif", "l": 6}
        keys = [
            "".join(f"\x01{name}\x02{value}" for name, value in {**fields, "h": "top.m"}.items())
            for fields in (toggle, line)
        ]
        said = f"# SystemC::Coverage-3\nC '{keys[0]}' 0\nC '{keys[1]}' 12\n"
        path.write_text(said, encoding="latin-1")
        assert rtl_coverage.read(path) == [
            Point("toggle", "m", "m", "a__0__b[3]:0->1", 7, 0),
            Point("line", "m", "m", "elsif", 6, 12),
        ]

    def test_what_was_not_seen_has_a_reason_or_none(self):
        points = [
            Point("line", "top", "", "elsif", 7, 0),
            Point("line", "top", "", "if", 6, 0),
            Point("line", "top", "", "if", 6, 3),
            Point("toggle", "p", "pipeline_0", "fixed_abort:0->1", 9, 0),
        ]
        ends = "The policy ends no lookup."
        assert [why for _, why in explain(CONFIG, self.TEXT, points)] == [CONSTANT, "", ends]
        aborts = TableConfig(**SIZE, arbiter="squash")
        assert [why for _, why in explain(aborts, self.TEXT, points)] == [CONSTANT, "", ""]


def test_the_page_has_the_bins_and_the_reasons():
    page = PAGE.read_text()
    assert page == with_tables(page)
