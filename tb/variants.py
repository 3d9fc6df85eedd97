"""The configurations that the tests go through."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from rtl.arbiter import POLICIES, own, policy
from rtl.config import ReadStructure, RetireScope, StepOrder, TableConfig

SIZE: dict[str, Any] = {"ports": 3, "entries": 16, "translations": 64, "ways": 2, "tags": 4}
"""Small, so that it is full and busy soon; everything else has its full width."""

NUMBERS: Mapping[str, list[int]] = {"version_bits": [1, 4]}
"""What the tests try of a choice that is a number."""

_tested = list(POLICIES)
_thorough = False


def thorough() -> None:
    """From now on :func:`ends` leaves nothing out."""
    global _thorough
    _thorough = True


def only(name: str) -> None:
    """From now on this policy is the only one; it may be one of somebody's own."""
    _tested[:] = [name]


def policies() -> Iterator[dict[str, Any]]:
    """Every policy with every choice that matters to it, and the default of the others."""
    classes = {name: policy(name) for name in _tested}
    listened = {choice for cls in classes.values() for choice in cls.choices}
    fields = [field for field in dataclasses.fields(TableConfig) if field.name in listened]
    for name, cls in classes.items():
        values = [_values(f) if f.name in cls.choices else [f.default] for f in fields]
        for chosen in itertools.product(*values):
            yield {"arbiter": name, **dict(zip([f.name for f in fields], chosen, strict=True))}


def _values(field: "dataclasses.Field[Any]") -> list[Any]:
    if isinstance(field.type, type) and issubclass(field.type, StrEnum):
        return list(field.type)
    return [False, True] if field.type is bool else NUMBERS[field.name]


def variants(**fixed: Any) -> list[TableConfig]:
    """Every policy × scope × read structure × step order, but for what is ``fixed``."""
    found = []
    for chosen, scope, structure, order in itertools.product(
        policies(), RetireScope, ReadStructure, StepOrder
    ):
        choice = {
            **chosen,
            "scope": scope,
            "read_structure": structure,
            "step_order": order,
        }
        if all(choice[name] == value for name, value in fixed.items() if name in choice):
            found.append(TableConfig(**{**SIZE, **choice, **fixed}))
    return found


def ends(configs: Iterable[TableConfig]) -> list[TableConfig]:
    """Of each policy the first choices and the last ones, wherever the rest is the same.

    Every choice of a policy is in one of the two, but not with every other one. Where one policy
    is tested by itself, and after :func:`thorough`, all of them are left.
    """
    groups: dict[tuple[str, ...], list[TableConfig]] = {}
    for c in configs:
        same = c.arbiter, c.scope, c.read_structure, c.step_order
        groups.setdefault(same, []).append(c)
    everything = _thorough or len(_tested) == 1
    found = [group if everything else [group[0], group[-1]] for group in groups.values()]
    return list(dict.fromkeys(itertools.chain(*found)))


def name_of_policy(choice: Mapping[str, Any]) -> str:
    """A short name for one of :func:`policies`."""
    arbiter = choice["arbiter"]
    return "-".join([own.label(arbiter), *(str(choice[c]) for c in policy(arbiter).choices)])


def name_of(config: TableConfig) -> str:
    """A short name for the id of a test."""
    words = [name_of_policy(dataclasses.asdict(config))]
    words += [config.scope, config.read_structure, config.step_order]
    return "-".join(words)
