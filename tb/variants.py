"""The configurations that the tests go through."""

import itertools
from collections.abc import Iterator
from typing import Any

from rtl.arbiter import POLICIES
from rtl.config import (
    FenceSpan,
    OnPending,
    ReadStructure,
    RetireScope,
    StepOrder,
    TableConfig,
)

SIZE: dict[str, Any] = {"ports": 3, "entries": 16, "translations": 64, "ways": 2, "tags": 4}
"""Small, so that it is full and busy soon; everything else has its full width."""


def policies() -> Iterator[dict[str, Any]]:
    """Every policy with every choice that matters to it."""
    for arbiter in POLICIES:
        spans = list(FenceSpan) if arbiter == "drain_fence" else [FenceSpan.ENTRY]
        answers = [OnPending.STALL] if arbiter == "apply_now" else list(OnPending)
        for span, on_pending in itertools.product(spans, answers):
            yield {"arbiter": arbiter, "span": span, "on_pending": on_pending}


def variants(**fixed: Any) -> list[TableConfig]:
    """Every policy × scope × read structure × step order, but for what is ``fixed``."""
    found = []
    for policy, scope, structure, order in itertools.product(
        policies(), RetireScope, ReadStructure, StepOrder
    ):
        choice = {
            **policy,
            "scope": scope,
            "read_structure": structure,
            "step_order": order,
        }
        if all(choice[name] == value for name, value in fixed.items() if name in choice):
            found.append(TableConfig(**{**SIZE, **choice, **fixed}))
    return found


def name_of(config: TableConfig) -> str:
    """A short name for the id of a test."""
    words = [config.arbiter]
    if config.arbiter == "drain_fence":
        words.append(config.span)
    if config.arbiter != "apply_now":
        words.append(config.on_pending)
    words += [config.scope, config.read_structure, config.step_order]
    return "-".join(words)
