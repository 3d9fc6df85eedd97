"""Policies: what happens to lookups while an entry changes. One file each."""

from collections.abc import Mapping

from rtl.arbiter import own
from rtl.arbiter.apply_now import ApplyNow
from rtl.arbiter.drain_fence import DrainFence
from rtl.arbiter.grace_period import GracePeriod
from rtl.arbiter.pending_bit import PendingBit
from rtl.arbiter.seam import Arbiter
from rtl.arbiter.squash import Squash
from rtl.arbiter.version_check import VersionCheck
from rtl.config import ConfigError, TableConfig

POLICIES: Mapping[str, type[Arbiter]] = {
    "apply_now": ApplyNow,
    "pending_bit": PendingBit,
    "drain_fence": DrainFence,
    "grace_period": GracePeriod,
    "squash": Squash,
    "version_check": VersionCheck,
}


def policy(name: str) -> type[Arbiter]:
    """The policy of this name, or that of ``path/to/file.py:ClassName``.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if own.is_own(name):
        return own.load(name)
    if name not in POLICIES:
        raise ConfigError("arbiter", f"one of {', '.join(POLICIES)} or {own.FORM}", name)
    return POLICIES[name]


def check(config: TableConfig) -> None:
    """Checks that the policy of a configuration can be used in it.

    Raises
    ------
    ConfigError
        If it can't.
    """
    cls = policy(config.arbiter)
    if own.is_own(config.arbiter):
        own.check(cls, config)
