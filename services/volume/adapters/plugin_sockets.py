"""Finds the sockets below `plugins_registry`, and reports through inotify that something changed there."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from asyncinotify import Inotify, Mask

from services.volume.core.registration.plugin_registry import Identity

MAX_SOCKETS = 256
MAX_ENTRIES = 4096  # of all directories together
_CHANGES = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.DELETE_SELF | Mask.ONLYDIR


class PluginSockets:
    """Looks for sockets below the directory `root`, which may be absent.

    After `look`, `trouble` is one line about what `look` could not do, because the directory has more entries than it
    reads or because changes are not reported; "" = nothing.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.trouble = root, ""
        self._inotify: Inotify | None = None

    async def run(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change in a directory that `look` has read, until cancelled. Raises OSError where
        inotify cannot be used: then changes are found by the next look."""
        self._inotify = Inotify()
        try:
            on_change()
            async for _ in self._inotify:
                on_change()
        finally:
            inotify, self._inotify = self._inotify, None
            inotify.close()

    def look(self) -> dict[str, Identity]:
        """Return the sockets by absolute path; blocking. A directory is watched before it is read. Names that begin
        with a dot do not count. Raises OSError."""
        found: dict[str, Identity] = {}
        self.trouble = ""
        for entries, (path, status) in enumerate(self._walk(), start=1):
            if entries > MAX_ENTRIES or len(found) >= MAX_SOCKETS:
                limit = f"{MAX_SOCKETS} sockets" if len(found) >= MAX_SOCKETS else f"{MAX_ENTRIES} entries"
                self.trouble = f"{self.root} has more than {limit}: remove what belongs to no plugin"
                break
            if stat.S_ISSOCK(status.st_mode):
                found[str(path)] = (status.st_dev, status.st_ino, status.st_mtime_ns)
        return found

    def _walk(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield every entry below the root."""
        waiting = [self.root]
        while waiting:
            directory = waiting.pop()
            self._watch(directory)
            try:
                entries = sorted(directory.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            for path in entries:
                if path.name.startswith("."):
                    continue
                try:
                    status = path.lstat()
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
                yield path, status

    def _watch(self, directory: Path) -> None:
        try:
            if self._inotify is not None:
                self._inotify.add_watch(directory, _CHANGES)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.trouble = f"{directory} cannot be watched: {error.strerror}; plugins are found once a minute"
