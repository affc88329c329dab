"""Follows whether drivers of dynamic resource allocation listen: one that was killed leaves its sockets behind, and no
pod should get its devices (node.md 4.16)."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from shared.plugin_grpc.listening import follow_listening

log = logging.getLogger(__name__)


class DriverConnections:
    """Keeps a connection to each socket that `sockets` returns. `on_change` is called when one is lost or made
    again."""

    def __init__(self, sockets: Callable[[], Iterable[str]]) -> None:
        self._sockets = sockets
        self.on_change: Callable[[], None] = lambda: None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._silent: set[str] = set()

    def listens(self, socket: str) -> bool:
        """Return whether the driver at the socket listens, as far as it is known."""
        return socket not in self._silent

    def drivers_changed(self) -> None:
        """Follow the sockets that there are now."""
        sockets = set(self._sockets())
        for socket in self._tasks.keys() - sockets:
            self._tasks.pop(socket).cancel()
            self._silent.discard(socket)
        for socket in sockets - self._tasks.keys():
            self._tasks[socket] = asyncio.create_task(self._follow(socket), name=f"connection to {socket}")

    async def close(self) -> None:
        """Follow none until `drivers_changed` is called again."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, socket: str) -> None:
        def on_change(listens: bool) -> None:
            if listens == self.listens(socket):
                return
            if listens:
                self._silent.discard(socket)
                log.info("a DRA driver listens at %s again", socket)
            else:
                self._silent.add(socket)
                log.warning("no DRA driver listens at %s", socket)
            self.on_change()

        try:
            await follow_listening(socket, on_change)
        except Exception:
            log.exception("the connection to %s failed unexpectedly: the driver counts as one that listens", socket)
            self._silent.discard(socket)
            self.on_change()
