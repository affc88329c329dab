"""How many connections a listener has, and which of them ends when there are too many. Pure: no sockets, no time.

A connection is *unauthorized* until one of its requests was let through. Unauthorized ones cost little to make, so the
newest is always taken and an old one ends for it: a client that sends its request at once is served, however many
connections are idle.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network


@dataclass(frozen=True)
class ConnectionLimits:
    """Of one listener. An address is an IPv4 address or the first 64 bits of an IPv6 address."""

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


def group_of(address: str) -> str:
    """The address as the limits count it. What is no IP address counts as it is."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))
    return str(ip)


def shown_address(remote: str | None) -> str:
    """Return a client's address as it is logged and forwarded: that of an IPv4 client, which a listener of both
    families sees as ::ffff:10.0.0.1, is 10.0.0.1. None = ""."""
    text = remote or ""
    return text.removeprefix("::ffff:") if "." in text else text


@dataclass(eq=False)
class _Connection:
    address: str
    busy: bool = False
    authorized: bool = False
    held: int = 0  # bytes


@dataclass(eq=False)
class _Address:
    unauthorized: dict[int, _Connection] = field(default_factory=dict)  # the longest idle first
    authorized: int = 0


class ConnectionTable:
    """The open connections by number. What `open` and `hold` return has been taken out and is to be ended."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._connections: dict[int, _Connection] = {}
        self._addresses: dict[str, _Address] = {}
        self._sending: dict[int, None] = {}  # numbers of those that get a large answer, the oldest first
        self._unauthorized = self._authorized = self._held = self._last = 0

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def unauthorized(self) -> int:
        """How many are unauthorized."""
        return self._unauthorized

    @property
    def held(self) -> int:
        """Bytes that the unauthorized ones hold."""
        return self._held

    def open(self, address: str) -> tuple[int, list[int]]:
        """A new connection of this address (`group_of`): its number, and those that end for it."""
        limits, ended = self._limits, []
        of_address = self._addresses.setdefault(address, _Address())
        if len(of_address.unauthorized) >= limits.unauthorized_of_address:
            ended.append(self._end_one(of_address))
        elif self._unauthorized >= limits.unauthorized:
            ended.append(self._end_one(max(self._addresses.values(), key=lambda one: len(one.unauthorized))))
        self._last += 1
        connection = self._connections[self._last] = _Connection(address)
        self._addresses.setdefault(address, of_address).unauthorized[self._last] = connection
        self._unauthorized += 1
        return self._last, ended

    def close(self, number: int) -> None:
        """It is gone. May be called again, and for one that was ended."""
        connection = self._connections.pop(number, None)
        self._sending.pop(number, None)
        if connection is None:
            return
        of_address = self._addresses[connection.address]
        if connection.authorized:
            of_address.authorized -= 1
            self._authorized -= 1
        else:
            del of_address.unauthorized[number]
            self._unauthorized -= 1
            self._held -= connection.held
        if not of_address.unauthorized and not of_address.authorized:
            del self._addresses[connection.address]

    def begin(self, number: int) -> None:
        """It has a request under way: idle ones end before it."""
        if (connection := self._connections.get(number)) is not None:
            connection.busy = True

    def finish(self, number: int) -> None:
        """It has no request under way any more."""
        connection = self._connections.get(number)
        if connection is None:
            return
        connection.busy = False
        if not connection.authorized:
            waiting = self._addresses[connection.address].unauthorized
            waiting[number] = waiting.pop(number)

    def hold(self, number: int, size: int) -> list[int]:
        """It holds `size` bytes more. Returns those that end for it, itself perhaps."""
        connection = self._connections.get(number)
        if connection is None or connection.authorized:
            return []
        connection.held += size
        self._held += size
        ended = []
        while self._held > self._limits.unauthorized_bytes:
            most = max(self._waiting(), key=lambda one: one[1].held)[0]
            self.close(most)
            ended.append(most)
        return ended

    def send(self, number: int) -> list[int]:
        """It is sent a large answer. Returns those that end for it."""
        connection = self._connections.get(number)
        if connection is None or connection.authorized:
            return []
        self._sending[number] = None
        ended = list(self._sending)[: -self._limits.large_answers]
        for oldest in ended:
            self.close(oldest)
        return ended

    def sent(self, number: int) -> None:
        """It has its large answer."""
        self._sending.pop(number, None)

    def release(self, number: int, size: int) -> None:
        """It holds `size` bytes less."""
        if (connection := self._connections.get(number)) is not None:
            self.set_held(number, max(connection.held - size, 0))

    def set_held(self, number: int, size: int) -> None:
        """It holds `size` bytes now."""
        connection = self._connections.get(number)
        if connection is not None and not connection.authorized:
            self._held += size - connection.held
            connection.held = size

    def count_as_authorized(self, number: int) -> bool:
        """One of its requests may be let through. False = there are too many authorized ones; it stays as it is."""
        connection = self._connections.get(number)
        if connection is None:
            return False
        if connection.authorized:
            return True
        of_address, limits = self._addresses[connection.address], self._limits
        if self._authorized >= limits.authorized or of_address.authorized >= limits.authorized_of_address:
            return False
        del of_address.unauthorized[number]
        self._unauthorized -= 1
        self._held -= connection.held
        connection.authorized, connection.held = True, 0
        of_address.authorized += 1
        self._authorized += 1
        return True

    def _waiting(self) -> Iterator[tuple[int, _Connection]]:
        for of_address in self._addresses.values():
            yield from of_address.unauthorized.items()

    def _end_one(self, of_address: _Address) -> int:
        waiting = of_address.unauthorized
        number = next((number for number, one in waiting.items() if not one.busy), next(iter(waiting)))
        self.close(number)
        return number
