"""Reads GetContainerEvents, as the only reader of this node, because runtimes share one channel among all readers.
Passes on each event as a hint, and reports when the stream opens and breaks. The core decides what follows from a hint.
"""

import asyncio
import logging
from collections.abc import Callable

from services.pleg.adapters.waiting import wait_for
from services.pleg.core.retry_delay import RetryDelay
from shared.cri.interface import Runtime, RuntimeCallError, RuntimeEvent
from shared.time.clock import Clock

log = logging.getLogger(__name__)


class EventReader:
    """Keeps the stream open as long as the runtime has it.
    gRPC reports nothing of a stream before its first message. So a stream counts as open once a full list that began
    after its open has succeeded, and the stream has not failed: that list also shows what events before it reported.
    """

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        *,
        on_event: Callable[[RuntimeEvent], None],
        on_turn: Callable[[bool], None],
        relist: Callable[[], None],
    ) -> None:
        self._runtime, self._clock = runtime, clock
        self._on_event, self._on_turn, self._relist = on_event, on_turn, relist
        self._opened_at: float | None = None
        self._connected = False
        self._runtime_back = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled. A runtime without events gets the request again after its restart, as it may be
        newer."""
        retry = RetryDelay()
        while True:
            try:
                await self._read(retry)
                error = RuntimeCallError("GetContainerEvents", "Unavailable", "the runtime ended the event stream")
            except RuntimeCallError as failure:
                error = failure
            finally:
                self._opened_at = None
                self._turn(connected=False)
            if error.code == "Unimplemented":
                log.info("the container runtime has no event stream: relying on pidfds and full lists")
                await self._runtime_back.wait()
                self._runtime_back.clear()
            else:
                log.debug("event stream broke: %s", error)
                await wait_for(self._runtime_back, retry.failed())

    def listed(self, began_at: float) -> None:
        """Note that a full list begun at `began_at` (CLOCK_MONOTONIC seconds) has succeeded."""
        if self._opened_at is not None and began_at >= self._opened_at:
            self._turn(connected=True)

    def runtime_back(self) -> None:
        """Open the stream again at once: the runtime answers again."""
        self._runtime_back.set()

    async def _read(self, retry: RetryDelay) -> None:
        events = self._runtime.events()
        self._opened_at = self._clock.monotonic()
        self._relist()
        try:
            async for event in events:
                retry.succeeded()
                self._on_event(event)
        finally:
            if (close := getattr(events, "aclose", None)) is not None:
                await close()

    def _turn(self, *, connected: bool) -> None:
        if connected != self._connected:
            self._connected = connected
            self._on_turn(connected)
