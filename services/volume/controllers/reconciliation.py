"""Runs the loop of volume: reconstructs what is mounted, then starts what the reconciler decides and publishes what is
mounted.

It turns whenever something changed, when a retry or refresh is due, and at least every `TURN_SECONDS`.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Container, Iterable
from functools import partial

from bus.interface import Change, Put
from bus.messages.event import KubeEvent
from bus.messages.sources import ChangedObject, NodeObject
from bus.messages.status import VolumesReported
from bus.messages.streams import VOLUMES_IN_USE, VOLUMES_MOUNTED
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.volume.adapters import root_dir
from services.volume.adapters.cluster_content import ClusterContent
from services.volume.adapters.threads import call_in_loop
from services.volume.controllers.changes import Changes
from services.volume.controllers.claim_reads import ClaimReads
from services.volume.controllers.csi_limits import CsiLimits
from services.volume.controllers.mounted_roots import MountedRoots
from services.volume.controllers.operation_executor import OperationExecutor
from services.volume.core.events.mount_events import of_plugin
from services.volume.core.operations.outcome import PluginEvent
from services.volume.core.reconciler import HOLD_SECONDS, Reconciler
from services.volume.plugins.csi import CsiPlugin
from services.volume.plugins.plugin_calls import error_text
from shared.pods.failures import PodFailures
from shared.process.deadlines import work_on

log = logging.getLogger(__name__)

LOOP = "volume"
RECONCILE = "reconciliation"
LOOK = "look at the directory"
DEVICES = "(devices)"  # in place of a pod UID
TURN_SECONDS = 5.0  # an idle loop turns at least this often
SWEEP_SECONDS = 60.0  # between looks for pod directories of which no stream has an entry
_MAX_SHOWN_CALLS = 5  # slow calls that the beat names


class Reconciliation:
    """Reconciles the volumes of the node. `run` is the loop; `changed` makes it turn at once. Each sync period of the
    configuration, the content of every mounted volume is compared with its objects."""

    def __init__(
        self,
        context: Context,
        *,
        failures: PodFailures,
        reconciler: Reconciler,
        executor: OperationExecutor,
        content: ClusterContent,
        claims: ClaimReads,
        roots: MountedRoots,
        limits: CsiLimits,
        events: EventRecorder,
        changed: Changes,
    ) -> None:
        self._bus, self._clock, self._deadlines = context.bus, context.clock, context.deadlines
        self._root_dir, self._sync_period = context.config.root_dir, context.config.sync_frequency
        self._mounted = context.bus.own(VOLUMES_MOUNTED)
        self._in_use = context.bus.own(VOLUMES_IN_USE)
        self._failures = failures
        self._reconciler = reconciler
        self._executor = executor
        self._content = content
        self._claims = claims
        self._roots = roots
        self._limits = limits
        self._events = events
        self._changed = changed
        self._next_sweep = self._next_refresh = 0.0
        context.resumption.subscribe(self._resumed)

    async def run(self) -> None:
        """Reconcile until cancelled; mounts are left as they are."""
        loop = asyncio.get_running_loop()
        self._executor.calls.report_to(partial(call_in_loop, loop, self.on_plugin_event))
        try:
            self._reconciler.desired.hold_until = self._clock.monotonic() + HOLD_SECONDS
            turns = self._deadlines.begin("reconciliation")
            work_on(turns)
            await self._reconstruct()
            due = True
            while True:
                turns.progressed()
                if self._deadlines.overdue() is None:
                    self._bus.progress(LOOP)
                if await self._sweep() or self._refresh():
                    self._changed.set()
                    due = True
                if due:
                    self._reconcile(self._changed.take())
                self._report()
                due = await self._turn_or_change()
        finally:
            await self._claims.close()
            await self._executor.close()

    def _resumed(self, _: float) -> None:
        """Compare every volume with its objects now, because tokens and certificates in it may have ended while the
        machine was suspended."""
        self._next_refresh = 0.0
        self._changed.set()

    def on_object(self, change: Change[ChangedObject]) -> None:
        """Follow `objects.changed`."""
        if isinstance(change, Put):
            self._claims.on_object(change.key, change.value.resource_version)
            self._content.changed(change.key)
            self._limits.on_object(change.key)
            version, waiting = change.value.resource_version, self._content.waiting(change.key)
            self._changed.add_pods(self._reconciler.object_changed(change.key, version, waiting))

    def on_reported(self, change: Change[VolumesReported]) -> None:
        """Follow `volumes.reported`."""
        if isinstance(change, Put):
            reported = change.value
            self._reconciler.attachments.reported(reported.generation, reported.volumes, reported.resource_version)
            self._changed.set()

    def on_node(self, change: Change[NodeObject]) -> None:
        """Follow `node.object`, which names the volumes that are attached."""
        if isinstance(change, Put):
            self._reconciler.attachments.on_node(change.value.node)
            self._changed.set()

    def on_drivers(self) -> None:
        """Retry what needs a CSI driver, because one was registered or deregistered."""
        self._reconciler.drivers_changed(CsiPlugin.name)
        self._limits.drivers_changed()
        self._changed.set()

    def on_event(self, event: KubeEvent) -> None:
        """Record an event of a volume that no end of an operation caused."""
        self._events.record(event)

    def on_plugin_event(self, event: PluginEvent) -> None:
        """Record the event that a plugin reports."""
        if (found := of_plugin(event, self._reconciler.desired)) is not None:
            self._events.record(found)

    def on_operation_end(self, events: Iterable[KubeEvent], uids: Iterable[str] | None) -> None:
        """Record the events of an operation and decide again about the pods that it concerns, None = every pod."""
        for event in events:
            self._events.record(event)
        if uids is None:
            self._changed.set()
        else:
            self._changed.add_pods(uids)

    async def _reconstruct(self) -> None:
        """Prepare the root directory and find what is on disk; only then `volumes.mounted` is marked complete."""
        while True:
            try:
                line = await self._executor.looks.call(root_dir.prepare, self._root_dir)
                devices = await self._executor.looks.call(self._executor.calls.find_devices)
                uids = await self._executor.looks.call(self._executor.calls.uids)
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
        self._reconciler.add_devices_on_disk(devices)
        for uid in uids:
            await self._look(uid)
        self._next_sweep = self._clock.monotonic() + SWEEP_SECONDS
        self._plan_refresh()
        self._mounted.mark_complete()

    async def _look(self, uid: str) -> None:
        """Find the volumes of one pod on disk. A pod for which that fails is left alone until it can be done, and so is
        every device: the pod's volumes may be mounted on it."""
        try:
            found = await self._executor.looks.call(self._executor.calls.find_volumes, uid)
            self._reconciler.add_volumes_on_disk(uid, found)
            self._publish(uid, "found on disk")
        except Exception as error:
            self._reconciler.actual.unread.add(uid)
            self._note(uid, LOOK, error)
        else:
            self._reconciler.actual.unread.discard(uid)
            self._failures.ended(uid, LOOK)

    def _refresh(self) -> bool:
        """Compare every volume with its objects if the sync period is over, in case `objects.changed` missed a change;
        return whether it was due."""
        if self._clock.monotonic() < self._next_refresh:
            return False
        self._plan_refresh()
        self._reconciler.refresh_all()
        return True

    def _plan_refresh(self) -> None:
        self._next_refresh = self._clock.monotonic() + self._sync_period * random.uniform(1.0, 1.5)

    async def _sweep(self) -> bool:
        """Look for directories of pods if that is due; return whether it was."""
        now = self._clock.monotonic()
        if now < self._next_sweep:
            return False
        self._next_sweep = now + SWEEP_SECONDS
        try:
            uids = await self._executor.looks.call(self._executor.calls.uids)
            self._reconciler.actual.unread.intersection_update(uids)  # a removed directory need not be read any more
            for uid in uids:
                if uid in self._reconciler.actual.unread:
                    await self._look(uid)
                else:
                    self._reconciler.actual.directories.add(uid)
        except OSError as error:
            log.warning("the pods below %s cannot be listed: %s", self._root_dir, error_text(error))
        return True

    def _reconcile(self, changed: Container[str] | None) -> None:
        """Look at the pods that have changed, None = at every pod; and at the devices, which are few."""
        now = self._clock.monotonic()
        uids = dict.fromkeys([*self._reconciler.pods(), *sorted(self._mounted.keys())])
        self._failures.keep({*uids, *self._reconciler.actual.unread, DEVICES})
        self._content.keep({*uids})
        if (in_use := self._reconciler.volumes_in_use()) is not None:
            self._in_use.put("node", in_use, "reconciled")
        if self._failures.may_try(DEVICES, RECONCILE, now):
            self._reconcile_devices(now)
        for uid in uids:
            if (changed is None or uid in changed) and self._failures.may_try(uid, RECONCILE, now):
                self._reconcile_pod(uid, now)

    def _report(self) -> None:
        self._executor.cancel_requests_not_due()
        self._roots.turned()
        self._limits.check_waits()
        self._bus.trouble("pods", self._failures.line)
        slow = self._executor.slow()
        more = [f"{len(slow) - _MAX_SHOWN_CALLS} more"] if len(slow) > _MAX_SHOWN_CALLS else []
        self._bus.trouble("slow", "; ".join([*slow[:_MAX_SHOWN_CALLS], *more]) or None)

    def _reconcile_pod(self, uid: str, now: float) -> None:
        """Start and publish what is due for one pod. A programming error leads to a retry, and affects no other pod."""
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

    def _reconcile_devices(self, now: float) -> None:
        try:
            for operation in self._reconciler.device_operations(now):
                self._executor.start(operation)
        except Exception as error:
            self._note(DEVICES, RECONCILE, error)
        else:
            self._failures.ended(DEVICES, RECONCILE)

    def _note(self, uid: str, what: str, error: Exception) -> None:
        """Note a programming error, after which this pod is tried again."""
        if self._failures.failed(uid, what, error, self._clock.monotonic()):
            log.error("%s of pod %s failed unexpectedly", what, uid, exc_info=error)

    def _publish(self, uid: str, cause: str) -> None:
        view = self._reconciler.view(uid)
        if view is None:
            self._mounted.delete(uid, cause)
        elif view != self._mounted.get(uid) and not self._reconciler.settling(uid):
            self._mounted.put(uid, view, cause)

    async def _turn_or_change(self) -> bool:
        """Wait for a change, the next attempt or the end of the turn. Return False if nothing changed and nothing is
        due."""
        now = self._clock.monotonic()
        attempts = (self._reconciler.next_attempt(now), self._failures.next_attempt(now))
        attempt = min((moment for moment in attempts if moment is not None), default=math.inf)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(attempt, now + TURN_SECONDS) - now):  # wait_for may swallow a cancellation
                await self._changed.wait()
        if self._clock.monotonic() >= attempt:
            self._changed.set()  # the moment may be that of any pod
        return self._changed.is_set()
