"""Icarus knows X: after reset nothing that comes out of the table is one."""

import re
from typing import Any

import pytest

from rtl.config import OnPending, ReadStructure, RetireScope, TableConfig
from rtl.slots import Slots
from rtl.tables import CopiedMemory
from rtl.top import SharedTable
from sim.netlist import Design, rtlil_text, table_design, verilog
from sim.run import CONFIG_VARIABLE, RunFailed, config_to_json, run
from sim.simulators import Simulator
from tb.mutation import mutate
from tb.needs import needs_icarus
from tb.variants import SIZE

CYCLES = 2500

CHOICES: dict[str, dict[str, Any]] = {
    "apply_now": {"arbiter": "apply_now", "scope": RetireScope.LOOKUP},
    "drain_fence": {"on_pending": OnPending.REFUSE, "read_structure": ReadStructure.SERIALIZED},
    "version_check": {"arbiter": "version_check"},
}
"""They span the scopes, both read structures, and policies with and without replays."""


def unset(config: TableConfig, fault: str = "") -> Design:
    """The table, with nothing in its registers and memories before reset."""
    key = f"{table_design(config).key} {fault}"
    return Design("shared_table", lambda: SharedTable(config), key, unset=True)


def play(config: TableConfig, design: Design, cycles: int) -> None:
    """Plays anything, and looks at every output in every cycle."""
    run(
        design,
        Simulator.ICARUS,
        "tb.bench_random",
        seed=6,
        parameters={"known": True, "cycles": cycles},
        environment={CONFIG_VARIABLE: config_to_json(config)},
    )


def test_nothing_has_a_value_before_reset():
    """Neither a row of a memory nor a register, in what is simulated here."""
    design = unset(TableConfig(**SIZE))
    assert "$meminit" not in rtlil_text(design)
    text = verilog(design).read_text()
    assert not re.search(r"^ *initial\b", text, re.MULTILINE)
    assert not re.search(r"^ *reg\b[^;]*=", text, re.MULTILINE)
    # The one that everything else is simulated with has them for its registers alone.
    assert "$meminit" not in rtlil_text(table_design(TableConfig(**SIZE)))


@needs_icarus
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_nothing_is_unknown(choice: dict[str, Any]):
    """No stream, no flag and no payload, be it valid or not."""
    config = TableConfig(**{**SIZE, **choice})
    play(config, unset(config), CYCLES)


@needs_icarus
@pytest.mark.parametrize(
    ("cls", "right", "wrong", "output"),
    [
        pytest.param(
            Slots,
            'valid = Signal(name=f"valid_{port}_{tag}")',
            'valid = Signal(name=f"valid_{port}_{tag}", reset_less=True)',
            r"occupied is \w*X",
            id="register-without-reset",
        ),
        pytest.param(
            CopiedMemory,
            "self.write.enable | ~self.ready",
            "self.write.enable",
            r"cycle \d+ after the start: \w+ is \w*X",
            id="memory-read-before-it-is-written",
        ),
    ],
)
def test_what_is_unknown_is_found(
    cls: type, right: str, wrong: str, output: str, monkeypatch: pytest.MonkeyPatch
):
    config = TableConfig(**SIZE)
    mutate(cls, right, wrong, monkeypatch)
    with pytest.raises(RunFailed, match=output):
        play(config, unset(config, wrong), 200)
