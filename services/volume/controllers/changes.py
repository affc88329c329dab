"""Which pods the next turn of the loop looks at: those of which something changed, or every pod."""

import asyncio
from collections.abc import Iterable


class Changes:
    """Set like an event, for some pods or for all. At the start every pod is looked at."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._uids: set[str] = set()
        self._every_pod = True

    def set(self) -> None:
        """Something changed that may concern every pod."""
        self._every_pod = True
        self._event.set()

    def of(self, uids: Iterable[str]) -> None:
        """Something of these pods (UIDs) changed, or of devices that no pod has."""
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
