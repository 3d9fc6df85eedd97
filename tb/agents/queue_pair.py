"""A queue pair: lookups one after another, each until it is answered."""

from collections.abc import Callable, Iterable

from tb.agents.environment import Environment
from tb.agents.requests import LookupRequest
from tb.model.words import Lookup, LookupStatus


class QueuePair:
    """Plays one queue pair on one port. It waits for events, never for the clock.

    Parameters
    ----------
    environment : Environment
    number : int
        Its QPN.
    port : int
    backoff : function
        Cycles to wait before a lookup that was refused or aborted is tried again.
    """

    def __init__(
        self,
        environment: Environment,
        number: int,
        port: int,
        backoff: Callable[[], int] = lambda: 4,
    ):
        self.number = number
        self.port = port
        self.retries = 0
        self._environment = environment
        self._backoff = backoff

    async def look_up(self, lookup: Lookup) -> LookupRequest:
        """Asks until it gets an answer; returns the request that got it."""
        port = self._environment.ports[self.port]
        request = port.submit(lookup)
        await request.done.wait()
        while request.status in (LookupStatus.RETRY, LookupStatus.ABORTED):
            self.retries += 1
            await self._environment.wait(self._backoff())
            request = port.submit(lookup, again=request)
            await request.done.wait()
        return request

    async def run(self, lookups: Iterable[Callable[[], Lookup]]) -> None:
        """Does one lookup after another; each is made when its turn comes."""
        for make in lookups:
            await self.look_up(make())
