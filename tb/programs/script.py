"""Programs as text that people write and read, one step a line."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NoReturn

from rtl.config import TableConfig
from rtl.layouts import command_layout, lookup_layout
from sim.typed import as_typed
from tb.agents.packing import Packer
from tb.model.words import (
    COUNTS,
    NO_RIGHTS,
    VARIANT_COUNTS,
    Command,
    Key,
    Lookup,
    Opcode,
    Rights,
)
from tb.programs.program import Accepts, Ask, Dma, Order, Program, Side, Step, Until, Wait

MOST_PERIOD = 1000
"""Longest period of :class:`Accepts`, and longest pause of :class:`Dma`: nobody waits for who is
slower.
"""

MOST_CYCLES = 1_000_000
"""Longest wait."""

_ALL = Rights(sum(right.value for right in Rights))
_HEX_FROM = 4096
"""Larger numbers are mostly addresses."""

_DEFAULTS: Mapping[type, Mapping[str, object]] = {
    Command: {
        field.name: field.default
        for field in dataclasses.fields(Command)
        if field.default is not dataclasses.MISSING
    },
    Lookup: {"pd": 0, "qpn": 0, "rights": NO_RIGHTS, "address": 0, "tag": 0},
}
"""What a field is that isn't named. Those that aren't here have to be."""


class ScriptError(ValueError):
    """A script can't be played.

    Parameters
    ----------
    reason : str
        One sentence.
    line : int, optional
        Where, from 1 on, if it is one line's fault.
    """

    def __init__(self, reason: str, line: int | None = None):
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason = reason
        self.line = line


# From programs to text


def text_of(program: Program) -> str:
    """The program as a script, which :func:`parse` makes the same program of.

    Commands must have nothing in the fields that don't count for them.
    """
    return "".join(f"{line_of(step)}\n" for step in program.steps)


def line_of(step: Step) -> str:
    """One step as one line. Fields that have their default are left out."""
    match step:
        case Order(source, command):
            opcode = command.opcode
            named = opcode.name if isinstance(opcode, Opcode) else str(opcode)
            return " ".join(["source", str(source), named, *_fields(command, {"opcode"})])
        case Ask(port, lookup, chooses_tag):
            left_out = set() if chooses_tag else {"tag"}
            words = _fields(lookup, left_out, always={"tag"} - left_out)
            return " ".join(["port", str(port), "lookup", *words])
        case Accepts(side, number, 1, 1):
            return f"{side} {number} accepts always"
        case Accepts(side, number, taken, cycles):
            return f"{side} {number} accepts {taken} of {cycles}"
        case Dma(port, pauses):
            return f"port {port} dma {' '.join(map(str, pauses))}"
        case Wait(cycles):
            return f"wait {cycles}"
        case Until(None):
            return "wait quiet"
        case Until(side, number):
            return f"wait {side} {number}"


def _fields(
    words: Command | Lookup, left_out: set[str], always: Iterable[str] = ()
) -> Iterable[str]:
    defaults = _DEFAULTS[type(words)]
    for field in dataclasses.fields(words):
        value = getattr(words, field.name)
        known = field.name in defaults and value == defaults[field.name]
        if field.name not in left_out and (not known or field.name in always):
            yield f"{field.name}={_value(value)}"


def _value(value: object) -> str:
    match value:
        case Key(index, variant):
            return f"{_value(index)}:{_value(variant)}" if variant else _value(index)
        case Rights():
            if value == _ALL:
                return "ALL"
            return "|".join(right.name or "" for right in value) or "NONE"
        case Enum():
            return value.name
        case bool():
            return str(int(value))
        case int():
            return hex(value) if value >= _HEX_FROM else str(value)
    raise TypeError(f"no field has a value like {value!r}")


# From text to programs


def parse(text: str, config: TableConfig) -> Program:
    """The program that a script is for a table of these sizes.

    Raises
    ------
    ScriptError
        In one sentence that names what is wrong and what is allowed.
    """
    steps = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if words:
            steps.append(_Line(number, words, config).step())
    if not steps:
        raise ScriptError("it has no steps")
    return Program(tuple(steps))


Parse = Callable[[str, str], Any]
"""From the name of a field and what was typed to its value."""


class _Line:
    """One line that has a step, and how far it has been read."""

    def __init__(self, number: int, words: list[str], config: TableConfig):
        self._number = number
        self._words = words
        self._config = config
        self._read = 0
        self._idle: frozenset[str] = frozenset()

    def step(self) -> Step:
        """The step."""
        first = self._next("a step", "begin with port, source or wait")
        match first:
            case "wait":
                step = self._wait()
            case "port":
                step = self._of_port(self._whose("port"))
            case "source":
                step = self._of_source(self._whose("source"))
            case _:
                self._refuse("a step", "begin with port, source or wait", first)
        if self._read < len(self._words):
            before = " ".join(self._words[: self._read])
            after = as_typed(self._words[self._read])
            self._fail(f"nothing must follow {as_typed(before)}, but {after} does.")
        return step

    def _wait(self) -> Step:
        allowed = (
            f"be followed by a number from 1 to {MOST_CYCLES}, by quiet, "
            "or by port or source and its number"
        )
        word = self._next("wait", allowed)
        match word:
            case "quiet":
                return Until()
            case "port" | "source":
                return Until(word, self._whose(word))
            case _:
                cycles = _number(word)
                if cycles is None or not 1 <= cycles <= MOST_CYCLES:
                    self._refuse("wait", allowed, word)
                return Wait(cycles)

    def _of_port(self, port: int) -> Step:
        what, allowed = f"port {port}", "be followed by lookup, accepts or dma"
        word = self._next(what, allowed)
        match word:
            case "lookup":
                return self._lookup(port)
            case "accepts":
                return self._accepts("port", port)
            case "dma":
                pauses = [self._pause()]
                while self._read < len(self._words):
                    pauses.append(self._pause())
                return Dma(port, tuple(pauses))
            case _:
                self._refuse(what, allowed, word)

    def _of_source(self, source: int) -> Step:
        names = [opcode.name for opcode in Opcode]
        others = f"a number from {len(Opcode)} to 15"
        allowed = f"be followed by accepts or an opcode, one of {', '.join(names)}, or {others}"
        what = f"source {source}"
        word = self._next(what, allowed)
        if word == "accepts":
            return self._accepts("source", source)
        number = _number(word)
        if word in names:
            opcode = Opcode[word]
        elif number is not None and len(Opcode) <= number <= 15:
            opcode = number
        else:
            self._refuse(what, allowed, word)
        packer = Packer(command_layout(self._config))
        self._idle = _idle(opcode)
        values = self._values("a command", Command, packer, without={"opcode"})
        return Order(source, Command(opcode=opcode, **values))

    def _lookup(self, port: int) -> Step:
        packer = Packer(lookup_layout(self._config))
        values = self._values("a lookup", Lookup, packer)
        return Ask(port, Lookup(**{**_DEFAULTS[Lookup], **values}), "tag" in values)

    def _accepts(self, side: Side, number: int) -> Step:
        what, allowed = "accepts", f"be followed by always, or by numbers as in 1 of {MOST_PERIOD}"
        words = [self._next(what, allowed)]
        if words == ["always"]:
            return Accepts(side, number)
        words += [self._next(what, allowed), self._next(what, allowed)]
        taken, of, cycles = _number(words[0]), words[1], _number(words[2])
        if taken is None or cycles is None or of != "of" or not 1 <= taken <= cycles <= MOST_PERIOD:
            self._refuse(what, allowed, " ".join(words))
        return Accepts(side, number, taken, cycles)

    def _pause(self) -> int:
        allowed = f"be followed by whole numbers from 0 to {MOST_PERIOD}"
        word = self._next("dma", allowed)
        cycles = _number(word)
        if cycles is None or cycles > MOST_PERIOD:
            self._refuse("dma", allowed, word)
        return cycles

    def _whose(self, side: Side) -> int:
        count = {"port": self._config.ports, "source": self._config.sources}[side]
        allowed = f"be followed by a number from 0 to {count - 1}, as the table has {count}"
        word = self._next(side, allowed)
        number = _number(word)
        if number is None or number >= count:
            self._refuse(side, allowed, word)
        return number

    def _values(
        self, what: str, words: type, packer: Packer, without: Iterable[str] = ()
    ) -> dict[str, Any]:
        """The values of all fields that the rest of the line names."""
        fields = {f.name: f.type for f in dataclasses.fields(words) if f.name not in without}
        values: dict[str, Any] = {}
        typed: dict[str, str] = {}
        while self._read < len(self._words):
            word = self._next("", "")
            name, equals, text = word.partition("=")
            if not equals:
                self._fail(f"{as_typed(word)} is not of the form field=value.")
            if name not in fields:
                close = difflib.get_close_matches(name, fields, 1, 0.5)
                hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(fields)}."
                self._fail(f"{what} has no field {as_typed(name)}: {hint}")
            if name in values:
                both = f"{as_typed(typed[name])} and {as_typed(text)}"
                self._fail(f"{name} must be given once, not as {both}.")
            self._must_count(name)
            typed[name] = text
            values[name] = self._field(fields[name], name, text, packer)
        missing = [name for name in fields if name not in {*values, *_DEFAULTS[words]}]
        if missing:
            self._fail(f"{what} must name {' and '.join(missing)}, as in {missing[0]}=5.")
        return values

    def _field(self, kind: Any, name: str, text: str, packer: Packer) -> Any:
        if kind is Key:
            return self._key(name, text, packer)
        if kind is Rights:
            return self._rights(name, text)
        if kind is bool:
            if text not in ("0", "1"):
                self._refuse(name, "be 0 or 1", text)
            return text == "1"
        if isinstance(kind, type) and issubclass(kind, Enum):
            if text not in kind.__members__:
                self._refuse(name, f"be one of {', '.join(kind.__members__)}", text)
            return kind[text]
        return self._whole(name, text, packer.width(name))

    def _whole(self, name: str, text: str, width: int) -> int:
        number = _number(text)
        if number is None or number >> width:
            self._refuse(name, f"be a whole number from 0 to {_value((1 << width) - 1)}", text)
        return number

    def _key(self, name: str, text: str, packer: Packer) -> Key:
        index, colon, variant = text.partition(":")
        if colon:
            self._must_count(f"the variant of {name}")
        return Key(
            self._whole(f"the index of {name}", index, packer.width(f"{name}.index")),
            self._whole(f"the variant of {name}", variant, packer.width(f"{name}.variant"))
            if colon
            else 0,
        )

    def _rights(self, name: str, text: str) -> Rights:
        if text in ("ALL", "NONE"):
            return _ALL if text == "ALL" else NO_RIGHTS
        rights = NO_RIGHTS
        for word in text.split("|"):
            if word not in Rights.__members__:
                known = ", ".join(Rights.__members__)
                self._refuse(name, f"be ALL, NONE, or some of {known} with | between them", text)
            rights |= Rights[word]
        return rights

    def _must_count(self, name: str) -> None:
        """Nobody is to believe that a field matters which the table doesn't look at."""
        if name in self._idle:
            opcode = self._words[2]
            named = opcode if opcode in Opcode.__members__ else f"opcode {opcode}"
            self._fail(f"{name} doesn't count for {named}: leave it out.")

    def _next(self, what: str, allowed: str) -> str:
        """The next word; a line that ends before it is refused."""
        if self._read == len(self._words):
            self._fail(f"{what} must {allowed}.")
        self._read += 1
        return self._words[self._read - 1]

    def _refuse(self, what: str, allowed: str, typed: str) -> NoReturn:
        self._fail(f"{what} must {allowed}, not {as_typed(typed)}.")

    def _fail(self, sentence: str) -> NoReturn:
        raise ScriptError(sentence, self._number)


def _idle(opcode: Opcode | int) -> frozenset[str]:
    """What a command must not name, since it never counts for its opcode."""
    counts = COUNTS[opcode] if isinstance(opcode, Opcode) else frozenset()
    idle = {field.name for field in dataclasses.fields(Command)} - counts - {"opcode", "key"}
    if opcode not in VARIANT_COUNTS:
        idle.add("the variant of key")
    return frozenset(idle)


def _number(text: str) -> int | None:
    """A whole number, decimal or hexadecimal; ``None`` if it is none."""
    # int() takes more than this, digits of other scripts and 1_000 among them.
    if re.fullmatch(r"[0-9]{1,1000}|0x[0-9A-Fa-f]{1,1000}", text) is None:
        return None
    return int(text, 16) if text.startswith("0x") else int(text)
