"""How long the services of an agent are silent while something is done to it. One that works sends a beat a second."""

import asyncio
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from bus.manifest import new_manifest
from bus.messages.beat import Beat
from bus.messages.streams import SERVICES
from bus.process_bus import ProcessBus
from tests.process.supervised import eventually
from tests.support.waits.deadline import WAIT_SECONDS


class Silences:
    """`with Silences(run_dir) as silences:` listens in a thread, from a beat of each service on."""

    def __init__(self, run_dir: Path) -> None:
        self._manifest = new_manifest(run_dir)
        self._beats: dict[str, list[float]] = {service: [] for service in SERVICES}  # when they were sent
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._listen, name="beats")
        self._end = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait_for_all()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def by_service(self) -> dict[str, float]:
        """The longest time between two beats of each service, in seconds, once all have sent another one."""
        self._wait_for_all(time.monotonic())
        return {service: max(b - a for a, b in pairwise(sent)) for service, sent in self._beats.items()}

    def _wait_for_all(self, since: float = 0.0) -> None:
        eventually(
            lambda: all(sent and sent[-1] > since for sent in self._beats.values()),
            "a beat of all services",
            2 * WAIT_SECONDS,
        )

    def _take(self, beat: Beat) -> None:
        if beat.service in self._beats:
            self._beats[beat.service].append(beat.sent_at)

    def _listen(self) -> None:
        self._loop.run_until_complete(self._follow())
        self._loop.close()

    async def _follow(self) -> None:
        bus = ProcessBus("silences", self._manifest)
        bus.on_beat(self._take)
        await bus.start()
        try:
            await self._end.wait()
        finally:
            await bus.stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
