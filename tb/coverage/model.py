"""The bins as points and crosses of cocotb-coverage."""

from collections.abc import Callable
from typing import Any

from cocotb_coverage.coverage import CoverCross, CoverPoint, coverage_db, coverage_section

from tb.coverage.bins import GROUPS, Bin, Group

_ROOT = "table"


class Model:
    """What has been hit so far: for each group a point for each dimension, and their cross.

    cocotb-coverage keeps one database for the process; a new model starts it anew.
    """

    def __init__(self):
        for name in [name for name in coverage_db if name.split(".")[0] == _ROOT]:
            del coverage_db[name]
        self._count = {name: _section(name, group) for name, group in GROUPS.items()}
        self._seen: set[tuple[str, Bin]] = set()

    def sample(self, group: str, *names: str) -> None:
        """Counts a bin, the first time only: what matters is whether it was hit.

        Raises
        ------
        KeyError
            If the group has no such bin, of which cocotb-coverage would say nothing.
        """
        if (group, names) in self._seen:
            return
        for name, (dimension, known) in zip(names, GROUPS[group].dimensions.items(), strict=True):
            if name not in known:
                raise KeyError(f"{group} has no {dimension} {name!r}")
        self._seen.add((group, names))
        self._count[group](*names)

    def hit(self, group: str) -> frozenset[Bin]:
        """The bins of a group that were hit."""
        return frozenset(names for name, names in self._seen if name == group)

    def hits(self) -> dict[str, list[Bin]]:
        """The bins of each group that were hit, as the database has them."""
        found = {}
        for name, group in GROUPS.items():
            counts = coverage_db[_place(name, group)].detailed_coverage
            found[name] = [_as_bin(key) for key, count in counts.items() if count]
        return found


def _as_bin(key: str | Bin) -> Bin:
    return (key,) if isinstance(key, str) else tuple(key)


def _place(name: str, group: Group) -> str:
    """Where the database has the bins of a group: a cross needs two points at least."""
    last = "all" if len(group.dimensions) > 1 else next(iter(group.dimensions))
    return f"{_ROOT}.{name}.{last}"


def _section(name: str, group: Group) -> Callable[..., None]:
    points: dict[str, Any] = {}
    for place, (dimension, bins) in enumerate(group.dimensions.items()):
        path = f"{_ROOT}.{name}.{dimension}"
        points[path] = CoverPoint(path, xf=_argument(place), bins=[str(bin) for bin in bins])
    covered = [*points.values()]
    if len(points) > 1:
        covered.append(CoverCross(_place(name, group), items=[*points]))

    @coverage_section(*covered)
    def count(*names: str) -> None:
        pass

    return count


def _argument(place: int) -> Callable[..., str]:
    return lambda *names: names[place]
