"""A DMA engine that takes its time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tb.agents.requests import LookupRequest


@dataclass(eq=False)
class _Transfer:
    request: LookupRequest
    beats: int = 0
    answered: bool = False
    wait: int = 0


class DmaEngine:
    """Holds the translations of one port, issues DMA beats under them, and returns tags.

    It issues at most one beat and returns at most one tag a cycle. Each transfer takes its time
    before each of its beats, and again before its tag is returned, which happens when its lookup is
    fully answered and all its beats are issued. A transfer that is killed gives up what it has not
    issued.

    Parameters
    ----------
    pause : function
        Cycles that a transfer waits before what it does next.
    beat_bytes : int
        Most bytes of one DMA beat; a page by default, as no AXI burst crosses one.
    """

    def __init__(self, pause: Callable[[], int], beat_bytes: int = 4096):
        self.pause = pause
        self.beat_bytes = beat_bytes
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self.issued = 0
        """DMA beats issued so far."""
        self.given_up = 0
        """DMA beats that were not, since their lookup was killed."""
        self._transfers: dict[LookupRequest, _Transfer] = {}

    @property
    def busy(self) -> bool:
        """Whether a tag has yet to be returned."""
        return bool(self._transfers)

    @property
    def requests(self) -> Iterable[LookupRequest]:
        """The lookups under whose translations there is still something to do."""
        return self._transfers

    def take(self, request: LookupRequest) -> None:
        """The last of the beats that this lookup has got so far has just been accepted."""
        beat = request.beats[-1][1]
        transfer = self._transfers.get(request)
        if transfer is None:
            if not request.has_ok_beat:
                return
            transfer = self._transfers[request] = _Transfer(request, wait=self.pause())
        transfer.beats += -(-beat.length // self.beat_bytes)
        transfer.answered = beat.last

    def step(self, killed: int = 0) -> tuple[LookupRequest | None, LookupRequest | None]:
        """What happens in the next cycle: whose beat is issued, and whose tag is returned.

        ``killed`` has a bit for each tag under which nothing more may be issued.
        """
        issued = returned = None
        for transfer in self._transfers.values():
            if killed >> transfer.request.lookup.tag & 1:
                self.given_up += transfer.beats
                transfer.beats = 0
            if transfer.wait:
                transfer.wait -= 1
            elif transfer.beats:
                if issued is None:
                    issued = transfer.request
                    transfer.beats -= 1
                    transfer.wait = self.pause()
            elif transfer.answered and returned is None:
                returned = transfer.request
        if issued is not None:
            self.issued += 1
        if returned is not None:
            del self._transfers[returned]
        return issued, returned
