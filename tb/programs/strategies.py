"""Random programs: what hypothesis draws.

It draws wishes, and the first choice of everything is the plainest. So a program shrinks by losing
wishes and by plainer ones, and since the host makes steps of them each time, it stays lawful on the
way.
"""

from typing import Any

from hypothesis import strategies as st

from rtl.config import RetireScope, TableConfig
from tb.model.words import EntryKind
from tb.programs.host import Host
from tb.programs.program import Accepts, Dma, Program, Until, Wait
from tb.programs.wishes import (
    Again,
    Area,
    Bind,
    End,
    Invalidate,
    LetTimePass,
    LookUp,
    Make,
    Move,
    Other,
    Renew,
    TakeTime,
    Target,
    Wish,
)

INDICES = 6
TRANSLATIONS = 24
"""Most that a program uses: few, so that what somebody gives up is what another one waits for."""

WISHES = 40
"""Wishes of one program, those that shrinking has left out included."""


def _one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


_RARELY = _one_of(*[False] * 9, True)
_TARGET = st.builds(Target, st.integers(0, INDICES - 1), _RARELY)
_SKIPPED = _one_of(0, 8, 0xFF8, 0x1000, 0x1FF8, 0x3000, 1)
_AREA = st.builds(
    Area,
    pages=_one_of(2, 1, 3, 4),
    variant=st.integers(0, 3),
    rights=_one_of(0, 0, 0, 0, 0, 1, 2, 3, 4),
    offset=_one_of(0, 8, 0xFF8),
    page_shift=_one_of(12, 12, 12, 13),
    zero_based=_RARELY,
    at_the_end=_RARELY,
    pd=_one_of(*[0] * 9, 1),
)


def _weighed(*choices: tuple[int, list[st.SearchStrategy[Any]]]) -> st.SearchStrategy[Any]:
    """One of these, each so many times as likely as one that is there once."""
    # one_of() would take each only once.
    several = [strategy for times, found in choices for strategy in found * times]
    return st.sampled_from(several).flatmap(lambda strategy: strategy)


def _wrong(ways: int) -> st.SearchStrategy[int]:
    return _one_of(*[0] * (4 * ways), *range(1, ways + 1))


def _makes(source: st.SearchStrategy[int]) -> st.SearchStrategy[Wish]:
    kinds = _one_of(EntryKind.REGION, EntryKind.REGION, *EntryKind)
    return st.builds(Make, source, kinds, _AREA, _one_of(False, False, True), _RARELY)


def _changes(source: st.SearchStrategy[int]) -> list[st.SearchStrategy[Wish]]:
    binds = st.builds(
        Bind,
        source,
        _TARGET,
        _TARGET,
        variant=st.integers(0, 3),
        rights=_one_of(0, 1, 2, 3),
        skipped=_SKIPPED,
        length=_one_of(8, 0x1000, 0x2000, 0),
        qpn=_one_of(0, 0, 1),
        zero_based=_RARELY,
        wrong=_wrong(3),
    )
    return [
        _makes(source),
        st.builds(Renew, source, _TARGET, _AREA, _RARELY),
        st.builds(Move, source, _TARGET, _AREA, st.booleans()),
        st.builds(End, source, _TARGET, _RARELY),
        st.builds(Invalidate, source, _TARGET, st.booleans(), _wrong(4)),
        binds,
    ]


def _paces(
    source: st.SearchStrategy[int], port: st.SearchStrategy[int]
) -> list[st.SearchStrategy[Wish]]:
    one = st.just(1)
    slow = st.builds(Accepts, st.just("port"), port, one, _one_of(1, 2, 4, 12))
    hears = st.builds(Accepts, st.just("source"), source, one, _one_of(1, 2, 8))
    pauses = st.lists(_one_of(0, 1, 3, 9), min_size=1, max_size=3).map(tuple)
    return [st.builds(TakeTime, step) for step in (slow, hears, st.builds(Dma, port, pauses))]


def wishes(config: TableConfig) -> st.SearchStrategy[Wish | None]:
    """One wish; the plainest is none at all."""
    source = st.integers(0, config.sources - 1)
    port = st.integers(0, config.ports - 1)
    lookups = st.builds(
        LookUp,
        port,
        _TARGET,
        older=_one_of(0, 0, 0, 0, 1, 2),
        skipped=_SKIPPED,
        length=_one_of(8, -1, -1, 0x1000, 0x2008, 0, 1),
        rights=_one_of(0, 1, 2, 3, 4),
        wrong=_wrong(6),
        # Where DMA goes on after the answer, nobody may use the tag meanwhile.
        tag=_one_of(*[None] * 9, 0, 1) if config.scope is RetireScope.DMA else st.none(),
    )
    cycles = st.builds(LetTimePass, st.builds(Wait, st.integers(1, 20)))
    untils = st.builds(LetTimePass, st.builds(Until, st.just("source"), source) | st.just(Until()))
    others = st.builds(Other, source, _TARGET, st.integers(0, 5))
    again = st.builds(Again, source, _TARGET, st.booleans())
    return _weighed(
        (1, [st.none()]),
        (9, [lookups]),
        (4, [cycles]),
        (3, [untils]),
        (2, _changes(source)),
        (1, _paces(source, port)),
        (1, [others, again]),
    )


def programs(config: TableConfig, count: int = WISHES) -> st.SearchStrategy[Program]:
    """Lawful programs, for a table with the full widths; each of so many wishes."""

    def lawful(first: list[Wish | None], rest: list[Wish | None]) -> Program:
        indices = range(min(INDICES, config.entries))
        host = Host(config, indices, range(min(TRANSLATIONS, config.translations)))
        for wish in (*first, LetTimePass(Until()), *rest):
            if wish is not None:
                wish.grant(host)
        return host.program

    # Without something to begin with, much of what follows would be in vain.
    make = _makes(st.integers(0, config.sources - 1))
    makes = st.lists(_weighed((1, [st.none()]), (3, [make])), min_size=4, max_size=4)
    return st.builds(lawful, makes, st.lists(wishes(config), min_size=count, max_size=count))
