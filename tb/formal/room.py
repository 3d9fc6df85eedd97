"""What a change leaves for others that gives up nearly all translations of the table.

A lookup of two pages holds up those behind it for longer than any other, and needs two
translations. Where all are given up but for one, no other entry has them. So the change that waits
longest and the one that removes most are not the same.
"""

from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data

from rtl.commands import CommandState
from rtl.config import TableConfig
from rtl.monitor import any_of
from rtl.top import SharedTable

WALK = 1
"""The stage of a pipeline that reads translations."""


def is_clearing(config: TableConfig, context: data.View) -> Value:
    """The change removes translations at its end, and all of the table but for one at most."""
    plan = context.plan
    return plan.removes & (plan.count + 1 >= config.translations)


def squeezed(table: SharedTable) -> Value:
    """A change waits that clears the table, and a lookup of another entry is of two pages."""
    config = table.config
    return any_of(
        *(
            (context.state == CommandState.APPLIED)
            & is_clearing(config, context)
            & _is_wide(config, stage[WALK], reads.walk)
            & (stage[WALK].index != context.command.key.index)
            for context in table.engine.context
            for stage, reads in zip(table.stage, table.reads, strict=True)
        )
    )


def _is_wide(config: TableConfig, stage: Any, need: Any) -> Value:
    """A lookup of more than one page is in this stage."""
    goes_on = need.offset + need.remaining > 1 << config.page_shift_min
    return stage.valid & stage.admitted & (stage.begun | goes_on)
