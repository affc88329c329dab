"""The owner: saves, then publishes a change every few milliseconds. What it saved is all it has after a SIGKILL."""

import asyncio
import random
import sys
from pathlib import Path

from bus import codec
from bus.lock import ServiceLock
from bus.manifest import read_manifest
from bus.process_bus import ProcessBus
from tests.process.bus_kills.arena import ITEMS, OWNER, Finish, Item, State

CHANGE_SECONDS = 0.01
BURST = 50  # changes at a time, each in its own turn of the loop, so that some arrive while a snapshot is under way
HOT_KEYS = 20
COLD_KEYS = 5000  # changed every few seconds: a lost change is still to be seen at the end


class Owner:
    """One incarnation."""

    def __init__(self, run_dir: Path, seed: str) -> None:
        self._file = run_dir / "owner.json"
        self._lock = ServiceLock(run_dir, OWNER)
        self._bus = ProcessBus(OWNER, read_manifest(run_dir), lock=self._lock)
        self._stream = self._bus.own(ITEMS)
        self._bus.answer(Finish, self._finish)
        self._finished = asyncio.Event()
        self._changing = asyncio.Lock()
        saved = self._load()
        self._items, self._version = dict(saved.items), saved.changes
        self._chance = random.Random(f"{seed}/{self._version}")

    async def run(self) -> None:
        """Own until killed."""
        await self._lock.acquire()
        for key, item in self._items.items():
            self._stream.put(key, item)
        await self._bus.start()
        for step in range(sys.maxsize):
            if step == 5:
                self._stream.mark_complete()
            if not self._finished.is_set():
                async with self._changing:
                    await self._change()
            await asyncio.sleep(CHANGE_SECONDS)

    async def _change(self) -> None:
        changed = [self._change_one() for _ in range(BURST)]
        self._save()
        for key in changed:
            if key in self._items:
                self._stream.put(key, self._items[key])
            else:
                self._stream.delete(key)
            await asyncio.sleep(0)

    def _change_one(self) -> str:
        self._version += 1
        key = f"key-{self._chance.randrange(self._chance.choice((HOT_KEYS, COLD_KEYS)))}"
        if self._chance.random() < 0.3:
            self._items.pop(key, None)
        else:
            self._items[key] = Item(version=self._version, text="x" * self._chance.randrange(40))
        return key

    async def _finish(self, _: Finish) -> State:
        self._finished.set()
        async with self._changing:
            return self._state()

    def _state(self) -> State:
        return State(items=self._items, changes=self._version)

    def _load(self) -> State:
        try:
            return codec.decode(self._file.read_bytes(), State)
        except FileNotFoundError:
            return State(items={}, changes=0)

    def _save(self) -> None:
        """No fsync: a SIGKILL takes the process and not the machine."""
        temporary = self._file.with_suffix(".new")
        temporary.write_bytes(codec.encode(self._state()))
        temporary.rename(self._file)


if __name__ == "__main__":

    async def main() -> None:
        await Owner(Path(sys.argv[1]), sys.argv[2]).run()

    asyncio.run(main())
