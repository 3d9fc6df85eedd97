"""The entries and commands that the hand-worked cases of the model start from."""

import copy
import dataclasses

from tb.model.table import Table
from tb.model.words import (
    NO_RIGHTS,
    NOBODY,
    Beat,
    Command,
    Entry,
    EntryKind,
    EntryState,
    Key,
    Lookup,
    Opcode,
    Rights,
)
from tb.model.words import CommandStatus as C
from tb.model.words import LookupStatus as L

ALL_RIGHTS = Rights(31)
TOP = 1 << 64


def lookup(
    address: int = 0x1000,
    length: int = 8,
    rights: Rights = NO_RIGHTS,
    *,
    index: int = 1,
    variant: int = 7,
    pd: int = 3,
    qpn: int = 0,
) -> Lookup:
    return Lookup(Key(index, variant), pd, qpn, rights, address, length)


def region(**changes) -> Entry:
    """A valid region of two 4 KiB pages at 0x1000, translated from 10 on."""
    fields: dict = {
        "state": EntryState.VALID,
        "rights": ALL_RIGHTS,
        "variant": 7,
        "pd": 3,
        "base": 0x1000,
        "limit": 0x3000,
        "page_shift": 12,
        "first_translation": 10,
        "translations": 2,
        "parent": 1,
    }
    return Entry(**{**fields, **changes})


def register(index: int = 1, **changes) -> Command:
    """Registers what :func:`region` describes, with frames 0x50 and 0x51."""
    fields: dict = {
        "variant": 7,
        "rights": ALL_RIGHTS,
        "remote_invalidate": True,
        "pd": 3,
        "base": 0x1000,
        "length": 0x2000,
        "first_translation": 10,
        "translations": 2,
        "frame": 0x50,
    }
    return Command(Opcode.REGISTER, Key(index, 7), **{**fields, **changes})


def reregister(**changes) -> Command:
    """Moves it to translations 20 and 21, with frames 0x60 and 0x61, under variant 8."""
    moved = {"variant": 8, "first_translation": 20, "frame": 0x60}
    return dataclasses.replace(register(), opcode=Opcode.REREGISTER, **{**moved, **changes})


def allocate(index: int = 1, **changes) -> Command:
    """Allocates a region on translations 10 and 11, with fields of a registration in it."""
    return dataclasses.replace(register(index, **changes), opcode=Opcode.ALLOCATE)


def fast_register(**changes) -> Command:
    """Registers what :func:`allocate` allocates."""
    return dataclasses.replace(register(**changes), opcode=Opcode.FAST_REGISTER)


def window(kind: EntryKind, index: int = 2, **changes) -> Command:
    """Allocates a window."""
    return allocate(index, kind=kind, **{"qpn": 5, **changes})


def bind(index: int = 2, **changes) -> Command:
    """Binds 0x1800 to 0x2800 of the region."""
    fields: dict = {
        "variant": 9,
        "rights": Rights.REMOTE_READ,
        "pd": 3,
        "qpn": 6,
        "base": 0x1800,
        "length": 0x1000,
        "parent": Key(1, 7),
    }
    return Command(Opcode.BIND, Key(index, 7), **{**fields, **changes})


def invalidate(
    index: int, opcode: Opcode = Opcode.LOCAL_INVALIDATE, variant: int = 7, **changes
) -> Command:
    return Command(opcode, Key(index, variant), **{"pd": 3, **changes})


def of_index(opcode: Opcode, index: int) -> Command:
    return Command(opcode, Key(index))


def a_table(*commands: Command, **choices: bool) -> Table:
    """A table of 8 entries and 64 translations after these commands, all of which succeed."""
    table = Table(8, 64, **choices)
    for command in commands:
        assert table.execute(command).status is C.OK
    return table


def state_of(table: Table) -> tuple:
    return list(table.entries), list(table.translations), list(table.bound_windows)


def assert_fails(table: Table, command: Command, status: C) -> None:
    """The command completes with this status and changes nothing."""
    before = copy.deepcopy(state_of(table))
    completion = table.execute(command)
    assert completion.status is status
    assert completion.entry == (table.entry(command.key.index) or NOBODY)
    assert state_of(table) == before


def failed(status: L) -> tuple[Beat, ...]:
    return (Beat(status, first=True, last=True, address=0, length=0),)


EMPTY_OK = failed(L.OK)


def write(**changes) -> Command:
    fields = {"first_translation": 60, "translations": 3, "frame": 0x10}
    return Command(Opcode.WRITE_TRANSLATION, Key(1), **{**fields, **changes})
