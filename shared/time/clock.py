"""Time as an argument: services take a Clock so that tests run on virtual time. Cores get plain numbers instead."""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for durations, wall seconds for what people and the API read."""

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC in seconds: comparable between all processes of this machine."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
