"""Every row of ``docs/races.md`` on every policy, in both scopes, on both simulators.

Each row is also shown to fail on a table that a patch in ``tb/faults`` has broken.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rtl.config import StepOrder, TableConfig
from sim.netlist import ROOT
from sim.run import config_to_json, run
from sim.simulators import Simulator
from tb.needs import needs_icarus, needs_program
from tb.races import BENCHES, ROWS, Fault, Row
from tb.test_benches import SPANNING, usual
from tb.variants import SIZE, name_of

FAULTS = ROOT / "tb" / "faults"


def check(config: TableConfig, simulator: Simulator) -> None:
    """Runs all rows, and nothing else."""
    result = run(config, simulator, BENCHES, seed=6)
    ran = {name.removeprefix("tb.").split("/")[0] for name in result.tests}
    assert ran == {row.name for row in ROWS}


@needs_icarus
@pytest.mark.conformance
@pytest.mark.parametrize("config", usual(StepOrder.ENTRY_FIRST), ids=name_of)
def test_every_row(config: TableConfig):
    """Every policy in both scopes: with its first choices and its last ones."""
    check(config, Simulator.ICARUS)


@pytest.mark.conformance
@pytest.mark.parametrize("config", SPANNING, ids=name_of)
def test_every_row_on_verilator(config: TableConfig):
    """Every policy in both scopes, and every choice but the step order at least once."""
    check(config, Simulator.VERILATOR)


def test_rows_are_in_order():
    """Each has its patches, named after it, and no patch is left over."""
    ids = [row.id for row in ROWS]
    assert ids == sorted(set(ids))
    assert all(row.test.startswith(f"{row.id.lower()}_") for row in ROWS)
    patches = [fault.patch for row in ROWS for fault in row.faults]
    assert all(row.faults for row in ROWS)
    assert all(fault.patch.startswith(f"{row.id}-") for row in ROWS for fault in row.faults)
    assert sorted(patches) == sorted(path.stem for path in FAULTS.iterdir())


PROGRAM = """
import sys
from sim.netlist import table_design
from sim.run import CONFIG_VARIABLE, config_from_json, run
from sim.simulators import Simulator

config, bench, test = sys.argv[1:]
run(
    table_design(config_from_json(config)),
    Simulator.ICARUS,
    bench,
    tests=[test],
    environment={CONFIG_VARIABLE: config},
)
"""
"""Runs one test of a bench. It is given the table as a design, so a failure is not run again."""


def broken(folder: Path, patch: Path) -> Path:
    """Copies the sources, puts a fault into them, and returns where they are."""
    copy = folder / "copy"
    for part in ("rtl", "sim", "tb"):
        shutil.copytree(ROOT / part, copy / part)
    # Whatever repository the folder may be in, the patch is not for that.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder)}
    applied = subprocess.run(
        ["git", "apply", str(patch)], cwd=copy, env=environment, capture_output=True, text=True
    )
    if applied.returncode:
        pytest.fail(f"{patch.name} doesn't fit the sources any more: {applied.stderr}")
    return copy


@needs_icarus
@pytest.mark.parametrize(
    ("row", "fault"),
    [pytest.param(row, fault, id=fault.patch) for row in ROWS for fault in row.faults],
)
def test_it_fails_on_a_broken_table(row: Row, fault: Fault, tmp_path: Path):
    needs_program("git", "git")
    copy = broken(tmp_path, FAULTS / f"{fault.patch}.patch")
    config = config_to_json(TableConfig(**{**SIZE, **fault.choices}))
    test = f"{row.test}/{fault.variant}" if fault.variant else row.test
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, config, f"tb.{row.bench}", test],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1, result.stderr
    reason = result.stderr.split("RunFailed: ", 1)[-1].split("\nlog: ")[0]
    assert f"{row.name}" in reason, result.stderr
    assert re.search(fault.says, reason), reason


def test_a_patch_that_does_not_fit_says_so(tmp_path: Path):
    needs_program("git", "git")
    text = (FAULTS / f"{ROWS[0].faults[0].patch}.patch").read_text()
    patch = tmp_path / "old.patch"
    patch.write_text(text.replace("else", "otherwise"))
    with pytest.raises(pytest.fail.Exception, match=r"old\.patch doesn't fit the sources any more"):
        broken(tmp_path, patch)
