"""Reports the end of a process by a pidfd in the event loop: within a millisecond, and for processes of any parent.
Has keys and pids; the core decides which process is watched, and whether the pid is still the right one.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Protocol


class ProcessWatches(Protocol):
    """Watches processes as `Pidfds` does."""

    def watch(self, key: str, pid: int) -> None: ...
    def unwatch(self, key: str) -> None: ...
    def close(self) -> None: ...


class Pidfds:
    """Has the open pidfds by key. Calls `on_exit(key)` in the loop, once, after the descriptor is closed."""

    def __init__(self, on_exit: Callable[[str], None]) -> None:
        self._on_exit = on_exit
        self._descriptors: dict[str, int] = {}

    def watch(self, key: str, pid: int) -> None:
        """Watch a process under a key that is not in use. Raises ProcessLookupError (it is gone) or another OSError."""
        if key in self._descriptors:
            raise ValueError(f"{key} is watched already")
        descriptor = os.pidfd_open(pid)  # always close-on-exec
        try:
            asyncio.get_running_loop().add_reader(descriptor, self._ended, key)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptors[key] = descriptor

    def unwatch(self, key: str) -> None:
        """Stop watching; nothing happens for a key that is not watched."""
        descriptor = self._descriptors.pop(key, None)
        if descriptor is not None:
            # The reader goes first, because a closed number may soon be another file's.
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Stop watching everything."""
        for key in list(self._descriptors):
            self.unwatch(key)

    def __len__(self) -> int:
        return len(self._descriptors)

    def _ended(self, key: str) -> None:
        # The pidfd of an ended process stays readable: without this the loop would spin.
        self.unwatch(key)
        self._on_exit(key)
