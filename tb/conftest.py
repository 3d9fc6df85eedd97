"""What all tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rtl.config import ConfigError
from sim import job, run, simulators
from sim.cli import main
from sim.request import UsageError, parse_table
from sim.simulators import Simulator
from tb import variants
from tb.needs import NO_ICARUS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--arbiter",
        help="run the tests that every policy must pass, for this policy alone: "
        "a name, or path/to/file.py:ClassName",
    )
    parser.addoption(
        "--every-case",
        action="store_true",
        help="replay every recorded violation on every simulator, too: it takes 20 minutes",
    )
    parser.addoption(
        "--every-choice",
        action="store_true",
        help="try the choices of a policy in all combinations, and not just the first and last",
    )
    parser.addoption(
        "--steps",
        type=int,
        help="random programs of so many steps for each policy, instead of a few hundred",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Does what tests depend on while they are collected; checks ``--arbiter``."""
    if config.getoption("--every-choice"):
        variants.thorough()
    arbiter = config.getoption("--arbiter")
    if arbiter is None:
        return
    try:
        parse_table([f"ARBITER={arbiter}"])
        variants.only(arbiter)
        variants.variants()
    except (UsageError, ConfigError) as error:
        raise pytest.UsageError(str(error)) from None
    run.PYTEST_OPTIONS.append(f"--arbiter={arbiter}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--arbiter`` only the tests that go through the policies are left, and those that take
    long only if they are asked for."""
    left: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        wanted = (
            config.getoption("--arbiter") is None or item.get_closest_marker("conformance")
        ) and (config.getoption("--every-case") or not item.get_closest_marker("every_case"))
        (left if wanted else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = left


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Does what is typed, which must be refused; returns the sentence."""

    def check(*words: str, verb: str = "run") -> str:
        assert main([verb, *words]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        return said.err.removesuffix("\n")

    return check


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the last run; the runs of a user are left alone."""
    monkeypatch.setattr(job, "BUILD", tmp_path)
    monkeypatch.setattr(job, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(job, "LATEST", tmp_path / "latest")
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path / "latest"


@pytest.fixture(params=list(Simulator), ids=str)
def simulator(request: pytest.FixtureRequest) -> Simulator:
    """Each simulator in turn.

    Skips Icarus where it isn't installed, and fails there if ``CI`` is set.
    """
    chosen: Simulator = request.param
    if chosen not in simulators.available():
        # As in tb/needs.py: a package of the system, and optional but for CI.
        pytest.skip(NO_ICARUS)
    return chosen
