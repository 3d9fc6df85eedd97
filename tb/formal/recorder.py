"""From the trace of a refuted guarantee to a case: played, made smaller, recorded, widened.

The harness is played in Amaranth's own simulator, which has nothing in common with what found the
trace. What the trace does without need is left out. What remains at the boundary of the table is
recorded, and scaled from the narrow table of the proof to the widths of a real one.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.sim import Simulator

from rtl.config import TableConfig
from rtl.layouts import beat_layout, command_layout, completion_layout, lookup_layout
from rtl.monitor import Guarantee
from tb.agents.packing import Packer
from tb.formal.case import WIDTHS, Case, CaseError, Offer, PortCase, SourceCase
from tb.formal.harness import Harness
from tb.model.words import LookupStatus, Opcode

SCALE = 2048
"""Bytes of the wide table for each of the narrow one, whose pages have two."""

ALWAYS = ("ranges_apart", "pages_written")
"""Outputs of the harness that are high all the time, or the trace shows nothing."""

NEVER = ("unsound",)
"""Those that are low all the time."""

Inputs = dict[str, int]
"""Value of each input of the harness that isn't 0, by the name that the prover gives it."""


@dataclasses.dataclass
class _Stream:
    """Follows one stream, and keeps what is offered on it."""

    packer: Packer
    names: tuple[str, ...] = ()
    """Fields to keep; all if empty."""
    offers: list[Offer] = dataclasses.field(default_factory=list)

    def see(self, cycle: int, valid: int, ready: int, word: int) -> None:
        if not valid:
            return
        fields = {n: v for n, v in self.packer.unpack(word).items() if v}
        if self.names:
            fields = {n: v for n, v in fields.items() if n in self.names}
        last = self.offers[-1] if self.offers else None
        if last is None or last.taken is not None or last.fields != fields:
            last = Offer(cycle, None, fields)
            self.offers.append(last)
        if ready:
            self.offers[-1] = dataclasses.replace(last, taken=cycle)


class Player:
    """The harness, played cycle by cycle.

    Parameters
    ----------
    harness : Harness
    output : str
        The one that the traces make high.
    always, never : sequence of str
        Outputs that are high, and low, in every cycle of a trace.
    deadline : int
        What ``bounded_invalidation`` is judged by.
    """

    def __init__(
        self,
        harness: Harness,
        output: str,
        always: Sequence[str] = ALWAYS,
        never: Sequence[str] = NEVER,
        deadline: int = 0,
    ):
        self.harness = harness
        self.output = output
        self.deadline = deadline
        self._rules = [(getattr(harness, name), 1) for name in always]
        self._rules += [(getattr(harness, name), 0) for name in never]
        self._inputs: dict[str, Value] = {}
        for kind, count in (("port", harness.config.ports), ("source", harness.config.sources)):
            for number in range(count):
                choice = getattr(harness, kind)[number]
                for name in choice.signature.members:
                    signal = Value.cast(getattr(choice, name))
                    self._inputs[f"{kind}__{number}__{name}"] = signal
        self._layouts: Mapping[str, data.Layout] = {
            "lookup": lookup_layout(harness.config),
            "command": command_layout(harness.config),
        }
        self._trace: Sequence[Inputs] = ()
        self._look: Callable[[Any, int], bool] = lambda ctx, cycle: False
        self._simulator = Simulator(harness)
        self._simulator.add_testbench(self._play)
        self._played = False

    async def _play(self, ctx: Any) -> None:
        clk = self.harness.clk
        driven: Inputs = {}
        ctx.set(self.harness.deadline, self.deadline)
        ctx.set(self.harness.patient, self.harness.patience is not None)
        for cycle, inputs in enumerate(self._trace):
            for name in driven.keys() | inputs.keys():
                value = inputs.get(name, 0)
                if value != driven.get(name, 0):
                    ctx.set(self._inputs[name], value)
            driven = inputs
            await ctx.delay(1e-9)
            if not self._look(ctx, cycle):
                break
            ctx.set(clk, 1)
            await ctx.delay(1e-9)
            ctx.set(clk, 0)

    def play(self, trace: Sequence[Inputs], look: Callable[[Any, int], bool]) -> None:
        """Plays a trace from the start, and calls ``look`` in each cycle; it says whether to go on.

        Memories start empty.
        """
        self._trace, self._look = trace, look
        # A reset starts the testbench, which must then run.
        if self._played:
            self._simulator.reset()
        self._played = True
        self._simulator.run()

    def violates(self, trace: Sequence[Inputs]) -> bool:
        """Whether the output is high in the last cycle and not before, and all rules are kept."""
        harness, last = self.harness, len(trace) - 1
        output = getattr(harness, self.output)
        high = False

        def look(ctx: Any, cycle: int) -> bool:
            nonlocal high
            if any(ctx.get(signal) != value for signal, value in self._rules):
                return False
            is_high = bool(ctx.get(output))
            high = is_high and cycle == last
            return not is_high and cycle < last

        self.play(trace, look)
        return high

    def smaller(self, trace: Sequence[Inputs]) -> list[Inputs]:
        """The same violation with as few choices as can be had by leaving out one after the other.

        It stays as long as it is.
        """
        best = [dict(inputs) for inputs in trace]
        for name in self._inputs:
            best = self._attempt(best, [(cycle, name, -1) for cycle in range(len(best))])
        before = None
        while before != best:
            before = best
            for cycle, inputs in enumerate(before):
                for name in inputs:
                    best = self._attempt(best, [(cycle, name, -1)])
            for cycle, name, bits in self._fields(before):
                best = self._attempt(best, [(cycle, name, bits)])
        return best

    def _attempt(self, trace: list[Inputs], bits: Sequence[tuple[int, str, int]]) -> list[Inputs]:
        """The trace without some bits of some inputs, if it still is a violation."""
        without = [dict(inputs) for inputs in trace]
        for cycle, name, mask in bits:
            left = without[cycle].pop(name, 0) & ~mask
            if left:
                without[cycle][name] = left
        return without if without != trace and self.violates(without) else trace

    def packed(self, payload: str, fields: Mapping[str, int]) -> int:
        """The word of a payload, ``lookup`` or ``command``, with these fields."""
        return Packer(self._layouts[payload]).pack(fields)

    def _fields(self, trace: Sequence[Inputs]) -> Iterator[tuple[int, str, int]]:
        """The bits of each field of each payload in a trace."""
        for cycle, inputs in enumerate(trace):
            for name in inputs:
                layout = self._layouts.get(name.rsplit("__", 1)[-1])
                if layout is not None:
                    for field in Packer(layout).masks():
                        yield cycle, name, field

    def record(
        self, trace: Sequence[Inputs]
    ) -> tuple[list["_PortRecord"], list["_SourceRecord"], "_Verdict"]:
        """What is to be seen at the boundary of the table from when it is ready."""
        harness, table = self.harness, self.harness.table
        config = harness.config
        ports = [_PortRecord(config) for _ in range(config.ports)]
        sources = [_SourceRecord(config) for _ in range(config.sources)]
        verdict = _Verdict()
        guarantee = Guarantee(self.output)
        last = len(trace) - 1
        began: int | None = None

        def look(ctx: Any, cycle: int) -> bool:
            nonlocal began

            def get(value: Any) -> int:
                return int(ctx.get(Value.cast(value)))

            if cycle == last:
                record = getattr(table.violation, guarantee)
                verdict.cycle, verdict.place = get(record.cycle), get(record.port)
                verdict.deadline = get(table.terms.deadline)
                verdict.patience = get(table.terms.patience)
                return False
            if began is None and get(table.ready):
                began = cycle
            if began is None:
                return True
            now = cycle - began
            for number, port in enumerate(ports):
                lookup, beat = table.lookup[number], table.beat[number]
                dma, retire = table.dma[number], table.retire[number]
                port.lookups.see(now, get(lookup.valid), get(lookup.ready), get(lookup.payload))
                port.beats.see(now, get(beat.valid), get(beat.ready), get(beat.payload))
                if get(beat.ready):
                    port.accepts.append(now)
                if get(dma.valid):
                    port.dma.append((now, get(dma.tag)))
                if get(retire.valid):
                    port.retires.append((now, get(retire.payload)))
            for number, source in enumerate(sources):
                command, done = table.command[number], table.completion[number]
                source.commands.see(
                    now, get(command.valid), get(command.ready), get(command.payload)
                )
                source.completions.see(now, get(done.valid), get(done.ready), get(done.payload))
                if get(done.ready):
                    source.hears.append(now)
            return True

        self.play(trace, look)
        return ports, sources, verdict


class _PortRecord:
    def __init__(self, config: TableConfig):
        kept = ("tag", "status", "first", "last", "address", "length")
        self.lookups = _Stream(Packer(lookup_layout(config)))
        self.beats = _Stream(Packer(beat_layout(config)), kept)
        self.accepts: list[int] = []
        self.dma: list[tuple[int, int]] = []
        self.retires: list[tuple[int, int]] = []


class _SourceRecord:
    def __init__(self, config: TableConfig):
        self.commands = _Stream(Packer(command_layout(config)))
        self.completions = _Stream(Packer(completion_layout(config)), ("status",))
        self.hears: list[int] = []


@dataclasses.dataclass
class _Verdict:
    cycle: int = 0
    place: int = 0
    deadline: int = 0
    patience: int = 0


def case_of(
    name: str,
    harness: Harness,
    trace: Sequence[Mapping[str, int]],
    output: str,
    *,
    always: Sequence[str] = ALWAYS,
    never: Sequence[str] = NEVER,
    deadline: int = 0,
    smaller: bool = True,
) -> Case:
    """Makes a case of the trace that refuted an output.

    Parameters
    ----------
    name : str
    harness : Harness
        Made anew, with the parameters under which the trace was found. It can't be used again.
    trace : sequence of mapping
        What :func:`sim.prover.refute` found: per cycle the value of each input.
    output : str
        A guarantee.
    always, never : sequence of str
        What was assumed when the trace was found: outputs that are high, and low, in every cycle.
    deadline : int
        Of ``bounded_invalidation``: what it was judged by.
    smaller : bool
        Leave out of the trace what it does without need.

    Raises
    ------
    CaseError
        If the output is not high in the last cycle of the trace, and only then, or a rule is
        broken on the way.
    """
    player = Player(harness, output, always, never, deadline)
    ignored = ("clk", "deadline", "patient", "asked", "waited")
    best = [{n: v for n, v in i.items() if v and n not in ignored} for i in trace]
    if not player.violates(best):
        raise CaseError(f"the trace of {len(best)} cycles doesn't show a violation of {output}")
    if smaller:
        best = player.smaller(best)
    ports, sources, verdict = player.record(best)
    widths = {f.name: f.default for f in dataclasses.fields(TableConfig) if f.name in WIDTHS}
    return Case(
        name,
        Guarantee(output),
        verdict.cycle,
        verdict.place,
        dataclasses.replace(harness.config, **widths),  # pyright: ignore[reportArgumentType]
        tuple(wide_port(harness.config, port) for port in ports),
        tuple(_wide_source(harness.config, source) for source in sources),
        verdict.deadline,
        verdict.patience,
    )


def wide_port(narrow: TableConfig, port: _PortRecord) -> PortCase:
    """What happens on a port of a narrow table, as it would on one of a wide table."""
    lookups = [
        dataclasses.replace(offer, fields=wide_lookup(narrow, offer.fields))
        for offer in port.lookups.offers
    ]
    # Answers come in the order of the lookups.
    answers = [offer.fields for offer in port.beats.offers if offer.fields.get("first")]
    for number, answer in enumerate(answers):
        if answer.get("status") == LookupStatus.MISALIGNED.value:
            lookups[number] = dataclasses.replace(
                lookups[number], fields=_misaligned(lookups[number].fields)
            )
    beats = [
        dataclasses.replace(offer, fields=wide_beat(offer.fields)) for offer in port.beats.offers
    ]
    return PortCase(
        tuple(lookups), tuple(beats), tuple(port.accepts), tuple(port.dma), tuple(port.retires)
    )


def _wide_source(narrow: TableConfig, source: _SourceRecord) -> SourceCase:
    commands = [
        dataclasses.replace(offer, fields=wide_command(narrow, offer.fields))
        for offer in source.commands.offers
    ]
    return SourceCase(tuple(commands), tuple(source.completions.offers), tuple(source.hears))


def wide_address(narrow: TableConfig, address: int) -> int:
    """The address at the same distance, scaled, from the end of the address space."""
    wide = TableConfig.__dataclass_fields__["address_width"].default
    return (1 << wide) - ((1 << narrow.address_width) - address) * SCALE


def wide_lookup(narrow: TableConfig, fields: Mapping[str, int]) -> dict[str, int]:
    """The lookup of a narrow table as one of a wide table."""
    wide = dict(fields)
    wide["address"] = wide_address(narrow, fields.get("address", 0))
    if "length" in fields:
        wide["length"] = fields["length"] * SCALE
    return wide


def _misaligned(fields: Mapping[str, int]) -> dict[str, int]:
    """A wide lookup with the same end that begins a byte later.

    Scaled, a place that is no multiple of 8 would become one.
    """
    wide = {**fields, "address": fields["address"] + 1}
    if "length" in fields:
        wide["length"] = fields["length"] - 1
    return wide


def wide_beat(fields: Mapping[str, int]) -> dict[str, int]:
    """The beat of a narrow table as one of a wide table."""
    return {n: v * SCALE if n in ("address", "length") else v for n, v in fields.items()}


def wide_command(narrow: TableConfig, fields: Mapping[str, int]) -> dict[str, int]:
    """The command to a narrow table as one to a wide table."""
    wide = {n: v * SCALE if n in ("length", "offset") else v for n, v in fields.items()}
    base, page_shift = fields.get("base", 0), fields.get("page_shift", 0)
    if fields.get("opcode", 0) in _REGISTERS:
        # At the end of the address space, 0 is nothing special.
        base = 0 if wide.pop("zero_based", 0) else base
    if fields.get("opcode", 0) in _WITH_PLACE:
        wide["base"] = wide_address(narrow, base)
        # A page of one byte is none in either.
        wide["page_shift"] = page_shift + SCALE.bit_length() - 1
    else:
        wide = {n: v for n, v in wide.items() if n not in ("base", "page_shift")}
    return wide


_REGISTERS = frozenset(
    opcode.value for opcode in (Opcode.REGISTER, Opcode.FAST_REGISTER, Opcode.REREGISTER)
)

_WITH_PLACE = _REGISTERS | {Opcode.WRITE_TRANSLATION.value, Opcode.BIND.value}
"""Commands that say where an entry lies or how large its pages are."""
