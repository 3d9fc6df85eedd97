"""Puts a deliberately wrong class in the place of a right one."""

import inspect
import sys
from typing import Any

import pytest

from rtl import arbiter, recency


def mutate(cls: type, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the class with another text in its source, wherever ``rtl`` uses it.

    Parameters
    ----------
    cls : type
    right, wrong : str
        ``right`` stands once in the module of the class, and becomes ``wrong``.
    monkeypatch : pytest.MonkeyPatch
        Undoes it.
    """
    module = sys.modules[cls.__module__]
    source = inspect.getsource(module)
    assert source.count(right) == 1, "the fault doesn't fit the source any more"
    namespace: dict[str, Any] = {"__name__": module.__name__}
    exec(source.replace(right, wrong), namespace)
    broken = namespace[cls.__name__]
    for name, user in list(sys.modules.items()):
        if name.startswith("rtl.") and getattr(user, cls.__name__, None) is cls:
            monkeypatch.setattr(user, cls.__name__, broken)
    for policies in (arbiter.POLICIES, recency.POLICIES):
        for name, policy in policies.items():
            if policy is cls:
                monkeypatch.setitem(policies, name, broken)  # pyright: ignore[reportArgumentType]
