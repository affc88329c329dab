"""Reads on request how full the volumes of a pod are that only their plugins can measure, through drivers and servers
that may not answer (volumes.md 14.12, 21)."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from bus.messages.event import KubeEvent
from bus.messages.usage import VolumeUsage
from bus.messages.volume import FoundVolumeUsage, GetVolumeUsage
from services.volume.adapters.threads import Threads
from services.volume.core.events.mount_events import warning
from services.volume.core.files.payload import ContentError
from services.volume.core.operations.mount_shares import Share
from services.volume.core.operations.outcome import VolumeReading
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import VolumeSpec
from services.volume.plugins.plugin_calls import PluginCalls
from shared.time.clock import Clock

log = logging.getLogger(__name__)

MAX_READINGS = 8  # at the same time
MAX_READINGS_PER_SERVER = 2  # at the same time, of one driver, or of one type of volume with servers
TIMEOUT_SECONDS = 30.0  # of one reading
MAX_WAIT_SECONDS = 2.0  # that a request waits for readings

Key = tuple[str, str]  # pod UID, key of the volume


class VolumeUsages:
    """Answers requests for the usage of volumes. A reading that takes longer than the request waits is shown in a later
    answer. One that hangs keeps its place."""

    def __init__(self, reconciler: Reconciler, calls: PluginCalls, clock: Clock) -> None:
        self._reconciler, self._calls, self._clock = reconciler, calls, clock
        self._threads = Threads("usage", MAX_READINGS, clock, TIMEOUT_SECONDS)
        self._last: dict[Key, VolumeReading] = {}
        self.on_health: Callable[[Iterable[str]], None] = lambda _: None  # called with the UID of the pod
        self.on_event: Callable[[KubeEvent], None] = lambda _: None
        self._reading: dict[Key, asyncio.Task[None]] = {}

    async def get(self, request: GetVolumeUsage) -> FoundVolumeUsage:
        """Return the usage of the pod's mounted volumes that only their plugins can measure."""
        uid = request.uid
        pods, actual = self._reconciler.desired.pods, self._reconciler.actual
        self._last = {key: last for key, last in self._last.items() if actual.is_mounted(*key)}
        pod = pods.get(uid)
        names = {} if pod is None else {name: pod.key(name) for name in pod.volumes if pod.key(name) in pod.mounts}
        measured = {name: key for name, key in names.items() if pod is not None and self._is_measured(uid, key)}
        if pod is None or not measured:
            return FoundVolumeUsage()
        readings = [self._begin(uid, key, pod.mounts[key]) for key in {*measured.values()}]
        await asyncio.wait(readings, timeout=MAX_WAIT_SECONDS)
        found = []
        for name, key in measured.items():
            if (last := self._last.get((uid, key))) is not None and last.usage is not None:
                claim = pod.mounts[key].claim.rpartition("/")[2]
                found.append(VolumeUsage(name=name, filesystem=last.usage, claim=claim, abnormal=last.abnormal))
        return FoundVolumeUsage(volumes=tuple(found))

    async def close(self) -> None:
        """Begin no more readings; those that hang are left alone."""
        for task in self._reading.values():
            task.cancel()
        self._threads.close()

    def _is_measured(self, uid: str, key: str) -> bool:
        volume = self._reconciler.actual.get(uid, key)
        mounted = self._reconciler.actual.is_mounted(uid, key)
        return mounted and volume is not None and volume.spec is not None and self._calls.measures(volume.spec)

    def _begin(self, uid: str, key: str, spec: VolumeSpec) -> "asyncio.Task[None]":
        reading = self._reading.get((uid, key))
        if reading is None:
            reading = self._reading[uid, key] = asyncio.create_task(self._read(uid, key, spec), name=f"usage of {key}")
            reading.add_done_callback(lambda _: self._reading.pop((uid, key), None))
        return reading

    async def _read(self, uid: str, key: str, spec: VolumeSpec) -> None:
        server = spec.served_by or (spec.plugin if spec.node_path else "")
        try:
            async with self._threads.turn(
                f"{uid}/{key}", Share(server, MAX_READINGS_PER_SERVER) if server else None
            ) as turn:
                reading = await turn.call(f"usage of {key} of pod {uid}", self._calls.usage, uid, key, spec)
        except (OSError, ContentError) as error:
            log.debug("the usage of %s of pod %s cannot be read: %s", key, uid, error)
            return
        if reading is None:
            self._last.pop((uid, key), None)
            return
        volume = self._reconciler.actual.get(uid, key)
        if reading.health is not None and volume is not None and volume.health != reading.health:
            volume.health = reading.health
            self.on_health((uid,))
        before, self._last[uid, key] = self._last.get((uid, key)), reading
        is_new = before is None or (before.abnormal, before.condition) != (reading.abnormal, reading.condition)
        if reading.abnormal and is_new:
            self._record(uid, key, reading.condition)

    def _record(self, uid: str, key: str, condition: str) -> None:
        """Report an Event for each volume of the pod with this key."""
        pod = self._reconciler.desired.pods.get(uid)
        for name in pod.volumes if pod is not None else ():
            if pod is not None and pod.key(name) == key:
                self.on_event(warning(pod, f"Volume {name}: {condition}", "VolumeConditionAbnormal"))
