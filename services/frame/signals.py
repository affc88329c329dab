"""Handles the signals of a service: TERM and INT end it, HAND_OVER gives its lock to its successor, HUP reopens the log
and sets an event."""

import asyncio
import signal
from collections.abc import Callable

HAND_OVER = signal.SIGUSR1  # sent by the service of a newer supervisord; it ends a process that has no handler yet


class Signals:
    """Sets events for signals: `ending` for the three that end the process, `handing_over` for HAND_OVER alone.
    A SIGTERM or SIGINT while the process is ending calls `on_second`. SIGHUP calls `on_hangup` and sets `hung_up`.
    """

    def __init__(self, on_second: Callable[[], None]) -> None:
        self.ending, self.handing_over = asyncio.Event(), asyncio.Event()
        self.hung_up = asyncio.Event()  # the service that waits for it clears it
        self.on_second = on_second
        self.on_hangup: Callable[[], None] = lambda: None

    def install(self) -> None:
        """Install the handlers in the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(HAND_OVER, self._hand_over)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        self.hung_up.set()
        self.on_hangup()

    def _hand_over(self) -> None:
        if not self.ending.is_set():
            self.handing_over.set()
            self.ending.set()

    def _end(self) -> None:
        if self.ending.is_set():
            self.on_second()
        self.ending.set()
