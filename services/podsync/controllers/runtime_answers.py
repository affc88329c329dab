"""Repeats requests of podsync's start that the runtime did not answer, each time pleg has had an answer of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bus.interface import Bus, Change, Put
from bus.messages.pleg import NodeObserved
from bus.messages.streams import NODE_OBSERVED
from shared.cri.interface import RuntimeCallError

T = TypeVar("T")


class RuntimeAnswers:
    """Follows `node.observed`, which pleg publishes when the runtime answers again, and every 10 s while it does."""

    def __init__(self, bus: Bus) -> None:
        self._next = asyncio.Event()  # set at the next answer, at which another event takes its place
        bus.follow(NODE_OBSERVED, self._on_node)

    def _on_node(self, change: Change[NodeObserved]) -> None:
        if isinstance(change, Put) and change.value.runtime_reachable:
            self._next.set()
            self._next = asyncio.Event()

    async def repeat(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return what the request returns, which is made again after each RuntimeCallError."""
        while True:
            answered = self._next  # one that comes during the request counts
            try:
                return await request()
            except RuntimeCallError:
                await answered.wait()
