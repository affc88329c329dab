"""Saves records in a thread, all waiting ones as one batch: pods that change together share one sync of the directory.
Knows neither what a record means nor what waits for it.
"""

import asyncio
from contextvars import Context
from typing import Any

from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.process.deadlines import waiting_for

Waiting = tuple[str, dict[str, Any], "asyncio.Future[RecordLocation]"]


class Saver:
    """Writes the records of one checkpoint. While one batch is written, the next one gathers."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def save(self, key: str, data: dict[str, Any]) -> RecordLocation:
        """Save a record as `Checkpoint.save` does, and return its location once it is there. The wait for the disk has
        no limit: a restart would not make the disk faster. Raises OSError."""
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[RecordLocation] = loop.create_future()
        self._waiting.append((key, data, saved))
        if self._writing is None:
            # An empty context: the task writes for all pods, and belongs to no trace of the first one.
            self._writing = loop.create_task(self._write_all(), name="save", context=Context())
        with waiting_for(f"a write to {self._checkpoint.directory}", reported=True):
            return await saved

    async def drain(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            newest = {key: data for key, data, _ in batch}
            try:
                kept = await asyncio.to_thread(self._checkpoint.save_all, newest)
            except Exception as error:
                for _, _, saved in batch:
                    if not saved.done():
                        saved.set_exception(error)
                continue
            for key, _, saved in batch:
                if not saved.done():  # the waiting task may have been cancelled
                    saved.set_result(kept[key])
        self._writing = None
