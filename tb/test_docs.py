"""The documentation says what the code does, where that can be compared."""

import ast
import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Shape
from amaranth.lib import data
from rich.console import Console

from rtl import layouts, legality
from rtl.arbiter import POLICIES, policy
from rtl.config import PRESETS, TableConfig
from rtl.layouts import (
    CommandStatus,
    EntryKind,
    EntryState,
    LookupStatus,
    Opcode,
    Rights,
    beat_layout,
    command_layout,
    completion_layout,
    lookup_layout,
)
from rtl.monitor import Guarantee
from rtl.recency.seam import VictimSignature
from rtl.slots import TagSignature
from rtl.violation import ViolationSignature
from rtl.watched import (
    TermsSignature,
    WatchedChangeSignature,
)
from sim import job, simulators
from sim.netlist import ROOT
from sim.parameters import COMMANDS, RUN_PARAMETERS, TABLE_PARAMETERS
from sim.request import parse
from sim.simulators import Simulator
from sim.verilog import ports
from tb.agents.generators import GENERATORS
from tb.races import ROWS
from tb.test_faults import FAULTS
from tb.test_proof_faults import FAULTS as POLICY_FAULTS
from tb.variants import name_of, variants

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
INTERFACES, RUNNING, TIMING, VERIFICATION, ARCHITECTURE, SEMANTICS, RACES, GUARANTEES = (
    ROOT / "docs" / f"{name}.md"
    for name in (
        "interfaces",
        "running",
        "timing",
        "verification",
        "architecture",
        "semantics",
        "races",
        "guarantees",
    )
)
CONFIG = TableConfig()

by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def sections(page: Path) -> dict[str, str]:
    """What stands under each heading, down to the next one of any level."""
    parts = re.split(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The rows of all tables, headings left out, each cell without the spaces around it."""
    found = []
    for line in re.findall(r"^\|.*\|$", text, re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if set(line) <= set("|-: "):
            found.pop()
        else:
            found.append(cells)
    return found


def quoted(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def anchors(page: Path) -> set[str]:
    """What links into the page may name."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in sections(page)
    }


# Interfaces


def leaves(shape: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The fields of a layout, those of layouts within it by their full names, and their bits."""
    if not isinstance(shape, data.StructLayout):
        yield prefix, Shape.cast(shape).width
        return
    for name, field in shape.members.items():
        yield from leaves(field, f"{prefix}.{name}" if prefix else name)


def members(signature: Any) -> dict[str, int]:
    """The members of an interface that is no stream, and their bits."""
    return {name: Shape.cast(member.shape).width for name, member in signature.members.items()}


FIELDS: dict[str, dict[str, int]] = {
    "lookup": dict(leaves(lookup_layout(CONFIG))),
    "beat": dict(leaves(beat_layout(CONFIG))),
    "dma": members(TagSignature(CONFIG)),
    "command": dict(leaves(command_layout(CONFIG))),
    "completion": dict(leaves(completion_layout(CONFIG))),
    "change": members(WatchedChangeSignature(CONFIG)),
    "victim": members(VictimSignature(CONFIG)),
    "terms": members(TermsSignature()),
    "violation": members(ViolationSignature(CONFIG)),
}
"""What the sections with a table of fields have to list."""

WITHOUT_FIELDS = {
    *("retire", "held", "kill", "ready", "unsound", "outlived", "stray", "slow"),
    *("entry_write", "translation_write", "occupied"),
}


def test_every_member_of_the_top_level_has_a_section():
    members = {port.group for port in ports(CONFIG)}
    assert members == set(FIELDS) | WITHOUT_FIELDS
    assert members <= set(sections(INTERFACES))


@pytest.mark.parametrize("section", FIELDS)
def test_fields_and_their_bits(section: str):
    documented = {}
    for name, bits, *_ in rows(sections(INTERFACES)[section]):
        documented[name.strip("`")] = int(bits.split(",")[0])
    assert documented == FIELDS[section]
    if section in ("lookup", "beat", "command", "completion"):
        assert list(documented) == list(FIELDS[section])


def test_every_guarantee_has_its_record():
    for guarantee in Guarantee:
        assert f"`violation.{guarantee}`" in sections(INTERFACES)["violation"]


ENUMS: tuple[type[Enum], ...] = (
    EntryState,
    EntryKind,
    Rights,
    LookupStatus,
    Opcode,
    CommandStatus,
)


def test_every_enum_of_the_layouts_has_a_section():
    defined = {
        name
        for name, value in vars(layouts).items()
        if isinstance(value, type) and issubclass(value, Enum)
    }
    assert defined == {enum.__name__ for enum in ENUMS}


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_enums_and_their_values(enum: type[Enum]):
    documented = [
        (row[0].strip("`"), int(row[1])) for row in rows(sections(INTERFACES)[enum.__name__])
    ]
    assert documented == [(member.name, member.value) for member in enum]


def rules() -> dict[str, list[str]]:
    """Per opcode the statuses of its rules, in order, as they stand in the source."""
    source = ast.parse(Path(legality.__file__).read_text())
    named: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}

    def statuses(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name):
            yield from named[node.value.id]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Status":
            yield node.attr
        else:
            for child in ast.iter_child_nodes(node):
                yield from statuses(child)

    nodes = list(ast.walk(source))
    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("_rules"):
            named[ast.unparse(node.targets[0])] = list(statuses(node.value))
    for node in nodes:
        if isinstance(node, ast.With):
            opened = ast.unparse(node.items[0].context_expr)
            case = re.fullmatch(r"m\.Case\(Opcode\.(\w+)\)", opened)
            if case and case[1] not in found:
                found[case[1]] = [s for statement in node.body for s in statuses(statement)]
        elif isinstance(node, ast.Call) and ast.unparse(node).startswith(
            "verdict(self.parent_status"
        ):
            found["parent"] = [s for argument in node.args[1:] for s in statuses(argument)]
    return found


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_rules_of_a_command(opcode: Opcode):
    """The page lists the same statuses in the same order as the source."""
    documented = rows(sections(INTERFACES)[opcode.name])
    assert [int(row[0]) for row in documented] == list(range(1, len(documented) + 1))
    expected = ["INDEX_OUT_OF_RANGE", *rules()[opcode.name]]
    if opcode is Opcode.BIND:
        expected += rules()["parent"]
    assert [row[2].strip("`") for row in documented] == expected


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_each_rule_has_a_status_of_its_own(opcode: Opcode):
    """But for those of a size or a place, of which there are several."""
    statuses = rules()[opcode.name] + (rules()["parent"] if opcode is Opcode.BIND else [])
    twice = {status for status in statuses if statuses.count(status) > 1}
    assert twice <= {"BAD_PAGE", "OUT_OF_BOUNDS"}


def test_every_rule_is_in_the_semantics():
    """The page has a row for each status that is about regions and windows."""
    named = {name for row in rows(SEMANTICS.read_text()) for name in quoted(" ".join(row))}
    of_time = {"RETRY", "TAG_IN_USE", "ABORTED", "UNKNOWN_OPCODE"}
    for status in (*LookupStatus, *CommandStatus):
        assert status.name in named | of_time, status
    for name in ("second_invalidate", "zero_length", "on_pending"):
        default, choices = TABLE_PARAMETERS[name].default, TABLE_PARAMETERS[name].choices
        row = next(row for row in rows(SEMANTICS.read_text()) if quoted(row[0]) == [name.upper()])
        assert quoted(row[1])[0] == default
        assert {quoted(row[2])[0], default} == {*choices}


# Running


def test_every_parameter_is_documented():
    parts = sections(RUNNING)
    for heading, parameters in (
        ("Parameters of a run", RUN_PARAMETERS),
        ("Parameters of the table", TABLE_PARAMETERS),
    ):
        documented = {row[0].strip("`"): row[1].strip("`") for row in rows(parts[heading])}
        defaults = {}
        for name, parameter in parameters.items():
            value = parameter.default
            defaults[name.upper()] = str(int(value) if isinstance(value, bool) else value)
        words = {"CAPTURE": "none", "CASE": "none", "SCRIPT": "none", "SEED": "a new one"}
        assert documented == {name: words.get(name, text) for name, text in defaults.items()}


def test_every_choice_is_documented():
    choices = {
        "PRESET": PRESETS,
        "COMMAND": COMMANDS,
        "BACKPRESSURE": GENERATORS,
        "SIM": Simulator,
        "ARBITER": POLICIES,
    }
    for field, parameter in TABLE_PARAMETERS.items():
        kind = type(parameter.default)
        if issubclass(kind, Enum):
            choices[field.upper()] = kind
    parts = sections(RUNNING)
    table = rows(parts["Parameters of a run"]) + rows(parts["Parameters of the table"])
    allowed = {row[0].strip("`"): quoted(row[2]) for row in table}
    for name, known in choices.items():
        assert allowed[name][: len(list(known))] == [str(choice) for choice in known], name


def test_presets_are_documented():
    heading, *table = re.findall(r"^\|(.*)\|$", sections(RUNNING)["Presets"], re.MULTILINE)
    names = [name.lower() for name in quoted(heading)]
    documented = {}
    for line in table[1:]:
        preset, *values = (cell.strip(" `") for cell in line.split("|"))
        documented[preset] = dict(zip(names, map(int, values), strict=True))
    expected = {p: {n: getattr(TableConfig.preset(p), n) for n in names} for p in PRESETS}
    assert documented == expected
    assert all(set(changes) <= set(names) for changes in PRESETS.values())


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of runs of a user is left alone."""
    monkeypatch.setattr(job, "BUILD", tmp_path)
    monkeypatch.setattr(job, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(job, "LATEST", tmp_path / "latest")
    return tmp_path


def test_every_key_of_the_result_is_documented(elsewhere: Path):
    """Those of two real runs, of which one plays a capture."""
    simulator = simulators.available()[-1]
    small = ["PRESET=tiny", f"SIM={simulator}", "SEED=1", "ARBITER=apply_now"]
    keys: set[str] = set()
    for more in (["LOOKUPS=40", "INVALIDATIONS=3"], ["CAPTURE=tb/data/roce_small.pcap"]):
        request = parse([*small, *(word.replace("=tb", f"={ROOT}/tb") for word in more)])
        job.run_job(request, "sim", Console(quiet=True), waves=False)
        result = json.loads((elsewhere / "latest" / "result.json").read_text())
        keys |= set(result) | {f"parameters.{name}" for name in result["parameters"]}
    documented = [row[0].strip("`") for row in rows(sections(RUNNING)["result.json"])]
    assert len(documented) == len(set(documented))
    assert set(documented) == keys


# Claims


def test_policies_declare_what_the_readme_says():
    lines = re.findall(r"^\|(.*)\|$", sections(ROOT / "README.md")["Policies"], re.MULTILINE)
    start = next(n for n, line in enumerate(lines) if line.strip().startswith("guarantee"))
    names = quoted(lines[start])
    claims: dict[tuple[str, str], str] = {}
    for line in lines[start + 2 : start + 2 + len(Guarantee)]:
        what, *cells = (cell.strip() for cell in line.split("|"))
        for name, cell in zip(names, cells, strict=True):
            claims[name, quoted(what)[0]] = cell
    assert names == list(POLICIES)
    for config in variants():
        for guarantee in Guarantee:
            claim = claims[config.arbiter, guarantee]
            declared = guarantee in policy(config.arbiter).guarantees(config)
            conditions = [word.split("=") for word in quoted(claim)]
            if conditions:
                given = all(str(getattr(config, n.lower())) == v for n, v in conditions)
                assert declared == given, name_of(config)
            else:
                assert declared == {"yes": True, "no": False}[claim], name_of(config)
    policies = [quoted(line.split("|")[0])[0] for line in lines[2 : 2 + len(POLICIES)]]
    assert policies == list(POLICIES)


def test_every_guarantee_is_explained():
    explained = [row[0].strip("`") for row in rows(sections(ARCHITECTURE)["The monitor"])]
    assert explained == list(Guarantee)


def test_every_seeded_fault_is_listed():
    listed = {row[0]: row[1].strip("`") for row in rows(sections(VERIFICATION)["Seeded faults"])}
    assert listed == {name: f"bench_{f.bench}.{f.test}" for name, f in FAULTS.items()}


def test_every_seeded_fault_of_a_policy_is_listed():
    listed = [
        (f"{quoted(policy)[0]}: {fault}", quoted(violates)[0])
        for policy, fault, violates in rows(sections(GUARANTEES)["Faults that have to be found"])
    ]
    assert listed == [(name, fault.violates) for name, fault in POLICY_FAULTS.items()]


def test_every_race_is_listed():
    """The page has the rows that the tests go through, word by word."""
    listed = rows(sections(RACES)["Races"])
    assert listed == [
        [
            row.id,
            row.seen_in,
            row.sequence,
            row.holds,
            f"`{row.name}`",
            ", ".join(f"`{fault.patch}`" for fault in row.faults),
            row.result,
        ]
        for row in ROWS
    ]


@by_name
def test_tests_that_are_named_exist(page: Path):
    """``bench_races.reset_in_the_middle`` is a function of ``tb/bench_races.py``, and so on."""
    for name in quoted(page.read_text()):
        match = re.fullmatch(r"(?:tb/)?((?:bench|test)_\w+)(?:\.py|((?:\.\w+)*))", name)
        if match is None:
            continue
        module = ROOT / "tb" / f"{match[1]}.py"
        assert module.exists(), name
        scope: ast.AST = ast.parse(module.read_text())
        for part in (match[2] or "").split(".")[1:]:
            inside = {
                node.name: node
                for node in ast.iter_child_nodes(scope)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            }
            assert part in inside, name
            scope = inside[part]


def test_every_bench_is_in_the_plan():
    """And every bench that the tests go through is named by a page."""
    named = {name for page in PAGES for name in quoted(page.read_text())}
    for module in sorted((ROOT / "tb").glob("bench_*.py")):
        if module.stem == "bench_traffic":
            continue
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.AsyncFunctionDef) and any(
                "cocotb.test" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                assert f"{module.stem}.{node.name}" in named


# Links and places


@by_name
def test_links_resolve(page: Path):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(file), target


@by_name
def test_files_that_are_named_exist(page: Path):
    for name in quoted(page.read_text()):
        if re.fullmatch(r"(?:rtl|tb|sim|docs)/[\w/.]*", name):
            assert (ROOT / name).exists(), name


@by_name
def test_no_place_of_one_machine(page: Path):
    assert not re.search(r"\.\./|(?<![\w.])/(?:home|root|tmp|work|usr)\b", page.read_text())


def test_every_folder_is_in_the_readme():
    documented = {row[0].strip("`") for row in rows(sections(ROOT / "README.md")["Folders"])}
    assert all((ROOT / folder).is_dir() for folder in documented)
    for top in ("rtl", "tb", "sim"):
        for file in (ROOT / top).rglob("*.py"):
            assert f"{file.parent.relative_to(ROOT)}/" in documented
