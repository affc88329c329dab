"""Detects changes of the static pod path through inotify; it reports that there is a change, not which."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from asyncinotify import Inotify, Mask

log = logging.getLogger(__name__)

# A file is read once its writer has closed it, because MODIFY would show every half-copied state. CREATE is for links,
# which are not written.
_CONTENT = (
    Mask.CLOSE_WRITE
    | Mask.CREATE
    | Mask.DELETE
    | Mask.MOVED_FROM
    | Mask.MOVED_TO
    | Mask.ATTRIB
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
)


class ManifestWatch:
    """Watches the path itself and the nearest existing directory above it, so that the path may appear, vanish and be
    replaced. `on_change` is called in the event loop for each event that may matter."""

    def __init__(self, path: str, on_change: Callable[[], None]) -> None:
        self._path = Path(os.path.normpath(path))
        self._on_change = on_change
        self._inotify: Inotify | None = None
        self._names: dict[int, str | None] = {}  # watch descriptor -> the one name that matters, None = every name
        self._armed = asyncio.Event()

    def arm(self) -> str | None:
        """Watch the path where it is now. Call it before every look, so that no change after the look is missed. Return
        one line when inotify is not available: then only the periodic look detects changes."""
        try:
            if self._inotify is None:
                self._inotify = Inotify()
            parent, name = self._nearest_parent()
            while True:
                wanted: dict[int, str | None] = {self._inotify.add_watch(parent, _CONTENT).wd: name}
                watched, (parent, name) = parent, self._nearest_parent()
                if parent == watched:
                    break  # otherwise a directory was made before the watch, which then has no event of it
            if self._path.is_dir():
                wanted[self._inotify.add_watch(self._path, _CONTENT).wd] = None
        except (FileNotFoundError, NotADirectoryError):  # it was removed between the look and the watch
            self._on_change()
            return None
        except OSError as error:
            return f"cannot watch {self._path}: {error.strerror}; changes are noticed by the periodic look only"
        for watch in self._inotify.watches:
            if watch.wd not in wanted and watch.wd in self._names:
                self._forget(self._inotify, watch.wd)
        self._names = wanted
        self._armed.set()
        return None

    async def run(self) -> None:
        """Receive events until cancelled."""
        await self._armed.wait()
        assert self._inotify is not None
        async for event in self._inotify:
            wd = event.watch.wd if event.watch is not None else None
            if Mask.Q_OVERFLOW in event.mask or self._matters(wd, event.name):
                self._on_change()

    def close(self) -> None:
        """Close the inotify descriptor."""
        if self._inotify is not None:
            self._inotify.close()

    def _matters(self, wd: int | None, name: Path | None) -> bool:
        if wd is None or wd not in self._names:
            return False
        only = self._names[wd]
        if only is not None:
            return name is None or str(name) == only
        return name is None or not str(name).startswith(".")

    def _nearest_parent(self) -> tuple[Path, str]:
        for parent in self._path.parents:
            if parent.is_dir():
                return parent, self._path.relative_to(parent).parts[0]
        raise FileNotFoundError(str(self._path))

    def _forget(self, inotify: Inotify, wd: int) -> None:
        for watch in inotify.watches:
            if watch.wd == wd:
                with contextlib.suppress(OSError):  # it has ended with the directory that it watched
                    inotify.rm_watch(watch)
