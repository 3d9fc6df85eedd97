"""The host's side of the rules: who gives out indices and translations, and when they come back."""

from collections.abc import Iterable

from tb.model.words import Command, CommandStatus, Completion, Opcode

_MAKES = (Opcode.ALLOCATE, Opcode.REGISTER)
_ENDS = (Opcode.DEREGISTER, Opcode.DEALLOCATE)

STRUCTURAL = frozenset({*_MAKES, Opcode.REREGISTER, *_ENDS})
"""They make, move or end an entry: of the host alone, one at a time on each index."""


class Pool:
    """Numbers to give out in runs. What came back last goes out first, as soon as it is asked for.

    Parameters
    ----------
    numbers : range
    """

    def __init__(self, numbers: range):
        self._free = [numbers]

    @property
    def free(self) -> int:
        """How many numbers nobody has."""
        return sum(map(len, self._free))

    def take(self, count: int) -> range | None:
        """Some of the run that came back last and is long enough; ``None`` if there is none."""
        for place in reversed(range(len(self._free))):
            run = self._free[place]
            if len(run) >= count:
                self._free[place : place + 1] = [run[count:]] if len(run) > count else []
                return run[:count]
        if self._join():
            return self.take(count)
        return None

    def give_back(self, run: range) -> None:
        """The run can be given out again."""
        assert not any(set(run) & set(other) for other in self._free), f"{run} is free already"
        if run:
            self._free.append(run)

    def take_all(self) -> list[range]:
        """All that nobody has, what came back last at the end."""
        everything, self._free = self._free, []
        return everything

    def _join(self) -> bool:
        """Makes one run of those that touch; says whether there were any."""
        joined: list[range] = []
        for run in sorted(self._free, key=lambda run: run.start):
            if joined and joined[-1].stop == run.start:
                joined[-1] = range(joined[-1].start, run.stop)
            else:
                joined.append(run)
        changed = len(joined) != len(self._free)
        self._free = joined
        return changed


class Allocator:
    """Gives out indices and translations, and hands out nothing again before C.

    It learns of each command when its completion is taken, and only then takes back what the
    command has given up; that goes to the next who asks. Whoever makes, moves or ends an entry has
    it for itself until that command is complete: other commands of this kind on the same index
    would act on what they don't know.

    Parameters
    ----------
    indices : iterable of int
    translations : range

    Members
    -------
    owned : dict of int to range
        By index, the translations of what has been made; an empty range for a window.
    """

    def __init__(self, indices: Iterable[int], translations: range):
        self._indices = list(indices)
        self._translations = Pool(translations)
        self._busy: set[int] = set()
        self._taken: dict[int, range] = {}
        self.owned: dict[int, range] = {}

    @property
    def idle(self) -> list[int]:
        """Indices of what has been made, and is not being moved or ended."""
        return [index for index in self.owned if index not in self._busy]

    def take_index(self) -> int | None:
        """An index for something new; ``None`` if there is none."""
        if not self._indices:
            return None
        index = self._indices.pop()
        self._busy.add(index)
        return index

    def take_translations(self, index: int, count: int) -> range | None:
        """So many translations for what is about to be at the index; ``None`` if there are none."""
        assert index in self._busy
        run = self._translations.take(count)
        if run is not None:
            self._taken[index] = run
        return run

    def let_go(self, index: int) -> None:
        """Nothing is done with the index, and what was taken for it isn't needed."""
        self._translations.give_back(self._taken.pop(index, range(0)))
        self._busy.discard(index)
        if index not in self.owned:
            self._indices.append(index)

    def hold(self, index: int) -> None:
        """Somebody is about to move or end what is at the index."""
        assert index in self.idle
        self._busy.add(index)

    def completed(self, command: Command, completion: Completion) -> None:
        """The completion of a command that makes, moves or ends has been taken: this is its C."""
        index, opcode = command.key.index, Opcode(command.opcode)
        if completion.status is CommandStatus.OK:
            taken = self._taken.pop(index, None)
            if opcode in _ENDS:
                self._translations.give_back(self.owned.pop(index))
            elif opcode in _MAKES:
                self.owned[index] = range(0) if taken is None else taken
            elif taken is not None:
                self._translations.give_back(self.owned[index])
                self.owned[index] = taken
        self.let_go(index)
