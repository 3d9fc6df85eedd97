"""Deliberate faults in the table, each of which a bench must find."""

from dataclasses import dataclass
from typing import Any

import pytest

from rtl.arbiter import DrainFence, GracePeriod, PendingBit, Squash, VersionCheck
from rtl.check import AccessCheck
from rtl.commands import CommandEngine
from rtl.config import ReadStructure, SecondInvalidate, TableConfig, ZeroLength
from rtl.legality import Legality
from rtl.lookup import LookupPipeline
from rtl.monitor import Monitor
from rtl.replay import ReplayBuffer
from rtl.slots import Slots
from rtl.tables import CopiedMemory
from rtl.top import SharedTable
from rtl.turns import Turns
from rtl.worker import Worker
from sim.netlist import Design, table_design
from sim.run import CONFIG_VARIABLE, RunFailed, config_to_json, run
from sim.simulators import Simulator
from tb.mutation import mutate
from tb.needs import needs_icarus
from tb.variants import SIZE


@dataclass(frozen=True)
class Fault:
    """A change of the source of one class, and what must come of it.

    Parameters
    ----------
    cls : type
    right, wrong : str
        ``right`` stands once in the module of the class, and becomes ``wrong``.
    bench, test : str
        Who must find it.
    says : str
        Pattern of what is said then.
    choices : tuple
        What the configuration needs, as pairs.
    """

    cls: type
    right: str
    wrong: str
    bench: str
    test: str
    says: str
    choices: tuple[tuple[str, Any], ...] = ()


FAULTS = {
    "the fence applies without draining": Fault(
        DrainFence,
        "owner[source] & ~inside.any()",
        "owner[source]",
        "races",
        "r25_teardown_meets_dma",
        "drain_fence declares",
    ),
    "the fence holds nothing back": Fault(
        DrainFence,
        "Mux(owner.any(), same, 0)",
        "Mux(owner.any(), same, 0) & 0",
        "races",
        "r25_teardown_meets_dma",
        "drain_fence declares",
    ),
    "the pending bit is not waited for": Fault(
        PendingBit,
        "mine & ~match.any()",
        "~match.any()",
        "races",
        "r25_teardown_meets_dma",
        "pending_bit declares",
        (("arbiter", "pending_bit"),),
    ),
    "the pending bit of the neighbour is read": Fault(
        PendingBit,
        "pending.bit_select(admit.index, 1)",
        "pending.bit_select(admit.index ^ 1, 1)",
        "races",
        "r25_teardown_meets_dma",
        "pending_bit declares",
        (("arbiter", "pending_bit"),),
    ),
    "the grace period waits for new lookups": Fault(
        GracePeriod,
        "snapshot & self.occupied",
        "inside",
        "timing",
        "grace_periods",
        "grace_periods failed",
        (("arbiter", "grace_period"),),
    ),
    "a kill is forgotten": Fault(
        Squash,
        "killed.eq(self.kill)",
        "killed.eq(0)",
        "races",
        "r01_invalidate_in_flight",
        "squash declares|old pages after C",
        (("arbiter", "squash"),),
    ),
    "the killed are not waited for": Fault(
        Squash,
        "~(match & self.kill).any()",
        "1",
        "races",
        "r01_invalidate_in_flight",
        "squash declares|old pages after C",
        (("arbiter", "squash"),),
    ),
    "a beat is aborted until it is offered again": Fault(
        LookupPipeline,
        "fixed_abort.eq(aborted)",
        "fixed_abort.eq(0)",
        "races",
        "r01_invalidate_in_flight",
        "changed while it was offered",
        (("arbiter", "squash"),),
    ),
    "the DMA under an old version goes on": Fault(
        VersionCheck,
        "if config.scope is RetireScope.DMA:",
        "if False:",
        "races",
        "r01_invalidate_in_flight",
        "version_check declares fresh_dma",
        (("arbiter", "version_check"),),
    ),
    "a replay loses the lookups behind": Fault(
        ReplayBuffer,
        "again.eq(count)",
        "again.eq(1)",
        "timing",
        "replays_keep_their_order",
        "comes in the place|no answer",
        (("arbiter", "version_check"),),
    ),
    "a replayed lookup is answered twice": Fault(
        LookupPipeline,
        "self.delivery.valid.eq(out_valid & ~offer.replayed)",
        "self.delivery.valid.eq(out_valid)",
        "timing",
        "replays_keep_their_order",
        "comes in the place|answers nothing|replays_keep_their_order failed",
        (("arbiter", "version_check"),),
    ),
    "a replayed lookup keeps its old version": Fault(
        Slots,
        "with m.If(renew.valid & (renew.tag == tag)):",
        "with m.If(renew.valid & (renew.tag == tag) & 0):",
        "timing",
        "replays_keep_their_order",
        "no answer",
        (("arbiter", "version_check"),),
    ),
    "the slots of the last port don't match": Fault(
        Slots,
        "valid & indexed & (index == self.index[source])",
        "valid & indexed & (index == self.index[source]) & (port != config.ports - 1)",
        "races",
        "r25_teardown_meets_dma",
        "drain_fence declares",
    ),
    "a failed walk goes on": Fault(
        LookupPipeline,
        "beat.last.eq(out_last | missing | aborted)",
        "beat.last.eq(out_last | aborted)",
        "readers",
        "every_status",
        "no answer",
    ),
    "reset leaves the rows": Fault(
        CopiedMemory,
        "write_port.en.eq(self.write.enable | ~self.ready)",
        "write_port.en.eq(self.write.enable)",
        "load",
        "reset_in_the_middle",
        "failed",
    ),
    "an empty entry admits": Fault(
        AccessCheck,
        " | (entry.base == entry.limit)",
        "",
        "random",
        "anything",
        "answered",
    ),
    "a command starts before an older one": Fault(
        CommandEngine,
        "(theirs.state == CommandState.ACCEPTED) & older",
        "(theirs.state == CommandState.ACCEPTED) & older & 0",
        "turns",
        "a_bind_gets_its_turn",
        "a_bind_gets_its_turn failed",
    ),
    "who doesn't ask loses the place in the line": Fault(
        Turns,
        "self.served & self.grant[requester]",
        "self.served & (self.grant[requester] | ~self.requests[requester])",
        "turns",
        "a_held_lookup_gets_its_turn",
        "a_held_lookup_gets_its_turn failed",
        (("read_structure", ReadStructure.SERIALIZED),),
    ),
    "translations are written before they are given up": Fault(
        Worker,
        "with m.Elif(meets_owned):",
        "with m.Elif(meets_owned & 0):",
        "load",
        "translations_are_not_reused_early",
        "no_early_reuse|assert|answered",
    ),
    "a window is allocated translations": Fault(
        Legality,
        "with m.If(asks_region):",
        "with m.If(1):",
        "random",
        "anything",
        "but should with OK",
    ),
    "a fast registration leaves its range": Fault(
        Legality,
        "(not_owned, Status.RANGE_NOT_OWNED)",
        "(not_owned & 0, Status.RANGE_NOT_OWNED)",
        "rules",
        "who_owns_what",
        "RANGE_NOT_OWNED",
    ),
    "a deregistration leaves what was not used": Fault(
        Worker,
        "report.plan.count.eq(owned)",
        "report.plan.count.eq(owned - 1)",
        "rules",
        "who_owns_what",
        "answered",
    ),
    "a second invalidate is not refused": Fault(
        Legality,
        "not_valid & refuses_second",
        "not_valid & refuses_second & 0",
        "rules",
        "second_invalidate",
        "second_invalidate failed",
    ),
    "a second invalidate is applied": Fault(
        Legality,
        "(invalidates & not_valid)",
        "(invalidates & not_valid & 0)",
        "rules",
        "second_invalidate",
        "second_invalidate failed",
        (("second_invalidate", SecondInvalidate.SUCCESS),),
    ),
    "lookups of no bytes are not checked": Fault(
        AccessCheck,
        "is ZeroLength.BYPASS",
        "in ZeroLength",
        "rules",
        "zero_length",
        "answered",
        (("zero_length", ZeroLength.CHECK),),
    ),
    "a zero-based window begins where its region does": Fault(
        Legality,
        "base.eq(Mux(command.zero_based, 0, command.base))",
        "base.eq(command.base)",
        "rules",
        "zero_based",
        "zero_based failed",
    ),
    "a zero-based region has windows": Fault(
        Legality,
        "(parent.zero_based, Status.PARENT_ZERO_BASED)",
        "(parent.zero_based & 0, Status.PARENT_ZERO_BASED)",
        "rules",
        "zero_based",
        "PARENT_ZERO_BASED",
    ),
    "a window of type 2B answers everybody": Fault(
        AccessCheck,
        "(entry.kind == EntryKind.WINDOW_2B) & (lookup.qpn != entry.qpn)",
        "(entry.kind == EntryKind.WINDOW_2B) & (lookup.qpn != entry.qpn) & 0",
        "rules",
        "windows_of_a_queue_pair",
        "answered",
    ),
    "a window of type 2B keeps its first queue pair": Fault(
        Legality,
        "m.d.comb += changed.qpn.eq(command.qpn)",
        "pass",
        "rules",
        "windows_of_a_queue_pair",
        "windows_of_a_queue_pair failed",
    ),
    "a bind that fails counts": Fault(
        Worker,
        "leave(WorkerResult.OVER, legality.parent_status)",
        "count_windows(command.parent.index, +1)\n"
        "                    leave(WorkerResult.OVER, legality.parent_status)",
        "random",
        "anything",
        "WINDOWS_BOUND",
    ),
    "the monitor misses stale answers": Fault(
        Monitor,
        "ok & is_stale(beat.ghost.version, beat.tag)",
        "ok & is_stale(beat.ghost.version, beat.tag) & 0",
        "races",
        "r01_invalidate_in_flight",
        "the monitor saw 0",
        (("arbiter", "apply_now"),),
    ),
    "the monitor misses torn lookups": Fault(
        Monitor,
        "(ok & (other_version | ~same_stamp)) | (lost & (other_version | same_stamp))",
        "ok & other_version",
        "races",
        "r16_new_owner_meets_a_parked_lookup",
        "the monitor saw 0",
        (("arbiter", "apply_now"),),
    ),
}


@needs_icarus
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_it_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch):
    """The bench fails on the broken table, and says why."""
    config = TableConfig(**{**SIZE, **dict(fault.choices)})
    broken = _broken(fault, config, monkeypatch)
    with pytest.raises(RunFailed, match=fault.says):
        run(
            broken,
            Simulator.ICARUS,
            f"tb.bench_{fault.bench}",
            tests=[fault.test],
            environment={CONFIG_VARIABLE: config_to_json(config)},
        )


def _broken(fault: Fault, config: TableConfig, monkeypatch: pytest.MonkeyPatch) -> Design:
    """The table with the fault in place of the real class, wherever that is used."""
    mutate(fault.cls, fault.right, fault.wrong, monkeypatch)
    sound = table_design(config)
    return Design(sound.name, lambda: SharedTable(config), f"{sound.key} {fault.wrong!r}")


@needs_icarus
def test_a_control_that_finds_nothing_fails():
    """The bench takes a sound table for ``apply_now``, and misses the violations it permits."""
    sound = table_design(TableConfig(**SIZE, arbiter="grace_period"))
    control = TableConfig(**SIZE, arbiter="apply_now")
    with pytest.raises(RunFailed, match=r"nothing violated .*which apply_now permits"):
        run(
            sound,
            Simulator.ICARUS,
            "tb.bench_races",
            tests=["r25_teardown_meets_dma"],
            environment={CONFIG_VARIABLE: config_to_json(control)},
        )
