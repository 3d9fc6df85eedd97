"""The base of every module."""

from typing import TYPE_CHECKING, Any

from amaranth.lib import wiring

if TYPE_CHECKING:
    from amaranth.hdl import Module

    class Component(wiring.Component):
        """A component whose members come from a signature that depends on a configuration.

        Amaranth makes an attribute of each member at run time; a type checker can't know them.
        """

        def __getattr__(self, name: str) -> Any: ...

        def elaborate(self, platform: object) -> Module: ...

else:
    Component = wiring.Component
