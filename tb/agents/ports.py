"""One port of the table, from the requester's side."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from cocotb_bus.bus import Bus

from rtl.config import RetireScope, TableConfig
from rtl.layouts import beat_layout, lookup_layout
from tb.agents.dma import DmaEngine
from tb.agents.generators import Willing, always
from tb.agents.packing import Packer
from tb.agents.requests import LookupRequest
from tb.model.scoreboard import Scoreboard
from tb.model.words import Beat, Lookup, LookupStatus


def open_bus(dut: Any, name: str, *signals: str) -> Any:
    """The signals of one interface, by the names that the table's top level gives them."""
    return Bus(dut, name, list(signals), bus_separator="__", case_insensitive=False)


class Port:
    """Offers lookups, accepts beats, and plays the DMA engine behind them.

    Does its work once a cycle, in :meth:`step`. It gives out tags in the order in which they came
    back, and offers nothing while it has none.

    Parameters
    ----------
    dut : simulator handle
    config : TableConfig
    number : int
    dma : DmaEngine
    scoreboard : Scoreboard
    trace : function
        Is told of each accepted beat: cycle, name of the stream, word.
    """

    def __init__(
        self,
        dut: Any,
        config: TableConfig,
        number: int,
        dma: DmaEngine,
        scoreboard: Scoreboard,
        trace: Any,
    ):
        self.number = number
        self.dma = dma
        self.offers: Willing = always()
        self.accepts: Willing = always()
        self.finished: list[LookupRequest] = []
        """Answered lookups since somebody last emptied the list."""
        self._scoreboard = scoreboard
        self._trace = trace
        self._lookup = open_bus(dut, f"lookup__{number}", "payload", "valid", "ready")
        self._beat = open_bus(dut, f"beat__{number}", "payload", "valid", "ready")
        self._retire = open_bus(dut, f"retire__{number}", "payload", "valid", "ready")
        self._dma = open_bus(dut, f"dma__{number}", "tag", "valid")
        self._kill = getattr(dut, f"kill__{number}")
        self._lookup_packer = Packer(lookup_layout(config))
        self._beat_packer = Packer(beat_layout(config))
        self._tags = config.tags
        self._ends_with_answer = config.scope is RetireScope.LOOKUP
        self.reset()

    def reset(self) -> None:
        """Forgets everything, and drives every input to rest."""
        self._queue: deque[LookupRequest] = deque()
        self._awaiting: deque[LookupRequest] = deque()
        self._free: deque[int] = deque(range(self._tags))
        self._busy: set[int] = set()
        self._offered: LookupRequest | None = None
        self._returning: LookupRequest | None = None
        self._retired: LookupRequest | None = None
        self._ready = False
        self._waiting: int | None = None
        self.dma.reset()
        for signal in (
            self._lookup.payload,
            self._lookup.valid,
            self._beat.ready,
            self._retire.payload,
            self._retire.valid,
            self._dma.tag,
            self._dma.valid,
        ):
            signal.value = 0
        self._driven = {"lookup": 0, "retire": 0, "dma": 0}

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or in flight."""
        return not (
            self._queue or self._offered or self._awaiting or self._returning or self.dma.busy
        )

    @property
    def awaiting(self) -> Sequence[LookupRequest]:
        """The lookups that were taken and have not had their last beat, in order."""
        return self._awaiting

    @property
    def beat_waits(self) -> bool:
        """Whether a beat was on offer in the last cycle, and was not taken."""
        return self._waiting is not None

    def in_flight(self, cycle: int) -> Iterator[LookupRequest]:
        """The lookups that were somewhere between their offer and the return of their tag.

        ``cycle`` is the last one. Each comes once.
        """
        found: dict[LookupRequest, None] = dict.fromkeys(self.dma.requests)
        found |= dict.fromkeys(self._awaiting)
        if self.finished and self.finished[-1].finished == cycle:
            found[self.finished[-1]] = None
        for request in (self._offered, self._returning, self._retired):
            if request is not None and request.offered is not None and request.offered <= cycle:
                found[request] = None
        yield from found

    def submit(
        self, lookup: Lookup, *, chooses_tag: bool = False, again: LookupRequest | None = None
    ) -> LookupRequest:
        """Queues a lookup; it is offered when those before it are accepted.

        ``again`` is the request that it repeats, which was refused or aborted.
        """
        since = None if again is None else again.since
        request = LookupRequest(lookup, self.number, chooses_tag, since)
        self._queue.append(request)
        return request

    def step(self, cycle: int, held: bool) -> None:
        """Sees the values at the end of a cycle, and drives those of the next.

        ``held`` says that the arbiter makes the offered lookup wait.
        """
        # What was accepted at this edge.
        offered = self._offered
        if offered is not None:
            if self._lookup.ready.value:
                offered.admitted = cycle
                offered.collides = offered.lookup.tag in self._busy
                self._busy.add(offered.lookup.tag)
                self._awaiting.append(offered)
                self._scoreboard.admitted(offered)
                self._offered = None
            elif held:
                offered.held += 1
        self._look_at_beat(cycle)
        self._retired = self._returning
        if self._returning is not None:
            if not self._ends_with_answer:
                self._busy.discard(self._returning.lookup.tag)
            self._returning.retired = cycle
            self._give_back(self._returning)
            self._returning = None
        # What is offered from here on.
        self._offer(cycle)
        ready = next(self.accepts)
        if ready != self._ready:
            self._ready = ready
            self._beat.ready.value = int(ready)
        killed = self._kill.value.to_unsigned() if self.dma.busy else 0
        issued, self._returning = self.dma.step(killed)
        self._drive("dma", self._dma, "tag", issued)
        self._drive("retire", self._retire, "payload", self._returning)

    def _look_at_beat(self, cycle: int) -> None:
        """Accepts the beat that is offered; one that isn't accepted must stay as it is."""
        valid = bool(self._beat.valid.value)
        if self._ready and not valid and self._waiting is None:
            return
        word = self._beat.payload.value.to_unsigned() if valid else None
        assert self._waiting in (None, word), (
            f"port {self.number}, cycle {cycle}: a beat changed while it was offered, "
            f"from {self._waiting:#x} to {word if word is None else hex(word)}"
        )
        self._waiting = None if self._ready else word
        if self._ready and word is not None:
            self._accept(cycle, word)

    def _drive(self, name: str, bus: Any, payload: str, request: LookupRequest | None) -> None:
        valid = int(request is not None)
        if request is not None:
            getattr(bus, payload).value = request.lookup.tag
        if valid != self._driven[name]:
            self._driven[name] = valid
            bus.valid.value = valid

    def _offer(self, cycle: int) -> None:
        if self._offered is None:
            willing = next(self.offers)
            if self._queue and willing and (self._queue[0].chooses_tag or self._free):
                request = self._queue.popleft()
                if not request.chooses_tag:
                    request.lookup = _with_tag(request.lookup, self._free.popleft())
                request.offered = cycle + 1
                if request.since is None:
                    request.since = request.offered
                self._offered = request
                self._lookup.payload.value = self._pack(request.lookup)
        valid = int(self._offered is not None)
        if valid != self._driven["lookup"]:
            self._driven["lookup"] = valid
            self._lookup.valid.value = valid

    def _pack(self, lookup: Lookup) -> int:
        return self._lookup_packer.pack(
            {
                "tag": lookup.tag,
                "key.index": lookup.key.index,
                "key.variant": lookup.key.variant,
                "pd": lookup.pd,
                "qpn": lookup.qpn,
                "rights": lookup.rights,
                "address": lookup.address,
                "length": lookup.length,
            }
        )

    def _accept(self, cycle: int, word: int) -> None:
        self._trace(cycle, "beat", self.number, word)
        fields = self._beat_packer.unpack(word)
        beat = Beat(
            LookupStatus(fields["status"]),
            bool(fields["first"]),
            bool(fields["last"]),
            fields["address"],
            fields["length"],
        )
        assert self._awaiting, f"port {self.number}, cycle {cycle}: {beat} answers nothing"
        request = self._awaiting[0]
        assert fields["tag"] == request.lookup.tag, (
            f"port {self.number}, cycle {cycle}: {beat} has tag {fields['tag']} "
            f"and comes in the place of {request.lookup}"
        )
        assert request.collides == (beat.status is LookupStatus.TAG_IN_USE), (
            f"port {self.number}, cycle {cycle}: {beat} of {request.lookup}, "
            f"whose tag was {'' if request.collides else 'not '}in flight"
        )
        assert beat.first == (not request.beats), f"cycle {cycle}: {beat} of {request.lookup}"
        request.beats.append((cycle, beat))
        self.dma.take(request)
        if beat.last:
            self._awaiting.popleft()
            self.finished.append(request)
            self._scoreboard.answered(request)
            if not request.collides and (not request.has_ok_beat or self._ends_with_answer):
                self._busy.remove(request.lookup.tag)
            if not request.has_ok_beat:
                self._give_back(request)
            request.done.set()

    def _give_back(self, request: LookupRequest) -> None:
        if not request.chooses_tag:
            self._free.append(request.lookup.tag)
        request.returned.set()


def _with_tag(lookup: Lookup, tag: int) -> Lookup:
    # dataclasses.replace, which is on the path of every lookup, takes three times as long.
    return Lookup(
        lookup.key,
        lookup.pd,
        lookup.qpn,
        lookup.rights,
        lookup.address,
        lookup.length,
        tag,
    )
