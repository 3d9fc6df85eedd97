"""The command line: what can't be done gets one sentence that says what can."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from rtl.arbiter import POLICIES
from rtl.config import TableConfig
from sim import cli, job
from sim.cli import main
from sim.netlist import ROOT
from sim.parameters import (
    COVERAGE_PARAMETERS,
    PROOF_PARAMETERS,
    RUN_PARAMETERS,
    TABLE_PARAMETERS,
)
from sim.request import UsageError, parse, parse_table

SMALL = ROOT / "tb" / "data" / "roce_small.pcap"
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
NETWORK = ETHER / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=0xC000, dport=4791)


def send(length: int, qpn: int = 5) -> Packet:
    return NETWORK / BTH(opcode=4, dqpn=qpn) / Raw(bytes(length))


def capture_of(path: Path, *frames: Packet) -> Path:
    wrpcap(str(path), list(frames))
    return path


Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Does what is typed, which must be refused; returns the sentence."""
    monkeypatch.setattr(job, "run", lambda *_, **__: pytest.fail("it runs"))

    def check(*words: str, verb: str = "run") -> str:
        status = main([verb, *words])
        said = capsys.readouterr()
        assert status == 2
        assert said.out == ""
        assert said.err.endswith((".\n", "?\n"))
        assert said.err.count("\n") == 1
        return said.err.removesuffix("\n")

    return check


CHOICES = {
    "ARBITER": ", ".join(POLICIES),
    "SPAN": "entry, all",
    "SCOPE": "lookup, dma",
    "ON_PENDING": "stall, refuse",
    "ZERO_LENGTH": "bypass, check",
    "SECOND_INVALIDATE": "error, success",
    "STEP_ORDER": "entry_first, translations_first",
    "RECENCY": "lru",
    "RECENCY_MERGE": "fold",
    "READ_STRUCTURE": "replicated, serialized",
    "PRESET": "tiny, default, nic",
    "COMMAND": "mixed, deregister, local_invalidate, remote_invalidate, reregister, rebind",
    "BACKPRESSURE": "always, half, rarely, bursts",
    "SIM": "verilator, icarus",
}


class TestOneParameter:
    @pytest.mark.parametrize("name", CHOICES)
    @pytest.mark.parametrize("typed", ["fastest", "LRU", "lru,", "1"])
    def test_word_is_not_known(self, refused: Refused, name: str, typed: str):
        more = " or path/to/file.py:ClassName" if name == "ARBITER" else ""
        said = refused(f"{name}={typed}")
        assert said == f"{name} must be one of {CHOICES[name]}{more}, not {typed}."

    @pytest.mark.parametrize(
        ("typed", "allowed"),
        [
            ("PORTS=0", "from 1 to 16"),
            ("PORTS=17", "from 1 to 16"),
            ("PORTS=-1", "from 1 to 16"),
            ("SOURCES=4", "from 1 to 3"),
            ("ENTRIES=100", "a power of 2 from 4 to 65536"),
            ("ENTRIES=0", "a power of 2 from 4 to 65536"),
            ("TRANSLATIONS=1000", "a power of 2 from 4 to 1048576"),
            ("TAGS=1", "a power of 2 from 2 to 256"),
            ("WAYS=3", "a power of 2 from 2 to 128"),
            ("WAYS=256", "a power of 2 from 2 to 128"),
            ("ADDRESS_WIDTH=65", "from 4 to 64"),
            ("LENGTH_WIDTH=33", "from 2 to 32"),
            ("PHYSICAL_WIDTH=3", "from 4 to 64"),
            ("INDEX_WIDTH=25", "from 2 to 24"),
            ("VARIANT_WIDTH=9", "from 1 to 8"),
            ("PD_WIDTH=0", "from 1 to 24"),
            ("QPN_WIDTH=25", "from 1 to 24"),
            ("PAGE_SHIFT_MIN=32", "from 1 to 31"),
            ("PAGE_SHIFT_MAX=32", "from 1 to 31"),
            ("GHOST_WIDTH=33", "from 2 to 32"),
            ("QPS=0", "a whole number from 1 to 65536"),
            ("QPS=65537", "a whole number from 1 to 65536"),
            ("LOOKUPS=0", "a whole number from 1 to 100000000"),
            ("LOOKUPS=1000000000000", "a whole number from 1 to 100000000"),
            ("PAGES=0", "a whole number from 1 to 1048576"),
            ("INVALIDATIONS=-1", "a whole number from 0 to 10000000"),
            ("DMA_CYCLES=10001", "a whole number from 0 to 10000"),
            ("SEED=2147483648", "a whole number from 0 to 2147483647"),
            ("WAVES=2", "0 or 1"),
            ("GHOST_VERSION=yes", "0 or 1"),
        ],
    )
    def test_number_is_not_allowed(self, refused: Refused, typed: str, allowed: str):
        name, _, value = typed.partition("=")
        assert refused(typed) == f"{name} must be {allowed}, not {value}."

    @pytest.mark.parametrize("typed", ["four", "4.0", "1e3", "0x10", "1_0", "+4", "\uff14", "--4"])
    @pytest.mark.parametrize("name", ["PORTS", "QPS"])
    def test_word_where_a_number_belongs(self, refused: Refused, name: str, typed: str):
        within = {"PORTS": "", "QPS": " from 1 to 65536"}[name]
        assert refused(f"{name}={typed}") == f"{name} must be a whole number{within}, not {typed}."

    @pytest.mark.parametrize("name", [*TABLE_PARAMETERS, *RUN_PARAMETERS])
    def test_nothing_is_typed(self, refused: Refused, name: str):
        sentence = refused(f"{name.upper()}=")
        assert sentence.startswith(f"{name.upper()} must be ")
        assert sentence.endswith(", not empty.")

    @pytest.mark.parametrize("digits", [20, 999, 1001, 5000, 100_000])
    def test_very_large_number(self, refused: Refused, digits: int):
        typed = "9" * digits
        seen = typed if digits <= 60 else f"{typed[:57]}..."
        assert refused(f"LOOKUPS={typed}").endswith(f", not {seen}.")
        assert refused(f"PORTS={typed}").endswith(f", not {seen}.")

    @pytest.mark.parametrize(
        ("typed", "seen"),
        [
            ("two words", "two words"),
            ("fünf", "fünf"),
            ("1\n2", r"'1\n2'"),
            (" 1", "' 1'"),
            ("1\t", r"'1\t'"),
            ("\x1b[31m", r"'\x1b[31m'"),
            ("\udcff", r"'\udcff'"),
            ("[red]1[/red]", "[red]1[/red]"),
            ("1=2", "1=2"),
        ],
    )
    def test_odd_value_stays_on_the_line(self, refused: Refused, typed: str, seen: str):
        assert refused(f"PORTS={typed}") == f"PORTS must be a whole number, not {seen}."
        if not typed.isprintable():
            assert refused(f"CAPTURE={typed}") == f"CAPTURE must be the name of a file, not {seen}."


class TestNames:
    @pytest.mark.parametrize(
        ("typed", "meant"),
        [
            ("PORT", "PORTS"),
            ("ARBITR", "ARBITER"),
            ("ports", "PORTS"),
            ("Ports", "PORTS"),
            ("INVALIDATION", "INVALIDATIONS"),
            ("ON-PENDING", "ON_PENDING"),
            ("ÄRBITER", "ARBITER"),
        ],
    )
    def test_close_name(self, refused: Refused, typed: str, meant: str):
        assert refused(f"{typed}=1") == f"There is no parameter {typed}: did you mean {meant}?"

    @pytest.mark.parametrize(
        ("typed", "seen"), [("XYZZY", "XYZZY"), ("", "empty"), ("A\nB", r"'A\nB'")]
    )
    def test_name_of_nothing(self, refused: Refused, typed: str, seen: str):
        assert refused(f"{typed}=1") == f"There is no parameter {seen}: make help lists them all."

    @pytest.mark.parametrize(
        ("typed", "seen"), [("PORTS", "PORTS"), ("--help", "--help"), ("", "empty")]
    )
    def test_not_name_and_value(self, refused: Refused, typed: str, seen: str):
        assert refused(typed) == f"{seen} is not of the form NAME=value."

    def test_typed_twice(self, refused: Refused):
        assert refused("PORTS=2", "PORTS=3") == "PORTS must be given once, not as 2 and 3."

    @pytest.mark.parametrize("verb", ["play", "", "--help", "RUN"])
    def test_verb_is_not_known(self, refused: Refused, verb: str):
        assert (
            refused(verb=verb)
            == "The command must be one of run, waves, verilog, prove, coverage, help, "
            f"not {verb or 'empty'}."
        )


class TestTogether:
    @pytest.mark.parametrize(
        ("typed", "sentence"),
        [
            ("ENTRIES=4", "WAYS must be a power of 2 from 2 to 2, not 4."),
            ("INDEX_WIDTH=7", "ENTRIES must be a power of 2 from 4 to 128, not 256."),
            ("PRESET=nic INDEX_WIDTH=8", "ENTRIES must be a power of 2 from 4 to 256, not 4096."),
            ("PHYSICAL_WIDTH=20", "PAGE_SHIFT_MAX must be from 1 to 19, not 31."),
            ("PAGE_SHIFT_MAX=11", "PAGE_SHIFT_MIN must be from 1 to 11, not 12."),
            (
                "PAGE_SHIFT_MAX=11 PAGE_SHIFT_MIN=11",
                "PAGE_SHIFT_MAX must be at least 12 to run, not 11.",
            ),
            ("PAGE_SHIFT_MIN=13", "PAGE_SHIFT_MIN must be at most 12 to run, not 13."),
            ("GHOST_VERSION=0", "GHOST_VERSION must be 1 to run, not 0: nothing could be judged."),
            ("GHOST_WIDTH=15", "GHOST_WIDTH must be at least 16 to run, not 15."),
            ("ADDRESS_WIDTH=47", "ADDRESS_WIDTH must be at least 48 to run, not 47."),
            ("LENGTH_WIDTH=16", "LENGTH_WIDTH must be at least 17 to run, not 16."),
            ("PHYSICAL_WIDTH=47", "PHYSICAL_WIDTH must be at least 48 to run, not 47."),
            ("VARIANT_WIDTH=7", "VARIANT_WIDTH must be at least 8 to run, not 7."),
            ("PD_WIDTH=23", "PD_WIDTH must be at least 24 to run, not 23."),
            ("QPN_WIDTH=23", "QPN_WIDTH must be at least 24 to run, not 23."),
            ("PAGES=339", "PAGES must be at most 338 with TRANSLATIONS=1024, not 339."),
            (
                "PAGES=513 COMMAND=reregister",
                "PAGES must be at most 512 with TRANSLATIONS=1024, not 513.",
            ),
            ("TRANSLATIONS=16", "PAGES must be at most 2 with TRANSLATIONS=16, not 4."),
            (
                "TRANSLATIONS=8 PAGES=1",
                "TRANSLATIONS must be at least 16 with COMMAND=mixed, not 8.",
            ),
            (
                "TRANSLATIONS=4 PAGES=1 COMMAND=rebind",
                "TRANSLATIONS must be at least 16 with COMMAND=rebind, not 4.",
            ),
            (
                "LENGTH_WIDTH=17 PAGES=32",
                "PAGES must be at most 31 with LENGTH_WIDTH=17, not 32.",
            ),
        ],
    )
    def test_they_do_not_fit(self, refused: Refused, typed: str, sentence: str):
        assert refused(*typed.split()) == sentence
        assert refused(*typed.split(), verb="waves") == sentence

    @pytest.mark.parametrize("in_ci", ["", "1"])
    def test_icarus_is_not_installed(
        self, refused: Refused, monkeypatch: pytest.MonkeyPatch, in_ci: str
    ):
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("CI", in_ci)
        assert refused("SIM=icarus") == (
            "SIM=icarus is not possible, since Icarus Verilog is missing: "
            "install the Debian package iverilog."
        )
        parse(["SIM=verilator"])

    @pytest.mark.parametrize(
        "typed",
        [
            "",
            "PORTS=1 SOURCES=1 TAGS=2 ENTRIES=4 WAYS=2 INDEX_WIDTH=2 TRANSLATIONS=16 PAGES=2",
            "PORTS=16 TAGS=256 ENTRIES=65536 WAYS=32768 TRANSLATIONS=1048576 PAGES=349522",
            "TRANSLATIONS=4 PAGES=2 COMMAND=deregister",
            "PAGES=512 COMMAND=reregister",
            "LENGTH_WIDTH=17 PAGES=31",
            "PAGE_SHIFT_MIN=1 PAGE_SHIFT_MAX=12 PHYSICAL_WIDTH=48 ADDRESS_WIDTH=48",
            "GHOST_WIDTH=32 PHYSICAL_WIDTH=64",
            "QPS=65536 LOOKUPS=1 INVALIDATIONS=0 DMA_CYCLES=0 SEED=0",
            "LOOKUPS=100000000 INVALIDATIONS=10000000 DMA_CYCLES=10000 SEED=2147483647",
        ],
    )
    def test_the_edges_are_allowed(self, typed: str):
        parse(typed.split())

    @settings(deadline=None, database=None)
    @given(data=st.data())
    def test_whatever_is_typed_is_understood_or_refused(self, data: st.DataObject):
        known = [name.upper() for name in [*TABLE_PARAMETERS, *RUN_PARAMETERS]]
        words: list[str] = []
        for name in data.draw(st.lists(st.sampled_from(known), unique=True)):
            choices = CHOICES.get(name, "0, 1, 2, 8, 12, 16, 24, 48, 64, 4096, -1, x").split(", ")
            words.append(f"{name}={data.draw(st.sampled_from(choices))}")
        for read in (parse, parse_table):
            assert _sentence(read, words).isprintable()


def _sentence(read: Callable[[list[str]], object], words: list[str]) -> str:
    """Why this is refused; empty if it isn't."""
    try:
        read(words)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "file", "sentence"),
    [("SCRIPT", "a.script", "can't be played"), ("CASE", "a.json", "can't be replayed")],
)
def test_files_that_cannot_be_read(
    refused: Refused, tmp_path: Path, name: str, file: str, sentence: str
):
    path = tmp_path / file
    typed = f"{name}={path}"
    assert refused(typed) == f"{typed} {sentence}: it doesn't exist."
    path.mkdir()
    assert refused(typed) == f"{typed} {sentence}: it is no ordinary file."
    path.rmdir()
    path.write_bytes(b"1 # \xff\n")
    assert refused(typed) == f"{typed} {sentence}: it is no text."


class TestCapture:
    def test_file_is_missing(self, refused: Refused, tmp_path: Path):
        path = tmp_path / "none.pcap"
        assert (
            refused(f"CAPTURE={path}") == f"CAPTURE={path} can't be played: {path} doesn't exist."
        )

    def test_name_is_too_long(self, refused: Refused):
        assert refused("CAPTURE=" + 300 * "x").endswith("can't be read: File name too long.")

    @pytest.mark.parametrize("path", ["/dev/zero", "/"])
    def test_file_is_not_ordinary(self, refused: Refused, path: str):
        assert refused(f"CAPTURE={path}") == f"CAPTURE must be an ordinary file, not {path}."

    def test_file_is_no_capture(self, refused: Refused, tmp_path: Path):
        path = tmp_path / "text.pcap"
        path.write_text("a text\n")
        assert refused(f"CAPTURE={path}") == (
            f"CAPTURE={path} can't be played: {path} is no capture file (neither pcap nor pcapng)."
        )

    def test_nothing_of_rocev2_in_it(self, refused: Refused, tmp_path: Path):
        other = (
            ETHER / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=53, dport=53) / Raw(b"plain")
        )
        path = capture_of(tmp_path / "other.pcap", other, other)
        assert refused(f"CAPTURE={path}") == (
            f"CAPTURE={path} can't be played: "
            f"{path} has no RoCEv2 packets (UDP port 4791) in 2 frames."
        )

    def test_no_send_in_it(self, refused: Refused, tmp_path: Path):
        path = capture_of(tmp_path / "acks.pcap", NETWORK / BTH(opcode=0x11, dqpn=5) / AETH())
        assert refused(f"CAPTURE={path}") == (
            f"CAPTURE={path} can't be played: "
            f"{path} has RoCEv2 packets (1), but no SEND among them."
        )

    def test_fewer_queue_pairs_than_in_it(self, refused: Refused):
        assert refused(f"CAPTURE={SMALL}", "QPS=1") == (
            "QPS must be at least the capture's own 2, not 1."
        )

    def test_packet_does_not_fit(self, refused: Refused, tmp_path: Path):
        path = capture_of(tmp_path / "jumbo.pcap", send(40_000))
        assert refused(f"CAPTURE={path}", "TRANSLATIONS=16", "ENTRIES=16") == (
            "TRANSLATIONS must be larger to hold a packet of 40000 bytes in the buffer, not 16."
        )

    @pytest.mark.parametrize("typed", ["LOOKUPS=5", "PAGES=2"])
    def test_it_decides_the_lookups(self, refused: Refused, typed: str):
        assert refused(f"CAPTURE={SMALL}", typed) == (
            f"{typed} must be left out: CAPTURE decides it."
        )

    def test_window_can_not_receive(self, refused: Refused):
        assert refused(f"CAPTURE={SMALL}", "COMMAND=rebind") == (
            "COMMAND must be one of mixed, deregister, local_invalidate, remote_invalidate, "
            "reregister with CAPTURE, not rebind."
        )


class TestProve:
    def test_no_one_configuration_is_chosen(self, refused: Refused):
        assert refused("SPAN=entry", verb="prove") == (
            "SPAN is of no use here: CONFIG chooses among all of them, by their names."
        )
        assert refused("SPAN=entry", verb="coverage") == "SPAN is of no use here."


class TestVerilog:
    @pytest.fixture
    def written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(cli, "BUILD", tmp_path)
        return tmp_path / "shared_mr_table.v"

    @pytest.mark.parametrize("typed", ["LOOKUPS=5", "SIM=icarus", "CAPTURE=x"])
    def test_there_is_no_run(self, refused: Refused, typed: str):
        name = typed.split("=")[0]
        assert refused(typed, verb="verilog") == (
            f"{name} is of no use here: it says what a run does, not what the table is."
        )

    def test_table_is_checked(self, refused: Refused):
        assert refused("PORTS=0", verb="verilog") == "PORTS must be from 1 to 16, not 0."

    def test_what_does_not_run_can_be_made(self, written: Path):
        """Without ghosts, and too narrow for the traffic."""
        words = ["PRESET=tiny", "GHOST_VERSION=0", "ADDRESS_WIDTH=20", "LENGTH_WIDTH=13"]
        words += ["PHYSICAL_WIDTH=20", "PAGE_SHIFT_MAX=13", "PAGE_SHIFT_MIN=13"]
        assert main(["verilog", *words]) == 0
        text = written.read_text()
        assert "module shared_table(" in text
        assert "violation__" not in text
        assert str(ROOT) not in text


class TestHelp:
    @pytest.mark.parametrize("arguments", [[], ["help"]])
    def test_everything_is_listed(self, capsys: pytest.CaptureFixture[str], arguments: list[str]):
        assert main(arguments) == 0
        said = capsys.readouterr()
        assert said.err == ""
        listed = [line.split()[0] for line in said.out.splitlines() if line.startswith("  ")]
        names = [
            *RUN_PARAMETERS,
            *TABLE_PARAMETERS,
            *PROOF_PARAMETERS,
            *COVERAGE_PARAMETERS,
        ]
        assert listed == [name.upper() for name in names]

    def test_choices_are_listed(self, capsys: pytest.CaptureFixture[str]):
        main(["help"])
        said = capsys.readouterr().out.split("A proof:")[0]
        lines = {line.split()[0]: line for line in said.splitlines() if line}
        for name, choices in CHOICES.items():
            listed = re.search(r"\(([^()]*)\)$", lines[name])
            assert listed is not None
            words = re.split(r"; or |, ", listed[1])
            assert sorted(words) == sorted(
                [*choices.split(", "), *(["path/to/file.py:ClassName"] * (name == "ARBITER"))]
            )

    def test_meanings_are_in_one_column(self, capsys: pytest.CaptureFixture[str]):
        main(["help"])
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
        assert {len(line) - len(line[2:].split(maxsplit=1)[1]) for line in lines} == {20}
        assert not any(line.endswith("()") for line in lines)

    def test_every_policy_that_listens_is_named(self, capsys: pytest.CaptureFixture[str]):
        """What only some policies listen to says which."""
        main(["help"])
        said = capsys.readouterr().out
        for choice in ("span", "on_pending", "version_bits", "on_wrap"):
            (line,) = (line for line in said.splitlines() if line.split()[0] == choice.upper())
            named = {name for name in POLICIES if name in line}
            assert named == {name for name, p in POLICIES.items() if choice in p.choices}

    def test_defaults_are_those_of_the_table(self):
        defaults = {name: p.default for name, p in TABLE_PARAMETERS.items()}
        assert TableConfig(**defaults) == TableConfig()
        assert parse([]).config == TableConfig()


class TestProcess:
    """As ``make`` does it."""

    @staticmethod
    def run(*arguments: str | bytes, **more: Any) -> "subprocess.CompletedProcess[str]":
        command: list[str | bytes] = [sys.executable, "-m", "sim", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **more)

    @pytest.mark.parametrize(
        ("word", "sentence"),
        [
            ("PORTS=0", "PORTS must be from 1 to 16, not 0."),
            ("SPAN=ä", "SPAN must be one of entry, all, not ä."),
            (b"SPAN=\xff", r"SPAN must be one of entry, all, not '\udcff'."),
            (b"CAPTURE=\xff", r"CAPTURE must be the name of a file, not '\udcff'."),
        ],
    )
    def test_refusal(self, word: str | bytes, sentence: str):
        result = self.run("run", word)
        assert (result.returncode, result.stdout, result.stderr) == (2, "", f"{sentence}\n")

    def test_help(self):
        result = self.run("help", env={**os.environ, "COLUMNS": "20"})
        assert (result.returncode, result.stderr) == (0, "")
        assert "  PORTS             lookup requester interfaces (4)\n" in result.stdout


def test_repeat_can_be_typed():
    """Whatever is typed can be pasted into a shell."""
    words = ["CAPTURE=it's a [file].pcap", "ARBITER=apply_now", "SEED=3"]
    assert shlex.split(parse(words).repeat("sim")) == ["make", "sim", *words]
