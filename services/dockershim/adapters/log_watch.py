"""Tells of changes in the directories of Docker's logs, by one inotify instance for all of them."""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from asyncinotify import Inotify, Mask, Watch

log = logging.getLogger(__name__)

_CHANGES = Mask.MODIFY | Mask.CREATE | Mask.MOVED_TO


class LogWatch:
    """Directories, each with what is called at a change in it."""

    def __init__(self) -> None:
        self._inotify = Inotify()
        self._watches: dict[str, tuple[Watch, Callable[[], None]]] = {}

    def add(self, directory: Path, on_change: Callable[[], None]) -> None:
        """Call `on_change` at each change. Logs a directory that cannot be watched: its log is copied at the end."""
        try:
            self._watches[str(directory)] = self._inotify.add_watch(directory, _CHANGES), on_change
        except OSError as error:
            log.warning("%s cannot be watched: %s; its log is copied when the container ends", directory, error)

    def remove(self, directory: Path) -> None:
        """Watch this directory no more."""
        if (entry := self._watches.pop(str(directory), None)) is not None:
            with suppress(OSError):  # the directory was removed, and its watch with it
                self._inotify.rm_watch(entry[0])

    async def run(self) -> None:
        """Read the kernel's events until cancelled."""
        try:
            async for event in self._inotify:
                if event.mask & Mask.Q_OVERFLOW:  # the kernel has dropped events, of any of the directories
                    for _, on_change in self._watches.values():
                        on_change()
                entry = self._watches.get(str(event.watch.path)) if event.watch is not None else None
                if entry is not None:
                    entry[1]()
        finally:
            self._inotify.close()
