"""Policies: what happens to lookups while an entry changes. One file each."""

from collections.abc import Mapping

from rtl.arbiter.apply_now import ApplyNow
from rtl.arbiter.drain_fence import DrainFence
from rtl.arbiter.pending_bit import PendingBit
from rtl.arbiter.seam import Arbiter

POLICIES: Mapping[str, type[Arbiter]] = {
    "apply_now": ApplyNow,
    "pending_bit": PendingBit,
    "drain_fence": DrainFence,
}
