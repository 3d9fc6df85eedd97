"""Harnesses around small tables, as designs."""

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rtl.component import Component
from rtl.config import TableConfig
from sim.netlist import ROOT, Design, source_hash, table_hash

PACKAGE = "tb.formal"


def harness_of(
    name: str,
    make: Callable[..., Component],
    config: TableConfig,
    fault: str = "",
    **terms: Any,
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
    terms
        What else the class takes.
    """
    sources = source_hash(sorted(made_of(make.__module__)))
    key = f"{table_hash(config)} {sources} {config!r} {terms!r} {fault}"
    return Design(name, lambda: make(config, **terms), key)


@functools.cache
def made_of(module: str) -> frozenset[Path]:
    """The files of the harnesses that a module comes from: its own, and those that it imports.

    A proof doesn't have to be made anew when something else in the folder changes.
    """
    found: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name in found or not name.startswith(f"{PACKAGE}."):
            continue
        found.add(name)
        for node in ast.walk(ast.parse(_file(name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                # `from package import module` names a module, too.
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
        todo = [name for name in todo if _file(name).exists()]
    return frozenset(map(_file, found))


def _file(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")
