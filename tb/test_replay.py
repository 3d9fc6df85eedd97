"""Violations that the prover found happen on the real simulators, too, at full widths.

One case of each policy and guarantee is played on Icarus, and one of each policy on Verilator; all
of them on both with ``--every-case``.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rtl.arbiter import policy
from rtl.config import OnPending, TableConfig
from rtl.monitor import Guarantee
from sim import cli
from sim.cli import main
from sim.run import RunFailed, run
from sim.simulators import Simulator
from tb.formal.case import CASES, WIDTHS, Case, CaseError, Offer, PortCase, SourceCase, load, names
from tb.formal.harness import SMALL
from tb.needs import needs_icarus, needs_program

DMA = "apply_now-fresh_dma"


def narrow(**changes: Any) -> TableConfig:
    return TableConfig(**{**SMALL, **changes})


NARROW = narrow()


def case_named(name: str) -> Case:
    return load(CASES / f"{name}.json")


def first_of_each(*fields: str) -> list[str]:
    """A case for each combination of what its policy is called and what it violates, or of one
    of them; of a policy's defaults, if there is one."""
    cases = sorted(map(case_named, names()), key=distance)
    first: dict[tuple[str, ...], str] = {}
    for case in cases:
        known = {"arbiter": case.config.arbiter, "guarantee": str(case.guarantee)}
        first.setdefault(tuple(known[field] for field in fields), case.name)
    return sorted(first.values())


def distance(case: Case) -> int:
    """In how many choices a case differs from the defaults."""
    chosen = {f.name for f in dataclasses.fields(TableConfig) if issubclass(type(f.default), str)}
    chosen -= {"arbiter"}
    return sum(getattr(case.config, name) != getattr(TableConfig(), name) for name in chosen)


def play(case: Case, simulator: Simulator, **more: Any) -> list[list[Any]]:
    """Replays a case; returns the story."""
    result = run(
        case.config, simulator, "tb.bench_replay", parameters={"case": case.to_json()}, **more
    )
    return json.loads((result.run_dir / "story.json").read_text())


def check(case: Case, simulator: Simulator) -> None:
    story = play(case, simulator)
    said = [what for cycle, _, what in story if cycle == case.cycle]
    assert any(what.startswith(f"{case.guarantee} is violated") for what in said)
    assert max(cycle for cycle, *_ in story) == case.cycle


@needs_icarus
@pytest.mark.parametrize("name", first_of_each("arbiter", "guarantee"))
def test_it_happens_on_icarus(name: str):
    check(case_named(name), Simulator.ICARUS)


@pytest.mark.parametrize("name", first_of_each("arbiter"))
def test_it_happens_on_verilator(name: str):
    check(case_named(name), Simulator.VERILATOR)


@pytest.mark.every_case
@pytest.mark.parametrize("name", names())
def test_every_case(name: str, simulator: Simulator):
    """Takes long: only with ``--every-case``."""
    check(case_named(name), simulator)


@pytest.mark.parametrize("name", names())
def test_cases_are_in_order(name: str):
    """Small, called by their names, at full widths, and of something that isn't declared."""
    text = (CASES / f"{name}.json").read_text()
    case = Case.from_json(text)
    assert case.name == name
    assert case.to_json() == text
    assert len(text) < 2048
    # What is declared holds; but a deadline may be shorter than the one that the policy keeps.
    declared = policy(case.config.arbiter).guarantees(case.config)
    assert case.guarantee not in declared - {Guarantee.BOUNDED_INVALIDATION}
    assert {n: getattr(case.config, n) for n in WIDTHS} == {
        n: getattr(TableConfig(), n) for n in WIDTHS
    }


def first_changed(offers: Sequence[Offer], **changes: Any) -> tuple[Offer, ...]:
    first, *others = offers
    return (dataclasses.replace(first, **changes), *others)


def on_port(case: Case, **changes: Any) -> Case:
    return dataclasses.replace(case, ports=(dataclasses.replace(case.ports[0], **changes),))


def at_source(case: Case, **changes: Any) -> Case:
    return dataclasses.replace(case, sources=(dataclasses.replace(case.sources[0], **changes),))


WRONG: Mapping[str, tuple[Callable[[Case], Case], str]] = {
    "too-late": (
        lambda case: dataclasses.replace(case, cycle=case.cycle + 1),
        "fresh_dma was violated in cycle 15, where the case has it in cycle 16",
    ),
    "too-early": (
        lambda case: dataclasses.replace(case, cycle=case.cycle - 1),
        "fresh_dma was not violated in cycle 14",
    ),
    "other-guarantee": (
        lambda case: dataclasses.replace(case, guarantee=Guarantee.UNTORN),
        "untorn was not violated in cycle 15",
    ),
    "other-place": (
        lambda case: dataclasses.replace(case, place=1),
        "fresh_dma was violated on port 0, where the case has it on port 1",
    ),
    "no-dma": (lambda case: on_port(case, dma=()), "fresh_dma was not violated in cycle 15"),
    "other-answer": (
        lambda case: on_port(case, beats=first_changed(case.ports[0].beats, fields={"status": 3})),
        (
            "cycle 10, port 0: the table offers a beat: OK tag=0 first=1 last=1 length=4096, "
            "in the narrow table it offers a beat: WRONG_STATE tag=0"
        ),
    ),
    "no-answer": (
        lambda case: on_port(case, beats=()),
        (
            "cycle 10, port 0: the table offers a beat: OK tag=0 first=1 last=1 length=4096, "
            "in the narrow table it offers no beat"
        ),
    ),
    "lookup-waits": (
        lambda case: on_port(case, lookups=first_changed(case.ports[0].lookups, taken=8)),
        "cycle 7, port 0: the lookup is taken, in the narrow table it is not",
    ),
    "command-waits": (
        lambda case: at_source(case, commands=first_changed(case.sources[0].commands, taken=1)),
        "cycle 0, source 0: the command is taken, in the narrow table it is not",
    ),
    "command-fails": (
        lambda case: at_source(
            case, completions=first_changed(case.sources[0].completions, fields={"status": 4})
        ),
        (
            "cycle 7, source 0: the table offers a completion: OK, "
            "in the narrow table it offers a completion: WRONG_STATE"
        ),
    ),
    "other-policy": (
        lambda case: dataclasses.replace(
            case, config=dataclasses.replace(case.config, arbiter="grace_period")
        ),
        (
            "cycle 14, source 0: the table offers no completion, "
            "in the narrow table it offers a completion: OK"
        ),
    ),
}


@needs_icarus
@pytest.mark.parametrize(("change", "why"), WRONG.values(), ids=list(WRONG))
def test_what_goes_another_way_fails(change: Callable[[Case], Case], why: str):
    with pytest.raises(RunFailed, match=re.escape(why)):
        play(change(case_named(DMA)), Simulator.ICARUS)


# Files


def test_nothing_of_a_case_is_lost():
    offer = Offer(3, None, {"opcode": 11, "rights": 6, "base": 2**64 - 1, "key.index": 3})
    case = Case(
        "whole",
        Guarantee.BOUNDED_INVALIDATION,
        30,
        1,
        TableConfig(ports=2, sources=2, arbiter="pending_bit", on_pending=OnPending.REFUSE),
        (
            PortCase((), (Offer(1, 2, {"status": 12, "last": 1}),), (2,), ((3, 0),), ((4, 15),)),
            PortCase(lookups=(Offer(0, 0, {}),)),
        ),
        (SourceCase(commands=(offer,)), SourceCase(completions=(Offer(5, 6, {}),), hears=(6, 7))),
        deadline=9,
        patience=4,
    )
    text = case.to_json()
    assert Case.from_json(text) == case
    for written in ("ABORTED", '"REMOTE_READ|REMOTE_WRITE"', "0xffffffffffffffff", '"opcode": 11'):
        assert written in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"guarantee": "fresh"}, "it is no case: 'fresh' is not a valid Guarantee"),
        ({"cycle": None}, "it is no case: int() argument must be"),
        ({"ports": []}, "it has not as many ports and sources as its table"),
        ({"ports": [{"lookups": [[0, 0]]}]}, "it is no case: not enough values to unpack"),
        ({"config": {"ports": 17}}, "its table can't be built: ports must be from 1 to 16"),
        ({"config": {"port": 1}}, "it is no case: "),
        ({"sources": [{"commands": [[0, 0, {"opcode": "FORGET"}]]}]}, "nothing known, of FORGET"),
    ],
)
def test_what_is_no_case(change: dict[str, Any], why: str):
    whole = json.loads((CASES / f"{DMA}.json").read_text())
    with pytest.raises(CaseError, match=re.escape(why)):
        Case.from_json(json.dumps({**whole, **change}))


def test_what_a_case_must_say():
    whole = json.loads((CASES / f"{DMA}.json").read_text())
    for key in whole:
        with pytest.raises(CaseError, match=f"says nothing, or nothing known, of {key}$"):
            Case.from_json(json.dumps({k: v for k, v in whole.items() if k != key}))


# What is typed


@pytest.mark.parametrize("verb", ["run", "waves"])
def test_no_such_case(refused: Callable[..., str], verb: str):
    assert refused("CASE=nothing", verb=verb) == (
        "There is no case nothing: tb/formal/cases holds them all."
    )
    assert refused("CASE=aply_now-fresh_dma", verb=verb).startswith(
        f"There is no case aply_now-fresh_dma: did you mean {DMA}, "
    )
    assert refused("CASE=lossless", verb=verb).startswith(
        "There is no case lossless: did you mean squash-lossless, version_check-lossless or "
    )


@pytest.mark.parametrize("typed", ["PORTS=2", "SEED=1", "ARBITER=squash", "LOOKUPS=5", "QPS=1"])
def test_a_case_decides_everything(refused: Callable[..., str], typed: str):
    assert refused(f"CASE={DMA}", typed) == f"{typed} must be left out: CASE decides it."


def test_files_that_are_no_case(refused: Callable[..., str], tmp_path: Path):
    file = tmp_path / "a.json"
    sentence = f"CASE={file} can't be replayed: "
    file.write_text("[1]")
    assert refused(f"CASE={file}").startswith(f"{sentence}it is no case: ")
    file.write_text("x")
    assert refused(f"CASE={file}").startswith(f"{sentence}it is no case: Expecting value")


def test_verilog_has_no_case(refused: Callable[..., str]):
    assert refused(f"CASE={DMA}", verb="verilog") == (
        "CASE is of no use here: it says what a run does, not what the table is."
    )


@needs_icarus
def test_it_is_told(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", f"CASE={DMA}", "SIM=icarus"]) == 0
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines()]
    assert ["15", "port 0", "DMA beat under tag 0"] in rows
    assert ["", "port 0", "fresh_dma is violated"] in rows
    assert ["12", "source 0", "R: the change is requested"] in rows
    assert (
        "apply_now violates fresh_dma in cycle 15 on port 0: "
        "that is expected, it declares no such thing." in said
    )
    assert f"repeat   make sim CASE={DMA} SIM=icarus\n" in said
    assert f"look     make waves CASE={DMA} SIM=icarus\n" in said
    assert (folder / "story.json").exists()


TOLD: Mapping[str, list[tuple[int, str, str]]] = {
    "squash-lossless": [
        (8, "port 0", "offers a lookup: .*, which is admitted"),
        (12, "port 0", "tag 0 is killed"),
        (12, "port 0", "takes a beat: ABORTED tag=0 .*"),
    ],
    "pending_bit-stall-isolated_lookups": [
        (12, "port 0", "offers a lookup: .*, which the arbiter holds back"),
        (13, "port 0", "its lookup is admitted: tag=0"),
        (14, "port 0", "offers a lookup: .*, which gets no slot, since tag 0 is in use"),
    ],
    "drain_fence-2sources-isolated_invalidation": [
        (14, "source 1", "R: the change is requested"),
        (
            23,
            "source 1",
            (
                "isolated_invalidation is violated: held up in cycles 14 to 22 while only lookups "
                "of other entries were in flight; the limit is 8 cycles"
            ),
        ),
    ],
    "drain_fence-all-refuse-dma-replicated-entry_first-bounded_invalidation": [
        (16, "source 0", "R: the change is requested"),
        (
            36,
            "source 0",
            (
                "bounded_invalidation is violated: no C within 19 cycles of R, "
                "though nobody was slower than 1 cycle"
            ),
        ),
    ],
}
"""Of some cases, cycle, who, and a pattern of what the story tells."""


@needs_icarus
@pytest.mark.parametrize("name", TOLD)
def test_what_the_story_tells(name: str):
    story = play(case_named(name), Simulator.ICARUS)
    for cycle, who, what in TOLD[name]:
        assert any(
            (at, whose) == (cycle, who) and re.fullmatch(what, said) for at, whose, said in story
        ), (cycle, who, what)


FATES = "is admitted|is refused|gets no slot"
LAST_BEAT = r"takes a beat: (\w+) .*\blast=1"


@needs_icarus
@pytest.mark.parametrize("name", names()[::24])
def test_the_story_knows_who_is_admitted(name: str):
    """What is told of a lookup when it is taken is what its last beat says, if that comes."""
    case = case_named(name)
    story = play(case, Simulator.ICARUS)
    for port in range(case.config.ports):
        told = [what for _, who, what in story if who == f"port {port}"]
        taken = [found[0] for what in told if (found := re.search(FATES, what))]
        answers = [found[1] for what in told if (found := re.match(LAST_BEAT, what))]
        for fate, status in zip(taken, answers, strict=False):
            expected = {"RETRY": "is refused", "TAG_IN_USE": "gets no slot"}
            assert fate == expected.get(status, "is admitted")


@needs_icarus
def test_case_of_a_broken_promise(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """From any file, and of a policy that declares too much."""
    file = tmp_path / "it's [mine].json"
    file.write_text((CASES / f"{DMA}.json").read_text())
    sound = policy("apply_now").guarantees
    promise = classmethod(lambda cls, config: {*sound(config), Guarantee.FRESH_DMA})
    monkeypatch.setattr(policy("apply_now"), "guarantees", promise)
    assert main(["run", f"CASE={file}", "SIM=icarus"]) == 1
    assert "in cycle 15 on port 0, which it declares.\n" in capsys.readouterr().out


@needs_icarus
@pytest.mark.parametrize(
    ("name", "marks", "period"),
    [(DMA, ["AR A", "BC"], 10), ("pending_bit-stall-isolated_lookups", ["AR", "BA"], 10)],
)
def test_it_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, marks: list[str], period: int
):
    """The marker is in the cycle of the violation, and its guarantee comes first."""
    needs_program("fst2vcd")
    opened: list[Path] = []
    monkeypatch.setattr(cli, "open_in_gtkwave", lambda save: opened.append(save) or 0)
    assert main(["waves", f"CASE={name}", "SIM=icarus"]) == 0
    (save,) = opened
    assert save.parent == folder.resolve()
    text, case = save.read_text(), case_named(name)
    assert f"-First violation: {case.guarantee}, port 0\n" in text
    assert re.findall(r"^\[markername\] (.+)$", text, re.MULTILINE) == marks
    marker = re.search(r"^\*\S+ (\d+) ", text, re.MULTILINE)
    assert marker is not None
    # Two cycles of reset and four until ready, of which the first begins half a period late.
    began = period // 2 + (1 + 4) * period
    assert int(marker[1]) == 1000 * (began + case.cycle * period)
    first = re.search(r"^-monitor\n(?:.*\n){0,3}?\+\{(\w+) violated\}", text, re.MULTILINE)
    assert first is not None
    assert first[1] == case.guarantee
