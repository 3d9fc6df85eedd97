"""What several runs hit together, held against what there is to hit."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tb.coverage.bins import GROUPS, Bin
from tb.coverage.unreachable import Where, reason

Hits = Mapping[str, Collection[Bin]]
"""Bins by group, as a sampler writes them."""


@dataclass(frozen=True)
class Named:
    """A bin, and for whom it is to be hit, where that matters."""

    group: str
    names: Bin
    where: Where | None

    def __str__(self) -> str:
        words = [] if self.where is None else [self.where.arbiter, self.where.scope]
        return f"{self.group}: {', '.join([*words, *self.names])}"


@dataclass
class Result:
    """What became of one group.

    Members
    -------
    hit : int
        Bins that can be hit, and were.
    holes : list of Named
        Bins that can be hit, and were not.
    unreachable : Counter of str
        Bins that can't, by reason.
    wrong : list of Named
        Those of them that were hit all the same.
    """

    group: str
    hit: int = 0
    holes: list[Named] = field(default_factory=list)
    unreachable: "Counter[str]" = field(default_factory=Counter)
    wrong: list[Named] = field(default_factory=list)

    @property
    def reachable(self) -> int:
        """Bins that can be hit."""
        return self.hit + len(self.holes)

    @property
    def bins(self) -> int:
        """All of them."""
        return self.reachable + self.unreachable.total()


def union(runs: Iterable[Hits]) -> dict[str, set[Bin]]:
    """What any of some runs hit."""
    found: dict[str, set[Bin]] = {name: set() for name in GROUPS}
    for hits in runs:
        for group, bins in hits.items():
            found[group] |= {tuple(names) for names in bins}
    return found


def judge(hits: Mapping[Where, Hits]) -> list[Result]:
    """Compares what was hit, for each policy and scope, with what can be.

    In a group that is counted once for all, a bin is hit if anybody hit it, can be hit if somebody
    can, and is wrong if nobody can and somebody did.
    """
    seen = {where: union([bins]) for where, bins in hits.items()}
    everybody = union(seen.values())
    results = []
    for name, group in GROUPS.items():
        result = Result(name)
        results.append(result)
        for names in group.bins():
            if group.everywhere:
                for where, bins in seen.items():
                    why = reason(where, name, names)
                    _count(result, Named(name, names, where), names in bins[name], why)
            else:
                reasons = [reason(where, name, names) for where in hits]
                why = None if None in reasons else reasons[0]
                _count(result, Named(name, names, None), names in everybody[name], why)
    return results


def _count(result: Result, named: Named, is_hit: bool, why: str | None) -> None:
    if why is not None:
        result.unreachable[why] += 1
        if is_hit:
            result.wrong.append(named)
    elif is_hit:
        result.hit += 1
    else:
        result.holes.append(named)
