"""Holds a lock that delays a shutdown of the machine, and reports whether one is in progress.

Whether one is in progress is read from logind, at every signal and after each connection: a signal that was missed
changes nothing. logind grants no lock while a shutdown is in progress, so a process that was restarted meanwhile has
none; another one holds one.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from shared.logind.connection import IN_PROGRESS, LogindConnection, LogindError
from shared.time.backoff import Backoff

RECONNECTS = Backoff(initial=1.0, cap=10.0)


log = logging.getLogger(__name__)


class ShutdownWatch:
    """Follows logind until it is cancelled. `why`: shown by `systemd-inhibit --list`; `on_change` receives whether a
    shutdown is in progress, again and again; `trouble` receives why logind is not followed, None = it is; `prepare` is
    called once for each connection, after the first look; `address`: of the bus, None = the system's."""

    def __init__(
        self,
        why: str,
        *,
        on_change: Callable[[bool], None],
        trouble: Callable[[str | None], None],
        prepare: Callable[[LogindConnection], Awaitable[None]] | None = None,
        address: str | None = None,
    ) -> None:
        self._why, self._on_change, self._trouble, self._prepare = why, on_change, trouble, prepare
        self._address = address
        self._lock: int | None = None  # file descriptor
        self._line: str | None = None  # of the last trouble
        self._changed = asyncio.Event()  # logind is to be asked again
        self._failures = 0  # since logind answered

    @property
    def has_lock(self) -> bool:
        """Whether this process delays a shutdown."""
        return self._lock is not None

    def release(self) -> None:
        """Delay the shutdown no longer. When it is cancelled, a lock is taken again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            self._changed.set()  # a cancellation may have come in between, and then a lock is due

    async def run(self) -> None:
        """Follow logind until cancelled; the lock is then released."""
        try:
            while True:
                try:
                    connection = await LogindConnection.open(self._address)
                    try:
                        await self._follow(connection)
                        raise LogindError("logind: the connection to D-Bus has ended")
                    finally:
                        await connection.close()
                except LogindError as error:
                    self._report(str(error))
                    self._failures += 1
                await asyncio.sleep(RECONNECTS.delay(self._failures))
        finally:
            self.release()

    async def _follow(self, connection: LogindConnection) -> None:
        """Report until the connection has ended."""
        await connection.watch_shutdown(self._signalled)
        connection.ended.add_done_callback(lambda _: self._changed.set())
        doubt = None
        if self._prepare is not None:
            self._on_change(await self._look(connection))
            doubt = await self._prepared(connection, self._prepare)
        while not connection.ended.done():
            self._changed.clear()
            in_progress = await self._look(connection)
            self._failures = 0
            self._report(doubt)
            self._on_change(in_progress)
            await self._changed.wait()

    def _signalled(self, begins: bool) -> None:
        """Take in a signal of logind. A beginning counts at once, should logind answer no question any more; that a
        shutdown was cancelled counts once it was read, with the lock that is due then."""
        if begins:
            self._on_change(True)
        self._changed.set()

    def _report(self, line: str | None) -> None:
        if line != self._line:
            self._line = line
            if line is not None:
                log.warning("a shutdown of the machine may kill pods without their time: %s", line)
            else:
                log.info("logind is followed, and waits for the pods in a shutdown")
        self._trouble(line)

    async def _prepared(
        self, connection: LogindConnection, prepare: Callable[[LogindConnection], Awaitable[None]]
    ) -> str | None:
        """Prepare; a failure is reported, and keeps from no lock."""
        try:
            await prepare(connection)
        except LogindError as error:
            return str(error)
        return None

    async def _look(self, connection: LogindConnection) -> bool:
        """Return whether a shutdown is in progress; where none is, this process has a lock."""
        while not await connection.shuts_down():
            if self._lock is not None:
                return False
            try:
                self._lock = await connection.inhibit(self._why)
            except LogindError as error:
                if error.name == IN_PROGRESS and await connection.shuts_down():
                    return True  # it has begun since
                raise
        return True
