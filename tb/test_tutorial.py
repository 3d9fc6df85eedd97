"""The page about a policy of one's own says what its commands print.

``python -m tb.test_tutorial`` writes anew what the page says of that.
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rtl.arbiter import own
from rtl.config import ConfigError, TableConfig
from sim.netlist import ROOT
from tb.needs import needs_icarus
from tb.test_docs import quoted, rows, sections
from tb.variants import SIZE

PAGE = ROOT / "docs" / "your-own-arbiter.md"
EXAMPLES = ROOT / "docs" / "examples"
RIGHT, WRONG = EXAMPLES / "two_epochs.py", EXAMPLES / "two_epochs_wrong.py"

LAUNCH = """
import sys
from pathlib import Path

from sim import cli, job, prove

build = Path(sys.argv[1])
job.BUILD, job.RUNS, job.LATEST = build, build / "runs", build / "latest"
prove.FOLDER = build / "prove"
cli.open_in_gtkwave = lambda save: 0
sys.exit(cli.main(sys.argv[2:]))
"""
"""Runs a command as ``make`` does, with another folder for what it writes, and without a screen."""

OPEN = "untorn"
"""Whether this is decided depends on the machine."""

COMMAND = re.compile(r"```\n(make (?:sim|prove|waves) [^\n]*)\n(.*?)```", re.DOTALL)


def ran(command: str, build: Path) -> str:
    """What a command of the page prints, but for the files that it wrote."""
    _, verb, *words = command.split()
    verb = {"sim": "run"}.get(verb, verb)
    words = [word.replace("=build/", f"={build}/") for word in words]
    result = subprocess.run(
        [sys.executable, "-c", LAUNCH, str(build), verb, *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    said = (result.stdout + result.stderr).replace(f"{build}/", "build/")
    lines = [line.rstrip() for line in said.splitlines() if not line.startswith("wrote ")]
    return "\n".join(lines).strip("\n")


def lasting(said: str) -> list[str]:
    """What doesn't depend on the time that things take."""
    lines = []
    undecided = False
    for line in said.strip().splitlines():
        if "┏" in line or "┡" in line or "└" in line:
            continue
        cells = [cell.strip() for cell in re.split("[│┃]", line)][1:-1]
        if cells and "dma-replicated" in cells[0]:
            del cells[1]
            undecided |= "?" in cells
        # Above the matrix: how many are proved. Complaints of what may be open.
        if re.search(r" in [\d.]+ s$", line) or f": {OPEN} " in line or f"declares {OPEN}," in line:
            continue
        line = " ".join(cells) if cells else line
        lines.append(re.sub(r"\bok \d+", "ok", line))
    assert not undecided
    return lines


def refreshed(page: str, build: Path) -> str:
    """The page with what its commands print now."""

    def block(match: re.Match[str]) -> str:
        if match[1].startswith("make waves"):
            return match[0]
        return f"```\n{match[1]}\n\n{ran(match[1], build)}\n```"

    return COMMAND.sub(block, page)


def commands() -> dict[str, list[tuple[str, str]]]:
    """Per heading its commands, each with what the page says it prints."""
    found = {name: COMMAND.findall(text) for name, text in sections(PAGE).items()}
    return {name: list(pairs) for name, pairs in found.items() if pairs}


@needs_icarus
@pytest.mark.parametrize("section", commands())
def test_commands_print_what_the_page_says(section: str, tmp_path: Path):
    for command, said in commands()[section]:
        printed = ran(command, tmp_path)
        if command.startswith("make waves"):
            assert "make waves" in printed
            assert "violates" in printed
        else:
            assert lasting(printed) == lasting(said)


def test_code_is_that_of_the_examples():
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown == [WRONG.read_text()]
    assert len(WRONG.read_text().splitlines()) <= 60
    assert len(RIGHT.read_text().splitlines()) <= 60


def difference() -> str:
    """What the fix changes, with a line around it."""
    old, new = WRONG.read_text().splitlines(), RIGHT.read_text().splitlines()
    lines = list(difflib.unified_diff(old, new, n=1, lineterm=""))[2:]
    return "\n".join("..." if line.startswith("@@") else line for line in lines)


def test_fix_is_the_difference():
    assert f"```diff\n{difference()}\n```" in PAGE.read_text()


FAULTS = [row for row in rows(sections(PAGE)["What a policy must not do"]) if len(row) == 2]


@pytest.mark.parametrize(("line", "said"), FAULTS, ids=[quoted(line)[0] for line, _ in FAULTS])
def test_sentences(line: str, said: str, tmp_path: Path):
    file = tmp_path / "own.py"
    before = "        return m\n"
    file.write_text(RIGHT.read_text().replace(before, f"        {quoted(line)[0]}\n{before}"))
    name = f"{file}:TwoEpochs"
    with pytest.raises(ConfigError) as caught:
        TableConfig(**SIZE, arbiter=name)
    assert str(caught.value).replace(name, "NAME") == f"arbiter must be {said}"


def test_suite_takes_it():
    """``make test ARBITER=...`` has something to run."""
    name = f"{RIGHT.relative_to(ROOT)}:TwoEpochs"
    assert f"make test ARBITER={name}\n" in PAGE.read_text()
    command = [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-q", "tb/"]
    result = subprocess.run(
        [*command, f"--arbiter={name}"], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert own.label(name) in result.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(refreshed(PAGE.read_text(), Path(folder)))
