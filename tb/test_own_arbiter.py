"""A policy of somebody's own: what it may be, what is said of what it may not be, and that it runs.

The policies of these tests are written to files of their own, as somebody would who has nothing
but the seam.
"""

import gc
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Fragment

from rtl.arbiter import POLICIES, own, policy
from rtl.config import ConfigError, TableConfig
from sim import cli, job
from sim.cli import main
from sim.netlist import ROOT, rtlil_text, table_design
from tb.needs import needs_icarus
from tb.variants import SIZE

HEAD = """# amaranth: UnusedElaboratable=no
from amaranth.hdl import Cat, ClockDomain, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out

from rtl.arbiter.seam import Arbiter
from rtl.monitor import Guarantee


class Mine(Arbiter):
"""

GUARANTEES = """
    @classmethod
    def guarantees(cls, config):
        return {Guarantee.FRESH_ADMIT, Guarantee.NO_EARLY_REUSE}
"""

ELABORATE = """
    def elaborate(self, platform):
        m = Module()
        m.d.comb += [admit.grant.eq(1) for admit in self.admit]
        m.d.comb += [Cat(change.apply, change.complete).eq(3) for change in self.change]
"""

RETURN = "        return m\n"

AT_ONCE = HEAD + "    choices = ()\n" + GUARANTEES + ELABORATE + RETURN
"""What ``apply_now`` does, in other words."""

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file and returns what names the class ``Mine`` in it."""

    def write(text: str) -> str:
        (tmp_path / "own.py").write_text(text)
        return f"{tmp_path}/own.py:Mine"

    return write


def sentence(name: str) -> str:
    """What is said of a policy that can't be used, but for its name."""
    with pytest.raises(ConfigError) as caught:
        TableConfig(**SIZE, arbiter=name)
    said = str(caught.value)
    assert said.startswith("arbiter must be ")
    assert name in said
    assert "\n" not in said
    return said.removeprefix("arbiter must be ").replace(name, "NAME")


class TestName:
    def test_it_is_not_known(self):
        form = "path/to/file.py:ClassName"
        assert sentence("nobody") == f"one of {', '.join(POLICIES)} or {form}, not NAME"

    def test_there_is_no_file(self, tmp_path: Path):
        assert sentence(f"{tmp_path}/none.py:Mine") == "a class of a file that exists, not NAME"

    def test_it_is_no_python_file(self, tmp_path: Path):
        (tmp_path / "own.txt").write_text(AT_ONCE)
        allowed = "a class of a file whose name ends with .py"
        assert sentence(f"{tmp_path}/own.txt:Mine") == f"{allowed}, not NAME"

    def test_it_is_a_folder(self, tmp_path: Path):
        (tmp_path / "own.py").mkdir()
        assert sentence(f"{tmp_path}/own.py:Mine") == (
            "a class of a file that can be read, not NAME: IsADirectoryError: Is a directory"
        )

    def test_it_is_another_class(self, write: Write):
        name = write(AT_ONCE + "\n\nclass Other(Mine):\n    pass\n")
        file = name.removesuffix(":Mine")
        assert sentence(f"{file}:mine") == f"{file}:Mine or {file}:Other, not NAME"

    def test_there_is_no_policy(self, write: Write):
        assert sentence(write("from rtl.arbiter.seam import Arbiter\n")) == (
            "a class of a file with a subclass of rtl.arbiter.Arbiter, not NAME"
        )


IMPORTS = {
    "x = 1\nx = y\n": "NameError in line 2: name 'y' is not defined",
    "import nothing_of_this_name\n": "ModuleNotFoundError in line 1: "
    "No module named 'nothing_of_this_name'",
    "\n\nclass Mine(\n": "SyntaxError in line 3: '(' was never closed",
    "raise ValueError('two\\nlines.')\n": "ValueError in line 1: two lines",
    "import sys\nsys.exit(3)\n": "SystemExit in line 2: 3",
    "raise KeyError\n": "KeyError in line 1",
}

SEAM = "a policy with the members of the seam, not NAME: "
BUILT = "a policy that can be elaborated with this configuration, not NAME: "
ASKED = "a policy that can say what it guarantees, not NAME: "
INIT = """
    def __init__(self, config):
        self.config = config
"""

FAULTS = {
    "no-class": ("Mine = 3\n", "a subclass of rtl.arbiter.Arbiter, not NAME"),
    "no-policy": ("class Mine:\n    pass\n", "a subclass of rtl.arbiter.Arbiter, not NAME"),
    "no-guarantees": (
        HEAD + ELABORATE + RETURN,
        "a class that defines guarantees, not NAME",
    ),
    "nothing": (HEAD + "    pass\n", "a class that defines guarantees and elaborate, not NAME"),
    "choices": (
        HEAD + "    choices = 'span'\n" + GUARANTEES + ELABORATE + RETURN,
        "a policy whose choices are a tuple of names of parameters, not NAME: 'span'",
    ),
    "guarantees-raise": (
        HEAD + GUARANTEES.replace("return", "return config.x,") + ELABORATE + RETURN,
        ASKED + "AttributeError in line 15: 'TableConfig' object has no attribute 'x'",
    ),
    "guarantees-are-asked-of-an-instance": (
        HEAD + GUARANTEES.replace("@classmethod", "").replace("cls", "self") + ELABORATE + RETURN,
        ASKED + "TypeError: Mine.guarantees() missing 1 required positional argument: 'config'",
    ),
    "guarantees-are-words": (
        HEAD + "    guarantees = lambda config: {'untorn'}\n" + ELABORATE + RETURN,
        "a policy whose guarantees are a set of Guarantee, not NAME: it returns {'untorn'}",
    ),
    "guarantees-are-none": (
        HEAD + "    guarantees = lambda config: None\n" + ELABORATE + RETURN,
        "a policy whose guarantees are a set of Guarantee, not NAME: it returns None",
    ),
    "constructor": (
        HEAD + INIT + "        1 / 0\n" + GUARANTEES + ELABORATE + RETURN,
        BUILT + "ZeroDivisionError in line 15: division by zero",
    ),
    "elaborate": (
        HEAD + GUARANTEES + ELABORATE + "        m.d.comb += self.nothing.eq(1)\n" + RETURN,
        BUILT + "AttributeError in line 21: 'Mine' object has no attribute 'nothing'",
    ),
    "no-return": (
        HEAD + GUARANTEES + ELABORATE,
        BUILT + "UserWarning: .elaborate() returned None; missing return statement?",
    ),
    "another-member": (
        HEAD
        + INIT
        + "        seam = dict(Arbiter(config).signature.members)\n"
        + "        wiring.Component.__init__(self, {**seam, 'extra': Out(1)})\n"
        + GUARANTEES
        + ELABORATE
        + RETURN,
        SEAM + "it adds extra",
    ),
    "a-wider-member": (
        HEAD
        + INIT
        + "        seam = dict(Arbiter(config).signature.members)\n"
        + "        wiring.Component.__init__(self, {**seam, 'occupied': Out(1)})\n"
        + GUARANTEES
        + ELABORATE
        + RETURN,
        SEAM + "it changes occupied",
    ),
    "drives-an-input": (
        HEAD
        + GUARANTEES
        + ELABORATE
        + "        m.d.sync += self.change[0].request.eq(1)\n"
        + "        m.submodules.inner = inner = Module()\n"
        + "        inner.d.comb += self.occupied[0].eq(1)\n"
        + RETURN,
        "a policy that drives its outputs alone, not NAME: it drives change__0__request, occupied",
    ),
    "another-domain": (
        HEAD
        + GUARANTEES
        + ELABORATE
        + "        ticks = Signal()\n        m.d.fast += ticks.eq(1)\n"
        + RETURN,
        "a policy without clock domains but sync, not NAME: it has fast",
    ),
    "its-own-domain": (
        HEAD + GUARANTEES + ELABORATE + "        m.domains.fast = ClockDomain('fast')\n" + RETURN,
        "a policy without clock domains but sync, not NAME: it has fast",
    ),
    "memory-in-another-domain": (
        HEAD
        + GUARANTEES
        + ELABORATE
        + "        m.submodules.rows = rows = Memory(shape=1, depth=4, init=[])\n"
        + "        rows.write_port(domain='fast')\n"
        + RETURN,
        "a policy without clock domains but sync, not NAME: it has fast",
    ),
}


class TestRefused:
    @pytest.mark.parametrize("text", IMPORTS)
    def test_file_can_not_be_imported(self, write: Write, text: str):
        assert sentence(write(text)) == (
            f"a class of a file that can be imported, not NAME: {IMPORTS[text]}"
        )

    @pytest.mark.parametrize("fault", FAULTS)
    def test_class_is_no_policy(self, write: Write, fault: str):
        text, said = FAULTS[fault]
        assert sentence(write(text)) == said

    def test_a_member_by_annotation(self, write: Write):
        """Amaranth's own words."""
        name = write(HEAD + "    extra: Out(1)\n" + GUARANTEES + ELABORATE + RETURN)
        assert sentence(name).startswith(f"{BUILT}TypeError: Signature was passed")

    def test_it_can_depend_on_the_configuration(self, write: Write):
        """It is built with the real one, whatever it was built with before."""
        name = write(AT_ONCE.replace("m = Module()", "m = Module(); 1 / (self.config.ports - 2)"))
        TableConfig(**SIZE, arbiter=name)
        with pytest.raises(ConfigError, match="ZeroDivisionError in line 19"):
            TableConfig(**{**SIZE, "ports": 2}, arbiter=name)

    def test_no_word_of_what_is_left(self, write: Write):
        """Amaranth complains of what nobody elaborated whenever it is collected, however late."""
        name = write((AT_ONCE + "        1 / 0\n").replace(RETURN, "").partition("\n")[2])
        with warnings.catch_warnings(record=True, action="always") as said:
            with pytest.raises(ConfigError) as refused:
                TableConfig(**SIZE, arbiter=name)
            Fragment.get(policy("apply_now")(TableConfig(**SIZE)), None)
            del refused
            gc.collect()
        assert [str(warning.message) for warning in said] == []

    @pytest.mark.parametrize("verb", ["run", "waves", "verilog"])
    def test_on_the_command_line(self, write: Write, capsys: pytest.CaptureFixture[str], verb: str):
        """One sentence, with the whole name, however long."""
        name = write("raise ValueError('two\\nlines.')\n")
        assert main([verb, f"ARBITER={name}"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == (
            f"ARBITER must be a class of a file that can be imported, not {name}: "
            "ValueError in line 1: two lines.\n"
        )

    def test_pytest_option(self):
        command = [sys.executable, "-m", "pytest", "-n0", "tb/", "--arbiter=nobody"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert result.returncode == pytest.ExitCode.USAGE_ERROR
        said = (result.stdout + result.stderr).strip()
        assert said == (
            f"ERROR: ARBITER must be one of {', '.join(POLICIES)} "
            "or path/to/file.py:ClassName, not nobody."
        )


class TestLoaded:
    def test_it_is_the_same_class(self, write: Write, tmp_path: Path):
        name = write(AT_ONCE)
        again = f"{tmp_path}/../{tmp_path.name}/own.py:Mine"
        assert policy(name) is policy(again)
        assert own.label(name) == own.label(again) == "own.Mine"
        assert not (tmp_path / "__pycache__").exists()

    def test_a_change_counts_at_once(self, write: Write):
        name = write(AT_ONCE)
        first, key = policy(name), table_design(TableConfig(**SIZE, arbiter=name)).key
        # As long as before, and within the same second.
        assert write(AT_ONCE.replace("FRESH_ADMIT", "FRESH_DMA  ")) == name
        config = TableConfig(**SIZE, arbiter=name)
        assert policy(name) is not first
        assert policy(name).guarantees(config) != first.guarantees(config)
        assert table_design(config).key != key

    def test_a_relative_path_starts_at_the_project(
        self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        name = write(AT_ONCE)
        monkeypatch.chdir(tmp_path)
        assert policy(os.path.relpath(name, ROOT)) is policy(name)

    def test_memories_are_allowed(self, write: Write):
        name = write(
            HEAD
            + GUARANTEES
            + ELABORATE
            + "        m.submodules.rows = rows = Memory(shape=1, depth=4, init=[])\n"
            + "        rows.write_port(), rows.read_port()\n"
            + RETURN
        )
        assert "$memrd" in rtlil_text(table_design(TableConfig(**SIZE, arbiter=name)))

    def test_it_may_be_a_dataclass_or_inherit(self, write: Write):
        name = write(
            "from __future__ import annotations\n"
            "import dataclasses\n"
            "from rtl.arbiter import PendingBit\n"
            "@dataclasses.dataclass\nclass Part:\n    number: int\n"
            "class Mine(PendingBit):\n    part = Part(1)\n"
        )
        config = TableConfig(**SIZE, arbiter=name)
        assert policy(name).guarantees(config) == POLICIES["pending_bit"].guarantees(config)

    def test_the_one_in_the_documentation(self, write: Write):
        page = (ROOT / "docs" / "running.md").read_text()
        name = write(page.split("```python\n")[1].split("```")[0])
        config = TableConfig(**SIZE, arbiter=name)
        assert policy(name).guarantees(config) == policy("apply_now").guarantees(config)


class TestUsed:
    @needs_icarus
    def test_a_run(
        self,
        write: Write,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ):
        """It is the same to the cycle as the policy that it imitates."""
        monkeypatch.setattr(job, "BUILD", tmp_path)
        monkeypatch.setattr(job, "RUNS", tmp_path / "runs")
        monkeypatch.setattr(job, "LATEST", tmp_path / "latest")
        monkeypatch.setenv("COLUMNS", "200")
        typed = os.path.relpath(write(AT_ONCE), ROOT)
        results: list[dict[str, Any]] = []
        for name in (typed, "apply_now"):
            words = [f"ARBITER={name}", "PRESET=tiny", "SIM=icarus", "SEED=1", "LOOKUPS=500"]
            assert main(["run", *words]) == 0
            said = capsys.readouterr().out.lstrip()
            assert said.startswith(f"{name}, scope dma, replicated, icarus\n")
            assert f"repeat   make sim {' '.join(words)}\n" in said
            folder = (tmp_path / "latest").resolve()
            assert folder.name.endswith(f"-{own.label(name).replace('.', '-')}-1")
            results.append(json.loads((folder / "result.json").read_text()))
        assert results[0]["config"]["arbiter"] == typed
        assert results[0]["trace_digest"] == results[1]["trace_digest"]
        assert results[0]["violations"] == results[1]["violations"]
        assert any(results[0]["violations"].values())

    def test_verilog(self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """No folder of the machine is in the file."""
        monkeypatch.setattr(cli, "BUILD", tmp_path)
        assert main(["verilog", f"ARBITER={write(AT_ONCE)}", "PRESET=tiny"]) == 0
        text = (tmp_path / "shared_mr_table.v").read_text()
        assert "//   arbiter            own.Mine\n" in text
        assert str(tmp_path) not in text

    @pytest.mark.parametrize(
        ("name", "choices"),
        [
            ("apply_now", [""]),
            ("pending_bit", ["-stall", "-refuse"]),
            (None, ["-entry-stall", "-entry-refuse", "-all-stall", "-all-refuse"]),
        ],
        ids=["nothing-to-choose", "one-choice", "own"],
    )
    def test_only_what_goes_through_the_policies(
        self, write: Write, name: str | None, choices: list[str]
    ):
        """With ``--arbiter`` nothing else is left, and no other policy; an own one gets it all."""
        name = name or write(AT_ONCE.replace("    choices = ()\n", ""))
        command = [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-q", "tb/"]
        result = subprocess.run(
            [*command, f"--arbiter={name}"], cwd=ROOT, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
        ids = [line.split("::", 1)[1] for line in result.stdout.splitlines() if "::" in line]
        tests = {test.split("[")[0].split("::")[-1] for test in ids}
        assert tests == {
            "test_everything",
            "test_translations_first",
            "test_everything_on_verilator",
            "test_every_row",
            "test_every_row_on_verilator",
            "test_random_programs",
            "test_it_is_as_declared",
            "test_policies_declare_what_the_design_says",
            "test_numbers_agree",
            "test_simulators_agree",
            "test_without_commands_no_policy_is_seen",
        }
        policies = {f"{own.label(name)}{choice}" for choice in choices}
        assert all(any(policy in test for policy in policies) for test in ids)
        declaring = [test for test in ids if "test_policies_declare" in test]
        assert len(declaring) == 8 * len(policies)
        assert all(any(policy in test for test in declaring) for policy in policies)
