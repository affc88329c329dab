"""The frame every service runs in: lock, manifest, configuration, log, bus, beats, watchdog, signals.

A service's `__main__` calls `launch("<name>", build)`; `build` gets a `Context` and returns the service, whose `run`
is the one loop of the process, cancelled when the process is told to end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bus.interface import Bus
from shared.clock import Clock
from shared.config.effective import EffectiveConfig


@dataclass(frozen=True)
class Context:
    """What a service is given; nothing else is global."""

    service: str
    config: EffectiveConfig
    bus: Bus  # not started yet: own/follow/answer in the constructor, the frame starts it before `run`
    clock: Clock
    stopping: asyncio.Event  # set on the first SIGTERM/SIGINT, shortly before `run` is cancelled


class Service(Protocol):
    """One compartment."""

    async def run(self) -> None:
        """The one loop; returns never, or raises. Cancelled at the end; must leave containers as they are."""
        ...


def launch(service: str, build: Callable[[Context], Service]) -> None:
    """Run one service until SIGTERM; exits the process."""
    raise NotImplementedError
