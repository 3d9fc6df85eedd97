"""Why a policy that checks its lookups notices what changes under them."""

import itertools
from collections.abc import Iterable

from amaranth.hdl import Array, Value
from amaranth.lib import data

from rtl.commands import CommandState
from rtl.layouts import LookupStatus
from rtl.monitor import any_of
from rtl.top import SharedTable
from rtl.worker import WorkerState
from tb.formal.working import FINISHING, STARTING, is_one_of

CHECKING = (
    "misfiled",
    "crowded",
    "detached",
    "interrupted",
    "mislaid",
    "mistaken",
    "unnoticed",
    "late",
)
"""What :func:`checking` finds, each of which stands on those before it."""


def checking(table: SharedTable, gone: Value, replaced: Iterable[data.View]) -> dict[str, Value]:
    """What would be wrong, for a table that is ``watched``.

    ``misfiled``
        The slot of a lookup names no entry, or another one than the monitor's record of it. There
        is an entry for each index.
    ``crowded``
        Two changes in progress name one entry.
    ``detached``
        What a change has replaced is kept for nobody.
    ``interrupted``
        The worker works for a command that isn't its turn.
    ``mistaken``
        The policy takes a lookup for current whose entry has changed.
    ``unnoticed``
        A beat waits to be taken that came from an entry that has changed since, and no change of
        that entry awaits it.
    ``late``
        A beat waits to be taken, and C of a change of its entry has been.
    ``mislaid``
        A lookup has had a beat, and the one that comes next is nowhere.

    Three of them go by what the policy says of itself, see :meth:`rtl.arbiter.Arbiter.is_current`.
    A lookup that starts anew is in no stage until its entry is read again, and doesn't count.
    """
    config, policy = table.config, table.policy
    slots = list(zip(table.occupied, policy.slot, table.record, strict=True))
    trusted = [
        occupied & record.changed & policy.is_current(number)
        for number, (occupied, _, record) in enumerate(slots)
    ]
    mistaken = [
        wrong & ~record.walking for wrong, record in zip(trusted, table.record, strict=True)
    ]
    for pipeline in range(config.pipelines):
        for stage in table.stage[pipeline]:
            port = stage.port if config.pipelines < config.ports else pipeline
            place = port * config.tags + stage.tag
            here = stage.valid & stage.admitted
            mistaken += [here & (place == number) & wrong for number, wrong in enumerate(trusted)]

    unnoticed = []
    late = [
        (record.outdated | gone[number]) & ~record.changed
        for number, record in enumerate(table.record)
    ]
    for port in range(config.ports):
        pipeline = port if config.pipelines > 1 else 0
        last, beat = table.stage[pipeline][-1], table.beat[port].payload
        own = list(table.record)[port * config.tags : (port + 1) * config.tags]

        def its(name: str, own: list = own, tag: Value = last.tag) -> Value:
            return Array(getattr(record, name) for record in own)[tag]

        stays = (
            last.valid
            & last.admitted
            & policy.deliver[port].fixed
            & (beat.status != LookupStatus.ABORTED)
        )
        if config.pipelines < config.ports:
            stays = stays & (last.port == port)
        awaited = any_of(
            *(
                policy.awaits(source, port) & (change.index == last.index)
                for source, change in enumerate(table.change)
            )
        )
        unnoticed.append(stays & its("changed") & ~awaited)
        late.append(stays & its("outdated"))
        late.append(stays & gone.bit_select(port * config.tags + last.tag, 1))
    crowded = [
        one.in_progress & other.in_progress & (one.index == other.index)
        for one, other in itertools.combinations(table.change, 2)
    ]
    misfiled = [
        occupied & (~slot.indexed | (slot.index != record.index))
        for occupied, slot, record in slots
    ]
    mislaid = []
    for number, (_, _, record) in enumerate(slots):
        port, tag = divmod(number, config.tags)
        pipeline = port if config.pipelines > 1 else 0
        somewhere = []
        for stage in list(table.stage[pipeline])[1:]:
            mine = stage.valid & stage.admitted & (stage.tag == tag)
            if config.pipelines < config.ports:
                mine = mine & (stage.port == port)
            somewhere.append(mine)
        mislaid.append(record.walking & record.answered & ~any_of(*somewhere))
    detached = [
        old.valid & ~(change.in_progress & (change.index == old.index))
        for change, old in zip(table.change, replaced, strict=True)
    ]
    engine = table.engine
    # Translations are removed before A in one step order, and after it in the other.
    either = (WorkerState.REMOVE_TRANSLATIONS,)
    starts, ends = CommandState.STARTED, CommandState.FINISHING
    interrupted = [
        (engine.working_for == source)
        & is_one_of(engine.worker_state, states)
        & ~any_of(*(context.state == turn for turn in turns))
        for source, context in enumerate(engine.context)
        for states, turns in (
            (STARTING, (starts,)),
            (tuple(state for state in FINISHING if state not in either), (ends,)),
            (either, (starts, ends)),
        )
    ]
    wrong = (misfiled, crowded, detached, interrupted, mislaid, mistaken, unnoticed, late)
    return {name: any_of(*cases) for name, cases in zip(CHECKING, wrong, strict=True)}
