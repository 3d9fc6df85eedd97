"""Harnesses around small tables, as designs."""

from collections.abc import Callable

from rtl.component import Component
from rtl.config import TableConfig
from sim.netlist import ROOT, Design, source_hash, table_hash


def harness_of(
    name: str, make: Callable[[TableConfig], Component], config: TableConfig, fault: str = ""
) -> Design:
    """A harness around a table, as a :class:`sim.netlist.Design`.

    Parameters
    ----------
    name : str
    make : callable
        The class of the harness.
    config : TableConfig
    fault : str
        What is wrong with the table: it is another one than that of the sources.
    """
    sources = source_hash(sorted((ROOT / "tb" / "formal").glob("*.py")))
    return Design(
        name, lambda: make(config), f"{table_hash(config)} {sources} {config!r} {fault}".rstrip()
    )
