# amaranth: UnusedElaboratable=no
"""The monitor by itself: each guarantee is seen violated, and its nearest miss is not."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from amaranth.sim import Simulator

from rtl.config import TableConfig
from rtl.layouts import LookupStatus
from rtl.monitor import OF_CHANGES, Guarantee, Monitor, own_cycles
from tb.variants import SIZE

CONFIG = TableConfig(**SIZE)
INDEX, TAG, PORT = 5, 2, 1
STAMP, OTHER_STAMP = 3, 4

Event = Callable[[Any, Monitor], None]


def take(*, tag: int = TAG, index: int = INDEX) -> Event:
    """A lookup is admitted."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.take[PORT].valid, 1)
        ctx.set(dut.take[PORT].tag, tag)
        ctx.set(dut.take[PORT].index, index)
        read(tag=tag, index=index)(ctx, dut)

    return drive


def read(*, tag: int = TAG, index: int = INDEX) -> Event:
    """The entry of a lookup is read: when it is admitted, and when it starts anew."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.issue[PORT].valid, 1)
        ctx.set(dut.issue[PORT].admitted, 1)
        ctx.set(dut.issue[PORT].tag, tag)
        ctx.set(dut.issue[PORT].index, index)

    return drive


def beat(
    version: int,
    *,
    status: LookupStatus = LookupStatus.OK,
    length: int = 8,
    found: int = STAMP,
    admitted: int = 1,
) -> Event:
    """A beat of the lookup is accepted."""

    def drive(ctx: Any, dut: Monitor) -> None:
        accepted = dut.beat[PORT]
        ctx.set(accepted.valid, 1)
        ctx.set(accepted.admitted, admitted)
        ctx.set(accepted.beat.tag, TAG)
        ctx.set(accepted.beat.status, status)
        ctx.set(accepted.beat.length, length)
        ctx.set(accepted.beat.ghost.version, version)
        ctx.set(accepted.beat.ghost.expected.version, STAMP)
        ctx.set(accepted.beat.ghost.found.version, found)

    return drive


def apply(version: int, *, index: int = INDEX, source: int = 0) -> Event:
    """A command is applied."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.change[source].applied, 1)
        ctx.set(dut.change[source].arbitrated, 1)
        ctx.set(dut.change[source].index, index)
        ctx.set(dut.change[source].version, version)

    return drive


def complete(version: int, *, index: int = INDEX) -> Event:
    """A command is complete."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.change[0].completed, 1)
        ctx.set(dut.change[0].index, index)
        ctx.set(dut.change[0].version, version)

    return drive


def dma() -> Event:
    """The DMA engine issues a beat for the lookup."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.dma[PORT].valid, 1)
        ctx.set(dut.dma[PORT].tag, TAG)

    return drive


def owns(first: int, count: int) -> Event:
    """A command of source 0 is in progress and has yet to give up translations."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.change[0].in_progress, 1)
        ctx.set(dut.change[0].index, INDEX)
        ctx.set(dut.change[0].first, first)
        ctx.set(dut.change[0].count, count)

    return drive


def translate(address: int, *, present: int = 1) -> Event:
    """A translation is written, or removed."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.translation_write.enable, 1)
        ctx.set(dut.translation_write.address, address)
        ctx.set(dut.translation_write.data.present, present)

    return drive


def door(*, index: int = INDEX, held: int = 0, refused: int = 0, leaves: int = 0) -> Event:
    """A lookup asks to be let in."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.door[PORT].valid, 1)
        ctx.set(dut.door[PORT].index, index)
        ctx.set(dut.door[PORT].held, held)
        ctx.set(dut.door[PORT].refused, refused)
        ctx.set(dut.door[PORT].leaves, leaves)

    return drive


def stage(place: int, *, index: int = INDEX, tag: int = TAG, admitted: int = 1) -> Event:
    """A lookup is in a stage of the pipeline of the port."""

    def drive(ctx: Any, dut: Monitor) -> None:
        watched = dut.stage[PORT][place]
        ctx.set(watched.valid, 1)
        ctx.set(watched.admitted, admitted)
        ctx.set(watched.port, PORT)
        ctx.set(watched.tag, tag)
        ctx.set(watched.index, index)

    return drive


def replay() -> Event:
    """The lookup in the last stage starts anew."""

    def drive(ctx: Any, dut: Monitor) -> None:
        stage(2)(ctx, dut)
        ctx.set(dut.replayed, 1 << PORT)

    return drive


def slots(occupied: int, *, match: int = 0) -> Event:
    """Slots that are taken, and those of them whose entry changes."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.occupied, occupied)
        ctx.set(dut.match[0], match)

    return drive


def held() -> Event:
    """The arbiter holds a change up."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.change[0].held, 1)

    return drive


def terms(deadline: int, patience: int) -> Event:
    """The terms are set."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.terms.deadline, deadline)
        ctx.set(dut.terms.patience, patience)

    return drive


def slow() -> Event:
    """A beat is not taken."""

    def drive(ctx: Any, dut: Monitor) -> None:
        ctx.set(dut.waiting, 1 << PORT)

    return drive


SLOT = PORT * CONFIG.tags + TAG
IN_FLIGHT = slots(1 << SLOT)


Cycle = Event | tuple[Event, ...] | None
"""What happens in one cycle."""


def violations(
    cycles: Iterable[Cycle], *, unsound: bool | None = False
) -> dict[Guarantee, tuple[int, int, int]]:
    """Plays some cycles; per violated guarantee its count, and cycle and port of the first.

    ``unsound`` says whether the table must have been found to be so, if that matters.
    """
    dut = Monitor(CONFIG)
    seen: dict[Guarantee, tuple[int, int, int]] = {}

    async def bench(ctx: Any) -> None:
        while not ctx.get(dut.ready):
            await ctx.tick()
        ctx.set(dut.start, 1)
        for cycle in cycles:
            for event in cycle if isinstance(cycle, tuple) else (cycle,):
                if event is not None:
                    event(ctx, dut)
            await ctx.tick()
            for change in dut.change:
                for name in ("applied", "completed", "in_progress", "held"):
                    ctx.set(getattr(change, name), 0)
            for name in ("valid", "held", "refused", "leaves"):
                ctx.set(getattr(dut.door[PORT], name), 0)
            for place in range(3):
                ctx.set(dut.stage[PORT][place].valid, 0)
            for signal in (dut.replayed, dut.waiting, dut.occupied, dut.match[0]):
                ctx.set(signal, 0)
            ctx.set(dut.take[PORT].valid, 0)
            ctx.set(dut.issue[PORT].valid, 0)
            ctx.set(dut.beat[PORT].valid, 0)
            ctx.set(dut.dma[PORT].valid, 0)
            ctx.set(dut.translation_write.enable, 0)
        assert unsound in (None, bool(ctx.get(dut.unsound)))
        for guarantee in Guarantee:
            record = getattr(dut.violation, guarantee)
            assert ctx.get(record.seen) == (ctx.get(record.count) != 0)
            if ctx.get(record.seen):
                seen[guarantee] = (
                    ctx.get(record.count),
                    ctx.get(record.cycle),
                    ctx.get(record.port),
                )

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


GOOD: dict[str, list[Cycle]] = {
    "plain": [apply(1), take(), None, beat(1), beat(1), dma()],
    "untorn: a hole that was never filled": [
        take(),
        None,
        beat(0),
        beat(0, status=LookupStatus.NO_TRANSLATION, length=0, found=OTHER_STAMP),
    ],
    "untorn: another lookup with the tag": [
        take(),
        None,
        beat(0),
        apply(1),
        take(),
        None,
        beat(1),
    ],
    "fresh_admit: the cycle of A is the old version's": [(apply(1), take()), None, beat(0)],
    "fresh_admit: not its entry": [apply(1, index=INDEX + 1), take(), None, beat(0)],
    "fresh_answer: with C": [take(), None, apply(1), None, (complete(1), beat(0))],
    "fresh_answer: error": [
        take(),
        None,
        apply(1),
        complete(1),
        beat(0, status=LookupStatus.WRONG_STATE, length=0),
    ],
    "fresh_answer: no bytes": [take(), None, apply(1), complete(1), beat(0, length=0)],
    "fresh_answer: not its entry": [take(), None, complete(1, index=INDEX + 1), beat(0)],
    "fresh_answer: refused, no slot": [take(), None, apply(1), complete(1), beat(0, admitted=0)],
    "fresh_dma: with C": [take(), None, beat(0), apply(1), (complete(1), dma())],
    "fresh_dma: nothing answered": [take(), None, apply(1), complete(1), dma()],
    "no_early_reuse: removal": [(owns(8, 2), translate(8, present=0))],
    "no_early_reuse: below": [(owns(8, 2), translate(7))],
    "no_early_reuse: above": [(owns(8, 2), translate(10))],
    "no_early_reuse: another entry": [(owns(8, 2), apply(1, index=INDEX + 1, source=1))],
    "no_early_reuse: over": [owns(8, 2), (translate(8), apply(1, source=1))],
    "lookup_never_waits: let in": [(owns(8, 2), door(leaves=1)), door(index=INDEX + 1, leaves=1)],
    "isolated_invalidation: not for long": [
        *[(held(), IN_FLIGHT)] * own_cycles(CONFIG),
        IN_FLIGHT,
        *[(held(), IN_FLIGHT)] * own_cycles(CONFIG),
    ],
    "isolated_invalidation: its own": [(held(), slots(1 << SLOT, match=1 << SLOT))] * 40,
    "isolated_invalidation: nobody's": [held()] * 40,
    "bounded_invalidation: in time": [
        terms(5, 2),
        *[owns(8, 2)] * 5,
        (owns(8, 2), complete(1)),
    ],
    "bounded_invalidation: slow": [terms(5, 2), *[(owns(8, 2), slow())] * 3, *[owns(8, 2)] * 9],
    "bounded_invalidation: no terms": [owns(8, 2)] * 40,
    "sound": [take(), (IN_FLIGHT, stage(0)), (IN_FLIGHT, stage(1)), (IN_FLIGHT, stage(2))],
}

ABORTED = beat(0, status=LookupStatus.ABORTED, length=0, found=OTHER_STAMP)

BAD: dict[str, tuple[Guarantee, int, list[Cycle]]] = {
    "two versions": (Guarantee.UNTORN, 4, [take(), None, beat(0), apply(1), beat(1)]),
    "somebody else's translation": (
        Guarantee.UNTORN,
        2,
        [take(), None, beat(0, found=OTHER_STAMP)],
    ),
    "a translation taken away": (
        Guarantee.UNTORN,
        3,
        [take(), None, beat(0), beat(0, status=LookupStatus.NO_TRANSLATION, length=0)],
    ),
    "admitted after A": (Guarantee.FRESH_ADMIT, 3, [apply(1), take(), None, beat(0)]),
    "answered after C": (
        Guarantee.FRESH_ANSWER,
        5,
        [take(), None, apply(1), None, complete(1), beat(0)],
    ),
    "C right after admission": (
        Guarantee.FRESH_ANSWER,
        3,
        [(take(), apply(1)), complete(1), None, beat(0)],
    ),
    "DMA after C": (
        Guarantee.FRESH_DMA,
        5,
        [take(), None, beat(0), apply(1), complete(1), dma()],
    ),
    "aborted": (Guarantee.LOSSLESS, 4, [take(), None, beat(0), apply(1), ABORTED]),
    "aborted with A at its admission": (
        Guarantee.LOSSLESS,
        2,
        [(take(), apply(1)), None, ABORTED],
    ),
    "held back": (Guarantee.LOOKUP_NEVER_WAITS, 0, [(owns(8, 2), door(held=1))]),
    "turned away": (
        Guarantee.LOOKUP_NEVER_WAITS,
        0,
        [(owns(8, 2), door(refused=1, leaves=1))],
    ),
    "replayed": (
        Guarantee.LOOKUP_NEVER_WAITS,
        3,
        [take(), None, apply(1), (IN_FLIGHT, replay()), read(), None, beat(1)],
    ),
    "C waits for others": (
        Guarantee.ISOLATED_INVALIDATION,
        own_cycles(CONFIG) + 1,
        [*[(held(), IN_FLIGHT)] * (own_cycles(CONFIG) + 1), None],
    ),
    "C is late": (
        Guarantee.BOUNDED_INVALIDATION,
        7,
        [terms(5, 2), *[owns(8, 2)] * 6, (owns(8, 2), complete(1))],
    ),
    "C is late, and slow was nobody": (
        Guarantee.BOUNDED_INVALIDATION,
        7,
        [terms(5, 2), *[(owns(8, 2), slow())] * 2, *[owns(8, 2)] * 9],
    ),
    "index taken": (Guarantee.NO_EARLY_REUSE, 0, [(owns(8, 2), apply(1, source=1))]),
    "first translation taken": (Guarantee.NO_EARLY_REUSE, 0, [(owns(8, 2), translate(8))]),
    "last translation taken": (Guarantee.NO_EARLY_REUSE, 0, [(owns(8, 2), translate(9))]),
}


@pytest.mark.parametrize("cycles", GOOD.values(), ids=GOOD)
def test_it_keeps_quiet(cycles: list[Cycle]):
    """Nothing is reported that is allowed."""
    assert violations(cycles) == {}


@pytest.mark.parametrize(("guarantee", "cycle", "cycles"), BAD.values(), ids=BAD)
def test_it_reports(guarantee: Guarantee, cycle: int, cycles: list[Cycle]):
    """The violated guarantee, and no other, with its cycle and port (or source)."""
    place = 0 if guarantee in OF_CHANGES else PORT
    assert violations(cycles, unsound=None) == {guarantee: (1, cycle, place)}


OTHERS: dict[str, tuple[int, list[Cycle]]] = {
    "held back": (0, [(owns(8, 2), door(index=INDEX + 1, held=1))]),
    "turned away": (0, [(owns(8, 2), door(index=INDEX + 1, refused=1, leaves=1))]),
    "behind one that was held back": (
        2,
        [
            (owns(8, 2), door(held=1)),
            (owns(8, 2), door(leaves=1)),
            (owns(8, 2), door(index=INDEX + 1, leaves=1)),
        ],
    ),
    "replayed": (2, [take(), None, (IN_FLIGHT, replay())]),
    "behind one that is replayed": (
        3,
        [
            take(),
            take(tag=TAG + 1, index=INDEX + 1),
            apply(1),
            (slots(3 << SLOT), replay(), stage(1, index=INDEX + 1, tag=TAG + 1)),
        ],
    ),
    "aborted": (2, [take(), None, ABORTED]),
}


@pytest.mark.parametrize(("cycle", "cycles"), OTHERS.values(), ids=OTHERS)
def test_it_reports_what_others_suffer(cycle: int, cycles: list[Cycle]):
    """Beside what it is for the lookup itself, it violates ``isolated_lookups``."""
    found = violations(cycles)
    assert found.pop(Guarantee.ISOLATED_LOOKUPS) == (1, cycle, PORT)
    assert set(found) < {Guarantee.LOOKUP_NEVER_WAITS, Guarantee.LOSSLESS}


def test_a_replayed_lookup_is_admitted_anew():
    """From then on, the version before is too old."""
    cycles = [take(), None, apply(1), (IN_FLIGHT, replay()), read(), None, beat(0)]
    assert violations(cycles, unsound=None) == {
        Guarantee.LOOKUP_NEVER_WAITS: (1, 3, PORT),
        Guarantee.FRESH_ADMIT: (1, 6, PORT),
    }


@pytest.mark.parametrize(
    "cycles",
    [
        [(IN_FLIGHT, stage(0)), None],
        [take(), stage(0), None],
        [take(), (IN_FLIGHT, stage(0, index=INDEX + 1)), None],
        [take(), (IN_FLIGHT, stage(0), stage(1)), None],
    ],
    ids=["never-admitted", "no-slot", "other-index", "twice"],
)
def test_it_says_what_is_unsound(cycles: list[Cycle]):
    """A lookup in a pipeline without a slot and a tag of its own."""
    assert violations(cycles, unsound=True) == {}


def test_it_keeps_the_first_and_counts_all():
    """A second violation changes nothing but the count."""
    stale = [take(), None, beat(0), apply(1), complete(1), dma(), None, dma(), dma()]
    assert violations(stale) == {Guarantee.FRESH_DMA: (3, 5, PORT)}


def test_versions_wrap():
    """Versions are compared modulo their width."""
    top = (1 << CONFIG.ghost_width) - 1
    old = [apply(top), take(), None, apply(0), complete(0), beat(top)]
    assert violations(old) == {Guarantee.FRESH_ANSWER: (1, 5, PORT)}
    assert violations([apply(top), apply(0), take(), None, beat(0)]) == {}


def test_it_needs_the_ghost():
    """Without ghost versions there is nothing to judge by."""
    with pytest.raises(ValueError, match="ghost_version"):
        Monitor(TableConfig(**SIZE, ghost_version=False))
