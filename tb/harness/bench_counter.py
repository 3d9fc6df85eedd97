"""Benches that pass."""

import json
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import cocotb

from sim.run import CONFIG_VARIABLE, bench_config, bench_parameters
from tb.harness.common import count, start


@cocotb.test()
async def counts(dut: Any) -> None:
    await start(dut)
    assert await count(dut, 3, 5) == 15


@cocotb.test()
@cocotb.parametrize(by=[1, 14])
async def counts_by(dut: Any, by: int) -> None:
    await start(dut)
    assert await count(dut, by, 2) == 2 * by


@cocotb.test()
async def tells(dut: Any) -> None:
    """Writes what it was given into its folder, for the test outside to read."""
    told = {
        "parameters": bench_parameters(),
        "config": repr(bench_config()) if CONFIG_VARIABLE in os.environ else None,
        "random": random.getrandbits(64),
        "level": os.environ.get("COCOTB_LOG_LEVEL"),
        "warnoptions": sys.warnoptions,
    }
    Path("told.json").write_text(json.dumps(told))


@cocotb.test(skip=True)
async def never(dut: Any) -> None:
    raise AssertionError


@cocotb.test(expect_error=DeprecationWarning)
async def uses_what_is_deprecated(dut: Any) -> None:
    warnings.warn("this is old", DeprecationWarning, stacklevel=1)
