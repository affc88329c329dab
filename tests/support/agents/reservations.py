"""Reserves ports and networks for one process of tests, from when they are chosen until they are in use.

A reservation is an abstract Unix socket with a name. Like a port or a bridge it belongs to a network namespace, every
process in it sees it, and it is free again when its process ends.
"""

import socket
from collections import deque


class Reservations:
    """Keeps the newest `most` names that this process has reserved; what has an older name is in use by then."""

    def __init__(self, kind: str, most: int) -> None:
        self._kind, self._most = kind, most
        self._held: deque[socket.socket] = deque()

    def reserve(self, name: str | int) -> bool:
        """Return whether the name was free; it is then reserved."""
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0bulkhead-tests-{self._kind}-{name}")
        except OSError:
            reservation.close()
            return False
        self._held.append(reservation)
        if len(self._held) > self._most:
            self._held.popleft().close()
        return True
