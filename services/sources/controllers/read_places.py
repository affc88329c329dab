"""This module limits how many single reads run at once, so that some slow answers do not delay the others."""

import asyncio
from collections.abc import Callable

SLOW_AFTER_SECONDS = 6.0  # the wait for the rate limit included
MAX_SLOW_READS = 64  # each answer has an object of at most 1.5 MiB


class ReadPlaces:
    """The places of reads, of which there are `places` at once. A read that is not answered within `SLOW_AFTER_SECONDS`
    leaves its place to another, as long as no more than `MAX_SLOW_READS` have done so and are under way. While the API
    server answers no request, as `is_away` returns, none does: a server that hangs gets fewer reads, not more."""

    def __init__(self, places: int, is_away: Callable[[], bool]) -> None:
        self._free, self._is_away = asyncio.Semaphore(places), is_away
        self._slow = 0

    async def acquire(self) -> None:
        """Wait for a place, in order of arrival."""
        await self._free.acquire()

    def begin(self) -> Callable[..., None]:
        """Begin a read in the place that was acquired. Return a function to call once, at its end; it may be the
        callback of a task."""
        loop, is_slow = asyncio.get_running_loop(), False
        timer: asyncio.TimerHandle

        def leave_place() -> None:
            nonlocal is_slow, timer
            if self._is_away():
                timer = loop.call_later(SLOW_AFTER_SECONDS, leave_place)
            elif self._slow < MAX_SLOW_READS:
                is_slow = True
                self._slow += 1
                self._free.release()

        timer = loop.call_later(SLOW_AFTER_SECONDS, leave_place)

        def end(_: object = None) -> None:
            timer.cancel()
            if is_slow:
                self._slow -= 1
            else:
                self._free.release()

        return end
