"""A follower for service tests: the changes of one stream, and waiting for a state of it."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from bus.interface import Bus, Change, Deleted, Put
from bus.messages.streams import Stream
from tests.support.waits.deadline import WAIT_SECONDS

T = TypeVar("T")


class FollowedStream(Generic[T]):
    """Every change of a stream, in order. Make it before the bus is started."""

    def __init__(self, bus: Bus, stream: Stream[T]) -> None:
        self.changes: list[Change[T]] = []
        self._followed = bus.follow(stream, self._on_change)
        self._changed = asyncio.Event()

    @property
    def state(self) -> dict[str, T]:
        """The values now."""
        return dict(self._followed.state)

    @property
    def complete(self) -> bool:
        """Whether the owner has marked its list as complete."""
        return self._followed.complete

    @property
    def history(self) -> list[str]:
        """Puts and deletes in order, as `put <key>` and `delete <key>`."""
        return [
            f"{'put' if isinstance(c, Put) else 'delete'} {c.key}" for c in self.changes if isinstance(c, Put | Deleted)
        ]

    async def until(self, condition: Callable[[dict[str, T]], bool]) -> dict[str, T]:
        """Return the state once it fulfils the condition; fail when it does not within WAIT_SECONDS."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not condition(self.state):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"the stream did not get there; it is {self.state}") from None
        return self.state

    async def until_complete(self) -> dict[str, T]:
        """Return the state once the owner has marked it as complete."""
        return await self.until(lambda _: self.complete)

    def _on_change(self, change: Change[T]) -> None:
        self.changes.append(change)
        self._changed.set()
