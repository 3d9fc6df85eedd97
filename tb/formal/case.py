"""Violations worth keeping: what everybody around the table did, and what the table answered.

A case is a file that people can read. It is played on the real simulators by
``tb/bench_replay.py``, at the full widths of the table.
"""

import dataclasses
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from rtl.config import ConfigError, TableConfig
from rtl.monitor import Guarantee
from sim.netlist import ROOT
from sim.run import config_from_json
from sim.typed import Unreadable, read_text
from tb.model.words import CommandStatus, EntryKind, LookupStatus, Opcode, Rights

CASES = ROOT / "tb" / "formal" / "cases"
"""Folder of the cases that are tests, too."""

WIDTHS = frozenset(
    {
        "ghost_version",
        "zero_length",
        "second_invalidate",
        "address_width",
        "length_width",
        "physical_width",
        "index_width",
        "variant_width",
        "pd_width",
        "qpn_width",
        "page_shift_min",
        "page_shift_max",
        "ghost_width",
    }
)
"""Parameters of the table that a case leaves at their defaults."""


class CaseError(ValueError):
    """There is no such case, or it is none; the message is one sentence without its full stop."""


@dataclass(frozen=True)
class Offer:
    """Something that is offered on a stream, from one cycle until it is taken.

    Parameters
    ----------
    first : int
    taken : int, optional
        The cycle in which it is taken, if that happens within the case.
    fields : mapping of str to int
        Those that are not 0; fields of fields have names with a dot, as in ``key.index``.
    """

    first: int
    taken: int | None
    fields: Mapping[str, int]

    def covers(self, cycle: int) -> bool:
        """Whether it is on offer in a cycle."""
        return self.first <= cycle and (self.taken is None or cycle <= self.taken)


@dataclass(frozen=True)
class PortCase:
    """What happens on one port. ``lookups``, ``accepts``, ``dma`` and ``retires`` are played, and
    ``beats`` and when lookups are taken are expected.

    Parameters
    ----------
    lookups, beats : tuple of Offer
    accepts : tuple of int
        Cycles in which beats are accepted.
    dma, retires : tuple of (int, int)
        Cycle and tag.
    """

    lookups: tuple[Offer, ...] = ()
    beats: tuple[Offer, ...] = ()
    accepts: tuple[int, ...] = ()
    dma: tuple[tuple[int, int], ...] = ()
    retires: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SourceCase:
    """What happens at one source. ``commands`` and ``hears`` are played, ``completions`` and when
    commands are taken are expected.

    Parameters
    ----------
    commands, completions : tuple of Offer
        Of a completion only the status.
    hears : tuple of int
        Cycles in which completions are accepted.
    """

    commands: tuple[Offer, ...] = ()
    completions: tuple[Offer, ...] = ()
    hears: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """How a guarantee comes to be violated, from reset on.

    Cycle 0 is the first in which the table is ready, here as in the record of the monitor.

    Parameters
    ----------
    name : str
    guarantee : Guarantee
    cycle : int
        In which it is violated, for the first time; what comes later doesn't matter.
    place : int
        Port or source of the violation, as the monitor records it.
    config : TableConfig
        Small, and as wide as by default.
    ports : tuple of PortCase
    sources : tuple of SourceCase
    deadline, patience : int
        Terms of ``bounded_invalidation``.
    """

    name: str
    guarantee: Guarantee
    cycle: int
    place: int
    config: TableConfig
    ports: tuple[PortCase, ...]
    sources: tuple[SourceCase, ...]
    deadline: int = 0
    patience: int = 1

    def to_json(self) -> str:
        """The case as text that people can read, one line for each thing."""
        fields = [f.name for f in dataclasses.fields(TableConfig) if f.name not in WIDTHS]
        whole: dict[str, Any] = {
            "name": self.name,
            "guarantee": self.guarantee,
            "cycle": self.cycle,
            "place": self.place,
            "deadline": self.deadline,
            "patience": self.patience,
            "config": {name: getattr(self.config, name) for name in fields},
        }
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in whole.items()]
        for key, parts in (("ports", self.ports), ("sources", self.sources)):
            lines.append(f"{json.dumps(key)}: [\n{_joined(_part_text(p) for p in parts)}\n]")
        return f"{{\n{_joined(lines)}\n}}\n"

    @classmethod
    def from_json(cls, text: str) -> "Case":
        """The case that :meth:`to_json` wrote.

        Raises
        ------
        CaseError
            If it is none.
        """
        try:
            whole = json.loads(text)
            config = config_from_json(json.dumps(whole["config"]))
            case = cls(
                name=str(whole["name"]),
                guarantee=Guarantee(whole["guarantee"]),
                cycle=int(whole["cycle"]),
                place=int(whole["place"]),
                config=config,
                ports=tuple(_port(part) for part in whole["ports"]),
                sources=tuple(_source(part) for part in whole["sources"]),
                deadline=int(whole["deadline"]),
                patience=int(whole["patience"]),
            )
        except ConfigError as error:
            raise CaseError(f"its table can't be built: {error}") from None
        except KeyError as error:
            raise CaseError(f"it says nothing, or nothing known, of {error.args[0]}") from None
        except (ValueError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise CaseError(f"it is no case: {reason}") from None
        if (len(case.ports), len(case.sources)) != (config.ports, config.sources):
            raise CaseError("it has not as many ports and sources as its table")
        return case


_NAMES: Mapping[str, Mapping[str, type[Enum]]] = {
    "beats": {"status": LookupStatus},
    "commands": {"opcode": Opcode, "kind": EntryKind},
    "completions": {"status": CommandStatus},
}
"""Fields that are written by name, by stream."""


def _joined(lines: Iterator[str] | Sequence[str]) -> str:
    return ",\n".join(" " + line.replace("\n", "\n ") for line in lines)


def _part_text(part: PortCase | SourceCase) -> str:
    lines = []
    for field in dataclasses.fields(part):
        values = getattr(part, field.name)
        if values and isinstance(values[0], Offer):
            items = [
                json.dumps([offer.first, offer.taken, _written(field.name, offer.fields)])
                for offer in values
            ]
            lines.append(f"{json.dumps(field.name)}: [\n{_joined(items)}\n]")
        elif values:
            lines.append(f"{json.dumps(field.name)}: {json.dumps(values)}")
    return f"{{\n{_joined(lines)}\n}}" if lines else "{}"


def _written(stream: str, fields: Mapping[str, int]) -> dict[str, int | str]:
    return {name: _word(stream, name, value) for name, value in fields.items()}


def _word(stream: str, name: str, value: int) -> int | str:
    kind = _NAMES.get(stream, {}).get(name)
    if kind is not None and value in {member.value for member in kind}:
        return kind(value).name
    if name == "rights":
        return "|".join(right.name or "" for right in Rights(value))
    # Addresses near the end of 64 bits are hard to tell apart in decimal digits.
    return hex(value) if value >= 1 << 16 else value


_SHOWN: Mapping[str, tuple[str, ...]] = {
    "lookups": ("tag", "key.index"),
    "beats": ("status", "tag"),
    "commands": ("opcode", "key.index"),
    "completions": ("status",),
}
"""Fields that people want to see even if they are 0, by stream."""


def described(stream: str, fields: Mapping[str, int]) -> str:
    """Fields in one line, for people."""
    words = _written(stream, {**dict.fromkeys(_SHOWN[stream], 0), **fields})
    first = next(iter(words))
    # The name of an opcode or a status speaks for itself.
    named = [str(words.pop(first))] if first in _NAMES.get(stream, ()) else []
    return " ".join([*named, *(f"{name}={value}" for name, value in words.items())])


def _read(stream: str, fields: Mapping[str, int | str]) -> dict[str, int]:
    values: dict[str, int] = {}
    for name, written in fields.items():
        kind = _NAMES.get(stream, {}).get(name)
        if isinstance(written, int):
            values[name] = written
        elif kind is not None:
            values[name] = kind[written].value
        elif name == "rights":
            values[name] = sum(Rights[right].value for right in written.split("|"))
        else:
            values[name] = int(written, 0)
    return values


def _offers(part: Mapping[str, Any], stream: str) -> tuple[Offer, ...]:
    offers = []
    for first, taken, fields in part.get(stream, ()):
        end = None if taken is None else int(taken)
        offers.append(Offer(int(first), end, _read(stream, fields)))
    return tuple(offers)


def _cycles(part: Mapping[str, Any], name: str) -> tuple[int, ...]:
    return tuple(int(cycle) for cycle in part.get(name, ()))


def _tags(part: Mapping[str, Any], name: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(cycle), int(tag)) for cycle, tag in part.get(name, ()))


def _port(part: Mapping[str, Any]) -> PortCase:
    return PortCase(
        _offers(part, "lookups"),
        _offers(part, "beats"),
        _cycles(part, "accepts"),
        _tags(part, "dma"),
        _tags(part, "retires"),
    )


def _source(part: Mapping[str, Any]) -> SourceCase:
    return SourceCase(
        _offers(part, "commands"), _offers(part, "completions"), _cycles(part, "hears")
    )


def load(path: Path) -> Case:
    """Reads a case from a file.

    Raises
    ------
    CaseError
        If it can't be read, or is no case.
    """
    try:
        text = read_text(path)
    except Unreadable as error:
        raise CaseError(str(error)) from None
    return Case.from_json(text)


def names() -> list[str]:
    """Names of the cases that come with the project."""
    return sorted(path.stem for path in CASES.glob("*.json"))


def close_names(name: str) -> list[str]:
    """Names of cases that may have been meant, the best first."""
    known = names()
    # What was typed may be a part of it, such as the policy or the guarantee.
    parts = [other for other in known if name and name.lower() in other]
    close = difflib.get_close_matches(name.lower(), known, 3, 0.5)
    return list(dict.fromkeys([*close, *parts]))[:3]
