"""The host of random programs gives out nothing that may still be somebody's."""

import pytest

from rtl.config import TableConfig
from tb.model.words import EntryKind
from tb.programs.host import Holding, Host
from tb.programs.program import Until, Wait
from tb.variants import SIZE

HERE, THERE = 0, 1
"""Two sources."""


@pytest.fixture
def host() -> Host:
    """With a region at index 0, which has all translations, and two more indices."""
    host = Host(TableConfig(**SIZE), range(3), range(4))
    index, run = host.take_index(HERE), host.take_translations(HERE, 4)
    assert (index, run) == (0, range(4))
    host.hold(HERE, 0, Holding(EntryKind.REGION, [range(4)]))
    host.wait(Until())
    return host


def make_window(host: Host, source: int) -> int:
    index = host.take_index(source)
    assert index is not None
    host.hold(source, index, Holding(EntryKind.WINDOW_1))
    return index


def free(host: Host, source: int) -> bool:
    """Whether the source is given the translations; if so, they are not given back."""
    return host.take_translations(source, 4) is not None


@pytest.mark.parametrize("source", [HERE, THERE])
def test_what_is_held_is_not_free(host: Host, source: int):
    assert not free(host, source)


def test_what_a_source_gives_up_it_can_use_at_once(host: Host):
    host.end(HERE, 0)
    assert host.take_index(HERE) == 0
    assert free(host, HERE)


@pytest.mark.parametrize(
    ("wait", "known"),
    [
        (Wait(1000), False),
        (Until("source", THERE), False),
        (Until("port", HERE), False),
        (Until("source", HERE), True),
        (Until(), True),
    ],
)
def test_others_can_use_it_when_they_know(host: Host, wait: Wait | Until, known: bool):
    host.end(HERE, 0)
    assert host.take_index(THERE) == 1
    assert not free(host, THERE)
    host.wait(wait)
    assert free(host, THERE) == known
    assert (host.take_index(THERE) == 0) == known


def test_one_source_at_a_time_moves_or_ends(host: Host):
    host.holdings[0].source = HERE
    assert (host.movable(HERE), host.movable(THERE)) == ([0], [])
    host.wait(Until("source", HERE))
    assert (host.movable(HERE), host.movable(THERE)) == ([0], [0])


def test_a_region_that_may_be_bound_keeps_everything(host: Host):
    window = make_window(host, HERE)
    host.bind(THERE, window, 0)
    host.wait(Until())
    host.end(HERE, 0)
    host.wait(Until())
    assert host.holdings[0].doubted
    assert not free(host, HERE)
    host.end(HERE, window)
    host.end(HERE, 0)
    assert free(host, HERE)


def test_a_window_that_another_source_ends_counts_until_that_is_known(host: Host):
    window = make_window(host, HERE)
    host.bind(HERE, window, 0)
    host.wait(Until())
    host.end(THERE, window)
    host.end(HERE, 0)
    assert not free(host, HERE)
    host.wait(Until("source", THERE))
    host.end(HERE, 0)
    assert free(host, HERE)


def test_a_late_bind_finds_the_next_window(host: Host):
    window = make_window(host, HERE)
    host.wait(Until())
    host.bind(THERE, window, 0)
    host.end(HERE, window)
    assert make_window(host, HERE) == window
    host.end(HERE, 0)
    assert not free(host, HERE)


def test_nobody_binds_to_what_is_ending(host: Host):
    host.end(HERE, 0)
    assert not host.may_bind_to(0)
    host.wait(Until("source", THERE))
    assert not host.may_bind_to(0)
    host.wait(Until("source", HERE))
    assert host.may_bind_to(0)


def test_a_doubtful_end_keeps_nobody_from_binding(host: Host):
    host.bind(THERE, make_window(host, HERE), 0)
    host.end(HERE, 0)
    assert host.may_bind_to(0)
