"""Collects which pods the next turn of the loop looks at: those of which something changed, or every pod."""

import asyncio
from collections.abc import Iterable


class Changes:
    """An event that is set for some pods or for all of them. At the start it is set for every pod."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._uids: set[str] = set()
        self._every_pod = True

    def set(self) -> None:
        """Note that something changed that may concern every pod."""
        self._every_pod = True
        self._event.set()

    def add_pods(self, uids: Iterable[str]) -> None:
        """Note that something of these pods (UIDs) changed, or, without UIDs, of a device that no pod has."""
        self._uids.update(uids)
        self._event.set()

    def is_set(self) -> bool:
        """Return whether something changed since `take`."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until something changes."""
        await self._event.wait()

    def take(self) -> frozenset[str] | None:
        """Return the UIDs to look at now, None = every pod; what changes from now on is for the next turn."""
        uids = None if self._every_pod else frozenset(self._uids)
        self._uids.clear()
        self._every_pod = False
        self._event.clear()
        return uids
