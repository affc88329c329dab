"""A follower for service tests: what one stream says, and waiting for it to say something."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from bus.interface import Bus, Change, Deleted, Put
from bus.messages.streams import Stream

T = TypeVar("T")

PATIENCE = 60.0  # seconds; what does not come within is not coming


class Heard(Generic[T]):
    """Everything a stream said to this follower, in order. Make it before the bus is started."""

    def __init__(self, bus: Bus, stream: Stream[T]) -> None:
        self.changes: list[Change[T]] = []
        self._followed = bus.follow(stream, self._on_change)
        self._news = asyncio.Event()

    @property
    def state(self) -> dict[str, T]:
        """The values now."""
        return dict(self._followed.state)

    @property
    def complete(self) -> bool:
        """The owner says that is all."""
        return self._followed.complete

    @property
    def said(self) -> list[str]:
        """Puts and deletes in order, as `put <key>` and `delete <key>`."""
        return [
            f"{'put' if isinstance(c, Put) else 'delete'} {c.key}" for c in self.changes if isinstance(c, Put | Deleted)
        ]

    async def until(self, condition: Callable[[dict[str, T]], bool]) -> dict[str, T]:
        """The state as soon as it fulfils the condition; fails when it does not within 10 s."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition(self.state):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"the stream never got there; it is {self.state}") from None
        return self.state

    async def until_complete(self) -> dict[str, T]:
        """The state once the owner says it is complete."""
        return await self.until(lambda _: self.complete)

    def _on_change(self, change: Change[T]) -> None:
        self.changes.append(change)
        self._news.set()
