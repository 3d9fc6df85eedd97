"""Programs at random: lawful, played, and short where they fail."""

import random
import re
import shlex
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtl.config import ReadStructure, RetireScope, StepOrder, TableConfig
from rtl.tables import CopiedMemory
from rtl.top import SharedTable
from sim import run as runs
from sim.cli import main
from sim.netlist import Design, table_design
from sim.run import RunFailed
from sim.simulators import Simulator
from tb.model.allocator import STRUCTURAL
from tb.model.configured import table_of
from tb.model.table import Table
from tb.model.words import (
    Command,
    CommandStatus,
    EntryState,
    Opcode,
)
from tb.mutation import mutate
from tb.needs import needs_icarus
from tb.programs.program import Order, Program, Until, Wait
from tb.programs.script import parse, text_of
from tb.programs.search import search
from tb.programs.strategies import programs
from tb.variants import SIZE, name_of, variants

CONFIG = TableConfig(**SIZE)
STEPS = 200
"""Of each policy, where ``--steps`` says nothing else."""


# At random


class Owners:
    """Carries out a program on the model, in one of the orders that races permit, and holds the
    host to its rules.
    """

    def __init__(self, table: Table, sources: int, rng: random.Random):
        self._table = table
        self._queues: list[deque[Command]] = [deque() for _ in range(sources)]
        self._rng = rng

    def follow(self, program: Program) -> None:
        for step in program.steps:
            match step:
                case Order(source, command):
                    self._queues[source].append(command)
                    self._check_turns(command)
                case Until("source", number):
                    while self._queues[number]:
                        self._execute_one()
                case Until(None):
                    while any(self._queues):
                        self._execute_one()
                case Wait(cycles):
                    for _ in range(self._rng.randrange(cycles)):
                        self._execute_one()
                case _:
                    pass
        while any(self._queues):
            self._execute_one()

    def _check_turns(self, command: Command) -> None:
        """One source at a time makes, moves or ends what is at an index."""
        busy = [
            source
            for source, queue in enumerate(self._queues)
            if any(
                other.opcode in STRUCTURAL and other.key.index == command.key.index
                for other in queue
            )
        ]
        assert command.opcode not in STRUCTURAL or len(busy) == 1, command

    def _execute_one(self) -> None:
        waiting = [queue for queue in self._queues if queue]
        if not waiting:
            return
        command = self._rng.choice(waiting).popleft()
        status = self._table.execute(command).status
        entries = self._table.entries
        if status is not CommandStatus.OK:
            return
        regions = {
            index: set(entry.owned)
            for index, entry in enumerate(entries)
            if entry.state is not EntryState.INVALID and not entry.is_window
        }
        owned = [place for run in regions.values() for place in run]
        assert len(owned) == len(set(owned)), f"{command} gives a translation to two owners"
        if command.opcode is Opcode.WRITE_TRANSLATION:
            first = command.first_translation
            written = set(range(first, first + command.translations))
            assert not written & set(owned), f"{command} writes what somebody owns"


@settings(deadline=None, database=None, max_examples=60)
@given(programs(CONFIG), st.integers(0, 2**32))
def test_the_host_keeps_to_its_rules(program: Program, order: int):
    """Whatever the order in which commands of several sources are carried out."""
    Owners(table_of(CONFIG), CONFIG.sources, random.Random(order)).follow(program)


CHOSEN = [
    config
    for place, scope in enumerate(RetireScope)
    for config in variants(
        scope=scope,
        read_structure=list(ReadStructure)[place],
        step_order=StepOrder.ENTRY_FIRST,
    )[place::2]
]
"""Every policy with every choice that matters to it, with one scope and one read structure."""


def report(request: pytest.FixtureRequest, config: TableConfig, simulator: Simulator) -> None:
    """Plays as many steps as were asked for; a long run says how many those were."""
    asked = request.config.getoption("--steps")
    counts = search(config, simulator, seed=1, steps=asked or STEPS)
    assert counts["steps"] >= (asked or STEPS)
    assert counts["lookups OK"] > 0
    assert counts["commands OK"] > 0
    if asked:
        with request.getfixturevalue("capsys").disabled():
            print(f"\n{name_of(config)}, {simulator}: {counts}")


@needs_icarus
@pytest.mark.conformance
@pytest.mark.parametrize("config", CHOSEN, ids=name_of)
def test_random_programs(request: pytest.FixtureRequest, config: TableConfig):
    report(request, config, Simulator.ICARUS)


@pytest.mark.parametrize("config", CHOSEN[:1], ids=name_of)
def test_random_programs_on_verilator(request: pytest.FixtureRequest, config: TableConfig):
    report(request, config, Simulator.VERILATOR)


# A program that fails


def repeated(failed: RunFailed, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command that a failure names says, and fails with."""
    make, verb, *words = shlex.split(failed.repeat)
    assert (make, verb) == ("make", "sim")
    capsys.readouterr()
    assert main(["run", *words]) == 1
    return capsys.readouterr().out


OVERCONFIDENT = """
from rtl.arbiter import ApplyNow
from rtl.monitor import Guarantee


class Overconfident(ApplyNow):
    \"\"\"Never waits, and declares that nothing old is ever used.\"\"\"

    @classmethod
    def guarantees(cls, config):
        return super().guarantees(config) | {Guarantee.FRESH_DMA}
"""


@needs_icarus
def test_a_policy_that_declares_too_much(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """It is found by itself, made short, and can be repeated from what is printed."""
    file = tmp_path / "overconfident.py"
    file.write_text(OVERCONFIDENT)
    config = TableConfig(**SIZE, arbiter=f"{file}:Overconfident")
    with pytest.raises(RunFailed, match=r"declares fresh_dma, but violated it") as caught:
        search(config, Simulator.ICARUS, seed=1, steps=20_000, wishes=12)
    failed = caught.value
    program = parse((failed.run_dir / "failing.script").read_text(), config)
    assert len(program.steps) <= 8
    assert text_of(program).strip() in failed.reason
    said = repeated(failed, capsys)
    found = re.search(r"Overconfident declares fresh_dma, but violated it [^\n]*", failed.reason)
    assert found is not None
    assert found[0] in said
    assert "fresh_dma is violated" in said
    assert (folder / "played.json").exists()


@needs_icarus
def test_a_table_that_differs_from_the_model(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """One copy of the tables misses the writes."""
    right, wrong = (
        "self.write.enable | ~self.ready",
        "(self.write.enable & (copy != 1)) | ~self.ready",
    )
    mutate(CopiedMemory, right, wrong, monkeypatch)
    sound = table_design(CONFIG)
    broken = Design(sound.name, lambda: SharedTable(CONFIG), f"{sound.key} {wrong!r}")
    with pytest.raises(RunFailed, match="answered") as caught:
        search(CONFIG, Simulator.ICARUS, seed=1, steps=20_000, wishes=12, design=broken)
    monkeypatch.setattr(runs, "table_design", lambda config: broken)
    said = repeated(caught.value, capsys)
    assert "but version since cycle" in said
