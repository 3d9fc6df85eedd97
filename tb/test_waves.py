"""Save files for GTKWave: what they show is in the dump, and the real GTKWave finds it."""

import re
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from rtl.config import OnPending, ReadStructure, TableConfig
from rtl.layouts import LookupStatus
from sim import waves
from sim.dump import Race, WavesError, find_race, read_header
from sim.run import RunFailed, run
from sim.screenshot import virtual_screen
from sim.simulators import Simulator
from tb.needs import needs_icarus, needs_program

BENCH = "tb.harness.bench_one_race"


def small(**changes: Any) -> TableConfig:
    return TableConfig.preset("tiny", **{"tags": 2, "arbiter": "apply_now", **changes})


@dataclass(frozen=True)
class Dumped:
    """A dump in a folder of the test's own."""

    path: Path
    config: TableConfig


def dump_of(config: TableConfig, simulator: Simulator, folder: Path) -> Dumped:
    result = run(config, simulator, BENCH, waves=True, run_dir=folder)
    assert result.waves is not None
    if simulator is Simulator.ICARUS:
        needs_program("fst2vcd")
    return Dumped(result.waves, config)


@pytest.fixture
def dumped(simulator: Simulator, tmp_path: Path) -> Dumped:
    return dump_of(small(), simulator, tmp_path / "run")


def traced(save: Path) -> list[str]:
    """Signals of a save file, with their ranges."""
    return re.findall(r"^\+\{[^}]*\} (\S+)$", save.read_text(), re.MULTILINE)


def names_in(dump: Path) -> set[str]:
    return {v.name + v.bits for v in read_header(dump).variables.values()}


def check(dumped: Dumped) -> Path:
    """Everything that holds for any dump; returns the save file."""
    assert waves.missing_signals(dumped.path, dumped.config) == []
    save = waves.save_for_first_race(dumped.path, dumped.config)
    shown = traced(save)
    assert len(shown) == len(set(shown)) > 60
    assert set(shown) <= names_in(dumped.path)
    text = save.read_text()
    assert f'[dumpfile] "{dumped.path.name}"' in text
    assert str(dumped.path.parent) not in text
    for name in re.findall(r"^\^\d+ (.+)$", text, re.MULTILINE):
        assert (save.parent / name).exists()
    return save


def test_first_violation_is_shown(dumped: Dumped):
    race = find_race(dumped.path, dumped.config)
    assert race is not None
    assert race.what == "First violation: fresh_dma, port 0"
    assert (race.port, race.source) == (0, 0)
    assert race.around_ns[0] < race.marks["R A"] < race.marks["C"] < race.at_ns < race.around_ns[1]
    text = check(dumped).read_text()
    numbers = re.search(r"^\*\S+ (\d+) (\d+) (\d+) -1 ", text, re.MULTILINE)
    assert numbers is not None
    marks = [race.at_ns, race.marks["R A"], race.marks["C"]]
    assert [int(number) for number in numbers.groups()] == [1000 * mark for mark in marks]
    assert "[markername] AR A\n[markername] BC\n" in text
    assert f"[timestart] {1000 * race.around_ns[0]}\n" in text


@needs_icarus
@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        pytest.param({"arbiter": "pending_bit"}, ["pending"], id="pending_bit"),
        pytest.param(
            {"arbiter": "drain_fence", "on_pending": OnPending.REFUSE},
            ["index", "owner"],
            id="drain_fence-refuse",
        ),
        pytest.param(
            {"arbiter": "drain_fence", "read_structure": ReadStructure.SERIALIZED},
            ["index", "owner"],
            id="drain_fence-serialized",
        ),
        pytest.param({"ghost_version": False}, [], id="apply_now-unwatched"),
    ],
)
def test_other_configurations(changes: dict[str, Any], policy: list[str], tmp_path: Path):
    dumped = dump_of(small(**changes), Simulator.ICARUS, tmp_path / "run")
    race = find_race(dumped.path, dumped.config)
    assert race is not None
    assert race.what == "First change that meets lookups in flight"
    shown = " ".join(traced(check(dumped)))
    assert re.findall(r"\.arbiter\.(\w+)", shown) == policy


def test_caller_chooses_window_and_marks(tmp_path: Path):
    race = Race("Look here", at_ns=30, around_ns=(20, 40), marks={"before": 25})
    text = waves.write_save_file(handmade(tmp_path), small(), race).read_text()
    assert "[timestart] 200\n" in text
    assert re.search(r"^\*\S+ 300 250 -1 ", text, re.MULTILINE)
    assert "[markername] Abefore\n" in text
    assert "\n-Look here\n" in text


def test_missing_signals_are_named_and_left_out(tmp_path: Path):
    dump = handmade(tmp_path)
    missing = waves.missing_signals(dump, small())
    assert "lookup__0__valid" in missing
    assert "clk" not in missing
    save = waves.write_save_file(dump, small())
    assert traced(save) == ["table.clk", "table.commands.worker_state[3:0]"]


def test_no_race(tmp_path: Path):
    assert find_race(handmade(tmp_path), small()) is None


def test_dump_of_a_simulator_that_died(tmp_path: Path):
    dump = handmade(tmp_path)
    text = dump.read_text()
    body = text.index("$enddefinitions")
    for length in range(body + len("$enddefinitions $end"), len(text)):
        dump.write_text(text[:length])
        assert find_race(dump, small()) is None


def handmade(folder: Path) -> Path:
    dump = folder / "dump.vcd"
    dump.write_text(
        "$date today $end\n$timescale\n 100 ps\n$end\n$scope module table $end\n"
        "$var wire 1 ! clk $end\n$scope module commands $end\n"
        "$var reg 4 # worker_state [3:0] $end\n$upscope $end\n$upscope $end\n$enddefinitions $end\n"
        "#0\n0!\nb0 #\n#50\n1!\n#100\n0!\n"
    )
    return dump


@pytest.mark.parametrize(("kind", "width"), waves.NAMED)
def test_translate_files_are_complete(kind: type[Enum], width: int, tmp_path: Path):
    path = waves.write_translate_files(tmp_path)[kind]
    rows = dict(line.split(" ") for line in path.read_text().splitlines())
    assert len(rows) == len(kind)
    for member in kind:
        # In the digits that GTKWave uses for so many bits, perhaps with a colour in front.
        row = rows[format(member.value, f"0{-(-width // 4)}x")]
        assert re.sub(r"\?\w+\?", "", row) == member.name
    assert max(member.value for member in kind) < 2**width


def test_no_dump_of_the_table(tmp_path: Path):
    dump = tmp_path / "dump.vcd"
    with pytest.raises(WavesError, match=r"^There is no dump .*dump\.vcd\.$"):
        read_header(dump)
    dump.write_text("$enddefinitions $end\n#0\n")
    with pytest.raises(WavesError, match=r"dump\.vcd is no dump of the table\.$"):
        read_header(dump)


def test_fst_without_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    dump = tmp_path / "dump.fst"
    dump.touch()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(WavesError, match="install the Debian package gtkwave"):
        read_header(dump)


def test_convert(tmp_path: Path):
    needs_program("vcd2fst")
    dump = handmade(tmp_path)
    before = names_in(dump)
    converted = waves.convert(dump)
    assert converted == tmp_path / "dump.fst"
    assert names_in(converted) == before
    assert [path.name for path in tmp_path.iterdir()] == ["dump.fst"]
    assert waves.convert(converted) == converted


def test_convert_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    dump = handmade(tmp_path)
    monkeypatch.setenv("PATH", "")
    assert waves.convert(dump) == dump
    assert dump.exists()


def test_gtkwave_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    save = waves.write_save_file(handmade(tmp_path), small())
    monkeypatch.setenv("PATH", "")
    assert waves.open_in_gtkwave(save) == 1
    said = capsys.readouterr().err
    assert said.startswith("GTKWave is missing: install the Debian package gtkwave")
    assert said.endswith(f"cd {tmp_path} && gtkwave --dump dump.vcd --save save.gtkw\n")


def test_no_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    save = waves.write_save_file(handmade(tmp_path), small())
    program = tmp_path / "gtkwave"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    assert waves.open_in_gtkwave(save) == 1
    said = capsys.readouterr().err
    assert said.startswith("There is no screen")
    assert said.endswith("gtkwave --dump dump.vcd --save save.gtkw\n")
    monkeypatch.setenv("DISPLAY", ":0")
    assert waves.open_in_gtkwave(save) == 3


@pytest.mark.parametrize("waves_asked", [False, True])
def test_failed_run_of_a_table_can_be_looked_at(
    simulator: Simulator, waves_asked: bool, tmp_path: Path
):
    folder = tmp_path / "a run"
    with pytest.raises(RunFailed, match="the buffer is still in use") as caught:
        run(small(), simulator, "tb.harness.bench_lost_race", waves=waves_asked, run_dir=folder)
    dump = "dump.vcd" if simulator is Simulator.VERILATOR else "dump.fst"
    assert caught.value.waves == folder / dump
    if simulator is Simulator.ICARUS:
        needs_program("fst2vcd")
    assert "First violation: fresh_dma" in (folder / waves.SAVE_NAME).read_text()
    (look,) = re.findall(r"^look: (.+)$", str(caught.value), re.MULTILINE)
    assert look == f"cd '{folder}' && gtkwave --dump {dump} --save {waves.SAVE_NAME}"
    # The command finds both, wherever it is typed.
    program = tmp_path / "gtkwave"
    program.write_text('#!/bin/sh\ntest -s "$2" && test -s "$4"\n')
    program.chmod(0o755)
    subprocess.run(["/bin/sh", "-c", look], env={"PATH": str(tmp_path)}, check=True)


SCRIPT = """
foreach signal [gtkwave::getDisplayedSignals] { puts "signal $signal" }
puts "status [gtkwave::getTraceValueAtMarkerFromName {beat status}]"
exit
"""


def test_in_the_real_gtkwave(dumped: Dumped, tmp_path: Path):
    needs_program("gtkwave")
    needs_program("Xvfb", "xvfb")
    save = check(dumped)
    # It still works after the folder was moved, and from anywhere.
    folder = dumped.path.parent.rename(tmp_path / "moved")
    script = tmp_path / "script.tcl"
    script.write_text(SCRIPT)
    with virtual_screen() as environment:
        environment["HOME"] = str(tmp_path)
        result = subprocess.run(
            ["gtkwave", "--dump", folder / dumped.path.name, "--save", folder / save.name]
            + ["--script", script],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    said = result.stdout + result.stderr
    assert "Could not" not in said
    assert re.findall(r"^signal (\S+)$", said, re.MULTILINE) == traced(folder / save.name)
    assert re.search(rf"^status {LookupStatus.OK.name}$", said, re.MULTILINE), said
