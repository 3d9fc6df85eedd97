"""Recency policies: which entry of a set is the next victim. One file each."""

from collections.abc import Mapping

from rtl.recency.lru import Lru
from rtl.recency.seam import Recency

POLICIES: Mapping[str, type[Recency]] = {"lru": Lru}
