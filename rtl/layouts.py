"""The words on the streams and in the tables: one enum or layout each, for every module.

Layouts list their fields from the least significant bit up.
"""

from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data, enum, stream

from rtl.config import TableConfig


class EntryState(enum.Enum, shape=2):
    """State of an MPT entry."""

    INVALID = 0
    """Belongs to nobody."""
    FREE = 1
    """Allocated, not usable."""
    VALID = 2


class EntryKind(enum.Enum, shape=2):
    """What an MPT entry describes."""

    REGION = 0
    WINDOW_1 = 1
    """Type 1 window: bound while VALID, of length 0 while unbound."""
    WINDOW_2A = 2
    """Type 2A window: bound while FREE, belongs to its PD."""
    WINDOW_2B = 3
    """Type 2B window: bound while FREE, belongs to one queue pair."""


class Rights(enum.Flag, shape=5):
    """Rights that an entry grants or a lookup asks for; local read is implied."""

    LOCAL_WRITE = 1
    REMOTE_READ = 2
    REMOTE_WRITE = 4
    REMOTE_ATOMIC = 8
    BIND = 16


def any_right(rights: enum.FlagView, wanted: enum.FlagView | Rights) -> Value:
    """High if ``rights`` has one of the ``wanted`` ones."""
    return Value.cast(rights & wanted).any()


class LookupStatus(enum.Enum, shape=4):
    """Status of a beat. From ``INDEX_OUT_OF_RANGE`` on in the order of the check."""

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
    """Refused because the entry is about to change: try again."""
    TAG_IN_USE = 11
    """Refused because a lookup with this tag is in flight on this port."""
    ABORTED = 12
    """Was admitted, and ended by a change of its entry."""


class Opcode(enum.Enum, shape=4):
    """What a command asks for."""

    REGISTER = 0
    """A region from INVALID to VALID; optionally writes translations."""
    WRITE_TRANSLATION = 1
    """Writes a run of translations for the next registration of an entry."""
    LOCAL_INVALIDATE = 2
    REMOTE_INVALIDATE = 3
    BIND = 4
    REREGISTER = 5
    DEREGISTER = 6
    """A region to INVALID."""
    QUERY = 7
    ALLOCATE = 8
    """INVALID to FREE (windows of type 1: to VALID); a region gets its translations."""
    DEALLOCATE = 9
    """A window to INVALID."""
    FAST_REGISTER = 10
    """A region from FREE to VALID, on the translations that it owns."""


class CommandStatus(enum.Enum, shape=5):
    """Status of a completion. Whatever is not ``OK`` changed nothing."""

    OK = 0
    UNKNOWN_OPCODE = 1
    INDEX_OUT_OF_RANGE = 2
    WRONG_VARIANT = 3
    WRONG_STATE = 4
    WRONG_KIND = 5
    WRONG_PD = 6
    WRONG_QPN = 7
    """Of a window of type 2B."""
    HEADER_INVALID = 8
    """The packet that carried a remote invalidate had an invalid header."""
    NOT_ENABLED = 9
    """The entry doesn't allow remote invalidates."""
    ALREADY_FREE = 10
    """The entry has been invalidated before."""
    ALREADY_BOUND = 11
    """A window of type 2 is bound once, and has to be invalidated before the next time."""
    WINDOWS_BOUND = 12
    BAD_PAGE = 13
    """The page size is not supported, or a page frame or first byte doesn't fit it."""
    OUT_OF_BOUNDS = 14
    """Outside the address space or the translation table."""
    RANGE_IN_USE = 15
    """A re-registration would write the translations that it replaces."""
    RANGE_NOT_OWNED = 16
    """A fast registration would leave the translations that the region owns."""
    ZERO_LENGTH = 17
    """A window of type 2 can't be bound to nothing."""
    ZERO_BASED = 18
    """A window of type 1 can't be zero-based."""
    PARENT_OUT_OF_RANGE = 19
    """From here on about the region that a window is to be bound to."""
    PARENT_STATE = 20
    PARENT_VARIANT = 21
    PARENT_KIND = 22
    PARENT_PD = 23
    PARENT_ZERO_BASED = 24
    BIND_NOT_ALLOWED = 25
    LOCAL_WRITE_MISSING = 26
    """The window would grant remote write or atomic, and its region doesn't grant local write."""
    OUTSIDE_PARENT = 27


def key_layout(config: TableConfig) -> data.StructLayout:
    """A key: ``variant`` is the consumer's, ``index`` selects the entry."""
    return data.StructLayout({"variant": config.variant_width, "index": config.index_width})


def stamp_layout(config: TableConfig) -> data.StructLayout:
    """Ghost that tells translations apart: whose they are, and of which registration."""
    if not config.ghost_version:
        return data.StructLayout({})
    return data.StructLayout({"owner": config.index_bits, "version": config.ghost_width})


def entry_ghost_layout(config: TableConfig) -> data.StructLayout:
    """Ghost of an entry: how often it was applied and registered; its translations' stamp.

    A translation is stamped with its owner's next registration: it belongs to the registration it
    was written for.
    """
    if not config.ghost_version:
        return data.StructLayout({})
    return data.StructLayout(
        {
            "version": config.ghost_width,
            "registrations": config.ghost_width,
            "stamp": stamp_layout(config),
        }
    )


def beat_ghost_layout(config: TableConfig) -> data.StructLayout:
    """Ghost of a beat: its entry's version, the stamp it expects and the one it found."""
    if not config.ghost_version:
        return data.StructLayout({})
    return data.StructLayout(
        {
            "version": config.ghost_width,
            "expected": stamp_layout(config),
            "found": stamp_layout(config),
        }
    )


def entry_layout(config: TableConfig) -> data.StructLayout:
    """An MPT entry.

    ``limit`` is the first address behind the entry, so that it may be ``2 ** address_width``.
    ``offset`` is the place of ``base`` in the first page. ``parent`` is a window's region. The base
    of a zero-based entry is 0. A region owns ``translations`` from ``first_translation`` on, and
    uses as many of them as it has pages; a window owns none.
    """
    return data.StructLayout(
        {
            "state": EntryState,
            "kind": EntryKind,
            "rights": Rights,
            "remote_invalidate": 1,
            "zero_based": 1,
            "variant": config.variant_width,
            "pd": config.pd_width,
            "qpn": config.qpn_width,
            "base": config.address_width,
            "limit": config.address_width + 1,
            "page_shift": range(config.page_shift_max + 1),
            "offset": config.page_shift_max,
            "first_translation": config.translation_bits,
            "translations": config.translation_bits + 1,
            "parent": config.index_bits,
            "ghost": entry_ghost_layout(config),
        }
    )


def translation_layout(config: TableConfig) -> data.StructLayout:
    """An MTT entry. ``frame`` counts in the smallest pages; its place in a larger page is ORed."""
    return data.StructLayout(
        {"present": 1, "frame": config.frame_width, "stamp": stamp_layout(config)}
    )


def lookup_layout(config: TableConfig) -> data.StructLayout:
    """A lookup: who asks (``pd``, ``qpn``), for what (``rights``), and where."""
    return data.StructLayout(
        {
            "tag": config.tag_bits,
            "key": key_layout(config),
            "pd": config.pd_width,
            "qpn": config.qpn_width,
            "rights": Rights,
            "address": config.address_width,
            "length": config.length_width,
        }
    )


def beat_layout(config: TableConfig) -> data.StructLayout:
    """One page segment of an answer: ``length`` bytes from physical ``address`` on."""
    return data.StructLayout(
        {
            "tag": config.tag_bits,
            "status": LookupStatus,
            "first": 1,
            "last": 1,
            "address": config.physical_width,
            "length": config.length_width,
            "ghost": beat_ghost_layout(config),
        }
    )


def command_layout(config: TableConfig) -> data.StructLayout:
    """A command. Which fields count depends on the opcode; ``docs/interfaces.md`` has the table."""
    return data.StructLayout(
        {
            "opcode": Opcode,
            "key": key_layout(config),
            "variant": config.variant_width,
            "kind": EntryKind,
            "rights": Rights,
            "remote_invalidate": 1,
            "zero_based": 1,
            "header_valid": 1,
            "pd": config.pd_width,
            "qpn": config.qpn_width,
            "base": config.address_width,
            "length": config.address_width + 1,
            "page_shift": range(config.page_shift_max + 1),
            "offset": config.page_shift_max,
            "first_translation": config.translation_bits,
            "translations": config.translation_bits + 1,
            "frame": config.frame_width,
            "parent": key_layout(config),
        }
    )


def completion_layout(config: TableConfig) -> data.StructLayout:
    """What became of a command, and the entry as it now stands."""
    return data.StructLayout({"status": CommandStatus, "entry": entry_layout(config)})


def lookup_signature(config: TableConfig) -> stream.Signature:
    """Stream of lookups into one port."""
    return stream.Signature(lookup_layout(config))


def beat_signature(config: TableConfig) -> stream.Signature:
    """Stream of beats out of one port."""
    return stream.Signature(beat_layout(config))


def tag_signature(config: TableConfig) -> stream.Signature:
    """Stream of tags that the DMA engine of one port returns."""
    return stream.Signature(config.tag_bits)


def command_signature(config: TableConfig) -> stream.Signature:
    """Stream of commands from one source."""
    return stream.Signature(command_layout(config))


def completion_signature(config: TableConfig) -> stream.Signature:
    """Stream of completions to one source."""
    return stream.Signature(completion_layout(config))


def is_unpaged(config: TableConfig, entry: Any) -> Value:
    """An entry that can be used has bytes, and pages of a size that there is not."""
    return (
        (entry.state == EntryState.VALID)
        & (entry.base != entry.limit)
        & (entry.page_shift < config.page_shift_min)
    )
