"""Asks FlexVolume drivers whether they attach volumes to nodes: what a volume requests depends on it. A driver is asked
when a pod first needs it, and again once its executable is another one (volumes.md 19).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.volume.adapters.flex_drivers import FlexDrivers
from services.volume.adapters.threads import Threads
from services.volume.core.specs.flex_volume import flex_driver
from services.volume.core.specs.volume_spec import Refused, Unprocessed
from shared.model.objects import Object
from shared.time.backoff import Backoff
from shared.time.clock import Clock

log = logging.getLogger(__name__)

MAX_ASKED_DRIVERS = 16  # at the same time
LOOK_SECONDS = 10.0  # between two looks at the executable of a driver whose volumes pods have
RETRIES = Backoff(initial=0.5, cap=LOOK_SECONDS)  # of a driver that is missing or fails


@dataclass(eq=False)
class _Asked:
    """One driver. `pods`: the UIDs of the pods that need it, never empty."""

    asking: "asyncio.Task[None]"
    pods: set[str] = field(default_factory=set)
    answer: bool | Refused = field(default_factory=lambda: Unprocessed(""))


class FlexCapabilities:
    """Keeps which drivers attach volumes. `on_answer` is called with the UIDs of the pods of a driver whose answer has
    changed. An answer stays while the driver cannot be asked again: each call for a volume reports why."""

    def __init__(self, drivers: FlexDrivers, clock: Clock) -> None:
        self.on_answer: Callable[[Iterable[str]], None] = lambda _: None
        self._drivers = drivers
        self._threads = Threads("FlexVolume drivers", MAX_ASKED_DRIVERS, clock)
        self._asked: dict[str, _Asked] = {}

    def find(self, uid: str, source: Object) -> bool | Refused:
        """Return whether the driver of a volume of the pod attaches volumes, False = it has none. `source`: an entry of
        spec.volumes, or the spec of a PersistentVolume. Unprocessed("") while it is asked; `on_answer` follows."""
        driver = flex_driver(source)
        if not driver:
            return False
        if (asked := self._asked.get(driver)) is None:
            asking = asyncio.create_task(self._ask(driver), name=f"ask FlexVolume driver {driver}")
            asked = self._asked[driver] = _Asked(asking)
        asked.pods.add(uid)
        return asked.answer

    def forget(self, uid: str) -> None:
        """Forget a pod, which needs none of its volumes any more."""
        for driver, asked in list(self._asked.items()):
            asked.pods.discard(uid)
            if not asked.pods:
                del self._asked[driver]
                asked.asking.cancel()

    def close(self) -> None:
        """Ask no more."""
        for asked in self._asked.values():
            asked.asking.cancel()
        self._threads.close()

    async def _ask(self, driver: str) -> None:
        failures = 0
        while True:
            answer: bool | Refused
            try:
                async with self._threads.turn(driver) as turn:
                    answer = (await turn.call(driver, self._drivers.capabilities, driver)).attach
            except OSError as error:
                answer = Refused(error.strerror or str(error))
            except Exception as error:
                log.exception("the FlexVolume driver %s could not be asked", driver)
                answer = Refused(f"unexpected {type(error).__name__}")
            failures = failures + 1 if isinstance(answer, Refused) else 0
            asked = self._asked[driver]
            if answer != asked.answer and not (isinstance(answer, Refused) and isinstance(asked.answer, bool)):
                asked.answer = answer
                self.on_answer(tuple(asked.pods))
            await asyncio.sleep(RETRIES.delay(failures) if failures else LOOK_SECONDS)
