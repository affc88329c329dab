"""Runs requests about pods, several at once but one per key, and repeats them until the API server accepts them.

The owner makes the requests; the workers wait, retry, and log once what keeps failing.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from bus.beat import next_beat_in
from services.status.core.key_queue import RETRIES, KeyQueue
from shared.kube.interface import ApiError, ApiStatusError, ApiUnreachableError
from shared.time.backoff import Backoff
from shared.time.clock import Clock

log = logging.getLogger(__name__)

MAX_WORKERS = 10  # keys that are worked on at the same time

Work = Callable[[str], Awaitable[bool]]
"""Does what is due for a key, and returns whether a request was sent. Raises ApiError."""


class RequestWorkers:
    """Works through the keys that changed. `retries`: the delays of a key that is refused; `spread`: the part of a
    delay (0 to 1) by which it is prolonged at random."""

    def __init__(
        self,
        what: str,
        clock: Clock,
        work: Work,
        progress: Callable[[], None],
        *,
        retries: Backoff = RETRIES,
        spread: float = 0.0,
    ) -> None:
        self._what, self._clock, self._work, self._progress = what, clock, work, progress
        self._queue = KeyQueue(MAX_WORKERS, retries, spread=spread, chance=random.random)
        self._changed = asyncio.Event()
        self._logged: dict[str, str] = {}
        self._away = False

    def add(self, key: str, *, at_once: bool = False) -> None:
        """Add a key about which something changed. `at_once`: do not wait for the end of its back-off."""
        self._queue.add(key, at_once=at_once)
        self._changed.set()

    @property
    def is_idle(self) -> bool:
        """Whether everything that changed is written."""
        return self._queue.is_empty

    async def run(self) -> None:
        """Work through the keys until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                self._progress()
                while (key := self._queue.take(self._clock.monotonic())) is not None:
                    tasks.create_task(self._attempt(key), name=f"{self._what} {key}")
                wake_at = self._queue.wake_at()
                now = self._clock.monotonic()
                turn = next_beat_in(now)
                pause = turn if wake_at is None else min(turn, max(0.001, wake_at - now))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()

    async def _attempt(self, key: str) -> None:
        try:
            self._queue.done(key, answered=await self._work(key))
            self._logged.pop(key, None)
            self._answered()
        except ApiUnreachableError as error:
            self._unanswered(key, str(error), 0.0)
        except ApiStatusError as error:
            if error.code == 429 or error.code >= 500:
                self._unanswered(key, str(error), error.retry_after or 0.0)
            else:
                self._refused(key, str(error))
        except ApiError as error:
            self._refused(key, str(error))
        except Exception as error:  # an unexpected object of one pod does not stop the others
            self._refused(key, f"{type(error).__name__} at {_place(error)}")
        finally:
            self._changed.set()

    def _refused(self, key: str, why: str) -> None:
        self._queue.refused(key, self._clock.monotonic())
        self._answered()
        if self._logged.get(key) != why:
            self._logged[key] = why
            log.warning("%s of %s: %s; it is tried again", self._what, key, why)

    def _unanswered(self, key: str, why: str, retry_after: float) -> None:
        self._queue.unanswered(key, self._clock.monotonic(), retry_after)
        if not self._away:
            self._away = True
            log.warning("%s of %s: %s; all wait until the API server answers", self._what, key, why)

    def _answered(self) -> None:
        if self._away and not self._queue.away:
            self._away = False
            log.info("%s: the API server answers again", self._what)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "an unknown place"
