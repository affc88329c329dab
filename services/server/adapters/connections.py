"""The open connections of one listener: ends those that `core.connections` chooses, and logs that now and then."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from services.server.core.connections import ConnectionLimits, ConnectionTable, group_of
from services.server.core.log_interval import LogInterval

log = logging.getLogger(__name__)


class Connections:
    """Connections by number, each with the function that ends it at once."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._table = ConnectionTable(limits)
        self._limits = limits
        self._ends: dict[int, Callable[[], None]] = {}
        self._log = LogInterval()

    def __len__(self) -> int:
        return len(self._table)

    def open(self, address: str, end: Callable[[], None]) -> int:
        """A new connection from this address: its number. Others may end for it."""
        number, ended = self._table.open(group_of(address))
        self._ends[number] = end
        self._end(ended, "connections")
        return number

    def ends_by(self, number: int, end: Callable[[], None]) -> None:
        """From now on this ends it; at once if it is to be ended already."""
        if number in self._ends:
            self._ends[number] = end
        else:
            end()

    def close(self, number: int) -> None:
        """It is gone."""
        self._table.close(number)
        self._ends.pop(number, None)

    def begin(self, number: int) -> None:
        """It has a request under way."""
        self._table.begin(number)

    def finish(self, number: int, size: int) -> None:
        """It has none any more, and holds `size` bytes less."""
        self._table.finish(number)
        self._table.release(number, size)

    def hold(self, number: int, size: int) -> bool:
        """It holds `size` bytes more; False when it was ended for them."""
        self._end(self._table.hold(number, size), "bytes")
        return number in self._ends

    @contextmanager
    def sending(self, number: int) -> Iterator[None]:
        """The block sends it a large answer. Others may end for it."""
        self._end(self._table.send(number), "large answers")
        try:
            yield
        finally:
            self._table.sent(number)

    def set_held(self, number: int, size: int) -> None:
        """It holds `size` bytes now."""
        self._table.set_held(number, size)

    def count_as_authorized(self, number: int) -> bool:
        """Count it as authorized; False when there are too many of those."""
        authorized = self._table.count_as_authorized(number)
        if not authorized and (count := self._log.count("refused", time.monotonic())):
            log.warning(
                "%d requests were answered with 503: there are %d authorized connections, or %d from one address",
                count, self._limits.authorized, self._limits.authorized_of_address,
            )  # fmt: skip
        return authorized

    def _end(self, numbers: Iterable[int], what: str) -> None:
        for number in numbers:
            if (end := self._ends.pop(number, None)) is not None:
                end()
            if count := self._log.count(what, time.monotonic()):
                log.warning(
                    "%d connections without an authorized request were ended, the last for too many %s "
                    "(limits: %d, %d of one address, %d bytes, %d large answers)",
                    count, what, self._limits.unauthorized, self._limits.unauthorized_of_address,
                    self._limits.unauthorized_bytes, self._limits.large_answers,
                )  # fmt: skip
