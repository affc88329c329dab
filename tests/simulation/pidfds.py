"""pidfds of processes that only the fake runtime has; they notify the incarnation that watches, until it is killed."""

import asyncio
import contextvars
from collections.abc import Callable

from tests.simulation.runtime import SimulationRuntime


class SimulationPidfds:
    """In place of pleg's Pidfds."""

    def __init__(self, runtime: SimulationRuntime, on_exit: Callable[[str], None]) -> None:
        self._runtime, self._on_exit = runtime, on_exit
        self._watched: dict[str, int] = {}
        self._context = contextvars.copy_context()
        runtime.on_exit.append(self._ended)

    def watch(self, key: str, pid: int) -> None:
        """Raises ProcessLookupError for a process that is gone."""
        if key in self._watched:
            raise ValueError(f"{key} is watched already")
        if pid not in self._runtime.running_pids():
            raise ProcessLookupError(pid)
        self._watched[key] = pid

    def unwatch(self, key: str) -> None:
        """Nothing happens for a key that is not watched."""
        self._watched.pop(key, None)

    def close(self) -> None:
        """Stop watching everything."""
        self._watched.clear()

    def _ended(self, pid: int) -> None:
        for key in [key for key, watched in self._watched.items() if watched == pid]:
            del self._watched[key]
            asyncio.get_running_loop().call_soon(self._on_exit, key, context=self._context)
