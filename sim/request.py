"""What was typed as ``NAME=value``, checked, or one sentence that says what is wrong with it."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rtl.arbiter import own
from rtl.config import ConfigError, TableConfig
from sim.parameters import (
    COMMANDS,
    RUN_PARAMETERS,
    SLIDE,
    TABLE_PARAMETERS,
    Parameter,
)
from sim.simulators import Simulator, SimulatorMissing, require
from sim.typed import Unreadable, as_typed, read_text
from tb.agents.scenes import PAGE_SHIFT
from tb.formal.case import CASES, Case, CaseError, close_names, load, names
from tb.programs.script import ScriptError
from tb.programs.script import parse as parse_script


class UsageError(ValueError):
    """What was typed can't be done; the message says why in one sentence."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What was asked for, checked.

    Parameters
    ----------
    config : TableConfig
    run : dict
        Value of each of :data:`RUN_PARAMETERS`.
    typed : dict
        What was typed, by name in upper case.
    case : Case, optional
        What is to be replayed, instead of a run; the configuration is that of the case.
    script : str, optional
        What is to be played, instead of traffic; it fits the configuration.
    """

    config: TableConfig
    run: dict[str, Any]
    typed: dict[str, str]
    case: Case | None = None
    script: str | None = None

    @property
    def simulator(self) -> Simulator:
        """The simulator."""
        return Simulator(self.run["sim"])

    @property
    def most_pages(self) -> int:
        """Pages of the largest shared buffer that the table has room for.

        The entry alternates between two ranges of translations; the region of a window needs a
        third, in which the window can move.
        """
        if self.uses_windows:
            return (self.config.translations - SLIDE) // 3
        return self.config.translations // 2

    @property
    def uses_windows(self) -> bool:
        """The shared entry may be a window."""
        return self.run["capture"] is None and self.run["command"] in ("mixed", "rebind")

    def repeat(self, verb: str) -> str:
        """The command that does the same again, seed included."""
        import shlex

        words = dict(self.typed)
        if self.case is None and self.script is None:
            words["SEED"] = str(self.run["seed"])
        return shlex.join(["make", verb, *(f"{name}={value}" for name, value in words.items())])


def parse(words: Sequence[str]) -> Request:
    """Makes a request of what was typed as ``NAME=value``.

    Raises
    ------
    UsageError
        In one sentence that names the parameter, the value and what is allowed.
    """
    typed, values, config = _read(words, {**RUN_PARAMETERS, **TABLE_PARAMETERS})
    run = {p.name: values.get(p.name, p.default) for p in RUN_PARAMETERS.values()}
    if run["case"] is not None:
        return _replay(run, typed)
    if run["script"] is not None:
        return _script(config, run, typed)
    if run["seed"] is None:
        run["seed"] = random.SystemRandom().randrange(2**31)
    if run["capture"] is not None and "invalidations" not in values:
        run["invalidations"] = 0
    request = Request(config, run, typed)
    _check_together(request)
    return request


_WITH_CASE = ("CASE", "SIM", "WAVES")


def _replay(run: dict[str, Any], typed: dict[str, str]) -> Request:
    """The request to replay a case."""
    for name in typed:
        if name not in _WITH_CASE:
            value = as_typed(typed[name])
            raise UsageError(f"{name}={value} must be left out: CASE decides it.")
    case = _case(run["case"])
    _check_simulator(Simulator(run["sim"]))
    return Request(case.config, run, typed, case)


_WITH_SCRIPT = ("SCRIPT", "PRESET", "SIM", "WAVES")
"""Besides those of the table."""


def _script(config: TableConfig, run: dict[str, Any], typed: dict[str, str]) -> Request:
    """The request to play a script."""
    for name in typed:
        if name not in _WITH_SCRIPT and name.lower() not in TABLE_PARAMETERS:
            value = as_typed(typed[name])
            raise UsageError(f"{name}={value} must be left out: SCRIPT decides it.")
    _check_simulator(Simulator(run["sim"]))
    _check_watched(config)
    script = f"SCRIPT={as_typed(run['script'], None)}"
    try:
        text = read_text(run["script"])
        parse_script(text, config)
    except Unreadable as error:
        raise UsageError(f"{script} can't be played: {error}.") from None
    except ScriptError as error:
        if error.line is None:
            raise UsageError(f"{script} can't be played: {error.reason}.") from None
        raise UsageError(f"{script}, line {error.line}: {error.reason}") from None
    return Request(config, run, typed, script=text)


def words_of(config: TableConfig) -> list[str]:
    """What has to be typed for this table, as ``NAME=value``."""
    values = {name: getattr(config, name) for name in TABLE_PARAMETERS}
    return [
        f"{name.upper()}={int(value) if isinstance(value, bool) else value}"
        for name, value in values.items()
        if value != TABLE_PARAMETERS[name].default
    ]


def _case(name: str) -> Case:
    """The case that was meant: one of the project's, or one in a file."""
    is_file = name.endswith(".json")
    if not is_file and name not in names():
        close = close_names(name)
        meant = " or ".join([*[", ".join(close[:-1])][: len(close) > 1], *close[-1:]])
        hint = f"did you mean {meant}?" if close else "tb/formal/cases holds them all."
        raise UsageError(f"There is no case {as_typed(name)}: {hint}")
    try:
        return load(Path(name) if is_file else CASES / f"{name}.json")
    except CaseError as error:
        raise UsageError(f"CASE={as_typed(name, None)} can't be replayed: {error}.") from None


def parse_table(words: Sequence[str]) -> TableConfig:
    """Makes a configuration of what was typed as ``NAME=value``, for who doesn't run anything.

    Raises
    ------
    UsageError
        In one sentence that names the parameter, the value and what is allowed.
    """
    preset = RUN_PARAMETERS["preset"]
    return _read(words, {preset.name: preset, **TABLE_PARAMETERS})[2]


def parse_values(words: Sequence[str], known: Mapping[str, Parameter]) -> dict[str, Any]:
    """The value of each of some parameters, from what was typed as ``NAME=value``.

    Raises
    ------
    UsageError
        In one sentence that names the parameter, the value and what is allowed.
    """
    values = _read(words, known)[1]
    return {p.name: values.get(p.name, p.default) for p in known.values()}


def _read(
    words: Sequence[str], known: Mapping[str, Parameter]
) -> tuple[dict[str, str], dict[str, Any], TableConfig]:
    """What was typed, its values, and the configuration that they make."""
    typed: dict[str, str] = {}
    values: dict[str, Any] = {}
    try:
        for word in words:
            name, equals, text = word.partition("=")
            if not equals:
                raise UsageError(f"{as_typed(word)} is not of the form NAME=value.")
            parameter = known.get(name.lower())
            if parameter is None or name != parameter.name.upper():
                raise UsageError(_unknown(name, known))
            if name in typed:
                both = f"{as_typed(typed[name])} and {as_typed(text)}"
                raise UsageError(f"{name} must be given once, not as {both}.")
            typed[name] = text
            values[parameter.name] = parameter.parse(name, text)
        table = {name: value for name, value in values.items() if name in TABLE_PARAMETERS}
        preset = values.get("preset", RUN_PARAMETERS["preset"].default)
        config = TableConfig.preset(preset, **table)
    except ConfigError as error:
        # The name of somebody's class is at the end, and what is wrong with it behind that.
        whole = isinstance(error, own.PolicyError)
        value = as_typed(error.value, None) if whole else as_typed(error.value)
        raise UsageError(
            f"{error.parameter.upper()} must be {error.allowed}, not {value}."
        ) from None
    return typed, values, config


def _unknown(name: str, known: Mapping[str, Parameter]) -> str:
    import difflib

    if name.lower() in RUN_PARAMETERS and name.lower() not in known:
        return f"{name} is of no use here: it says what a run does, not what the table is."
    if name.lower() in TABLE_PARAMETERS and name.lower() not in known:
        which = ": CONFIG chooses among all of them, by their names" if "config" in known else ""
        return f"{name} is of no use here{which}."
    close = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    hint = f"did you mean {close[0].upper()}?" if close else "make help lists them all."
    return f"There is no parameter {as_typed(name)}: {hint}"


def _check_simulator(simulator: Simulator) -> None:
    try:
        require(simulator)
    except SimulatorMissing as error:
        raise UsageError(f"SIM={simulator} is not possible, since {error}") from None


def _check_together(request: Request) -> None:
    """Checks what depends on more than one parameter."""
    config, run, typed = request.config, request.run, request.typed
    _check_simulator(request.simulator)
    _check_watched(config)
    _check_widths(config, _WIDTHS)
    if config.page_shift_min > PAGE_SHIFT:
        raise UsageError(
            f"PAGE_SHIFT_MIN must be at most {PAGE_SHIFT} to run, not {config.page_shift_min}."
        )
    if request.most_pages < 1:
        raise UsageError(
            f"TRANSLATIONS must be at least 16 with COMMAND={run['command']}, "
            f"not {config.translations}."
        )
    if run["capture"] is not None:
        for name in ("LOOKUPS", "PAGES"):
            if name in typed:
                raise UsageError(f"{name}={typed[name]} must be left out: CAPTURE decides it.")
        if run["command"] == "rebind":
            raise UsageError(
                "COMMAND must be one of "
                f"{', '.join(c for c in COMMANDS if c != 'rebind')} with CAPTURE, not rebind."
            )
        return
    for most, why in (
        (request.most_pages, f"TRANSLATIONS={config.translations}"),
        (((1 << config.length_width) - 1) >> PAGE_SHIFT, f"LENGTH_WIDTH={config.length_width}"),
    ):
        if run["pages"] > most:
            raise UsageError(f"PAGES must be at most {most} with {why}, not {run['pages']}.")


def _check_watched(config: TableConfig) -> None:
    """Checks that versions are told apart."""
    if not config.ghost_version:
        raise UsageError("GHOST_VERSION must be 1 to run, not 0: nothing could be judged.")
    # With less, a lookup that lives through hundreds of changes would take new versions for old.
    _check_widths(config, {"ghost_width": 16})


def _check_widths(config: TableConfig, widths: Mapping[str, int]) -> None:
    for name, least in widths.items():
        if getattr(config, name) < least:
            raise UsageError(
                f"{name.upper()} must be at least {least} to run, not {getattr(config, name)}."
            )


_WIDTHS = {
    "address_width": 48,
    "length_width": 17,
    "physical_width": 48,
    "variant_width": 8,
    "pd_width": 24,
    "qpn_width": 24,
    "page_shift_max": PAGE_SHIFT,
}
"""What the shared buffer of a run needs."""
