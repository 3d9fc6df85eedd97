"""What can be chosen about the table, and what follows from the choice."""

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self


class RetireScope(StrEnum):
    """When a lookup that got an OK beat gives its slot back."""

    LOOKUP = "lookup"
    """When its last beat is accepted."""
    DMA = "dma"
    """When the DMA engine returns its tag."""


class FenceSpan(StrEnum):
    """Which lookups a fence holds back."""

    ENTRY = "entry"
    """Those of the entry that is about to change."""
    ALL = "all"
    """All of them."""


class OnPending(StrEnum):
    """What happens to a lookup that meets a change which is waiting to be applied."""

    STALL = "stall"
    """It waits on its port, and everything behind it too."""
    REFUSE = "refuse"
    """It gets a ``RETRY`` beat, and its requester tries again."""


class StepOrder(StrEnum):
    """What a deregistration takes away first."""

    ENTRY_FIRST = "entry_first"
    TRANSLATIONS_FIRST = "translations_first"
    """Exists to show what it breaks."""


class ZeroLength(StrEnum):
    """What a remote read or write of no bytes is told."""

    BYPASS = "bypass"
    """That it is fine, whatever its key is."""
    CHECK = "check"
    """What any other lookup is told."""


class SecondInvalidate(StrEnum):
    """How an invalidate of an entry completes that has been invalidated before."""

    ERROR = "error"
    """It fails."""
    SUCCESS = "success"
    """It succeeds, and changes nothing."""


class OnWrap(StrEnum):
    """What a version check does when the versions of an entry begin again."""

    IGNORE = "ignore"
    """Nothing: an old lookup is then taken for a new one."""
    WAIT = "wait"
    """The change waits until no lookup in flight has the version that comes next."""


class ReadStructure(StrEnum):
    """How the ports share the tables."""

    REPLICATED = "replicated"
    """Each port has its own pipeline and its own copy of both tables."""
    SERIALIZED = "serialized"
    """All ports share one pipeline and one copy."""


class RecencyMerge(StrEnum):
    """What happens when several ports touch one set in one cycle."""

    FOLD = "fold"
    """All touches are applied, in port order."""


class ConfigError(ValueError):
    """A parameter has a value that is not allowed.

    Parameters
    ----------
    parameter : str
        Name of the parameter.
    allowed : str
        What is allowed, so that "must be ``allowed``" reads well.
    value : object
        What was given.
    """

    def __init__(self, parameter: str, allowed: str, value: object):
        super().__init__(f"{parameter} must be {allowed}, not {value}")
        self.parameter = parameter
        self.allowed = allowed
        self.value = value


PRESETS: Mapping[str, Mapping[str, int]] = {
    "tiny": {"ports": 2, "entries": 16, "translations": 64, "ways": 2, "tags": 4},
    "default": {},
    "nic": {"ports": 8, "entries": 4096, "translations": 32768, "ways": 8, "tags": 64},
}
"""Configurations with a name, each as what it changes of the defaults."""


def _is_power_of_2(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableConfig:
    """Everything that is fixed when the table is elaborated.

    Parameters
    ----------
    ports : int
        Lookup requester interfaces, 1 to 16.
    entries : int
        MPT entries: a power of 2, at least 4, at most ``2 ** index_width``.
    translations : int
        MTT entries: a power of 2, at least 4.
    ways : int
        Entries of one recency set: a power of 2 from 2 to ``entries / 2``.
    tags : int
        Lookups that one port may have in flight: a power of 2 from 2 to 256.
    sources : int
        Command sources: 1 to 3 (host, send queue, responder).
    arbiter : str
        A name in :data:`rtl.arbiter.POLICIES`, or ``path/to/file.py:ClassName``, see
        :mod:`rtl.arbiter.own`.
    version_bits : int
        Bits of the version that a version check compares, 1 to 16.
    span, on_wrap, scope, on_pending, zero_length, second_invalidate, step_order, recency_merge, \
    read_structure
        See the classes of these names.
    recency : str
        A name in :data:`rtl.recency.POLICIES`.
    ghost_version : bool
        Entries, translations and beats carry the version they come from, and the monitor is
        built. Without it the table answers the same and can't be watched.
    address_width, length_width, physical_width : int
        Bits of a virtual address, of the length of one lookup, and of a physical address.
    index_width, variant_width, pd_width, qpn_width : int
        Bits of the two parts of a key, of a protection domain and of a queue pair number.
    page_shift_min, page_shift_max : int
        Smallest and largest page, as the logarithm of its size in bytes.
    ghost_width : int
        Bits of one ghost version. Two versions are told apart while fewer than
        ``2 ** (ghost_width - 1)`` applies of one entry lie between them.

    Raises
    ------
    ConfigError
        If a value is not allowed; the message names the parameter, what is allowed, and the value.
    """

    ports: int = 4
    entries: int = 256
    translations: int = 1024
    ways: int = 4
    tags: int = 16
    sources: int = 3
    arbiter: str = "drain_fence"
    span: FenceSpan = FenceSpan.ENTRY
    version_bits: int = 4
    on_wrap: OnWrap = OnWrap.WAIT
    scope: RetireScope = RetireScope.DMA
    on_pending: OnPending = OnPending.STALL
    zero_length: ZeroLength = ZeroLength.BYPASS
    second_invalidate: SecondInvalidate = SecondInvalidate.ERROR
    step_order: StepOrder = StepOrder.ENTRY_FIRST
    recency: str = "lru"
    recency_merge: RecencyMerge = RecencyMerge.FOLD
    read_structure: ReadStructure = ReadStructure.REPLICATED
    ghost_version: bool = True
    address_width: int = 64
    length_width: int = 32
    physical_width: int = 52
    index_width: int = 24
    variant_width: int = 8
    pd_width: int = 24
    qpn_width: int = 24
    page_shift_min: int = 12
    page_shift_max: int = 31
    ghost_width: int = 16

    def __post_init__(self) -> None:
        # Policies are built for a configuration, so their packages import this module.
        from rtl import arbiter, recency

        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.type, type) and not isinstance(value, field.type):
                if issubclass(field.type, StrEnum):
                    raise ConfigError(field.name, f"one of {', '.join(field.type)}", value)
                raise ConfigError(field.name, f"of type {field.type.__name__}", repr(value))

        def within(name: str, low: int, high: int) -> None:
            if not low <= getattr(self, name) <= high:
                raise ConfigError(name, f"from {low} to {high}", getattr(self, name))

        def power_of_2(name: str, low: int, high: int) -> None:
            if not _is_power_of_2(getattr(self, name)) or not low <= getattr(self, name) <= high:
                raise ConfigError(name, f"a power of 2 from {low} to {high}", getattr(self, name))

        within("address_width", 4, 64)
        within("length_width", 2, min(32, self.address_width))
        within("physical_width", 4, 64)
        within("index_width", 2, 24)
        within("variant_width", 1, 8)
        within("pd_width", 1, 24)
        within("qpn_width", 1, 24)
        widest_page = min(self.address_width, self.physical_width) - 1
        within("page_shift_max", 1, min(31, widest_page))
        within("page_shift_min", 1, self.page_shift_max)
        within("ghost_width", 2, 32)
        within("version_bits", 1, 16)
        within("ports", 1, 16)
        within("sources", 1, 3)
        power_of_2("entries", 4, min(2**self.index_width, 65536))
        power_of_2("translations", 4, 2**20)
        power_of_2("tags", 2, 256)
        power_of_2("ways", 2, self.entries // 2)
        if self.recency not in recency.POLICIES:
            raise ConfigError("recency", f"one of {', '.join(recency.POLICIES)}", self.recency)
        arbiter.check(self)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The preset of this name, with some fields changed.

        Raises
        ------
        ConfigError
            If there is no such preset, or a value is not allowed.
        """
        if name not in PRESETS:
            raise ConfigError("preset", f"one of {', '.join(PRESETS)}", name)
        return cls(**{**PRESETS[name], **changes})

    @property
    def index_bits(self) -> int:
        """Bits that select one of the entries."""
        return (self.entries - 1).bit_length()

    @property
    def translation_bits(self) -> int:
        """Bits that select one of the translations."""
        return (self.translations - 1).bit_length()

    @property
    def tag_bits(self) -> int:
        """Bits of a tag."""
        return (self.tags - 1).bit_length()

    @property
    def port_bits(self) -> int:
        """Bits that select one of the ports; never 0, since a port of no bits can't be made."""
        return max(1, (self.ports - 1).bit_length())

    @property
    def sets(self) -> int:
        """Recency sets."""
        return self.entries // self.ways

    @property
    def set_bits(self) -> int:
        """Bits that select one of the recency sets."""
        return (self.sets - 1).bit_length()

    @property
    def frame_width(self) -> int:
        """Bits of a page frame, counted in the smallest pages."""
        return self.physical_width - self.page_shift_min

    @property
    def pipelines(self) -> int:
        """Lookup pipelines, each with its own copy of both tables."""
        return self.ports if self.read_structure is ReadStructure.REPLICATED else 1

    @property
    def slots(self) -> int:
        """Lookups that all ports together may have in flight."""
        return self.ports * self.tags
