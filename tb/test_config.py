"""What a configuration admits, and what it says of what it doesn't admit."""

import pytest

from rtl.arbiter import POLICIES, policy
from rtl.config import (
    PRESETS,
    ConfigError,
    FenceSpan,
    OnPending,
    OnWrap,
    ReadStructure,
    RetireScope,
    StepOrder,
    TableConfig,
)
from rtl.monitor import Guarantee
from sim.netlist import rtlil_text, table_design
from tb.variants import SIZE, name_of, variants


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ports": 0}, "ports must be from 1 to 16, not 0"),
        ({"ports": 17}, "ports must be from 1 to 16, not 17"),
        ({"ports": "4"}, "ports must be of type int, not '4'"),
        ({"sources": 0}, "sources must be from 1 to 3, not 0"),
        ({"entries": 3}, "entries must be a power of 2 from 4 to 65536, not 3"),
        ({"entries": 2}, "entries must be a power of 2 from 4 to 65536, not 2"),
        (
            {"index_width": 4, "entries": 32, "ways": 2},
            "entries must be a power of 2 from 4 to 16, not 32",
        ),
        ({"translations": 100}, "translations must be a power of 2 from 4 to 1048576, not 100"),
        ({"ways": 3}, "ways must be a power of 2 from 2 to 128, not 3"),
        ({"ways": 256}, "ways must be a power of 2 from 2 to 128, not 256"),
        ({"tags": 1}, "tags must be a power of 2 from 2 to 256, not 1"),
        (
            {"arbiter": "none"},
            f"arbiter must be one of {', '.join(POLICIES)} or path/to/file.py:ClassName, not none",
        ),
        ({"recency": "fifo"}, "recency must be one of lru, not fifo"),
        ({"zero_length": "skip"}, "zero_length must be one of bypass, check, not skip"),
        (
            {"second_invalidate": "fine"},
            "second_invalidate must be one of error, success, not fine",
        ),
        ({"span": "most"}, "span must be one of entry, all, not most"),
        ({"address_width": 65}, "address_width must be from 4 to 64, not 65"),
        ({"length_width": 33}, "length_width must be from 2 to 32, not 33"),
        ({"physical_width": 3}, "physical_width must be from 4 to 64, not 3"),
        ({"index_width": 25}, "index_width must be from 2 to 24, not 25"),
        ({"variant_width": 0}, "variant_width must be from 1 to 8, not 0"),
        ({"pd_width": 25}, "pd_width must be from 1 to 24, not 25"),
        ({"qpn_width": 0}, "qpn_width must be from 1 to 24, not 0"),
        ({"page_shift_max": 32}, "page_shift_max must be from 1 to 31, not 32"),
        (
            {"physical_width": 20},
            "page_shift_max must be from 1 to 19, not 31",
        ),
        ({"page_shift_min": 32}, "page_shift_min must be from 1 to 31, not 32"),
        ({"ghost_width": 1}, "ghost_width must be from 2 to 32, not 1"),
    ],
)
def test_what_is_not_allowed(changes: dict[str, object], message: str):
    """One sentence that names the parameter, what is allowed, and the value."""
    with pytest.raises(ConfigError) as caught:
        TableConfig(**changes)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == message


def test_an_unknown_preset():
    """Presets are named in the message."""
    with pytest.raises(ConfigError) as caught:
        TableConfig.preset("huge")
    assert str(caught.value) == f"preset must be one of {', '.join(PRESETS)}, not huge"


def test_the_presets():
    """The sizes that were promised."""
    default = TableConfig.preset("default")
    assert (default.ports, default.entries, default.translations, default.tags) == (
        4,
        256,
        1024,
        16,
    )
    assert (default.address_width, default.pd_width, default.qpn_width) == (64, 24, 24)
    assert default.physical_width == 52
    nic = TableConfig.preset("nic")
    assert (nic.ports, nic.entries, nic.translations, nic.tags) == (8, 4096, 32768, 64)


NARROW = {
    "address_width": 5,
    "length_width": 4,
    "physical_width": 5,
    "index_width": 2,
    "variant_width": 1,
    "pd_width": 1,
    "qpn_width": 1,
    "page_shift_min": 1,
    "page_shift_max": 2,
    "ghost_width": 2,
    "entries": 4,
    "translations": 4,
    "ways": 2,
    "tags": 2,
    "sources": 2,
}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"ports": 1, "tags": 2, "sources": 1}, id="smallest"),
        pytest.param({"ports": 16}, id="most-ports"),
        pytest.param({"ghost_version": False}, id="no-ghost"),
        pytest.param(NARROW, id="narrow"),
        pytest.param({**NARROW, "read_structure": ReadStructure.SERIALIZED}, id="narrow-shared"),
        pytest.param({**NARROW, "page_shift_max": 1, "ports": 1}, id="one-page-size"),
        pytest.param({"page_shift_max": 12}, id="only-small-pages"),
        pytest.param({"ways": 8}, id="two-sets"),
        pytest.param({"physical_width": 64, "ghost_width": 32}, id="widest"),
    ],
)
def test_it_elaborates(changes: dict[str, object]):
    """Configurations at the edges of what is allowed make a netlist."""
    config = TableConfig(**{**SIZE, **changes})
    text = rtlil_text(table_design(config))
    assert (".monitor\n" in text) == config.ghost_version


FRESH: dict[Guarantee, dict[str, object]] = {
    Guarantee.UNTORN: {"step_order": StepOrder.ENTRY_FIRST},
    Guarantee.FRESH_ADMIT: {},
    Guarantee.FRESH_ANSWER: {},
    Guarantee.FRESH_DMA: {"scope": RetireScope.DMA},
    Guarantee.NO_EARLY_REUSE: {},
    Guarantee.BOUNDED_INVALIDATION: {},
}

DECLARED: dict[str, dict[Guarantee, dict[str, object]]] = {
    "apply_now": {
        Guarantee.FRESH_ADMIT: {},
        Guarantee.NO_EARLY_REUSE: {},
        Guarantee.BOUNDED_INVALIDATION: {},
        Guarantee.LOOKUP_NEVER_WAITS: {},
        Guarantee.ISOLATED_LOOKUPS: {},
        Guarantee.ISOLATED_INVALIDATION: {},
        Guarantee.LOSSLESS: {},
    },
    "pending_bit": {
        **FRESH,
        Guarantee.ISOLATED_LOOKUPS: {"on_pending": OnPending.REFUSE},
        Guarantee.ISOLATED_INVALIDATION: {},
        Guarantee.LOSSLESS: {},
    },
    "drain_fence": {
        **FRESH,
        Guarantee.ISOLATED_LOOKUPS: {"span": FenceSpan.ENTRY, "on_pending": OnPending.REFUSE},
        Guarantee.ISOLATED_INVALIDATION: {"span": FenceSpan.ENTRY, "sources": 1},
        Guarantee.LOSSLESS: {},
    },
    "grace_period": {
        **FRESH,
        Guarantee.LOOKUP_NEVER_WAITS: {},
        Guarantee.ISOLATED_LOOKUPS: {},
        Guarantee.ISOLATED_INVALIDATION: {"span": FenceSpan.ENTRY},
        Guarantee.LOSSLESS: {},
    },
    "squash": {
        **FRESH,
        Guarantee.LOOKUP_NEVER_WAITS: {},
        Guarantee.ISOLATED_LOOKUPS: {},
        Guarantee.ISOLATED_INVALIDATION: {},
    },
    "version_check": {
        **{guarantee: {**given, "on_wrap": OnWrap.WAIT} for guarantee, given in FRESH.items()},
        Guarantee.FRESH_ADMIT: {},
        Guarantee.NO_EARLY_REUSE: {},
        # How long `wait` waits is bounded by no proof.
        Guarantee.BOUNDED_INVALIDATION: {"on_wrap": OnWrap.IGNORE},
        Guarantee.ISOLATED_INVALIDATION: {},
    },
}
"""What each policy of the project declares, and under which choices only."""


@pytest.mark.conformance
@pytest.mark.parametrize("config", variants(), ids=name_of)
def test_policies_declare_what_the_design_says(config: TableConfig):
    """What each policy gives depends on its configuration."""
    declared = policy(config.arbiter).guarantees(config)
    assert declared <= set(Guarantee)
    if config.arbiter in POLICIES:
        assert declared == {
            guarantee
            for guarantee, choices in DECLARED[config.arbiter].items()
            if all(getattr(config, name) == value for name, value in choices.items())
        }
