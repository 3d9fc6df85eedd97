"""The memories that the table consists of."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.component import Component


class ReadSignature(wiring.Signature):
    """A synchronous read, seen by the reader.

    ``data`` is the row that ``address`` named in the last cycle in which ``enable`` was high, as
    it stood before that cycle's write; it holds until the next such cycle.
    """

    def __init__(self, shape: Any, depth: int):
        super().__init__(
            {"enable": Out(1), "address": Out(range(depth)), "data": In(shape)},
        )


class WriteSignature(wiring.Signature):
    """A write, seen by the writer; it takes effect at the end of the cycle."""

    def __init__(self, shape: Any, depth: int):
        super().__init__(
            {"enable": Out(1), "address": Out(range(depth)), "data": Out(shape)},
        )


class CopiedMemory(Component):
    """One writer, many readers, one memory a reader; clears itself after reset.

    Every copy takes every write in the same cycle, so all readers agree on when a row changes.
    For ``depth`` cycles after reset it writes zeros; until then ``ready`` is low, and the writer
    must keep still.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a row.
    depth : int
        Rows; a power of 2.
    copies : int
        Readers.

    Members
    -------
    read : In(ReadSignature(shape, depth)).array(copies)
    write : In(WriteSignature(shape, depth))
    ready : Out(1)
    """

    def __init__(self, shape: Any, depth: int, copies: int):
        self._shape = shape
        self._depth = depth
        super().__init__(
            {
                "read": In(ReadSignature(shape, depth)).array(copies),
                "write": In(WriteSignature(shape, depth)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # One bit more than an address: the top bit says that all rows are clear.
        cleared = Signal(range(self._depth * 2))
        m.d.comb += self.ready.eq(cleared[-1])
        with m.If(~self.ready):
            m.d.sync += cleared.eq(cleared + 1)

        write_data = Cat(self.write.data)
        for copy, read in enumerate(self.read):
            memory = Memory(shape=self._shape, depth=self._depth, init=[])
            m.submodules[f"copy_{copy}"] = memory
            write_port = memory.write_port()
            read_port = memory.read_port()
            m.d.comb += [
                write_port.en.eq(self.write.enable | ~self.ready),
                write_port.addr.eq(Mux(self.ready, self.write.address, cleared)),
                Cat(write_port.data).eq(Mux(self.ready, write_data, 0)),
                read_port.en.eq(read.enable),
                read_port.addr.eq(read.address),
                Cat(read.data).eq(Cat(read_port.data)),
            ]
        return m
