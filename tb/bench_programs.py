"""Programs: one that somebody has written, or any number of random ones."""

import json
from pathlib import Path
from typing import Any

import cocotb
import hypothesis
from cocotb.task import bridge, resume
from cocotb.triggers import RisingEdge
from hypothesis import HealthCheck, Phase

from sim.run import bench_parameters
from tb.agents.story import Story
from tb.programs.player import Stage
from tb.programs.program import Program
from tb.programs.script import parse, text_of
from tb.programs.strategies import WISHES, programs

PLAYED = "played.json"
"""What came of a script: its story, what differs, and the verdict of the monitor."""

FAILING = "failing.script"
"""The shortest program that was found to fail."""

STEPS = "steps.json"
"""How many steps of random programs were played, and what they came to."""

BATCH = 250
"""Most programs before hypothesis starts anew, with another seed and plain ones again."""


@cocotb.test()
async def play(dut: Any) -> None:
    """Plays a script, and writes down what came of it, good or bad."""
    stage = Stage(dut)
    program = parse(bench_parameters()["script"], stage.config)
    await stage.start()
    story = Story(dut, stage.config)
    cocotb.start_soon(_follow(stage, story))
    failure = None
    try:
        await stage.play(program)
        # A violation shows a cycle later.
        await stage.wait(2)
    except Exception as error:
        failure = f"{error}"
    played = {"failure": failure, **stage.verdicts(), "story": story.lines}
    Path(PLAYED).write_text(json.dumps(played, indent=1) + "\n")


async def _follow(stage: Stage, story: Story) -> None:
    """Tells the story from the first cycle on, which has just ended."""
    edge = RisingEdge(stage.dut.clk)
    while True:
        story.look(stage.cycle)
        await edge


@cocotb.test()
async def any_program(dut: Any) -> None:
    """Random programs, until so many steps are played; the model explains everything.

    The shortest one that fails is left as a script.
    """
    stage = Stage(dut)
    await stage.start()
    dut._log.info(f"seed {cocotb.RANDOM_SEED}")
    asked = {"steps": 300, "wishes": WISHES, **bench_parameters()}
    search = _Search(stage, asked["wishes"])
    await bridge(search.until)(asked["steps"])
    counts = {"programs": search.programs, "steps": search.steps, **search.statuses}
    dut._log.info(f"{counts}")
    Path(STEPS).write_text(json.dumps(counts))


class _Search:
    """Has hypothesis think of programs, and plays them, all in one simulation.

    Parameters
    ----------
    stage : Stage
    wishes : int
        Of each program.
    """

    def __init__(self, stage: Stage, wishes: int):
        self._stage = stage
        self._wishes = wishes
        self._failing: Program | None = None
        self.programs = self.steps = 0
        self.statuses: dict[str, int] = {}

    def until(self, steps: int) -> None:
        """Plays programs until they had so many steps.

        Raises
        ------
        AssertionError
            If one fails; then the shortest that does is in :data:`FAILING`.
        """
        batch = 0
        while self.steps < steps:
            # A program has about thirty steps; the first ones are shorter.
            examples = max(1, min(BATCH, (steps - self.steps) // 30))
            try:
                self._play_some(hypothesis.seed(cocotb.RANDOM_SEED + batch), examples)
            except Exception as error:
                if self._failing is None:
                    raise
                text = text_of(self._failing)
                Path(FAILING).write_text(text)
                raise AssertionError(f"{error}\nThe shortest program:\n{text}") from error
            batch += 1

    def _play_some(self, seeded: Any, examples: int) -> None:
        play = resume(self._play)

        @seeded
        @hypothesis.settings(
            max_examples=examples,
            phases=[Phase.generate, Phase.shrink],
            database=None,
            deadline=None,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=[*HealthCheck.__members__.values()],
        )
        @hypothesis.given(programs(self._stage.config, self._wishes))
        def works(program: Program) -> None:
            try:
                play(program)
            except Exception as error:
                if self._failing is None:
                    cocotb.log.info(f"after {self.steps} steps: {error}; looking for less")
                # While it shrinks, the last one that fails is the shortest.
                self._failing = program
                raise

        works()

    async def _play(self, program: Program) -> None:
        await self._stage.reset()
        await self._stage.play(program)
        self.programs += 1
        self.steps += len(program.steps)
        tally = self._stage.scoreboard.tally
        for counts in (tally.by_status, tally.commands):
            kind = "lookups" if counts is tally.by_status else "commands"
            for status, count in counts.items():
                name = f"{kind} {status.name}"
                self.statuses[name] = self.statuses.get(name, 0) + count
