"""The buffers, keys and commands that most benches start from."""

import random
from dataclasses import dataclass, replace

from rtl.config import TableConfig
from tb.model.words import Command, EntryKind, Key, Lookup, Opcode, Rights

ALL_RIGHTS = (
    Rights.LOCAL_WRITE
    | Rights.REMOTE_READ
    | Rights.REMOTE_WRITE
    | Rights.REMOTE_ATOMIC
    | Rights.BIND
)
PAGE_SHIFT = 12
PAGE = 1 << PAGE_SHIFT


@dataclass(frozen=True)
class Buffer:
    """A receive buffer: where it lies, who owns it, and which translations it uses.

    Physical pages are a run that starts at ``frame``.
    """

    key: Key
    pd: int
    base: int
    pages: int
    first_translation: int
    frame: int

    @property
    def length(self) -> int:
        """Bytes."""
        return self.pages * PAGE

    def moved(self, first_translation: int, frame: int) -> "Buffer":
        """The same buffer on other translations and physical pages."""
        return replace(self, first_translation=first_translation, frame=frame)

    def renamed(self, variant: int) -> "Buffer":
        """The same buffer under another variant of its key."""
        return replace(self, key=Key(self.key.index, variant % 256))

    def register(self) -> Command:
        """Registers the buffer and writes its translations."""
        return self._region(Opcode.REGISTER)

    def fast_register(self) -> Command:
        """Registers a key that is free, and writes its translations; from a send queue."""
        return self._region(Opcode.FAST_REGISTER)

    def reregister(self, new: "Buffer") -> Command:
        """Makes the registration that of ``new``, which has the same index."""
        return replace(new._region(Opcode.REREGISTER), variant=new.key.variant)

    def _region(self, opcode: Opcode) -> Command:
        return Command(
            opcode,
            self.key,
            rights=ALL_RIGHTS,
            remote_invalidate=True,
            pd=self.pd,
            base=self.base,
            length=self.length,
            page_shift=PAGE_SHIFT,
            first_translation=self.first_translation,
            translations=self.pages,
            frame=self.frame,
        )

    def local_invalidate(self) -> Command:
        """Invalidates the key, from a send queue."""
        return Command(Opcode.LOCAL_INVALIDATE, self.key, pd=self.pd)

    def remote_invalidate(self) -> Command:
        """Invalidates the key, from a peer."""
        return Command(Opcode.REMOTE_INVALIDATE, self.key, pd=self.pd)

    def deregister(self) -> Command:
        """Gives the index and the translations back."""
        return Command(Opcode.DEREGISTER, self.key)

    def allocate(self) -> Command:
        """Allocates a region at the index, on the translations of the buffer."""
        return replace(self._region(Opcode.ALLOCATE), kind=EntryKind.REGION)

    def window(self, kind: EntryKind) -> Command:
        """Allocates an unbound window at the index."""
        return Command(Opcode.ALLOCATE, self.key, kind=kind, pd=self.pd, remote_invalidate=True)

    def deallocate(self) -> Command:
        """Gives the index of a window back."""
        return Command(Opcode.DEALLOCATE, self.key)

    def bind(self, parent: "Buffer", *, variant: int, first_page: int = 0, qpn: int = 0) -> Command:
        """Binds the window at the index to a part of ``parent`` that is as long as the buffer."""
        return Command(
            Opcode.BIND,
            self.key,
            variant=variant % 256,
            rights=Rights.REMOTE_READ | Rights.REMOTE_WRITE,
            pd=self.pd,
            qpn=qpn,
            base=parent.base + first_page * PAGE,
            length=self.length,
            parent=parent.key,
        )

    def lookup(self, offset: int, length: int, qpn: int = 0) -> Lookup:
        """A remote write of ``length`` bytes, ``offset`` bytes into the buffer."""
        return Lookup(self.key, self.pd, qpn, Rights.REMOTE_WRITE, self.base + offset, length)

    def random_lookup(self, rng: random.Random, pages: int, qpn: int = 0) -> Lookup:
        """A remote write that touches from 1 to ``pages`` pages, somewhere in the buffer."""
        touched = rng.randint(1, min(pages, self.pages))
        first = rng.randrange(self.pages - touched + 1)
        start = rng.randrange(PAGE)
        end = rng.randrange(start if touched == 1 else 0, PAGE) + 1
        return self.lookup(first * PAGE + start, (touched - 1) * PAGE + end - start, qpn)


def shared_buffer(config: TableConfig, *, index: int = 5, pages: int = 8) -> Buffer:
    """The buffer that everybody shares, on the first translations."""
    return Buffer(
        key=Key(index, 0x11),
        pd=0xABCDE1,
        base=0x7F00_1234_5000,
        pages=pages,
        first_translation=0,
        frame=0x10_0000,
    )
