"""Takes the file of `--lock-file` where no `kubelet` executable holds it, and detects others that open it."""

import logging
import os
from pathlib import Path

from asyncinotify import Inotify, Mask

from shared.agent.lock_file import HELD, hold
from shared.errors import OperatorError
from shared.log.klog import structured

log = logging.getLogger(__name__)


def take_lock(path: str) -> None:
    """Wait for the lock and keep it until the end of this process. Raises OperatorError."""
    if not path or os.environ.get(HELD) == path:
        return
    try:
        hold(path)
    except OSError as error:
        remedy = "give a path this user may write to"
        raise OperatorError(
            f"cannot be locked: {error.strerror}", where=f"--lock-file: {path}", remedy=remedy
        ) from error


class LockContention:
    """Detects others that open or remove the lock file after this object was made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inotify = Inotify()
        try:
            self._inotify.add_watch(Path(path), Mask.OPEN | Mask.DELETE_SELF)
        except OSError as error:
            self._inotify.close()
            raise OperatorError(f"cannot be watched: {error.strerror}", where=path, remedy="create it again") from error

    async def wait(self) -> None:
        """Return when another process opened it."""
        with self._inotify:
            event = await self._inotify.get()
            log.info("%s", structured("Lock file contention, ending", path=self._path, event=str(event.mask)))
