"""Reads from CSI drivers again how many of their volumes the node takes, where the CSIDriver requires it: once in each
period, and after a volume could not be attached. The pod of such a volume is rejected (volumes.md 2.2, 14.2).

A driver that hangs occupies one thread of registration, for as long as its call may take.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping

from services.volume.adapters.cluster_content import ClusterContent
from services.volume.controllers.plugin_registration import PluginRegistration
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import FailureKind
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.csi_attachment import is_exhausted
from services.volume.core.specs.csi_volume import limit_period
from services.volume.core.specs.volume_claims import CSI_DRIVER
from shared.plugin_grpc.connection import PluginCallError
from shared.time.clock import Clock

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # until a CSIDriver that could not be read is requested again


class CsiLimits:
    """Keeps the volume limits of CSI drivers up to date. `run` is the loop; `changed` receives the UIDs of pods that
    must be rejected."""

    def __init__(
        self,
        clock: Clock,
        content: ClusterContent,
        registration: PluginRegistration,
        reconciler: Reconciler,
        changed: Callable[[Iterable[str]], None],
    ) -> None:
        self._clock, self._content, self._registration = clock, content, registration
        self._reconciler, self._pods_changed = reconciler, changed
        self._periods: dict[str, int | None] = {}  # driver -> seconds between two calls, None = it is not called again
        self._edited: set[str] = set()  # names of CSIDrivers since the last turn
        self._called_at: dict[str, float] = {}  # driver -> monotonic seconds
        self._changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by driver, or UID of the pod

    def drivers_changed(self) -> None:
        """Note that a driver was registered or deregistered."""
        self._changed.set()

    def on_object(self, key: str) -> None:
        """Note that the object with this key in `objects.changed` has changed."""
        kind, _, name = key.split("/", 2)
        if kind == CSI_DRIVER:
            self._edited.add(name)
            self._changed.set()

    def check_waits(self) -> None:
        """Read the VolumeAttachments of the pods whose wait for volumes has timed out."""
        for uid, attachments in self._reconciler.attach_limits.candidates().items():
            self._begin(uid, self._check(uid, attachments))

    async def run(self) -> None:
        """Call drivers until cancelled."""
        try:
            while True:
                self._changed.clear()
                wait = await self._turn()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def _turn(self) -> float | None:
        """Call the drivers that are due; return the seconds until the next turn, None = until something changes."""
        names = set(self._registration.drivers())
        edited, self._edited = self._edited, set()
        self._periods = {name: period for name, period in self._periods.items() if name in names - edited}
        unread = [name for name in sorted(names - self._periods.keys()) if not await self._read(name)]
        now, waits = self._clock.monotonic(), [RETRY_SECONDS] if unread else []
        for name, period in self._periods.items():
            if period is None:
                self._called_at.pop(name, None)
                continue
            due = self._called_at.setdefault(name, now) + period
            if due <= now:
                self._called_at[name], due = now, now + period
                self._begin(name, self._update(name))
            waits.append(due - now)
        return min(waits, default=None)

    async def _read(self, driver: str) -> bool:
        """Read the period of a driver; return False if its CSIDriver is not known yet."""
        found = await self._content.read(ObjectKey(CSI_DRIVER, "", driver))
        if found.problem is not None and found.problem.kind is not FailureKind.LASTING:
            return False
        self._periods[driver] = limit_period(found.object)
        return True

    async def _update(self, driver: str) -> None:
        try:
            await self._registration.update_limit(driver)
        except PluginCallError as error:
            log.warning("CSI driver %s: how many volumes the node takes cannot be read again: %s", driver, error)

    async def _check(self, uid: str, attachments: Mapping[ObjectKey, str]) -> None:
        for key, driver in attachments.items():
            if is_exhausted((await self._content.read(key)).object):
                log.warning("CSI driver %s attaches no further volume to this node: pod %s is rejected", driver, uid)
                await self._update(driver)
                self._reconciler.attach_limits.exceeded(uid, self._reconciler.view(uid))
                self._pods_changed((uid,))
                return

    def _begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Start the work, unless earlier work for the same driver or pod is under way."""
        if name in self._tasks:
            work.close()
            return
        task = self._tasks[name] = asyncio.create_task(work, name=f"volume limits: {name}")
        task.add_done_callback(lambda _: self._tasks.pop(name, None))
