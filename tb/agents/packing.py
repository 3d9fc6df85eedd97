"""Between the numbers on a bus and the fields they consist of."""

from collections.abc import Mapping
from enum import Enum

from amaranth.hdl import Shape
from amaranth.lib import data


class Packer:
    """Packs and unpacks words of one layout, much faster than Amaranth's own views do.

    Fields of fields have names with a dot, as in ``key.index``.

    Parameters
    ----------
    layout : data.Layout
    """

    def __init__(self, layout: data.Layout):
        self._fields: dict[str, tuple[int, int]] = {}
        self._collect("", layout, 0)

    def _collect(self, prefix: str, layout: data.Layout, base: int) -> None:
        for name, field in layout:
            start = base + field.offset
            if isinstance(field.shape, data.Layout):
                self._collect(f"{prefix}{name}.", field.shape, start)
            else:
                self._fields[f"{prefix}{name}"] = (start, Shape.cast(field.shape).width)

    @property
    def names(self) -> list[str]:
        """The names of all fields."""
        return list(self._fields)

    def width(self, name: str) -> int:
        """The bits of a field, as a number."""
        return self._fields[name][1]

    def masks(self) -> list[int]:
        """The bits of each field."""
        return [((1 << width) - 1) << start for start, width in self._fields.values()]

    def mask(self, *names: str) -> int:
        """The bits of some fields."""
        fields = [self._fields[name] for name in names]
        return sum(((1 << width) - 1) << start for start, width in fields)

    def pack(self, values: Mapping[str, int | Enum]) -> int:
        """The word with these fields; fields that are not named are 0.

        Raises
        ------
        ValueError
            If a value doesn't fit its field: on the bus it would be cut without a word.
        """
        word = 0
        for name, value in values.items():
            start, width = self._fields[name]
            number = value.value if isinstance(value, Enum) else int(value)
            if not 0 <= number < 1 << width:
                raise ValueError(f"{name} must be from 0 to {(1 << width) - 1}, not {number}")
            word |= number << start
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """All fields of a word."""
        return {
            name: word >> start & ((1 << width) - 1)
            for name, (start, width) in self._fields.items()
        }
