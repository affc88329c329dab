"""Limits how many calls that build pods the runtime works on at once: more than the cores can serve end no sooner.

A call that finishes a pod goes first, so that the first of many pods are ready while the last ones begin. A call that
takes longer than `hold_seconds` waits for something else (the network, a slow disk), and gives its turn to the next.
"""

import asyncio
import heapq
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum

from shared.process.deadlines import MAX_STALL_SECONDS, waiting_for

MIN_CALLS = 4  # at once
CALLS_PER_CORE = 2
HOLD_SECONDS = 2.0


class CallPriority(IntEnum):
    """The order in which waiting calls get their turn; the smallest goes first."""

    START = 0
    CREATE = 1
    SANDBOX_OF_NODE = 2  # of a static pod or on the node's own network: the network of all others may wait for it
    SANDBOX = 3


class CallSlots:
    """Gives turns to calls by rank; calls of one rank get them in the order of their requests."""

    def __init__(self, turns: int = 0, hold_seconds: float = HOLD_SECONDS) -> None:
        self._free = turns or max(MIN_CALLS, CALLS_PER_CORE * len(os.sched_getaffinity(0)))
        self._hold_seconds = hold_seconds
        self._waiting: list[tuple[CallPriority, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @asynccontextmanager
    async def turn(self, rank: CallPriority) -> AsyncIterator[None]:
        """Wait for a turn and hold it while the block runs, at most for `hold_seconds`."""
        if self._free:
            self._free -= 1
        else:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (rank, next(self._numbers), mine))
            try:
                with waiting_for("a turn", MAX_STALL_SECONDS + self._hold_seconds * len(self._waiting)):
                    await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self._pass_on()
                raise
        had = True

        def give_back() -> None:
            nonlocal had
            if had:
                had = False
                self._pass_on()

        overdue = asyncio.get_running_loop().call_later(self._hold_seconds, give_back)
        try:
            yield
        finally:
            overdue.cancel()
            give_back()

    def _pass_on(self) -> None:
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
