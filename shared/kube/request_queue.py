"""The order in which the requests of one client pass its rate limit: by urgency, then by arrival.

Requests of several clients may share one queue, and so one limit. Knows nothing of what is requested.
"""

import asyncio
from enum import IntEnum

from shared.kube.rate_limit import TokenBucket
from shared.time.clock import Clock

_FAIR = 8  # every eighth turn goes to the oldest request, so that no urgency waits for ever


class Urgency(IntEnum):
    """Which requests go first when the rate limit holds several back."""

    FIRST = 0
    SECOND = 1
    THIRD = 2
    FOURTH = 3


class RequestQueue:
    """Lets requests wait for their turn, the most urgent first, so that no more than `qps` are sent a second, and
    `burst` at once. `qps`: 0 = 5, a negative number = without a limit. Belongs to one event loop."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock, self.is_limited = clock, qps >= 0
        self._bucket = TokenBucket(qps, burst, clock.monotonic())
        self._waiting: dict[Urgency, dict[int, asyncio.Future[None]]] = {urgency: {} for urgency in Urgency}
        self._arrivals = self._turns = 0
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, urgency: Urgency) -> None:
        """Return when the request may be sent. Cancelled, it takes no token."""
        self._arrivals += 1
        arrival, turn = self._arrivals, asyncio.get_running_loop().create_future()
        self._waiting[urgency][arrival] = turn
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting[urgency].pop(arrival, None)
            if turn.done() and not turn.cancelled():  # its token was taken, and no request uses it
                self._bucket.give_back()
                self._serve()
            raise

    def _serve(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while queues := self._queues():
            now = self._clock.monotonic()
            if delay := self._bucket.ready_in(now):
                self._timer = asyncio.get_running_loop().call_later(delay, self._serve)
                return
            self._bucket.take(now)
            self._next(queues).set_result(None)

    def _queues(self) -> list[dict[int, asyncio.Future[None]]]:
        """Return the queues with a request in front that waits, by urgency. A cancelled one is dropped: its task, which
        would remove it, has not run yet.
        """
        for queue in self._waiting.values():
            while queue and next(iter(queue.values())).done():
                del queue[next(iter(queue))]
        return [queue for queue in self._waiting.values() if queue]

    def _next(self, queues: list[dict[int, asyncio.Future[None]]]) -> asyncio.Future[None]:
        self._turns += 1
        chosen = min(queues, key=lambda queue: next(iter(queue))) if self._turns % _FAIR == 0 else queues[0]
        return chosen.pop(next(iter(chosen)))
