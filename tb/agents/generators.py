"""When an agent is willing: one decision a cycle."""

import itertools
import random
from collections.abc import Callable, Iterator

Willing = Iterator[bool]
"""True in the cycles in which the agent would offer, or accept."""


def always() -> Willing:
    """In every cycle."""
    return itertools.repeat(True)


def sometimes(rng: random.Random, probability: float) -> Willing:
    """In each cycle with this probability."""
    while True:
        yield rng.random() < probability


def bursts(rng: random.Random, longest_on: int = 12, longest_off: int = 12) -> Willing:
    """On and off by turns, each for a random number of cycles."""
    while True:
        yield from itertools.repeat(True, rng.randint(1, longest_on))
        yield from itertools.repeat(False, rng.randint(1, longest_off))


class Gate:
    """In no cycle until ``is_open`` is set, and in each from then on."""

    def __init__(self) -> None:
        self.is_open = False

    def __iter__(self) -> Willing:
        return self

    def __next__(self) -> bool:
        return self.is_open


GENERATORS: dict[str, Callable[[random.Random], Willing]] = {
    "always": lambda rng: always(),
    "half": lambda rng: sometimes(rng, 0.5),
    "rarely": lambda rng: sometimes(rng, 0.1),
    "bursts": bursts,
}
"""By name, for parametrised tests."""
