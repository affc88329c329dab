"""Names that one process of tests holds: of a port or a network that is not in use yet, but will be in a moment.

A name is an abstract Unix socket. It is of the network namespace, as ports and bridges are, is seen from every process
namespace, and is free again when its process ends.
"""

import socket
from collections import deque


class Reservations:
    """The newest `most` names that this process has reserved; what earlier ones named is in use by then."""

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
