# amaranth: UnusedElaboratable=no
"""Policies of your own: ``path/to/file.py:ClassName`` in place of a name.

A relative path starts at the project's folder. What the file imports is not watched: a table is
made anew when the file itself changes.
"""

import contextlib
import dataclasses
import functools
import gc
import hashlib
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]  # not in the stubs
from amaranth.hdl import Elaboratable, Fragment, Shape, Value
from amaranth.hdl._xfrm import DomainCollector
from amaranth.lib.wiring import Flow

from rtl.arbiter.seam import Arbiter
from rtl.config import ConfigError, TableConfig
from rtl.monitor import Guarantee

FORM = "path/to/file.py:ClassName"
"""How a policy of one's own is named."""

_ROOT = Path(__file__).resolve().parents[2]
_LONGEST = 200


class PolicyError(ConfigError):
    """A policy of somebody's own can't be used.

    Parameters
    ----------
    allowed : str
        What it has to be.
    name : str
        What was given.
    why : str
        What is wrong with it, where ``allowed`` doesn't say.
    """

    def __init__(self, allowed: str, name: str, why: str = ""):
        super().__init__("arbiter", allowed, f"{name}: {why}" if why else name)


def is_own(name: str) -> bool:
    """The name is that of a class in a file."""
    return ":" in name


def file_of(name: str) -> Path:
    """The file of a policy of one's own."""
    return (_ROOT / name.rpartition(":")[0]).resolve()


def label(name: str) -> str:
    """A word for a policy, without the folders of its file; others are their own."""
    return f"{file_of(name).stem}.{name.rpartition(':')[2]}" if is_own(name) else name


def load(name: str) -> type[Arbiter]:
    """The class that ``path/to/file.py:ClassName`` names; the same one until the file changes.

    Raises
    ------
    PolicyError
        If there is none, or it is no policy.
    """
    typed, _, class_name = name.rpartition(":")
    path = file_of(name)
    if path.suffix != ".py":
        raise PolicyError("a class of a file whose name ends with .py", name)
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise PolicyError("a class of a file that exists", name) from None
    except (OSError, ValueError) as error:
        raise PolicyError("a class of a file that can be read", name, _why(error, path)) from None
    with _refusing("a class of a file that can be imported", name):
        module = _imported(path, source)

    cls = getattr(module, class_name, None)
    if cls is None:
        there = [
            f"{typed}:{found.__name__}"
            for found in vars(module).values()
            if _is_policy(found) and found.__module__ == module.__name__
        ]
        allowed = " or ".join(there) or "a class of a file with a subclass of rtl.arbiter.Arbiter"
        raise PolicyError(allowed, name)
    if not _is_policy(cls):
        raise PolicyError("a subclass of rtl.arbiter.Arbiter", name)
    missing = [
        method
        for method in ("guarantees", "elaborate")
        if getattr(getattr(cls, method, None), "__isabstractmethod__", not hasattr(cls, method))
    ]
    if missing:
        raise PolicyError(f"a class that defines {' and '.join(missing)}", name)
    known = {field.name for field in dataclasses.fields(TableConfig)}
    if not isinstance(cls.choices, tuple) or not known.issuperset(cls.choices):
        raise PolicyError(
            "a policy whose choices are a tuple of names of parameters", name, f"{cls.choices!r}"
        )
    return cls


@functools.cache
def check(cls: type[Arbiter], config: TableConfig) -> None:
    """Checks that a policy keeps to the seam in this configuration: builds it once, alone.

    Raises
    ------
    PolicyError
        If it doesn't.
    """
    name = config.arbiter
    with _refusing("a policy that can say what it guarantees", name):
        given: Any = cls.guarantees(config)
    if not isinstance(given, set | frozenset) or not all(isinstance(g, Guarantee) for g in given):
        why = f"it returns {_one_line(repr(given))}"
        raise PolicyError("a policy whose guarantees are a set of Guarantee", name, why)

    with _refusing("a policy that can be elaborated with this configuration", name):
        policy = cls(config)
        # The seam of this policy: Arbiter's own constructor, whatever the class has made of it.
        seam = type("Seam", (cls,), {"__init__": Arbiter.__init__})(config)
        mine, required = _shapes(policy), _shapes(seam)
        differing = {
            "adds": mine.keys() - required,
            "lacks": required.keys() - mine,
            "changes": {key for key in mine.keys() & required if mine[key] != required[key]},
        }
        for verb, members in differing.items():
            if members:
                why = f"it {verb} {', '.join(sorted(members))}"
                raise PolicyError("a policy with the members of the seam", name, why)

        fragment = Fragment.get(policy, None)
        inputs = {
            id(Value.cast(value)): "__".join(map(str, path))
            for path, member, value in policy.signature.flatten(policy)
            if member.flow is Flow.In
        }
        driven = {inputs[id(s)] for s in _driven(fragment) if id(s) in inputs}
        if driven:
            why = f"it drives {', '.join(sorted(driven))}"
            raise PolicyError("a policy that drives its outputs alone", name, why)
        collector: Any = DomainCollector()
        collector.on_fragment(fragment)
        others = (collector.used_domains | collector.defined_domains) - {"sync"}
        if others:
            why = f"it has {', '.join(sorted(others))}"
            raise PolicyError("a policy without clock domains but sync", name, why)
        # What else Amaranth objects to.
        ports = [Value.cast(value) for *_, value in policy.signature.flatten(policy)]
        rtlil.convert(fragment, name="arbiter", ports=ports, emit_src=False)


@functools.cache
def _imported(path: Path, source: bytes) -> ModuleType:
    # A loader would leave bytecode in somebody's folder, and take it for that of the next version
    # if the two have the same size and second.
    name = f"own_policy_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    code = compile(source, path, "exec", dont_inherit=True)
    # Dataclasses look for the module of their class there.
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_policy(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Arbiter)


def _shapes(policy: Arbiter) -> dict[str, Any]:
    return {
        "__".join(map(str, path)): (member.flow, Shape.cast(member.shape), member.init)
        for path, member, _ in policy.signature.flatten(policy)
    }


def _driven(fragment: Any) -> Iterator[Any]:
    """Every signal that a statement assigns to, those of submodules included."""
    for statements in fragment.statements.values():
        for statement in statements:
            yield from statement._lhs_signals()
    for inner, *_ in fragment.subfragments:
        yield from _driven(inner)


@contextlib.contextmanager
def _refusing(allowed: str, name: str) -> Iterator[None]:
    """Whatever somebody's code raises is told in one line."""
    try:
        with warnings.catch_warnings():
            # Amaranth warns of an elaborate() without a return.
            warnings.simplefilter("error", UserWarning)
            yield
    except (Exception, SystemExit) as error:
        _forget_unused()
        if isinstance(error, PolicyError):
            raise
        raise PolicyError(allowed, name, _why(error, file_of(name))) from error


def _forget_unused() -> None:
    """What was made and is of no use now is no news.

    Each thing is marked by itself: a switch for all of them is thrown back by the next
    elaboration, and the traceback's cycles may live longer than that.
    """
    for thing in gc.get_objects():
        if issubclass(type(thing), Elaboratable):
            thing._MustUse__silence = True


def _why(error: BaseException, path: Path) -> str:
    """Type, line in the file and message of an exception."""
    message, line = str(error), None
    if isinstance(error, SyntaxError) and error.filename == str(path):
        message, line = error.msg, error.lineno
    elif isinstance(error, OSError) and error.strerror:
        message = error.strerror
    else:
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == str(path):
                line = number
    where = f" in line {line}" if line else ""
    said = _one_line(message)
    return f"{type(error).__name__}{where}{': ' if said else ''}{said}"


def _one_line(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
