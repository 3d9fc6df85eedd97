"""What can be set as ``NAME=value`` on the command line."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from rtl import recency
from rtl.arbiter import POLICIES, own, policy
from rtl.config import PRESETS, ConfigError, TableConfig
from sim.simulators import Simulator
from tb.agents.generators import GENERATORS

CHANGES = ("deregister", "local_invalidate", "remote_invalidate", "reregister", "rebind")
"""Kinds of changes of the shared entry."""

COMMANDS = ("mixed", *CHANGES)
"""What ``COMMAND`` can be; ``mixed`` stands for all kinds."""

SLIDE = 8
"""Pages by which a window can move over its region."""


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
    choices : sequence of str
        What can be typed, where that is a fixed set of words.
    """

    name: str
    parse: Callable[[str, str], Any]
    default: Any
    meaning: str
    choices: Sequence[str] = ()


def whole_number(low: int | None = None, high: int | None = None) -> Callable[[str, str], int]:
    """Parses a whole number, within bounds where there are some."""
    allowed = "a whole number" if low is None else f"a whole number from {low} to {high}"

    def parse(name: str, text: str) -> int:
        # int() takes more than this, digits of other scripts and 1_000 among them.
        if not re.fullmatch(r"-?[0-9]{1,1000}", text):
            raise ConfigError(name, allowed, text)
        value = int(text)
        if (low is not None and value < low) or (high is not None and value > high):
            raise ConfigError(name, allowed, text)
        return value

    return parse


def one_of(choices: Sequence[str]) -> Callable[[str, str], str]:
    """Parses one of a few words."""

    def parse(name: str, text: str) -> str:
        if text not in choices:
            raise ConfigError(name, f"one of {', '.join(choices)}", text)
        return text

    return parse


def _policy(name: str, text: str) -> str:
    policy(text)
    return text


_FLAGS = ("0", "1")


def _flag(name: str, text: str) -> bool:
    if text not in _FLAGS:
        raise ConfigError(name, " or ".join(_FLAGS), text)
    return text == "1"


def _word_or_file(name: str, text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise ConfigError(name, "the name of a case, or a .json file", text)
    return text


def _part(name: str, text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise ConfigError(name, "part of the name of a configuration", text)
    return text


def _part_of_guarantee(name: str, text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise ConfigError(name, "part of the name of a guarantee", text)
    return text


_SEED_MEANING = "of all random choices; not with CASE or SCRIPT, which leave none (a new one)"
_CASE_MEANING = "recorded violation to replay, by its name in tb/formal/cases or as a .json file"


def _file(name: str, text: str) -> Path:
    # Others could not be shown, nor typed again.
    if not text.isprintable() or not text.strip():
        raise ConfigError(name, "the name of a file", text)
    return Path(text)


_MEANINGS = {
    "ports": "lookup requester interfaces",
    "entries": "MPT entries",
    "translations": "MTT entries",
    "ways": "entries of one recency set",
    "tags": "lookups that one port may have in flight",
    "sources": "command sources (host, send queue, responder)",
    "arbiter": "the policy",
    "span": "what a drain_fence holds back, and what a grace_period waits for",
    "version_bits": "bits of the version that a version_check compares",
    "on_wrap": "what a version_check does when versions begin again",
    "scope": "when a lookup gives its slot back",
    "on_pending": "what pending_bit and drain_fence do with a lookup that meets a change",
    "zero_length": "what a remote read or write of no bytes is told",
    "second_invalidate": "how an invalidate of a FREE entry completes",
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
        choices: Sequence[str] = ()
        if field.name == "arbiter":
            parse, choices = _policy, [*POLICIES, own.FORM]
        elif field.name == "recency":
            choices = list(recency.POLICIES)
            parse = one_of(choices)
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            parse, choices = _enum(kind), [*kind]
        elif kind is bool:
            parse, choices = _flag, _FLAGS
        else:
            # The configuration itself knows the bounds, which hang together.
            parse = whole_number()
        found.append(Parameter(field.name, parse, field.default, _MEANINGS[field.name], choices))
    return found


def _word(name: str, choices: Sequence[str], default: str, meaning: str) -> Parameter:
    return Parameter(name, one_of(choices), default, meaning, choices)


def _enum(kind: type[StrEnum]) -> Callable[[str, str], StrEnum]:
    word = one_of([*kind])
    return lambda name, text: kind(word(name, text))


TABLE_PARAMETERS = {p.name: p for p in _table_parameters()}
"""Those that make a :class:`TableConfig`."""

RUN_PARAMETERS = {
    p.name: p
    for p in (
        _word("preset", list(PRESETS), "default", "sizes to start from"),
        Parameter("qps", whole_number(1, 65536), 64, "queue pairs; with CAPTURE its own"),
        Parameter("lookups", whole_number(1, 10**8), 20_000, "lookups of all queue pairs together"),
        Parameter("pages", whole_number(1, 2**20), 4, "most pages that one lookup spans"),
        Parameter(
            "invalidations", whole_number(0, 10**7), 200, "changes of the entry; with CAPTURE, 0"
        ),
        _word("command", COMMANDS, "mixed", "kind of the changes"),
        _word("backpressure", [*GENERATORS], "always", "when consumers accept beats"),
        Parameter("dma_cycles", whole_number(0, 10_000), 2, "most cycles before each step of DMA"),
        Parameter("capture", _file, None, "RoCEv2 capture to play, instead of LOOKUPS"),
        Parameter("case", _word_or_file, None, _CASE_MEANING),
        Parameter("script", _file, None, "steps of your own to play, instead of traffic"),
        Parameter("seed", whole_number(0, 2**31 - 1), None, _SEED_MEANING),
        _word("sim", [*Simulator], "verilator", "simulator"),
        Parameter("waves", _flag, False, "1: dump all signals", _FLAGS),
    )
}
"""Those that say what is done with the table."""

PROOF_PARAMETERS = {
    p.name: p
    for p in (
        Parameter("arbiter", _policy, None, "only this policy, or file.py:ClassName"),
        Parameter("config", _part, "", "only configurations whose name holds this"),
        Parameter("guarantee", _part_of_guarantee, "", "only guarantees whose name holds this"),
        Parameter("limit", whole_number(1, 86_400), 120, "seconds that one try may take"),
        Parameter("record", _flag, False, "1: keep the results in docs/ and tb/formal/cases"),
        Parameter("growth", _flag, False, "1: one configuration, in larger and larger tables"),
    )
}
"""Those that say what is proved."""


COVERAGE_PARAMETERS = {
    p.name: p
    for p in (
        PROOF_PARAMETERS["arbiter"],
        dataclasses.replace(RUN_PARAMETERS["seed"], default=1, meaning="of all random choices"),
    )
}
"""Those that say what coverage is measured of."""
