"""What can be set as ``NAME=value`` on the command line."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from rtl import arbiter, recency
from rtl.config import PRESETS, ConfigError, TableConfig
from sim.simulators import Simulator, available
from tb.agents.generators import GENERATORS

COMMANDS = ("mixed", "deregister", "local_invalidate", "remote_invalidate", "reregister", "rebind")

SLIDE = 8
"""Pages by which a window can move over its region; ``tb/bench_traffic.py`` says why."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter.

    Parameters
    ----------
    name : str
        In lower case; it is typed in upper case.
    parse : function
        From what was typed to the value; raises :class:`ConfigError`.
    default : object
    meaning : str
        One line for the help.
    """

    name: str
    parse: Callable[[str, str], Any]
    default: Any
    meaning: str


def whole_number(low: int, high: int | None = None) -> Callable[[str, str], int]:
    """Parses a whole number within bounds."""
    allowed = f"a whole number from {low} to {high}" if high else f"a whole number from {low} up"

    def parse(name: str, text: str) -> int:
        try:
            value = int(text, 10)
        except ValueError:
            value = None
        if value is None or value < low or (high is not None and value > high):
            raise ConfigError(name, allowed, text or "empty")
        return value

    return parse


def one_of(choices: Sequence[str]) -> Callable[[str, str], str]:
    """Parses one of a few words."""

    def parse(name: str, text: str) -> str:
        if text not in choices:
            raise ConfigError(name, f"one of {', '.join(choices)}", text or "empty")
        return text

    return parse


def _flag(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise ConfigError(name, "0 or 1", text or "empty")
    return text == "1"


def _file(name: str, text: str) -> Path:
    if not text:
        raise ConfigError(name, "the name of a file", "empty")
    return Path(text)


_MEANINGS = {
    "ports": "lookup requester interfaces",
    "entries": "MPT entries",
    "translations": "MTT entries",
    "ways": "entries of one recency set",
    "tags": "lookups that one port may have in flight",
    "sources": "command sources (host, send queue, responder)",
    "arbiter": "the policy",
    "span": "what a drain_fence holds back",
    "scope": "when a lookup gives its slot back",
    "on_pending": "what happens to a lookup that meets a pending change",
    "step_order": "what a deregistration takes away first",
    "recency": "recency policy",
    "recency_merge": "what several touches of one set in one cycle do",
    "read_structure": "one pipeline a port, or one for all",
    "ghost_version": "carry versions and build the monitor",
    "address_width": "bits of a virtual address",
    "length_width": "bits of the length of a lookup",
    "physical_width": "bits of a physical address",
    "index_width": "bits of the index part of a key",
    "variant_width": "bits of the variant part of a key",
    "pd_width": "bits of a protection domain",
    "qpn_width": "bits of a queue pair number",
    "page_shift_min": "logarithm of the smallest page",
    "page_shift_max": "logarithm of the largest page",
    "ghost_width": "bits of a ghost version",
}


def _table_parameters() -> list[Parameter]:
    found = []
    for field in dataclasses.fields(TableConfig):
        kind = field.type
        if field.name == "arbiter":
            parse = one_of(list(arbiter.POLICIES))
        elif field.name == "recency":
            parse = one_of(list(recency.POLICIES))
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            parse = _enum(kind)
        elif kind is bool:
            parse = _flag
        else:
            # The configuration itself knows the bounds, which hang together.
            parse = whole_number(0)
        found.append(Parameter(field.name, parse, field.default, _MEANINGS[field.name]))
    return found


def _enum(kind: type[StrEnum]) -> Callable[[str, str], StrEnum]:
    word = one_of([*kind])
    return lambda name, text: kind(word(name, text))


TABLE_PARAMETERS = {p.name: p for p in _table_parameters()}
"""Those that make a :class:`TableConfig`."""

RUN_PARAMETERS = {
    p.name: p
    for p in (
        Parameter("preset", one_of(list(PRESETS)), "default", "sizes to start from"),
        Parameter("qps", whole_number(1, 65536), 64, "queue pairs; with CAPTURE its own"),
        Parameter("lookups", whole_number(1), 20_000, "lookups of all queue pairs together"),
        Parameter("pages", whole_number(1), 4, "most pages that one lookup spans"),
        Parameter("invalidations", whole_number(0), 200, "changes of the entry; with CAPTURE, 0"),
        Parameter("command", one_of(COMMANDS), "mixed", "kind of the changes"),
        Parameter(
            "backpressure",
            one_of([*GENERATORS]),
            "always",
            "when consumers accept beats",
        ),
        Parameter("dma_cycles", whole_number(0, 10_000), 2, "most cycles before each DMA beat"),
        Parameter("capture", _file, None, "RoCEv2 capture to play, instead of LOOKUPS"),
        Parameter("seed", whole_number(0, 2**31 - 1), None, "of all random choices (a new one)"),
        Parameter("sim", one_of([*Simulator]), "verilator", "simulator"),
        Parameter("waves", _flag, False, "1: dump all signals"),
    )
}
"""Those that say what is done with the table."""


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
    """

    config: TableConfig
    run: dict[str, Any]
    typed: dict[str, str]

    @property
    def simulator(self) -> Simulator:
        """The simulator."""
        return Simulator(self.run["sim"])

    @property
    def buffer_pages(self) -> int:
        """Pages of the shared buffer: 8, fewer in a small table, more for long lookups."""
        return max(self.run["pages"], min(8, _most_pages(self.config)))

    def repeat(self, verb: str) -> str:
        """The command that does the same again, seed included."""
        import shlex

        words = {**self.typed, "SEED": str(self.run["seed"])}
        return shlex.join(["make", verb, *(f"{name}={value}" for name, value in words.items())])


def _most_pages(config: TableConfig) -> int:
    """Pages of the largest shared buffer: two ranges for the entry, one for a window's region."""
    return max(1, (config.translations - SLIDE) // 3)


def parse(words: Sequence[str]) -> Request:
    """Makes a request of what was typed as ``NAME=value``.

    Raises
    ------
    UsageError
        In one sentence that names the parameter, the value and what is allowed.
    """
    known = {**TABLE_PARAMETERS, **RUN_PARAMETERS}
    typed: dict[str, str] = {}
    values: dict[str, Any] = {}
    try:
        for word in words:
            name, equals, text = word.partition("=")
            if not equals:
                raise UsageError(f"{word} is not of the form NAME=value.")
            parameter = known.get(name.lower())
            if parameter is None or name != name.upper():
                raise UsageError(_unknown(name, list(known)))
            typed[name] = text
            values[name.lower()] = parameter.parse(name, text)
        run = {p.name: values.get(p.name, p.default) for p in RUN_PARAMETERS.values()}
        table = {name: value for name, value in values.items() if name in TABLE_PARAMETERS}
        config = TableConfig.preset(run["preset"], **table)
    except ConfigError as error:
        raise UsageError(
            f"{error.parameter.upper()} must be {error.allowed}, not {error.value}."
        ) from None
    if run["seed"] is None:
        run["seed"] = random.SystemRandom().randrange(2**31)
    _check_together(config, run, values)
    return Request(config, run, typed)


def _unknown(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    hint = f"did you mean {close[0].upper()}?" if close else "make help lists them."
    return f"There is no parameter {name}: {hint}"


def _check_together(config: TableConfig, run: dict[str, Any], values: dict[str, Any]) -> None:
    simulator = Simulator(run["sim"])
    if simulator not in available():
        raise UsageError(
            f"SIM={simulator} is not installed: install the Debian package iverilog, "
            "or leave SIM out."
        )
    if not config.ghost_version:
        raise UsageError("GHOST_VERSION must be 1 to run: without it nothing can be judged.")
    most = _most_pages(config)
    if run["pages"] > most:
        raise UsageError(
            f"PAGES must be at most {most} with TRANSLATIONS={config.translations}, "
            f"not {run['pages']}."
        )
    for name, least in _WIDTHS.items():
        if getattr(config, name) < least:
            raise UsageError(
                f"{name.upper()} must be at least {least} to run, not {getattr(config, name)}."
            )
    if config.page_shift_min > 12:
        raise UsageError(f"PAGE_SHIFT_MIN must be at most 12 to run, not {config.page_shift_min}.")
    if run["capture"] is None:
        return
    for name in ("lookups", "pages"):
        if name in values:
            raise UsageError(f"{name.upper()} must be left out with CAPTURE, not {values[name]}.")
    if run["command"] == "rebind":
        raise UsageError(
            "COMMAND must be one of "
            f"{', '.join(c for c in COMMANDS if c != 'rebind')} with CAPTURE, not rebind."
        )
    if "invalidations" not in values:
        run["invalidations"] = 0


_WIDTHS = {
    "address_width": 48,
    "length_width": 17,
    "physical_width": 48,
    "variant_width": 8,
    "pd_width": 24,
    "qpn_width": 24,
    "page_shift_max": 12,
}
"""What the shared buffer of a run needs."""
