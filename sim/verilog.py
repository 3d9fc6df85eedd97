# amaranth: UnusedElaboratable=no
"""The table as one Verilog file that explains itself."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data
from amaranth.lib.wiring import Flow

from rtl.arbiter import own
from rtl.config import TableConfig
from sim.netlist import replace, table_design, verilog

MEANINGS = {
    "clk": "clock, rising edge",
    "rst": "synchronous reset: returns to the empty table",
    "lookup": "stream of lookups into a port",
    "beat": "stream of beats out of a port, one for each page segment of an answer",
    "retire": "stream of tags that the DMA engine of a port has finished with",
    "dma": "the DMA engine of a port issues a beat under a tag; only the monitor looks",
    "command": "stream of commands (0: host, 1: send queues, 2: responder)",
    "completion": "stream of completions",
    "change": "R, A and C of the command of a source, for whoever watches",
    "victim": "next victim of a recency set, combinational",
    "kill": "a bit for each tag of a port: the DMA engine issues nothing more under it",
    "terms": "deadline and patience that the monitor holds bounded_invalidation to; 0: not judged",
    "unsound": "sticky: the table has lost track of a lookup",
    "stray": "sticky: a DMA engine issued a beat under a tag that no lookup in flight has",
    "slow": "somebody takes longer than terms.patience in this cycle",
    "occupied": "a bit for each slot: it holds a lookup",
    "outlived": "sticky: a lookup was in flight after the C of a change that came after it",
    "entry_write": "what is written into the MPT in this cycle, for whoever watches",
    "translation_write": "what is written into the MTT in this cycle, for whoever watches",
    "held": "a bit for each port: its lookup waits because the arbiter says so",
    "ready": "the memories are clear after reset; nothing is served before",
    "violation": "the monitor's record for each guarantee: count, and cycle and port of the first",
}
"""What each member of the top level is, by its name."""


@dataclasses.dataclass(frozen=True)
class Port:
    """A port of the Verilog module.

    Parameters
    ----------
    name, group : str
        Its own name, and that of the member it belongs to.
    direction : str
        ``input`` or ``output``.
    width : int
    shape : object
        Shape of the payload.
    """

    name: str
    group: str
    direction: str
    width: int
    shape: Any


def ports(config: TableConfig) -> Iterator[Port]:
    """Every port of the top level but clock and reset, in the order of their declaration."""
    from rtl.top import SharedTable

    table = SharedTable(config)
    for path, member, _ in table.signature.flatten(table):
        yield Port(
            name="__".join(str(part) for part in path),
            group=str(path[0]),
            direction="input" if member.flow == Flow.In else "output",
            width=Shape.cast(member.shape).width,
            shape=member.shape,
        )


def fields(layout: data.Layout, base: int = 0, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Name, highest and lowest bit of every field, fields of fields included."""
    for name, field in layout:
        low = base + field.offset
        width = Shape.cast(field.shape).width
        if isinstance(field.shape, data.Layout):
            yield from fields(field.shape, low, f"{prefix}{name}.")
        elif width:
            yield f"{prefix}{name}", low + width - 1, low


def write_verilog(config: TableConfig, target: Path) -> None:
    """Writes the table of a configuration, self-contained, with its documentation on top.

    Raises
    ------
    NetlistFailed
        If there is no netlist.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(f"// {line}".rstrip() for line in _header(config))
    replace(target, f"{lines}\n\n{verilog(table_design(config)).read_text()}")


def _header(config: TableConfig) -> Iterator[str]:
    yield "Shared-MR arbitration: the MPT/MTT table of an RDMA NIC that many queue pairs share."
    yield "Made from the sources in rtl/; change those, not this. Licensed under Apache-2.0."
    yield ""
    yield "Configuration:"
    # Without the folder of somebody's own policy.
    values = {**dataclasses.asdict(config), "arbiter": own.label(config.arbiter)}
    for name, value in values.items():
        yield f"  {name:18} {value}"
    yield ""
    yield "Streams transfer a payload in a cycle in which valid and ready are high."
    yield "Ports of one kind differ in a number; only the first is listed."
    layouts: dict[str, data.Layout] = {}
    yield ""
    yield f"  input  clk: {MEANINGS['clk']}"
    yield f"  input  rst: {MEANINGS['rst']}"
    group = ""
    for port in ports(config):
        if port.group != group:
            group = port.group
            yield ""
            yield f"{group}: {MEANINGS[group]}"
        if any(part.isdecimal() and part != "0" for part in port.name.split("__")):
            continue
        bits = f"[{port.width - 1}:0] " if port.width > 1 else ""
        yield f"  {port.direction:6} {bits}{port.name}"
        if isinstance(port.shape, data.Layout):
            layouts[port.name] = port.shape
    for name, layout in layouts.items():
        yield ""
        yield f"Fields of {name}:"
        for field, high, low in fields(layout):
            bits = f"[{high}:{low}]" if high > low else f"[{low}]"
            yield f"  {bits:10} {field}"
    yield ""
    yield "Enums:"
    yield from _enums()


def _enums() -> Iterator[str]:
    from rtl.layouts import CommandStatus, EntryKind, EntryState, LookupStatus, Opcode, Rights

    for kind in (EntryState, EntryKind, Rights, LookupStatus, Opcode, CommandStatus):
        yield f"  {kind.__name__}"
        for member in kind:
            yield f"    {member.value:2} {member.name}"
