"""The set-up: what a machine must have, and how what is typed gets from make to the program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sim.netlist import ROOT


class TestPrerequisites:
    """The script is run with a PATH that holds nothing but what a test puts there."""

    PYTHON = "#!/bin/sh\nexit 0\n"

    @pytest.fixture
    def machine(self, tmp_path: Path) -> Path:
        for name in ("python3", "g++", "make", "perl"):
            self.program(tmp_path, name, self.PYTHON)
        return tmp_path

    @staticmethod
    def program(machine: Path, name: str, text: str) -> None:
        (machine / name).write_text(text)
        (machine / name).chmod(0o755)

    @staticmethod
    def check(machine: Path, **variables: str) -> tuple[int, str]:
        result = subprocess.run(
            ["/bin/sh", str(ROOT / "sim" / "prerequisites.sh")],
            env={"PATH": str(machine), **variables},
            capture_output=True,
            text=True,
        )
        assert result.stdout == ""
        return result.returncode, result.stderr

    def test_nothing_is_missing(self, machine: Path):
        assert self.check(machine) == (0, "")

    def test_this_machine_has_it_all(self):
        assert self.check(Path(os.environ["PATH"]), PYTHON=sys.executable) == (0, "")

    @pytest.mark.parametrize(
        ("name", "package"),
        [("python3", "python3"), ("g++", "g++"), ("make", "make"), ("perl", "perl")],
    )
    def test_program_is_missing(self, machine: Path, name: str, package: str):
        (machine / name).unlink()
        assert self.check(machine) == (
            2,
            f"{name} is missing: install the Debian package {package}.\n",
        )

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            (
                "version_info",
                "python3 is older than 3.11: install the package python3 of Debian 12 or later.",
            ),
            (
                "ensurepip",
                "The module venv of python3 is missing: install the Debian package python3-venv.",
            ),
            (
                "libpython",
                "The library of python3 is missing: install the Debian package libpython3-dev.",
            ),
        ],
    )
    def test_python_lacks_something(self, machine: Path, asked: str, message: str):
        refuses = f'#!/bin/sh\ncase "$2" in *{asked}*) exit 1 ;; esac\n'
        self.program(machine, "python3", refuses)
        assert self.check(machine) == (2, f"{message}\n")

    def test_each_missing_one_gets_its_sentence(self, machine: Path):
        (machine / "g++").unlink()
        (machine / "perl").unlink()
        status, said = self.check(machine)
        assert status == 2
        assert [line.split()[0] for line in said.splitlines()] == ["g++", "perl"]

    def test_python_can_be_named(self, machine: Path):
        (machine / "python3").rename(machine / "python3.12")
        assert self.check(machine, PYTHON="python3.12") == (0, "")
        assert self.check(machine, PYTHON="python9") == (
            2,
            "python9 is missing: install the Debian package python3.\n",
        )


class TestMakefile:
    @pytest.fixture
    def clone(self, tmp_path: Path) -> Path:
        """A folder that looks set up, with a Python that only says how it was called."""
        shutil.copy(ROOT / "Makefile", tmp_path)
        (tmp_path / "requirements.lock").touch()
        program = tmp_path / ".venv" / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done\n")
        program.chmod(0o755)
        (tmp_path / ".venv" / "ready").touch()
        return tmp_path

    @staticmethod
    def make(clone: Path, *arguments: str) -> list[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("M")
        }
        return subprocess.run(
            ["make", *arguments],
            cwd=clone,
            env={**environment, "SEED": "from the shell"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()

    @pytest.mark.parametrize(
        ("target", "command"), [("sim", "run"), ("waves", "waves"), ("verilog", "verilog")]
    )
    def test_typed_parameters_arrive(self, clone: Path, target: str, command: str):
        typed = ["ARBITER=drain_fence", "PORTS=4"]
        assert self.make(clone, target, *typed) == ["-m", "sim", command, *typed]

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "two words",
            "it's",
            'say "so"',
            "$HOME",
            "$(shell echo no)",
            "`id`",
            "a;b",
            "#",
            "\\",
        ],
    )
    def test_values_arrive_as_typed(self, clone: Path, value: str):
        assert self.make(clone, "sim", f"CAPTURE={value}")[3:] == [f"CAPTURE={value}"]

    def test_only_typed_parameters_arrive(self, clone: Path):
        assert self.make(clone, "-j2", "sim", "PYTHON=python3.12") == ["-m", "sim", "run"]

    @pytest.mark.parametrize("value", ["pending_bit", "my policies/own.py:Mine", "it's", ""])
    def test_arbiter_of_the_tests_arrives(self, clone: Path, value: str):
        said = self.make(clone, "test", f"ARBITER={value}")
        assert said[-4:] == ["-m", "pytest", "tb/", f"--arbiter={value}"]

    @pytest.mark.parametrize(
        ("target", "typed", "sentence"),
        [
            ("test", ["PORTS=4"], "test takes no parameters but ARBITER: leave out PORTS."),
            (
                "test",
                ["PORTS=4", "ARBITER=drain_fence", "SEED=1"],
                "test takes no parameters but ARBITER: leave out PORTS SEED.",
            ),
            ("lint", ["ARBITER=drain_fence"], "lint takes no parameters: leave out ARBITER."),
            ("clean", ["SEED=1"], "clean takes no parameters: leave out SEED."),
        ],
    )
    def test_parameters_that_are_of_no_use(
        self, clone: Path, target: str, typed: list[str], sentence: str
    ):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            self.make(clone, target, *typed)
        assert caught.value.returncode == 2
        assert caught.value.stderr.splitlines()[0] == f"make {sentence}"

    def test_help_is_the_default(self, clone: Path):
        said = self.make(clone)
        assert said == self.make(clone, "help")
        for target in ("sim", "waves", "verilog", "test", "lint", "clean"):
            assert any(line.startswith(f"make {target} ") for line in said)
