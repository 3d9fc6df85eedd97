"""The scoreboard by itself: what it explains, what it counts, and what it refuses."""

from dataclasses import dataclass, field, replace

import pytest

from tb.agents.packing import Packer
from tb.model.scoreboard import Scoreboard, Unexplained
from tb.model.table import Table
from tb.model.words import (
    Beat,
    Command,
    CommandStatus,
    Completion,
    Key,
    Lookup,
    LookupStatus,
    Opcode,
    Rights,
)

KEY = Key(3, 0x10)
OLD, NEW = 0x100, 0x200
"""Page frames of the two owners."""


@dataclass(eq=False)
class SeenLookup:
    """A lookup as agents would report it."""

    lookup: Lookup
    admitted: int | None
    beats: list[tuple[int, Beat]] = field(default_factory=list)
    port: int = 0


@dataclass(eq=False)
class SeenCommand:
    """A command as agents would report it."""

    command: Command
    accepted: int | None = None
    applied: int | None = None
    completed: int | None = None
    completion: Completion | None = None
    source: int = 0


class Play:
    """Tells a scoreboard what happened, cycle by cycle."""

    def __init__(self, *, replays: bool = False) -> None:
        self.scoreboard = Scoreboard(lambda: Table(16, 16), replays=replays)

    def command(
        self,
        command: Command,
        cycles: tuple[int, int | None, int],
        status: CommandStatus = CommandStatus.OK,
    ) -> None:
        """A command that is accepted, applied and completed in these cycles."""
        seen = self.begin(command, cycles[0])
        if cycles[1] is not None:
            self.apply(seen, cycles[1])
        self.end(seen, cycles[2], status)

    def begin(self, command: Command, cycle: int) -> SeenCommand:
        """A command is accepted."""
        seen = SeenCommand(command, cycle)
        self.scoreboard.accepted(seen)
        return seen

    def apply(self, seen: SeenCommand, cycle: int) -> None:
        """Its A."""
        seen.applied = cycle
        self.scoreboard.applied(seen)

    def end(self, seen: SeenCommand, cycle: int, status: CommandStatus = CommandStatus.OK) -> None:
        """Its C."""
        entry = self.scoreboard.table.entries[seen.command.key.index]
        seen.completed, seen.completion = cycle, Completion(status, entry)
        self.scoreboard.completed(seen)

    def lookup(self, admitted: int, *beats: tuple[int, Beat], lookup: Lookup | None = None) -> None:
        """A lookup that was admitted and answered in these cycles."""
        seen = SeenLookup(lookup or LOOKUP, admitted)
        self.scoreboard.admitted(seen)
        seen.beats.extend(beats)
        self.scoreboard.answered(seen)


def register(frame: int) -> Command:
    """Registers two pages."""
    return Command(
        Opcode.REGISTER,
        KEY,
        rights=Rights.REMOTE_WRITE,
        pd=7,
        base=0x10000,
        length=0x2000,
        translations=2,
        frame=frame,
    )


LOOKUP = Lookup(KEY, 7, 0, Rights.REMOTE_WRITE, 0x10000, 0x2000)
DEREGISTER = Command(Opcode.DEREGISTER, KEY)


def page(frame: int, number: int) -> Beat:
    """The right beat of one of the two pages."""
    address = frame + number << 12
    return Beat(LookupStatus.OK, number == 0, number == 1, address, 0x1000)


def failure(status: LookupStatus, *, first: bool = True) -> Beat:
    """A beat that ends a lookup."""
    return Beat(status, first=first, last=True)


@pytest.fixture
def play() -> Play:
    """The buffer is registered; version since cycle 10."""
    play = Play()
    play.command(register(OLD), (5, 10, 12))
    return play


def test_a_right_answer(play: Play):
    """One version explains all beats."""
    play.lookup(11, (14, page(OLD, 0)), (15, page(OLD, 1)))
    play.scoreboard.finish()
    assert play.scoreboard.tally.by_status == {LookupStatus.OK: 1}
    assert play.scoreboard.tally.torn == play.scoreboard.tally.stale == []


def test_the_cycle_of_the_apply_is_the_old_versions(play: Play):
    """A lookup admitted in the cycle of A saw the entry before it; one cycle later, it did not."""
    play.command(DEREGISTER, (15, 20, 30))
    play.lookup(20, (23, page(OLD, 0)), (24, page(OLD, 1)))
    with pytest.raises(Unexplained):
        play.lookup(21, (24, page(OLD, 0)), (25, page(OLD, 1)))


def test_a_stale_answer(play: Play):
    """A beat of the old version after C is counted; one in the cycle of C is not."""
    play.command(DEREGISTER, (15, 20, 30))
    play.lookup(20, (29, page(OLD, 0)), (30, page(OLD, 1)))
    assert play.scoreboard.tally.stale == []
    play.lookup(20, (30, page(OLD, 0)), (31, page(OLD, 1)))
    assert [cycle for cycle, _ in play.scoreboard.tally.stale] == [31]


def test_a_torn_answer(play: Play):
    """Pages of two owners in one answer are explained by a mixture, and counted."""
    play.command(DEREGISTER, (15, 20, 30))
    play.command(register(NEW), (31, 40, 42))
    play.lookup(20, (35, page(OLD, 0)), (45, page(NEW, 1)))
    assert [cycle for cycle, _ in play.scoreboard.tally.torn] == [45]


def test_a_page_that_is_taken_away(play: Play):
    """It is judged when the command that may have done it is complete."""
    change = play.begin(DEREGISTER, 15)
    play.apply(change, 20)
    play.lookup(19, (22, page(OLD, 0)), (23, failure(LookupStatus.NO_TRANSLATION, first=False)))
    assert play.scoreboard.tally.torn == []
    play.end(change, 30)
    assert len(play.scoreboard.tally.torn) == 1


def test_what_nothing_explains(play: Play):
    """The message has the lookup, what it got, and what each version would have said."""
    play.command(DEREGISTER, (15, 20, 30))
    with pytest.raises(Unexplained) as caught:
        play.lookup(19, (22, page(OLD + 1, 0)), (23, page(OLD + 1, 1)))
    text = str(caught.value)
    assert "version since cycle 10 (VALID" in text
    assert "version since cycle 20 (INVALID" in text
    assert "WRONG_VARIANT" in text
    assert "admitted in cycle 19" in text


@pytest.mark.parametrize(
    "beats",
    [
        [(14, page(OLD, 0))],
        [(14, page(OLD, 1))],
        [(14, replace(page(OLD, 0), last=True))],
        [(14, page(OLD, 0)), (15, replace(page(OLD, 1), length=0xFFF))],
        [(14, failure(LookupStatus.WRONG_PD))],
        [(14, failure(LookupStatus.ABORTED))],
        [(14, failure(LookupStatus.RETRY))],
    ],
)
def test_wrong_answers(play: Play, beats: list[tuple[int, Beat]]):
    """Too short, the wrong page, the wrong length, the wrong status."""
    with pytest.raises(Unexplained):
        play.lookup(11, *beats)


def test_a_refusal_needs_a_change(play: Play):
    """RETRY is right while a change is in progress."""
    change = play.begin(DEREGISTER, 15)
    play.lookup(16, (19, failure(LookupStatus.RETRY)))
    play.apply(change, 20)
    play.end(change, 30)


ABORT = failure(LookupStatus.ABORTED, first=False)


@pytest.fixture
def changed(play: Play) -> Play:
    """The buffer is moved in cycle 20, and the old one is over in cycle 25."""
    move = replace(register(NEW), opcode=Opcode.REREGISTER, first_translation=8, variant=0x10)
    play.command(move, (15, 20, 25))
    return play


def test_an_aborted_lookup(changed: Play):
    """It may end at any beat after a change, and is neither torn nor stale."""
    changed.lookup(20, (23, failure(LookupStatus.ABORTED)))
    changed.lookup(19, (20, page(OLD, 0)), (21, ABORT))
    assert changed.scoreboard.tally.by_status == {LookupStatus.ABORTED: 2}
    assert changed.scoreboard.tally.torn == changed.scoreboard.tally.stale == []


def test_an_aborted_lookup_is_stale(changed: Play):
    """Its beats are judged like any others."""
    changed.lookup(19, (26, page(OLD, 0)), (27, ABORT))
    assert [cycle for cycle, _ in changed.scoreboard.tally.stale] == [26]


@pytest.mark.parametrize(
    ("admitted", "beats"),
    [
        (21, [(24, failure(LookupStatus.ABORTED))]),
        (17, [(20, failure(LookupStatus.ABORTED))]),
        (20, [(23, page(NEW, 0)), (24, ABORT)]),
        (20, [(23, replace(page(OLD, 0), last=True)), (24, ABORT)]),
        (20, [(23, page(OLD, 0)), (24, replace(page(OLD, 1), last=False)), (25, ABORT)]),
        (20, [(23, page(OLD, 0)), (24, replace(ABORT, length=1))]),
    ],
    ids=["admitted-after", "aborted-before", "other-page", "twice-last", "too-late", "has-bytes"],
)
def test_what_is_not_aborted(changed: Play, admitted: int, beats: list[tuple[int, Beat]]):
    """Without a change, after a wrong beat, after the last beat, with bytes."""
    with pytest.raises(Unexplained):
        changed.lookup(admitted, *beats)


@pytest.mark.parametrize(("first", "explained"), [(23, False), (24, True)])
@pytest.mark.parametrize("replays", [False, True])
def test_a_newer_answer(replays: bool, first: int, explained: bool):
    """A replayed lookup may get the new entry, if there was time to read it."""
    play = Play(replays=replays)
    play.command(register(OLD), (5, 10, 12))
    move = replace(register(NEW), opcode=Opcode.REREGISTER, first_translation=8, variant=0x10)
    play.command(move, (15, 20, 25))
    beats = (first, page(NEW, 0)), (first + 1, page(NEW, 1))
    if replays and explained:
        play.lookup(20, *beats)
    else:
        with pytest.raises(Unexplained):
            play.lookup(20, *beats)


def test_a_command_that_should_fail(play: Play):
    """What is applied must be legal."""
    with pytest.raises(Unexplained, match="should fail with WRONG_STATE"):
        play.command(register(NEW), (15, 20, 22))


def test_a_wrong_status(play: Play):
    """A failure must be the right one."""
    with pytest.raises(Unexplained, match="should with WRONG_STATE"):
        play.command(register(NEW), (15, None, 22), CommandStatus.WRONG_PD)


def test_a_status_that_was_right_for_a_while(play: Play):
    """The engine may have checked at any time between acceptance and completion."""
    late = play.begin(register(NEW), 13)
    play.command(DEREGISTER, (15, 20, 22))
    play.end(late, 25, CommandStatus.WRONG_STATE)


def test_a_command_that_never_completes(play: Play):
    """Nothing may be left at the end."""
    play.begin(DEREGISTER, 15)
    with pytest.raises(Unexplained, match="never completed"):
        play.scoreboard.finish()


def test_words_are_checked_before_they_are_cut():
    """A value that doesn't fit its field is refused."""
    from amaranth.lib import data

    inner = data.StructLayout({"low": 3, "none": 0, "high": 5})
    packer = Packer(data.StructLayout({"a": 4, "b": inner}))
    assert packer.pack({"a": 9, "b.high": 17, "b.low": 2}) == 9 | 2 << 4 | 17 << 7
    assert packer.unpack(9 | 2 << 4 | 17 << 7) == {"a": 9, "b.low": 2, "b.none": 0, "b.high": 17}
    with pytest.raises(ValueError, match="a must be from 0 to 15, not 16"):
        packer.pack({"a": 16})
