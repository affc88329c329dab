"""Volume at work: follows the admitted pods, performs what the reconciler says, publishes. Decides nothing itself."""

import asyncio
import contextlib
import logging
import random

from bus.event_recorder import EventRecorder
from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.event import KubeEvent
from bus.messages.podsync import AdmittedPod, NodeResources
from bus.messages.sources import ChangedObject
from bus.messages.streams import NODE_RESOURCES, OBJECTS_CHANGED, PODS_ADMITTED, VOLUMES_MOUNTED, events_of
from bus.messages.volume import PrepareSubpath, ReleaseSubpaths
from services.frame.launch import Context
from services.volume.adapters import machine, root_dir
from services.volume.adapters.cluster_content import ClusterContent
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.controllers.operation_executor import OperationExecutor
from services.volume.controllers.subpath_requests import SubpathRequests
from services.volume.core.actual_state_of_world import ActualStateOfWorld
from services.volume.core.desired_state_of_world import DesiredStateOfWorld
from services.volume.core.reconciler import HOLD, Reconciler
from services.volume.core.token_cache import JITTER
from services.volume.core.volume_spec import Refused, VolumeSpec, node_of
from services.volume.plugins.plugin_calls import PluginCalls, error_text
from services.volume.plugins.registry import volume_spec
from shared.deadlines import work_on
from shared.model import objects
from shared.model.objects import Object
from shared.pod_failures import PodFailures

log = logging.getLogger(__name__)

LOOP = "volume"
RECONCILE = "reconciliation"
TURN = 5.0  # seconds: an idle loop turns at least this often
SWEEP = 60.0  # seconds between looks for pod directories that nobody announced
_SHOWN = 5  # slow calls that the beat names


def build(context: Context) -> "Volume":
    """The service for `services.frame.launch`."""
    return Volume(context)


class Volume:
    """The one owner of `volumes.mounted`, and the only process that mounts."""

    def __init__(self, context: Context) -> None:
        self._root_dir, self._bus, self._clock = context.config.root_dir, context.bus, context.clock
        self._mounted = self._bus.own(VOLUMES_MOUNTED)
        self._events = EventRecorder(self._bus.own(events_of("volume")), self._clock)
        self._admitted = self._bus.follow(PODS_ADMITTED, self._on_admitted)
        self._bus.follow(OBJECTS_CHANGED, self._on_object)
        self._bus.follow(NODE_RESOURCES, self._on_resources)
        self._alone = not context.config.joins_cluster
        self._node = node_of(machine.resources(), provisional=True, alone=self._alone)
        self._reconciler = Reconciler(DesiredStateOfWorld(self._spec_of), ActualStateOfWorld())
        self._directories = PodDirectories(self._root_dir)
        self._content = ClusterContent(self._bus, self._clock, lambda: float(random.randrange(JITTER)))
        self._sync_period = context.config.sync_frequency
        self._changed = asyncio.Event()
        self._failures = PodFailures()
        calls = PluginCalls(self._directories, self._clock)
        self._deadlines = context.deadlines
        self._executor = OperationExecutor(
            self._reconciler, calls, self._content, self._clock, self._failures, self._deadlines
        )
        self._executor.on_end = self._operation_ended
        self._subpaths = SubpathRequests(self._reconciler, self._executor, self._changed.set)
        self._bus.answer(PrepareSubpath, self._subpaths.prepare)
        self._bus.answer(ReleaseSubpaths, self._subpaths.release)
        self._next_sweep = self._next_refresh = 0.0
        self._not_looked_at: set[str] = set()  # pods whose directory could not be read at the start

    async def run(self) -> None:
        """Reconcile whenever something changed, until cancelled; mounts are left as they are."""
        try:
            self._reconciler.hold_until = self._clock.monotonic() + HOLD
            turns = self._deadlines.begin("reconciliation")
            work_on(turns)
            await self._prepare()
            while True:
                turns.progressed()
                self._changed.clear()
                if self._deadlines.overdue() is None:
                    self._bus.progress(LOOP)
                await self._sweep()
                self._refresh()
                self._reconcile()
                await self._turn_or_change()
        finally:
            await self._executor.close()

    def _spec_of(self, pod: Object, name: str) -> VolumeSpec | Refused:
        uid, what = objects.uid(pod), f"volume {name}"
        try:
            spec = volume_spec(pod, name, self._node)
        except Exception as error:
            self._note(uid, what, error)
            return Refused(f"unexpected {type(error).__name__}")
        self._failures.ended(uid, what)
        return spec

    def _note(self, uid: str, what: str, error: Exception) -> None:
        """A programming error costs this pod a retry."""
        if self._failures.failed(uid, what, error, self._clock.monotonic()):
            log.error("%s of pod %s failed unexpectedly", what, uid, exc_info=error)

    def _on_admitted(self, change: Change[AdmittedPod]) -> None:
        desired = self._reconciler.desired
        match change:
            case Put(_, admitted):
                desired.admit(admitted)
            case Deleted(uid):
                desired.withdraw(uid)
            case Freshness(complete, stale):
                desired.heard(complete=complete, stale=stale)
        self._changed.set()

    def _on_object(self, change: Change[ChangedObject]) -> None:
        if isinstance(change, Put):
            self._content.changed(change.key)
            self._reconciler.object_changed(change.key, change.value.resource_version)
            self._changed.set()

    def _on_resources(self, change: Change[NodeResources]) -> None:
        match change:
            case Put(_, resources):
                self._node = node_of(resources.allocatable, alone=self._alone)
                self._reconciler.desired.read_again()
            case Freshness(complete=True):
                self._reconciler.hold_until = 0.0  # that is all that podsync will say
        self._changed.set()

    async def _prepare(self) -> None:
        """Root directory and reconstruction; until it is known what is mounted nothing is said to be complete."""
        while True:
            try:
                line = await self._executor.looks.call(root_dir.prepare, self._root_dir)
                uids = await self._executor.looks.call(self._directories.uids)
            except OSError as error:
                self._bus.trouble("root directory", f"{self._root_dir}: {error_text(error)}")
                log.error(
                    "%s: cannot be used as the root directory, trying again: %s", self._root_dir, error_text(error)
                )
                await self._turn_or_change()
                continue
            break
        self._bus.trouble("root directory", line)
        if line is not None:
            log.warning("%s", line)
        for uid in uids:
            await self._look(uid)
        self._next_sweep = self._clock.monotonic() + SWEEP
        self._plan_refresh()
        self._mounted.mark_complete()

    async def _look(self, uid: str) -> None:
        """Find the volumes of one pod on disk; a pod for which that fails is left alone until it can be done."""
        try:
            found = await self._executor.looks.call(self._executor.calls.found, uid)
            self._reconciler.found(uid, found)
            self._publish(uid, "found on disk")
        except Exception as error:
            self._not_looked_at.add(uid)
            self._note(uid, "look at the directory", error)
        else:
            self._not_looked_at.discard(uid)
            self._failures.ended(uid, "look at the directory")

    def _refresh(self) -> None:
        """The safety net below the changes that are heard of."""
        if self._clock.monotonic() >= self._next_refresh:
            self._plan_refresh()
            self._reconciler.refresh_all()

    def _plan_refresh(self) -> None:
        self._next_refresh = self._clock.monotonic() + self._sync_period * random.uniform(1.0, 1.5)

    async def _sweep(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP
        try:
            for uid in await self._executor.looks.call(self._directories.uids):
                if uid in self._not_looked_at:
                    await self._look(uid)
                else:
                    self._reconciler.found_directory(uid)
        except OSError as error:
            log.warning("%s: cannot be listed: %s", self._directories.pods, error_text(error))

    def _reconcile(self) -> None:
        now = self._clock.monotonic()
        uids = sorted({*self._mounted.keys(), *self._reconciler.pods()})
        self._failures.keep({*uids, *self._not_looked_at})
        self._content.keep({*uids})
        for uid in uids:
            if self._failures.may_try(uid, RECONCILE, now):
                self._reconcile_pod(uid, now)
        self._executor.give_up_what_is_not_due()
        self._subpaths.turned()
        self._bus.trouble("pods", self._failures.line)
        slow = self._executor.slow()
        more = [f"{len(slow) - _SHOWN} more"] if len(slow) > _SHOWN else []
        self._bus.trouble("slow", "; ".join([*slow[:_SHOWN], *more]) or None)

    def _reconcile_pod(self, uid: str, now: float) -> None:
        """A programming error in it leads to a retry, and costs the other pods nothing."""
        try:
            for operation in self._reconciler.operations(uid, now):
                self._executor.start(operation)
            for event in self._reconciler.events(uid, now):
                log.warning("pod %s_%s(%s): %s", event.name, event.namespace, event.uid, event.message)
                self._events.record(event)
            self._publish(uid, "reconciled")
        except Exception as error:
            self._note(uid, RECONCILE, error)
        else:
            self._failures.ended(uid, RECONCILE)

    def _operation_ended(self, event: KubeEvent | None) -> None:
        if event is not None:
            self._events.record(event)
        self._changed.set()

    def _publish(self, uid: str, cause: str) -> None:
        view = self._reconciler.view(uid)
        if view is None:
            self._mounted.delete(uid, cause)
        elif view != self._mounted.get(uid) and not self._reconciler.settling(uid):
            self._mounted.put(uid, view, cause)

    async def _turn_or_change(self) -> None:
        now = self._clock.monotonic()
        attempts = (self._reconciler.next_attempt(now), self._failures.next_attempt(now), now + TURN)
        wait = min(attempt for attempt in attempts if attempt is not None) - now
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):  # wait_for may swallow a cancellation before Python 3.12
                await self._changed.wait()
