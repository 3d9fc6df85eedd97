"""A host that keeps to the rules without seeing what becomes of its commands."""

from dataclasses import dataclass, field

from rtl.config import TableConfig
from tb.model.allocator import Pool
from tb.model.configured import table_of
from tb.model.words import Command, Entry, EntryKind, EntryState, Lookup, what_counts
from tb.programs.program import Accepts, Ask, Dma, Order, Program, Step, Until, Wait


@dataclass
class Holding:
    """An index that belongs to somebody.

    Parameters
    ----------
    kind : EntryKind
    runs : list of range
        Translations that it may own: a move that may have failed leaves it both ranges.
    source : int, optional
        Who alone may move or end it, as commands of this source that do may be on their way.
    parents : set of int
        Of a window: regions that it may be bound to.
    doubted : bool
        It may be gone already: a deregistration is on its way, or was, that may have failed.
    """

    kind: EntryKind
    runs: list[range] = field(default_factory=list)
    source: int | None = None
    parents: set[int] = field(default_factory=set)
    doubted: bool = False

    @property
    def is_region(self) -> bool:
        """Whether it is a region."""
        return self.kind is EntryKind.REGION


class Shared:
    """Numbers to give out. What one source has given up, it alone gets until that is known to be
    complete: its own next command comes after C, anybody else's might come before.

    Parameters
    ----------
    numbers : range
    """

    def __init__(self, numbers: range):
        self._everybody = Pool(numbers)
        self._known_to: dict[int, Pool] = {}

    def take(self, source: int, count: int = 1) -> range | None:
        """A run of numbers for a command of this source; ``None`` if there is none."""
        own = self._known_to.get(source)
        return (own and own.take(count)) or self._everybody.take(count)

    def give_back(self, source: int, run: range) -> None:
        """A command of this source gives the run up, and succeeds for certain."""
        self._known_to.setdefault(source, Pool(range(0))).give_back(run)

    def settle(self, source: int) -> None:
        """All commands of this source are complete."""
        for run in self._known_to.pop(source, Pool(range(0))).take_all():
            self._everybody.give_back(run)


@dataclass(frozen=True)
class _Bind:
    """A bind that may not be complete."""

    source: int
    window: int
    region: int


class Host:
    """Gives out indices and translations for commands whose outcome it doesn't learn.

    A program is written before it is played, and what a command comes to may depend on a race. So
    the host counts on what is certain: whatever may be somebody's is given to nobody else, and is
    only free after a command that can't fail, once that is complete. Everything it doesn't decide
    may be as wrong as one likes.

    Parameters
    ----------
    config : TableConfig
    indices, translations : range
        What it gives out.

    Members
    -------
    config : TableConfig
    holdings : dict of int to Holding
        By index.
    table : Table
        What would be there if each command were done at once: a guess, for whoever wants a command
        to succeed or a lookup to be answered.
    past : dict of int to list of Entry
        By index, what the guess was, the latest first; what has ended, too.
    """

    def __init__(self, config: TableConfig, indices: range, translations: range):
        self.config = config
        self._indices = Shared(indices)
        self._translations = Shared(translations)
        self._ending: dict[int, int] = {}
        self._binds: list[_Bind] = []
        self._unbound: list[tuple[int, set[int]]] = []
        self._frame = 0
        self._steps: list[Step] = []
        self.holdings: dict[int, Holding] = {}
        self.table = table_of(config)
        self.past: dict[int, list[Entry]] = {}

    @property
    def program(self) -> Program:
        """All that it has been told to do, in order."""
        return Program(tuple(self._steps))

    # Steps

    def order(self, source: int, command: Command) -> None:
        """A source gives a command, with nothing in it that doesn't count."""
        command = what_counts(command)
        self._steps.append(Order(source, command))
        index = command.key.index
        before = self.table.entry(index)
        entry = self.table.execute(command).entry
        if entry != before and entry.state is not EntryState.INVALID:
            self.past.setdefault(index, []).insert(0, entry)

    def ask(self, port: int, lookup: Lookup, *, chooses_tag: bool = False) -> None:
        """A port asks for a lookup."""
        self._steps.append(Ask(port, lookup, chooses_tag))

    def pace(self, step: Accepts | Dma) -> None:
        """A port or a source takes its time from now on."""
        self._steps.append(step)

    def wait(self, step: Wait | Until) -> None:
        """Time goes by; the commands that are waited for are known to be complete."""
        self._steps.append(step)
        if isinstance(step, Until) and step.side != "port":
            everybody = range(self.config.sources)
            for source in everybody if step.side is None else [step.number]:
                self._settle(source)

    def _settle(self, source: int) -> None:
        self._indices.settle(source)
        self._translations.settle(source)
        self._ending = {index: s for index, s in self._ending.items() if s != source}
        self._binds = [bind for bind in self._binds if bind.source != source]
        self._unbound = [(s, regions) for s, regions in self._unbound if s != source]
        for holding in self.holdings.values():
            if holding.source == source:
                holding.source = None

    # Who has what

    def new_frame(self) -> int:
        """Page frames that nobody had before, so that no answer passes for another."""
        self._frame += 0x100
        return self._frame

    def take_index(self, source: int) -> int | None:
        """An index that is INVALID when the next command of this source comes, if there is one."""
        run = self._indices.take(source)
        return None if run is None else run.start

    def leave_index(self, source: int, index: int) -> None:
        """The commands of this source have left the index INVALID."""
        self._indices.give_back(source, range(index, index + 1))

    def take_translations(self, source: int, count: int) -> range | None:
        """Translations for a command of this source, if there are so many."""
        return self._translations.take(source, count)

    def leave_translations(self, source: int, run: range) -> None:
        """The next command of this source may have them for something else."""
        self._translations.give_back(source, run)

    def hold(self, source: int, index: int, holding: Holding) -> None:
        """A command of this source makes something at the index, for certain."""
        holding.source = source
        # Binds that are late find a window again.
        holding.parents |= {
            bind.region for bind in self._binds if bind.window == index and bind.source != source
        }
        self.holdings[index] = holding

    def movable(self, source: int) -> list[int]:
        """Indices of what this source may move or end: no other one is doing so."""
        return [i for i, holding in self.holdings.items() if holding.source in (None, source)]

    def may_bind_to(self, index: int) -> bool:
        """Whether a bind to the index can't make an end fail that is certain to succeed."""
        return index not in self._ending

    def bind(self, source: int, window: int, region: int) -> None:
        """A command of this source may bind the window to the region."""
        assert self.may_bind_to(region)
        self._binds.append(_Bind(source, window, region))
        if window in self.holdings:
            self.holdings[window].parents.add(region)

    def end(self, source: int, index: int) -> None:
        """A command of this source ends what is at the index, if no window is bound to it."""
        holding = self.holdings[index]
        holding.source = source
        if self._may_be_bound(source, index):
            holding.doubted = True
            return
        del self.holdings[index]
        self._ending[index] = source
        self._unbound.append((source, holding.parents))
        for run in holding.runs:
            self.leave_translations(source, run)
        self.leave_index(source, index)

    def _may_be_bound(self, source: int, region: int) -> bool:
        """Whether a window may be bound to the region when the next command of a source comes."""
        return any(region in holding.parents for holding in self.holdings.values()) or any(
            region in regions for other, regions in self._unbound if other != source
        )
