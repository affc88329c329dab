"""A follower: applies each change, and answers whether the result is what the test expects."""

import asyncio
import sys
from pathlib import Path

from bus.interface import Change, Deleted, Put
from bus.lock import ServiceLock
from bus.manifest import read_manifest
from bus.process_bus import ProcessBus
from tests.process.bus_kills.arena import ITEMS, AwaitState, GetState, Item, State


class Follower:
    """One incarnation."""

    def __init__(self, run_dir: Path, service: str) -> None:
        self._lock = ServiceLock(run_dir, service)
        self._bus = ProcessBus(service, read_manifest(run_dir), lock=self._lock)
        self._stream = self._bus.follow(ITEMS, self._apply)
        self._bus.answer(AwaitState, self._await)
        self._bus.answer(GetState, self._get)
        self._items: dict[str, Item] = {}
        self._changes = 0
        self._changed = asyncio.Condition()
        self._wakers: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow until killed."""
        await self._lock.acquire()
        await self._bus.start()
        await asyncio.Event().wait()

    def _apply(self, change: Change[Item]) -> None:
        self._changes += 1
        match change:
            case Put(key, item):
                self._items[key] = item
            case Deleted(key):
                del self._items[key]
        task = asyncio.create_task(self._wake())
        self._wakers.add(task)
        task.add_done_callback(self._wakers.discard)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _await(self, expected: AwaitState) -> State:
        def reached() -> bool:
            fresh = self._stream.complete and not self._stream.stale
            return fresh and self._items == dict(self._stream.state) == expected.items

        async with self._changed:
            await self._changed.wait_for(reached)
        return self._state()

    async def _get(self, _: GetState) -> State:
        return self._state()

    def _state(self) -> State:
        return State(items=self._items, changes=self._changes)


if __name__ == "__main__":

    async def main() -> None:
        await Follower(Path(sys.argv[1]), sys.argv[2]).run()

    asyncio.run(main())
