"""The allocator of the random bench: nothing twice, nothing before C, and what came back first."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb.model.allocator import Allocator, Pool
from tb.model.words import NOBODY, Command, CommandStatus, Completion, EntryKind, Key, Opcode

NOTHING = range(0)
OK = Completion(CommandStatus.OK, NOBODY)
FAILED = Completion(CommandStatus.WINDOWS_BOUND, NOBODY)


def of_index(opcode: Opcode, index: int, run: range = NOTHING, **changes) -> Command:
    return Command(
        opcode, Key(index), first_translation=run.start, translations=len(run), **changes
    )


class TestPool:
    def test_what_came_back_last_goes_out_first(self) -> None:
        pool = Pool(range(16))
        first, second = pool.take(3), pool.take(3)
        assert (first, second) == (range(3), range(3, 6))
        assert first is not None
        pool.give_back(first)
        assert pool.take(2) == range(2)
        assert pool.take(3) == range(6, 9)

    def test_runs_that_touch_are_one_when_it_has_to_be(self) -> None:
        pool = Pool(range(6))
        halves = [pool.take(3), pool.take(3)]
        assert pool.take(1) is None
        for half in reversed(halves):
            assert half is not None
            pool.give_back(half)
        assert pool.take(6) == range(6)

    def test_nothing_comes_back_twice(self) -> None:
        pool = Pool(range(4))
        run = pool.take(2)
        assert run is not None
        pool.give_back(run)
        with pytest.raises(AssertionError, match="free already"):
            pool.give_back(run)

    @given(st.lists(st.integers(-3, 5)))
    @settings(deadline=None)
    def test_nothing_is_given_out_twice(self, steps: list[int]) -> None:
        pool, out = Pool(range(20)), []
        for step in steps:
            if step > 0:
                run = pool.take(step)
                assert run is None or len(run) == step
                out += [run] if run is not None else []
            elif out:
                pool.give_back(out.pop(step % len(out)))
            numbers = [number for run in out for number in run]
            assert len(numbers) == len(set(numbers)) == 20 - pool.free


class TestAllocator:
    def made(self) -> tuple[Allocator, int, range]:
        """With one region of 3 translations."""
        allocator = Allocator(range(2), range(8))
        index = allocator.take_index()
        assert index is not None
        run = allocator.take_translations(index, 3)
        assert run is not None
        allocator.completed(of_index(Opcode.REGISTER, index, run), OK)
        return allocator, index, run

    def test_index_and_translations_come_back_at_c_and_go_out_at_once(self) -> None:
        allocator, index, run = self.made()
        allocator.hold(index)
        assert allocator.idle == []
        other = allocator.take_index()
        assert other is not None
        assert other != index
        assert allocator.take_index() is None
        assert allocator.take_translations(other, 6) is None
        allocator.completed(of_index(Opcode.DEREGISTER, index), OK)
        assert allocator.take_index() == index
        assert allocator.take_translations(index, 3) == run

    def test_what_fails_gives_nothing_up(self) -> None:
        allocator, index, run = self.made()
        allocator.hold(index)
        allocator.completed(of_index(Opcode.DEREGISTER, index), FAILED)
        assert allocator.owned == {index: run}
        assert allocator.idle == [index]

    @pytest.mark.parametrize("fails", [False, True])
    def test_what_is_not_made_comes_back(self, fails: bool) -> None:
        allocator = Allocator(range(1), range(4))
        index = allocator.take_index()
        assert index is not None
        run = allocator.take_translations(index, 4)
        assert run is not None
        if fails:
            allocator.completed(of_index(Opcode.ALLOCATE, index, run), FAILED)
        else:
            allocator.let_go(index)
        assert allocator.owned == {}
        assert allocator.take_index() == index
        assert allocator.take_translations(index, 4) == run

    @pytest.mark.parametrize("completion", [OK, FAILED])
    def test_of_a_move_one_range_comes_back(self, completion: Completion) -> None:
        allocator, index, old = self.made()
        allocator.hold(index)
        new = allocator.take_translations(index, 4)
        assert new is not None
        allocator.completed(of_index(Opcode.REREGISTER, index, new), completion)
        kept, freed = (new, old) if completion is OK else (old, new)
        assert allocator.owned == {index: kept}
        allocator.hold(index)
        assert allocator.take_translations(index, len(freed)) == freed

    def test_what_stays_where_it_is_gives_nothing_up(self) -> None:
        allocator, index, run = self.made()
        allocator.hold(index)
        allocator.completed(of_index(Opcode.REREGISTER, index), OK)
        assert allocator.owned == {index: run}
        allocator.hold(index)
        assert allocator.take_translations(index, 6) is None

    def test_a_window_owns_none(self) -> None:
        allocator = Allocator(range(1), range(4))
        index = allocator.take_index()
        assert index is not None
        window = of_index(Opcode.ALLOCATE, index, kind=EntryKind.WINDOW_2B)
        allocator.completed(window, OK)
        assert allocator.owned == {index: range(0)}
        allocator.hold(index)
        assert allocator.take_translations(index, 4) == range(4)

    def test_nobody_moves_what_somebody_else_moves(self) -> None:
        allocator, index, _ = self.made()
        allocator.hold(index)
        with pytest.raises(AssertionError):
            allocator.hold(index)
