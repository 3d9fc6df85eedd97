"""The main job, from what is typed to ``result.json``, on small tables.

Nearly all of it runs on Icarus where that is installed, since it builds in a second.
"""

import dataclasses
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from rtl.config import OnPending, ReadStructure, RetireScope, TableConfig
from rtl.monitor import Guarantee
from sim import build as build_module
from sim import cli, job, netlist, simulators
from sim.cli import main
from sim.parameters import CHANGES, COMMANDS
from sim.run import RunResult
from sim.simulators import Simulator
from sim.typed import number_of
from tb.agents.capture import Capture, Send
from tb.agents.generators import GENERATORS
from tb.agents.scenes import PAGE
from tb.bench_traffic import captured_flows
from tb.needs import REAL_CAPTURE, needs_icarus, needs_real_capture
from tb.test_benches import EVERY_CHOICE
from tb.variants import SIZE, name_of, name_of_policy, policies

FASTEST = simulators.available()[-1]
SMALL = Path(__file__).parent / "data" / "roce_small.pcap"

DEFAULTS: dict[str, Any] = {
    **{name.upper(): value for name, value in SIZE.items()},
    "SIM": FASTEST,
    "LOOKUPS": 300,
    "INVALIDATIONS": 12,
    "QPS": 20,
    "SEED": 1,
}


@dataclass(frozen=True)
class Played:
    """A finished run: its exit status, what it said, and what it left."""

    status: int
    said: str
    folder: Path
    result: dict[str, Any]

    @property
    def digest(self) -> str:
        return self.result["trace_digest"]


Play = Callable[..., Played]


@pytest.fixture
def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Play:
    """Does what is typed, :data:`DEFAULTS` included but for what is ``None``.

    The folders of the runs are the test's own.
    """
    monkeypatch.setattr(job, "BUILD", tmp_path)
    monkeypatch.setattr(job, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(job, "LATEST", tmp_path / "latest")
    monkeypatch.setenv("COLUMNS", "200")

    def play(verb: str = "run", **parameters: Any) -> Played:
        typed = {**DEFAULTS, **parameters}
        words = [f"{name}={value}" for name, value in typed.items() if value is not None]
        status = main([verb, *words])
        said = capsys.readouterr()
        assert said.err == ""
        folder = (tmp_path / "latest").resolve()
        return Played(status, said.out, folder, json.loads((folder / "result.json").read_text()))

    return play


def typed_for(config: TableConfig) -> dict[str, Any]:
    """What has to be typed for a configuration."""
    values = {name.upper(): value for name, value in dataclasses.asdict(config).items()}
    return {**values, "GHOST_VERSION": int(config.ghost_version)}


def typed_policy(policy: dict[str, Any]) -> dict[str, Any]:
    return {name.upper(): value for name, value in policy.items()}


KEYS = {
    *("command", "config", "parameters", "seed", "simulator", "seconds", "trace_digest"),
    *("cycles", "lookups", "lookups_per_cycle", "latency_cycles", "waited", "refused", "aborted"),
    *("statuses", "beats", "dma_beats", "invalidations", "apply_cycles", "invalidation_cycles"),
    *("declared", "violations", "first_violations", "torn_lookups", "stale_lookups"),
}


class TestResult:
    @needs_icarus
    @pytest.mark.conformance
    @pytest.mark.parametrize("scope", RetireScope)
    @pytest.mark.parametrize("policy", [*policies()], ids=name_of_policy)
    def test_numbers_agree(self, play: Play, policy: dict[str, Any], scope: RetireScope):
        played = play(**typed_policy(policy), SCOPE=scope)
        result = played.result
        assert set(result) == KEYS
        assert played.status == 0
        assert (result["seed"], result["simulator"]) == (1, str(FASTEST))
        assert result["config"] == {**result["config"], **policy, "scope": scope, **SIZE}
        assert result["lookups"] == 300
        tries = result["lookups"] + result["refused"] + result["aborted"]
        assert sum(result["statuses"].values()) == tries
        assert result["statuses"].get("RETRY", 0) == result["refused"]
        assert result["statuses"].get("ABORTED", 0) == result["aborted"]
        assert not (result["aborted"] and "lossless" in result["declared"])
        assert result["beats"] >= tries
        assert result["statuses"]["OK"] <= result["dma_beats"] <= result["beats"]
        assert result["waited"] <= tries
        assert result["lookups"] / result["cycles"] < result["lookups_per_cycle"] <= 3
        assert result["invalidations"] == 12
        for name in ("latency_cycles", "apply_cycles", "invalidation_cycles"):
            assert 0 <= result[name]["p50"] <= result[name]["p99"] <= result[name]["max"]
        assert result["apply_cycles"]["max"] <= result["invalidation_cycles"]["max"]
        assert set(result["violations"]) == {str(guarantee) for guarantee in Guarantee}
        violated = {name for name, count in result["violations"].items() if count}
        assert set(result["first_violations"]) == violated
        assert not violated & set(result["declared"])
        assert "untorn" in violated or not result["torn_lookups"]
        assert "fresh_answer" in violated or not result["stale_lookups"]

    def test_table_says_the_same(self, play: Play):
        played = play(ARBITER="apply_now")
        result = played.result
        rows = {
            words[1].strip(): [word.strip() for word in words[2:-1]]
            for line in played.said.splitlines()
            if len(words := re.split("[│┃]", line)) > 2
        }
        assert rows["lookups answered"][0] == "300"
        assert rows["lookups a cycle"][0] == f"{result['lookups_per_cycle']:.3f}"
        assert rows["beats"][0] == str(result["beats"])
        assert rows["OK"][0] == str(result["statuses"]["OK"])
        for row, name in (
            ("latency of a lookup, cycles", "latency_cycles"),
            ("R to A, cycles", "apply_cycles"),
            ("R to C, cycles", "invalidation_cycles"),
        ):
            assert rows[row] == ["", *map(str, result[name].values())]
        for guarantee, count in result["violations"].items():
            declared, verdict = rows[guarantee]
            assert declared == ("yes" if guarantee in result["declared"] else "no")
            if guarantee == "bounded_invalidation":
                assert verdict == "not judged here"
            elif not count:
                assert verdict == ("held" if declared == "yes" else "not violated here")
            else:
                first = result["first_violations"][guarantee]
                unit = "DMA beat" if guarantee == "fresh_dma" else "beat"
                assert verdict == (
                    f"violated by {number_of(count, unit)}, first in cycle {first['cycle']}, "
                    f"port {first['port']}"
                )
        for line in (
            "seed     1",
            f"repeat   {result['command']}",
            f"wrote    {played.folder}/result.json",
            f"wrote    {played.folder}/simulator.log",
        ):
            assert line in played.said.splitlines()

    def test_latest_is_the_last(self, play: Play):
        one, two = play(), play()
        assert one.folder != two.folder
        assert one.folder.parent == two.folder.parent
        assert {path.name for path in two.folder.iterdir()} >= {"result.json", "simulator.log"}
        assert not list(two.folder.glob("dump*"))
        assert not (two.folder / "measured.json").exists()
        assert not (two.folder / "progress").exists()


class TestRepetition:
    def test_command_repeats_it(self, play: Play):
        first = play(SEED=None, ARBITER="pending_bit", BACKPRESSURE="half")
        make, target, *words = shlex.split(first.result["command"])
        assert (make, target) == ("make", "sim")
        again = play(**{**dict.fromkeys(DEFAULTS), **dict(word.split("=") for word in words)})
        assert again.digest == first.digest
        assert sorted(shlex.split(again.result["command"])) == sorted([make, target, *words])

    def test_seed_decides(self, play: Play):
        digests = [play(SEED=seed).digest for seed in (1, 2, 1)]
        assert digests[0] == digests[2] != digests[1]

    def test_seed_is_found(self, play: Play):
        one, two = play(SEED=None), play(SEED=None)
        assert one.result["seed"] != two.result["seed"]
        assert one.digest != two.digest

    def test_waves_change_nothing(self, play: Play):
        assert play(WAVES=1).digest == play().digest

    def test_second_run_builds_nothing(self, play: Play, monkeypatch: pytest.MonkeyPatch):
        first = play()

        def forbidden(*_: object, **__: object) -> Any:
            pytest.fail("this was made already")

        monkeypatch.setattr(build_module, "get_runner", forbidden)
        monkeypatch.setattr(netlist, "rtlil_text", forbidden)
        assert play().digest == first.digest


@needs_icarus
@pytest.mark.conformance
@pytest.mark.parametrize("config", EVERY_CHOICE, ids=name_of)
def test_simulators_agree(play: Play, config: TableConfig):
    """Cycle by cycle, under back-pressure, with changes of all kinds."""
    typed = {**typed_for(config), "BACKPRESSURE": "bursts", "LOOKUPS": 500, "INVALIDATIONS": 40}
    one, two = (play(**typed, SIM=simulator) for simulator in Simulator)
    assert one.result["simulator"] != two.result["simulator"]
    timeless = [
        {k: v for k, v in p.result.items() if k not in ("command", "seconds", "simulator")}
        for p in (one, two)
    ]
    assert timeless[0] == timeless[1]


class TestReadsAlone:
    """Every policy lets through what the table can do, and does the same in every cycle."""

    @staticmethod
    def play_all(play: Play, structure: ReadStructure, chosen: list[dict[str, Any]]) -> set[float]:
        digests: set[str] = set()
        rates: set[float] = set()
        for policy in chosen:
            result = play(
                **typed_policy(policy),
                READ_STRUCTURE=structure,
                SCOPE="lookup",
                PAGES=1,
                INVALIDATIONS=0,
                LOOKUPS=480,
                QPS=48,
                TAGS=16,
                # Icarus if it is there: it builds in a second.
                SIM=simulators.available()[-1],
            ).result
            assert result["statuses"] == {"OK": 480}
            assert (result["waited"], result["refused"], result["invalidations"]) == (0, 0, 0)
            assert result["invalidation_cycles"] == {"p50": None, "p99": None, "max": None}
            digests.add(result["trace_digest"])
            rates.add(result["lookups_per_cycle"])
        assert len(digests) == 1
        return rates

    @staticmethod
    def one_each() -> list[dict[str, Any]]:
        """Their choices make no difference here, which ``test_miters.py`` has proved of small
        tables."""
        return [*{policy["arbiter"]: policy for policy in policies()}.values()]

    def test_replicated(self, play: Play):
        rates = self.play_all(play, ReadStructure.REPLICATED, self.one_each())
        assert rates == {SIZE["ports"]}

    def test_serialized(self, play: Play):
        assert self.play_all(play, ReadStructure.SERIALIZED, self.one_each()) == {1}


RACY = {"LOOKUPS": 1200, "INVALIDATIONS": 60}


class TestVerdict:
    def test_negative_control(self, play: Play):
        played = play(ARBITER="apply_now", **RACY)
        violations = played.result["violations"]
        assert played.status == 0
        for guarantee in ("untorn", "fresh_answer", "fresh_dma"):
            assert violations[guarantee] > 0
            assert guarantee not in played.result["declared"]
        assert (
            "apply_now held everything that it declares. It violated untorn, fresh_answer, "
            "fresh_dma: that is expected, it declares no such thing." in played.said
        )

    @pytest.mark.parametrize("on_pending", OnPending)
    @pytest.mark.parametrize("arbiter", ["pending_bit", "drain_fence"])
    def test_draining(self, play: Play, arbiter: str, on_pending: OnPending):
        played = play(ARBITER=arbiter, ON_PENDING=on_pending, **RACY)
        assert played.status == 0
        assert set(played.result["first_violations"]) == {"lookup_never_waits"}
        assert f"{arbiter} held everything that it declares." in played.said
        waited, refused = played.result["waited"], played.result["refused"]
        assert played.result["aborted"] == 0
        if on_pending is OnPending.STALL:
            assert waited > 0 == refused
        else:
            assert refused > 0 == waited

    @pytest.mark.parametrize(
        ("arbiter", "violated"),
        [
            ("grace_period", set()),
            ("squash", {"lossless"}),
            ("version_check", {"lookup_never_waits", "lossless"}),
        ],
    )
    def test_at_once(self, play: Play, arbiter: str, violated: set[str]):
        """Nobody waits for the arbiter; what is wrong in the end is taken back, or waited for."""
        played = play(ARBITER=arbiter, BACKPRESSURE="half", **RACY)
        assert played.status == 0
        assert set(played.result["first_violations"]) - {"isolated_lookups"} == violated
        assert f"{arbiter} held everything that it declares." in played.said
        assert played.result["waited"] == played.result["refused"] == 0
        assert (played.result["aborted"] > 0) == ("lossless" in violated)
        assert ("ABORTED" in played.result["statuses"]) == ("lossless" in violated)

    def test_broken_promise(self, play: Play, monkeypatch: pytest.MonkeyPatch):
        """A policy that declares too much; here because somebody changes what it declared."""
        sound = job.run

        def promising(*arguments: Any, **more: Any) -> RunResult:
            ran = sound(*arguments, **more)
            path = ran.run_dir / "measured.json"
            measured = json.loads(path.read_text())
            measured["declared"] = sorted([*measured["declared"], "fresh_answer", "untorn"])
            path.write_text(json.dumps(measured))
            return ran

        monkeypatch.setattr(job, "run", promising)
        played = play(ARBITER="apply_now", **RACY)
        assert played.status == 1
        assert "apply_now violated what it declares: fresh_answer, untorn." in played.said
        assert "expected" not in played.said


class TestKinds:
    def test_commands(self, play: Play):
        """Each kind is done as often as asked for, and none does the same as another."""
        digests = set()
        for command in COMMANDS:
            result = play(COMMAND=command, INVALIDATIONS=10).result
            assert result["invalidations"] == 10
            assert result["invalidation_cycles"]["p50"] > 0
            digests.add(result["trace_digest"])
        assert len(digests) == len(CHANGES) + 1

    def test_backpressure(self, play: Play):
        """The less often beats are accepted, the longer it takes."""
        cycles = {
            name: play(BACKPRESSURE=name, INVALIDATIONS=0).result["cycles"] for name in GENERATORS
        }
        assert cycles["always"] < cycles["half"] < cycles["rarely"]
        assert cycles["always"] < cycles["bursts"] < cycles["rarely"]

    def test_slow_dma(self, play: Play):
        """A change waits for it, however long it takes."""
        slow = play(DMA_CYCLES=3000, LOOKUPS=12, INVALIDATIONS=3, PAGES=10, TRANSLATIONS=64)
        assert slow.result["invalidation_cycles"]["max"] > 5000

    def test_long_lookups(self, play: Play):
        """Registering takes a cycle a page, in which nobody gets an answer."""
        long = {"TRANSLATIONS": 16384, "PAGES": 8000, "COMMAND": "deregister"}
        result = play(**long, PORTS=1, LOOKUPS=1, INVALIDATIONS=0).result
        assert result["beats"] == result["dma_beats"] > 1000

    @needs_icarus
    @pytest.mark.parametrize(
        "typed",
        [
            pytest.param({"PORTS": 1}, id="one-port"),
            pytest.param({"PORTS": 1, "QPS": 1, "READ_STRUCTURE": "serialized"}, id="one-pair"),
            pytest.param({"LOOKUPS": 1, "INVALIDATIONS": 0}, id="one-lookup"),
            pytest.param({"LOOKUPS": 5, "INVALIDATIONS": 40}, id="more-changes-than-lookups"),
            pytest.param({"SOURCES": 1}, id="one-source"),
            pytest.param({"SOURCES": 2, "COMMAND": "remote_invalidate"}, id="two-sources"),
            pytest.param({"QPS": 3000}, id="more-pairs-than-lookups"),
            pytest.param({"DMA_CYCLES": 0, "SEED": 0}, id="nothing"),
            pytest.param({"STEP_ORDER": "translations_first"}, id="translations-first"),
            pytest.param({"TRANSLATIONS": 4, "PAGES": 2, "COMMAND": "deregister"}, id="two-pages"),
            pytest.param({"PAGES": 18}, id="most-pages"),
            pytest.param(
                {
                    "PORTS": 1,
                    "ENTRIES": 4,
                    "TRANSLATIONS": 16,
                    "TAGS": 2,
                    "SOURCES": 1,
                    "PAGES": 2,
                    "ADDRESS_WIDTH": 48,
                    "LENGTH_WIDTH": 17,
                    "PHYSICAL_WIDTH": 48,
                    "INDEX_WIDTH": 2,
                    "PAGE_SHIFT_MIN": 1,
                    "PAGE_SHIFT_MAX": 12,
                },
                id="smallest",
            ),
            pytest.param(
                {"PHYSICAL_WIDTH": 64, "GHOST_WIDTH": 32, "WAYS": 8, "TAGS": 32, "PORTS": 4},
                id="wide",
            ),
        ],
    )
    def test_edges(self, play: Play, typed: dict[str, Any]):
        asked = {**DEFAULTS, **typed}
        played = play(**typed)
        assert played.status == 0
        assert played.result["lookups"] == asked["LOOKUPS"]
        assert played.result["invalidations"] == asked["INVALIDATIONS"]


class TestWaves:
    def test_they_can_be_seen(self, play: Play):
        played = play(WAVES=1)
        (dump,) = played.folder.glob("dump.*")
        save = played.folder / "save.gtkw"
        assert f'[dumpfile] "{dump.name}"' in save.read_text()
        assert {f"wrote    {dump}", f"wrote    {save}"} <= set(played.said.splitlines())
        assert "WAVES=1" in played.result["command"]

    def test_they_are_shown(self, play: Play, monkeypatch: pytest.MonkeyPatch):
        opened: list[Path] = []

        def open_in_gtkwave(save: Path) -> int:
            opened.append(save)
            return 0

        monkeypatch.setattr(cli, "open_in_gtkwave", open_in_gtkwave)
        played = play("waves")
        assert played.status == 0
        assert opened == [played.folder / "save.gtkw"]
        assert played.result["command"].startswith("make waves ")


CAPTURED = {"LOOKUPS": None, "QPS": None, "INVALIDATIONS": None}
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
NETWORK = ETHER / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=0xC000, dport=4791)


class TestCapture:
    def test_small(self, play: Play):
        result = play(**CAPTURED, CAPTURE=SMALL).result
        assert result["statuses"] == {"OK": 15}
        assert (result["lookups"], result["beats"], result["dma_beats"]) == (15, 15, 15)
        assert result["invalidations"] == 0
        assert result["parameters"]["capture"] == "roce_small.pcap"
        assert result["parameters"]["packets"] == 24
        assert result["parameters"]["qps"] == 2

    @needs_real_capture
    def test_real(self, play: Play):
        """Of 68 packets, end to end, those that cross a page's end take two beats."""
        result = play(**CAPTURED, CAPTURE=REAL_CAPTURE).result
        assert result["parameters"]["packets"] == 105
        assert result["statuses"] == {"OK": 68}
        # 67178 bytes in 65 packets of 1024 bytes, and three that put these out of step.
        crossings = result["beats"] - 68
        assert 0 < crossings <= (65 * 1024 + 141 + 473 + 4) // PAGE
        assert result["dma_beats"] == result["beats"]

    def test_segments_are_those_of_the_pages(self, play: Play, tmp_path: Path):
        lengths = [4096, 4096, 1000, 5000, 0, 1, 12_000, 40_000, 20_000]
        path = tmp_path / "lengths.pcap"
        wrpcap(str(path), [NETWORK / BTH(opcode=4, dqpn=3) / Raw(bytes(n)) for n in lengths])
        result = play(**CAPTURED, CAPTURE=path).result
        beats = start = 0
        for length in lengths:
            if start + length > 10 * PAGE:
                start = 0
            beats += max(1, -(-(start + length) // PAGE) - start // PAGE)
            start += length
        assert result["beats"] == beats
        assert result["statuses"] == {"OK": len(lengths)}

    def test_fan_out(self, play: Play):
        result = play(**{**CAPTURED, "QPS": 50}, CAPTURE=SMALL).result
        assert result["statuses"] == {"OK": 25 * 15}
        assert result["parameters"]["qps"] == 50
        # What the bench is told has to fit into one variable of the environment.
        assert len(json.dumps(result["parameters"])) < 500

    def test_changes_meet_it(self, play: Play):
        result = play(**{**CAPTURED, "QPS": 50, "INVALIDATIONS": 20}, CAPTURE=SMALL).result
        assert result["invalidations"] == 20
        assert result["lookups"] == 25 * 15
        assert 0 < result["statuses"]["OK"] < 25 * 15

    def test_odd_one(self, play: Play, tmp_path: Path):
        """The last queue pair there is, and a name that looks like markup."""
        path = tmp_path / "[red]it's :smile:.pcap"
        wrpcap(str(path), [NETWORK / BTH(opcode=4, dqpn=2**24 - 1) / Raw(bytes(100))] * 3)
        played = play(**{**CAPTURED, "QPS": 30}, CAPTURE=path)
        assert played.result["statuses"] == {"OK": 90}
        assert f"repeat   {played.result['command']}" in played.said.splitlines()

    def test_copies_start_further_on(self):
        lengths = {7: [1, 2, 3], 2: [4, 5]}
        sends = tuple(
            Send(qpn, 0, "RC_SEND_ONLY", length, True, True)
            for qpn, flow in lengths.items()
            for length in flow
        )
        assert captured_flows(Capture(5, 0, sends), 8) == [
            (7, [1, 2, 3]),
            (2, [4, 5]),
            (3, [2, 3, 1]),
            (4, [5, 4]),
            (5, [3, 1, 2]),
            (6, [4, 5]),
            (8, [1, 2, 3]),
            (9, [5, 4]),
        ]
