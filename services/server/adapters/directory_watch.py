"""Wakes tasks that wait for changes in a directory. The process has one inotify instance: the kernel allows a user only
128 of them. A wake-up is a hint; waiting tasks also look again from time to time, so a lost one costs a second.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from asyncinotify import Inotify, Mask, Watch

log = logging.getLogger(__name__)

_CHANGES = Mask.MODIFY | Mask.CREATE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.CLOSE_WRITE | Mask.ATTRIB
# To wait for further changes: a busy log writes thousands of times a second, and the kernel merges what is not yet
# read.
_GATHER_SECONDS = 0.01


class DirectoryWatch:
    """Watches directories, each one while a task waits for it. Enter the context manager before use: its task reads the
    events."""

    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[str, tuple[Watch, list[asyncio.Event]]] = {}

    async def __aenter__(self) -> "DirectoryWatch":
        try:
            self._inotify = Inotify()
        except OSError as error:
            log.warning("no inotify: %s; log followers look for new lines once a second", error)
            return self
        self._reader = asyncio.create_task(self._read(self._inotify), name="directory-watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    @contextmanager
    def waking(self, event: asyncio.Event, *directories: str) -> Iterator[bool]:
        """Set `event` at every change in these directories. Yields whether all could be watched; raises nothing."""
        watched = [directory for directory in directories if self._add(directory, event)]
        try:
            yield len(watched) == len(directories)
        finally:
            for directory in watched:
                self._drop(directory, event)

    def _add(self, directory: str, event: asyncio.Event) -> bool:
        if self._inotify is None:
            return False
        if directory in self._waiting:
            self._waiting[directory][1].append(event)
            return True
        try:
            watch = self._inotify.add_watch(directory, _CHANGES)
        except OSError as error:
            log.debug("cannot watch %s: %s", directory, error)
            return False
        self._waiting[directory] = (watch, [event])
        return True

    def _drop(self, directory: str, event: asyncio.Event) -> None:
        watch, events = self._waiting[directory]
        events.remove(event)
        if events:
            return
        del self._waiting[directory]
        if self._inotify is not None:
            with suppress(OSError):  # the directory was removed, and its watch with it
                self._inotify.rm_watch(watch)

    async def _read(self, inotify: Inotify) -> None:
        while True:
            change = await inotify.get()
            watch = change.watch
            if watch is None:  # the queue has overflowed: anything may have changed
                events = [event for _, waiting in self._waiting.values() for event in waiting]
            else:
                events = [event for own, waiting in self._waiting.values() if own is watch for event in waiting]
            for event in events:
                event.set()
            if Mask.MODIFY in change.mask:
                await asyncio.sleep(_GATHER_SECONDS)
