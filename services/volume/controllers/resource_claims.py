"""Has the drivers of this node prepare the resource claims of pods before their containers start, and unprepare them
after the last pod that uses them has ended; publishes how far that is (node.md 4.16).

Each pod and each claim has a task of its own, and each of its drivers one within it. A driver that hangs delays only
the pods with claims of it.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from bus.codec import UnencodableError
from bus.interface import Bus, Change, Deleted, Freshness, OwnedStream, Put
from bus.messages.event import KubeEvent
from bus.messages.podsync import PodState, PodVolumes
from bus.messages.resource_claims import ClaimState, PodClaims
from bus.stream import EventRecorder
from services.volume.adapters.claim_files import ClaimRecord
from services.volume.adapters.cluster_content import ClusterContent
from services.volume.adapters.threads import Threads
from services.volume.controllers.claim_checkpoint import ClaimCheckpoint
from services.volume.controllers.claim_metrics import ClaimMetrics
from services.volume.controllers.claim_work import ClaimWork
from services.volume.controllers.device_health_watch import DeviceHealthWatch
from services.volume.controllers.driver_calls import DriverCalls
from services.volume.controllers.specification_watch import SpecificationWatch
from services.volume.core.resource_claims.claim import ClaimKey
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from services.volume.core.resource_claims.pod_claims import PodIdentity, requested_claims
from services.volume.core.resource_claims.shown_claims import with_health
from shared.metrics.registry import Registry
from shared.time.clock import Clock

log = logging.getLogger(__name__)

RECORD = "bulkhead/volume/resource_claims.json"  # below the root directory
_TROUBLE, _OVERDUE = "resource claim record", "resource claims"
_MAX_SHOWN_CLAIMS = 5  # that a trouble names

Name = TypeVar("Name", str, ClaimKey)


class ResourceClaims:
    """Prepares and unprepares claims. `run` is the loop; `checkpoint` gets the claims of each record."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        root: Path,
        stream: OwnedStream[PodClaims],
        content: ClusterContent,
        drivers: DriverCalls,
        health: DeviceHealthWatch,
        checkpoint: ClaimCheckpoint,
        events: EventRecorder,
        metrics: Registry,
    ) -> None:
        self._bus, self._clock, self._stream, self._events = bus, clock, stream, events
        self._checkpoint = checkpoint
        self._drivers, self._health = drivers, health
        health.on_change = self._on_health
        self._record = ClaimRecord(root / RECORD)
        self._claims = ClaimsOfNode()
        self._metrics = ClaimMetrics(metrics, lambda: self._claims.claims)
        drivers.on_called = self._metrics.called
        self._specifications = SpecificationWatch(self._claims, clock)
        look, measure = self._specifications.look, self._metrics.operated
        self._work = ClaimWork(self._claims, clock, content, drivers, self._save, look, measure)
        self._threads = Threads("resource claim record", 1, clock)
        self._tasks: dict[str | ClaimKey, asyncio.Task[None]] = {}  # by pod UID, or key of a claim
        self._changed = asyncio.Event()
        self._sockets: Mapping[str, object] = {}  # by driver
        self._writing = asyncio.Lock()
        self._saves, self._written, self._unwritten = 0, 0, ""  # saves asked for, and written; why the last one is not

    def on_volumes(self, change: Change[PodVolumes]) -> None:
        """Follow `pods.volumes`."""
        match change:
            case Put(uid, item) if item.state in (PodState.SYNC, PodState.TERMINATING):
                identity = PodIdentity(uid=uid, name=item.name, namespace=item.namespace)
                requested = requested_claims(identity, item.pod)
                self._claims.set_pod(identity, requested, starts=item.state is PodState.SYNC)
            case Put(uid, _):
                self._claims.end_pod(uid)
            case Deleted(uid):
                self._claims.withdraw_pod(uid)
            case Freshness(complete, stale):
                self._claims.set_freshness(complete=complete, stale=stale)
        if self._claims.has_pods or self._stream.keys():
            self._changed.set()

    def drivers_changed(self, drivers: Mapping[str, object]) -> None:
        """Try again what waits for a driver that has come or gone. `drivers`: the sockets by name, and whether a driver
        listens there. Called also when all drivers that are there are known."""
        self._drivers.drivers_changed()
        self._health.drivers_changed()
        before, self._sockets = self._sockets, drivers
        self._claims.retry({name for name in {*before, *drivers} if before.get(name) != drivers.get(name)})
        self._changed.set()

    async def run(self) -> None:
        """Prepare and unprepare until cancelled."""
        await self._restore()
        self._health.drivers_changed()
        try:
            while True:
                self._changed.clear()
                now = await self._turn()
                # What is due later than the moment of the turn, also where that has come by now.
                moments = self._claims.next_attempt(now), self._health.health.next_end(now), self._specifications.due
                wait = max(min(moments) - self._clock.monotonic(), 0.0)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == math.inf else wait):
                        await self._changed.wait()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.clear()  # a task that is cancelled before its first step does not come to that itself
            await self._health.close()

    def close(self) -> None:
        """Write the record no more, once a write that has begun is done."""
        self._threads.close(wait=True)
        self._specifications.close()

    def _on_health(self) -> None:
        if self._stream.keys():
            self._changed.set()

    async def _restore(self) -> None:
        """Take the claims of the record, and those that only the checkpoint has: another kubelet prepared them."""
        try:
            self._claims.restored(await self._threads.call(self._record.load))
        except (OSError, ValueError) as error:
            remedy = "the claims of dra_manager_state count instead, and those of running pods are prepared again"
            log.warning("%s: cannot be read: %s (%s)", self._record.path, error, remedy)
        self._claims.restored(await self._checkpoint.load())
        self._checkpoint.write(self._claims.claims)

    async def _turn(self) -> float:
        """Publish, and begin what is due. Return the moment of which that is true."""
        lost = self._specifications.due <= self._clock.monotonic() and await self._specifications.look()
        if self._claims.release() or lost:
            await self._save()
        now = self._clock.monotonic()
        for uid in {*self._claims.pods(), *self._stream.keys()}:
            with contextlib.suppress(UnencodableError):  # which is logged: the other pods do not wait for this one
                self._publish(uid, now)
        self._stream.mark_complete()
        self._report(now)
        for uid in self._claims.pods_due(now):
            self._begin(uid, self._work.prepare)
        for key in self._claims.claims_due(now):
            self._begin(key, self._work.unprepare)
        return now

    def _begin(self, name: Name, work: Callable[[Name], Awaitable[None]]) -> None:
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._perform(name, work), name=f"resource claims of {name}")

    async def _perform(self, name: Name, work: Callable[[Name], Awaitable[None]]) -> None:
        try:
            await work(name)
        finally:
            del self._tasks[name]
            self._changed.set()

    async def _save(self) -> str:
        """Write the record; return why it cannot be written, which is a trouble, too. What is to be saved while it is
        written is written at once thereafter."""
        self._saves += 1
        number = self._saves
        async with self._writing:
            if self._written < number:
                number = self._saves
                self._unwritten = await self._write()
                self._written = number
            return self._unwritten

    async def _write(self) -> str:
        claims = self._claims.claims
        try:
            await self._threads.call(self._record.save, claims)
        except OSError as error:
            line = f"{self._record.path}: cannot be written: {error.strerror} (free space or repair the file system)"
            self._bus.trouble(_TROUBLE, line)
            return line
        self._bus.trouble(_TROUBLE, None)
        if self._claims.recorded(claims):
            self._changed.set()
        self._checkpoint.write(self._claims.claims)
        return ""

    def _publish(self, uid: str, now: float) -> None:
        before, claims = self._stream.get(uid), self._claims.shown(uid, now)
        if claims is None:
            self._stream.delete(uid, "it has no claims any more")
        elif (after := with_health(claims, self._health.health, now)) != before:
            self._stream.put(uid, after, "changed")
            known = {claim.error for claim in before.claims} if before is not None else set()
            for claim in after.claims:
                if claim.error not in ("", *known):
                    known.add(claim.error)
                    self._note(uid, claim.error, ends=claim.state is ClaimState.UNPREPARING)

    def _note(self, uid: str, error: str, *, ends: bool) -> None:
        """Log an error that the pod did not have before; one that keeps it from starting is an event, too."""
        pod = self._claims.pod(uid)
        log.warning("pod %s: %s", f"{pod.namespace}/{pod.name}" if pod is not None else uid, error)
        if pod is not None and not ends:
            message = f"Failed to prepare dynamic resources: {error}"
            self._events.record(
                KubeEvent(
                    type="Warning",
                    reason="FailedPrepareDynamicResources",
                    message=message,
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=pod.uid,
                )
            )

    def _report(self, now: float) -> None:
        """Name the claims that could not be unprepared for a long time."""
        lines = [f"ResourceClaim {name}: {error} (start the driver)" for name, error in self._claims.overdue(now)]
        self._bus.trouble(_OVERDUE, "; ".join(lines[:_MAX_SHOWN_CLAIMS]) or None)
