"""What the worker does at the start of a command, and at its end."""

from typing import Any

from amaranth.hdl import Value

from rtl.monitor import any_of
from rtl.worker import WorkerState

STARTING = (
    WorkerState.FETCH,
    WorkerState.CHECK,
    WorkerState.FETCH_PARENT,
    WorkerState.CHECK_PARENT,
    WorkerState.WRITE_TRANSLATIONS,
)
FINISHING = (
    WorkerState.REMOVE_TRANSLATIONS,
    WorkerState.FETCH_COUNT,
    WorkerState.RELEASE_PARENT,
)


def is_one_of(state: Any, states: tuple[WorkerState, ...]) -> Value:
    """The worker is in one of these states."""
    return any_of(*(state == one for one in states))
