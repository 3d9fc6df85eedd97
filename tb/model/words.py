"""What the reference model is asked, what it holds, and what it answers.

Its enums have the names and the values of those in ``rtl.layouts``, and are written down a
second time on purpose: the model must not inherit a mistake.
"""

import dataclasses
from collections.abc import Mapping
from enum import Enum, IntFlag


class EntryState(Enum):
    """State of an entry."""

    INVALID = 0
    FREE = 1
    VALID = 2


class EntryKind(Enum):
    """What an entry describes."""

    REGION = 0
    WINDOW_1 = 1
    WINDOW_2A = 2
    WINDOW_2B = 3


class Rights(IntFlag):
    """Rights that an entry grants or a lookup asks for; local read is implied."""

    LOCAL_WRITE = 1
    REMOTE_READ = 2
    REMOTE_WRITE = 4
    REMOTE_ATOMIC = 8
    BIND = 16


class LookupStatus(Enum):
    """Status of a beat. The model never answers with the last three: they depend on time."""

    OK = 0
    INDEX_OUT_OF_RANGE = 1
    WRONG_VARIANT = 2
    WRONG_STATE = 3
    WRONG_PD = 4
    WRONG_QPN = 5
    RIGHTS_MISSING = 6
    OUT_OF_BOUNDS = 7
    MISALIGNED = 8
    NO_TRANSLATION = 9
    RETRY = 10
    TAG_IN_USE = 11
    ABORTED = 12


class Opcode(Enum):
    """What a command asks for."""

    REGISTER = 0
    WRITE_TRANSLATION = 1
    LOCAL_INVALIDATE = 2
    REMOTE_INVALIDATE = 3
    BIND = 4
    REREGISTER = 5
    DEREGISTER = 6
    QUERY = 7
    ALLOCATE = 8
    DEALLOCATE = 9
    FAST_REGISTER = 10


class CommandStatus(Enum):
    """Status of a completion. Whatever is not ``OK`` changed nothing."""

    OK = 0
    UNKNOWN_OPCODE = 1
    INDEX_OUT_OF_RANGE = 2
    WRONG_VARIANT = 3
    WRONG_STATE = 4
    WRONG_KIND = 5
    WRONG_PD = 6
    WRONG_QPN = 7
    HEADER_INVALID = 8
    NOT_ENABLED = 9
    ALREADY_FREE = 10
    ALREADY_BOUND = 11
    WINDOWS_BOUND = 12
    BAD_PAGE = 13
    OUT_OF_BOUNDS = 14
    RANGE_IN_USE = 15
    RANGE_NOT_OWNED = 16
    ZERO_LENGTH = 17
    ZERO_BASED = 18
    PARENT_OUT_OF_RANGE = 19
    PARENT_STATE = 20
    PARENT_VARIANT = 21
    PARENT_KIND = 22
    PARENT_PD = 23
    PARENT_ZERO_BASED = 24
    BIND_NOT_ALLOWED = 25
    LOCAL_WRITE_MISSING = 26
    OUTSIDE_PARENT = 27


NO_RIGHTS = Rights(0)


@dataclasses.dataclass(frozen=True)
class Key:
    """A key: ``index`` selects the entry, ``variant`` is the consumer's."""

    index: int = 0
    variant: int = 0


@dataclasses.dataclass(frozen=True)
class Lookup:
    """A lookup: who asks (``pd``, ``qpn``), for what (``rights``), and where."""

    key: Key
    pd: int
    qpn: int
    rights: Rights
    address: int
    length: int
    tag: int = 0


@dataclasses.dataclass(frozen=True)
class Beat:
    """One page segment of an answer: ``length`` bytes from physical ``address`` on."""

    status: LookupStatus
    first: bool
    last: bool
    address: int = 0
    length: int = 0


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry. ``limit`` is the first address behind it; ``parent`` is a window's region.

    The base of a ``zero_based`` one is 0: an address in it counts from its first byte. A region
    owns ``translations`` from ``first_translation`` on, and uses as many of them as it has pages.

    Without arguments it is the entry of nobody: INVALID, and zero all over.
    """

    state: EntryState = EntryState.INVALID
    kind: EntryKind = EntryKind.REGION
    rights: Rights = NO_RIGHTS
    remote_invalidate: bool = False
    zero_based: bool = False
    variant: int = 0
    pd: int = 0
    qpn: int = 0
    base: int = 0
    limit: int = 0
    page_shift: int = 0
    offset: int = 0
    first_translation: int = 0
    translations: int = 0
    parent: int = 0

    @property
    def is_window(self) -> bool:
        """Whether it is a window of any type."""
        return self.kind is not EntryKind.REGION

    @property
    def is_bound(self) -> bool:
        """Whether it is a window that its region counts."""
        return self.is_window and self.state is EntryState.VALID and self.base != self.limit

    @property
    def pages(self) -> int:
        """Pages that it touches; none if it has no bytes."""
        if self.base == self.limit:
            return 0
        last = self.limit - self.base + self.offset - 1
        return (last >> self.page_shift) + 1

    @property
    def span(self) -> range:
        """Indices of the translations that it uses."""
        return range(self.first_translation, self.first_translation + self.pages)

    @property
    def owned(self) -> range:
        """Indices of the translations that it owns."""
        return range(self.first_translation, self.first_translation + self.translations)

    def position(self, address: int) -> int:
        """Where ``address`` is, in bytes from the start of the first page."""
        return address - self.base + self.offset


NOBODY = Entry()


@dataclasses.dataclass(frozen=True)
class Command:
    """A command. Which fields count depends on the opcode.

    ``opcode`` may be a number that is no :class:`Opcode`.
    """

    opcode: Opcode | int
    key: Key
    variant: int = 0
    kind: EntryKind = EntryKind.REGION
    rights: Rights = NO_RIGHTS
    remote_invalidate: bool = False
    zero_based: bool = False
    header_valid: bool = True
    pd: int = 0
    qpn: int = 0
    base: int = 0
    length: int = 0
    page_shift: int = 12
    offset: int = 0
    first_translation: int = 0
    translations: int = 0
    frame: int = 0
    parent: Key = Key()


_RUN = frozenset({"first_translation", "translations", "frame", "page_shift"})
_REGION = _RUN | {
    "rights",
    "remote_invalidate",
    "zero_based",
    "pd",
    "qpn",
    "base",
    "length",
    "offset",
}

COUNTS: Mapping[Opcode, frozenset[str]] = {
    Opcode.REGISTER: _REGION,
    Opcode.FAST_REGISTER: _REGION,
    Opcode.ALLOCATE: frozenset(
        {"kind", "remote_invalidate", "pd", "qpn", "first_translation", "translations"}
    ),
    Opcode.DEALLOCATE: frozenset(),
    Opcode.WRITE_TRANSLATION: _RUN,
    Opcode.LOCAL_INVALIDATE: frozenset({"pd"}),
    Opcode.REMOTE_INVALIDATE: frozenset({"pd", "qpn", "header_valid"}),
    Opcode.BIND: frozenset(
        {"variant", "rights", "zero_based", "pd", "qpn", "base", "length", "parent"}
    ),
    Opcode.REREGISTER: _REGION | {"variant"},
    Opcode.DEREGISTER: frozenset(),
    Opcode.QUERY: frozenset(),
}
"""The fields that may count for an opcode, besides the opcode and the key.

Some of them only sometimes: ``qpn`` of a window of type 2B, ``frame`` if translations are written.
"""

VARIANT_COUNTS = frozenset(
    {
        Opcode.REGISTER,
        Opcode.FAST_REGISTER,
        Opcode.ALLOCATE,
        Opcode.LOCAL_INVALIDATE,
        Opcode.REMOTE_INVALIDATE,
        Opcode.BIND,
    }
)
"""The opcodes for which the variant of the key counts. The others go by its index alone."""


def what_counts(command: Command) -> Command:
    """The same command with nothing in the fields that never count for its opcode."""
    counts = COUNTS[command.opcode] if isinstance(command.opcode, Opcode) else frozenset()
    key = command.key if command.opcode in VARIANT_COUNTS else Key(command.key.index)
    fields = {name: getattr(command, name) for name in counts}
    return Command(command.opcode, key, **fields)


@dataclasses.dataclass(frozen=True)
class Completion:
    """What became of a command, and the entry as it now stands."""

    status: CommandStatus
    entry: Entry
