"""Saves records in a thread, all that wait in one go: pods that change together share one sync of the directory.

Knows nothing of what a record means, nor of what waits for it to be saved.
"""

import asyncio
from contextvars import Context
from typing import Any

from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.process.deadlines import waiting_for

Waiting = tuple[str, dict[str, Any], "asyncio.Future[RecordLocation]"]


class Saver:
    """One checkpoint's writer. While one batch is written the next one gathers."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def save(self, key: str, data: dict[str, Any]) -> RecordLocation:
        """As `Checkpoint.save`; returns once the record is where the result states. The caller waits for the disk,
        however long that lasts: a restart would not make the disk faster. Raises OSError."""
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[RecordLocation] = loop.create_future()
        self._waiting.append((key, data, saved))
        if self._writing is None:
            # It writes for all pods, and is not the work of the one that was first.
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
