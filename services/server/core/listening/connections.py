"""Decides how many connections a listener may have, and which of them end when there are too many. Pure: no sockets, no
time.

A connection is *unauthorized* until one of its requests was let through. Unauthorized ones cost little to make, so the
newest is always taken and an old one ends for it: a client that sends its request at once is served, however many
connections are idle.
"""

from collections import Counter
from typing import Generic, TypeVar

from msgspec import Struct


class ConnectionLimits(Struct, frozen=True):
    """The limits of one listener. An address is an IPv4 address or the first 64 bits of an IPv6 address."""

    unauthorized: int  # connections; beyond it one of the address that has the most ends
    unauthorized_of_address: int  # beyond it one of this address ends
    unauthorized_bytes: int  # received by all of them and not yet answered; beyond it the one with the most ends
    authorized: int = 0  # connections; beyond it requests of others are refused
    authorized_of_address: int = 0
    large_answers: int = 8  # being sent to unauthorized ones; beyond it the connection of the oldest ends


# An idle TLS connection costs 30 KiB. Most authorized ones are streams (exec, attach, port-forward, logs -f), and most
# of these come from the API servers: one address may have nearly all.
MAIN = ConnectionLimits(
    unauthorized=512,
    unauthorized_of_address=256,
    unauthorized_bytes=8 << 20,
    authorized=8192,
    authorized_of_address=6144,
)
READ_ONLY = ConnectionLimits(unauthorized=128, unauthorized_of_address=64, unauthorized_bytes=8 << 20)
HEALTHZ = ConnectionLimits(unauthorized=64, unauthorized_of_address=32, unauthorized_bytes=2 << 20)
# Most are streams as well (`bulkhead logs -f`, `bulkhead exec`): one for each container of a full node has its place.
LOCAL = ConnectionLimits(unauthorized=1024, unauthorized_of_address=1024, unauthorized_bytes=2 << 20)


class OpenConnection:
    """What the table knows of one open connection."""

    def __init__(self, address: str) -> None:
        self.address = address  # as `client_address.group_of` gives it
        self.busy = False  # a request is in progress: idle connections end before this one
        self.authorized = False
        self.held = 0  # bytes received and not yet answered


C = TypeVar("C", bound=OpenConnection)


class ConnectionTable(Generic[C]):
    """The open connections of a listener. The caller ends the connections that `open`, `hold` and `send` return, which
    are no longer in the table."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.held = 0  # bytes that the unauthorized ones hold
        self._unauthorized: dict[str, dict[C, None]] = {}  # by address, the longest idle first
        self._authorized: dict[C, None] = {}
        self._authorized_of: Counter[str] = Counter()
        self._sending: dict[C, None] = {}  # those that receive a large answer, the oldest first

    def __len__(self) -> int:
        return self.unauthorized + len(self._authorized)

    @property
    def unauthorized(self) -> int:
        """The number of unauthorized connections."""
        return sum(map(len, self._unauthorized.values()))

    def open(self, new: C) -> list[C]:
        """Take a new connection. Return those that end for it."""
        own, limits, crowded = self._unauthorized.get(new.address, {}), self.limits, None
        if len(own) >= limits.unauthorized_of_address:
            crowded = own
        elif self.unauthorized >= limits.unauthorized:
            crowded = max(self._unauthorized.values(), key=len)
        ended = [] if crowded is None else [next((each for each in crowded if not each.busy), next(iter(crowded)))]
        for each in ended:
            self.close(each)
        self._unauthorized.setdefault(new.address, {})[new] = None
        return ended

    def close(self, connection: C) -> None:
        """Remove a connection that has ended. Nothing happens when it was removed before."""
        self._sending.pop(connection, None)
        if connection in self._authorized:
            del self._authorized[connection]
            self._authorized_of[connection.address] -= 1
            if not self._authorized_of[connection.address]:
                del self._authorized_of[connection.address]
        else:
            self._forget_unauthorized(connection)

    def finish(self, connection: C) -> None:
        """Note that its request was answered, so that of all idle connections it is the last to end."""
        connection.busy = False
        own = self._unauthorized.get(connection.address, {})
        if connection in own:
            own[connection] = own.pop(connection)

    def hold(self, connection: C, size: int) -> list[C]:
        """Note that the connection holds `size` bytes now. Return the connections that end for that, perhaps itself."""
        if connection not in self._unauthorized.get(connection.address, {}):
            return []
        self.held += size - connection.held
        connection.held = size
        ended = []
        while self.held > self.limits.unauthorized_bytes:
            most = max((each for own in self._unauthorized.values() for each in own), key=lambda each: each.held)
            self.close(most)
            ended.append(most)
        return ended

    def send(self, connection: C) -> list[C]:
        """Note that the connection receives a large answer. Return the connections that end for that."""
        if connection not in self._unauthorized.get(connection.address, {}):
            return []
        self._sending[connection] = None
        ended = list(self._sending)[: -self.limits.large_answers]
        for oldest in ended:
            self.close(oldest)
        return ended

    def sent(self, connection: C) -> None:
        """Note that the connection has received its large answer."""
        self._sending.pop(connection, None)

    def count_as_authorized(self, connection: C) -> bool:
        """Note that one of its requests may be let through. Return False, and change nothing, where there are too many
        authorized connections."""
        if connection in self._authorized:
            return True
        address, limits = connection.address, self.limits
        if len(self._authorized) >= limits.authorized or self._authorized_of[address] >= limits.authorized_of_address:
            return False
        if not self._forget_unauthorized(connection):
            return False  # it was ended
        connection.authorized = True
        self._authorized[connection] = None
        self._authorized_of[address] += 1
        return True

    def _forget_unauthorized(self, connection: C) -> bool:
        own = self._unauthorized.get(connection.address, {})
        if connection not in own:
            return False
        del own[connection]
        if not own:
            del self._unauthorized[connection.address]
        self.held -= connection.held
        connection.held = 0
        return True
