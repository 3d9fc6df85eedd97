"""Smaller worlds around a table, in which a search for something is short.

Whatever is found in one of them is true of the table; that there is nothing shorter isn't.
"""

from rtl.config import TableConfig
from rtl.layouts import command_layout, lookup_layout
from sim.aiger import Pin
from tb.agents.packing import Packer


def bits_of(name: str, width: int, value: int, free: int = 0) -> dict[Pin, int]:
    """A value for each bit of an input that isn't free."""
    return {(name, bit): value >> bit & 1 for bit in range(width) if not free >> bit & 1}


def one_entry(config: TableConfig, *of_a_lookup: str) -> dict[Pin, int]:
    """Inputs of a world that is about one entry: one key, PD and queue pair, from address 0 on.

    Lookups are of two pages; what is ``of_a_lookup`` is free.
    """
    page = 1 << config.page_shift_min
    given: dict[Pin, int] = {}
    for port in range(config.ports):
        layout = lookup_layout(config)
        packer, width = Packer(layout), layout.size
        word = packer.pack({"address": page - 1, "length": 2})
        free = packer.mask("tag", "rights", *of_a_lookup)
        given |= bits_of(f"port__{port}__lookup", width, word, free)
    for source in range(config.sources):
        layout = command_layout(config)
        packer, width = Packer(layout), layout.size
        word = packer.pack({"page_shift": config.page_shift_min})
        free = packer.mask(
            "opcode", "kind", "rights", "first_translation", "translations", "length"
        )
        given |= bits_of(f"source__{source}__command", width, word, free)
    return given


def at_leisure(config: TableConfig) -> dict[Pin, int]:
    """Inputs of a world of one entry in which everybody takes the time that it may."""
    given = one_entry(config)
    for port in range(config.ports):
        given |= {(f"port__{port}__{name}", 0): 0 for name in ("accepts", "issues", "ends")}
    for source in range(config.sources):
        given[f"source__{source}__hears", 0] = 0
    return given
