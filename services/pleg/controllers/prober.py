"""Runs probes as `core.probe_set` decides: with timers, a task for each try, and results and Events on the bus."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path

from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.event import KubeEvent
from bus.messages.podsync import PodProbes, PodStatus
from bus.messages.streams import PODS_PROBES, PODS_STATUS, PROBES_RESULTS
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.pleg.adapters.probe_files import ProbeFiles
from services.pleg.controllers.probe_metrics import ProbeMetrics
from services.pleg.core.probe_memory import ProbeMemory
from services.pleg.core.probe_outcome import Outcome, event_of
from services.pleg.core.probe_set import Moment, ProbeSet, WorkerKey
from services.pleg.core.probe_spec import PROBE_GATES, ProbeSpec
from services.pleg.core.probe_worker import ProbeWorker, Verdict
from shared.model.probes import ProbeResult
from shared.model.runtime import RuntimePod

log = logging.getLogger(__name__)

MAX_FIRST_RESULT_SECONDS = 15.0  # for which the stream waits for first results before it is marked complete

Try = Callable[[ProbeSpec, str, str], Awaitable[Outcome]]  # (spec, container id, pod IP)


class Prober:
    """Owns `probes.results`. Each try is a task of its own, so that none waits for another."""

    def __init__(self, context: Context, events: EventRecorder, attempt: Try) -> None:
        self._clock, self._try = context.clock, attempt
        self._results = context.bus.own(PROBES_RESULTS)
        self._events = events
        self._probes = context.bus.follow(PODS_PROBES, self._on_probes)
        self._statuses = context.bus.follow(PODS_STATUS, self._on_status)
        self._metrics = ProbeMetrics(context.metrics)
        self._jitter = iter(random.random, 2.0)  # without end, as no number is 2.0
        self._files = ProbeFiles(Path(context.config.run_dir) / "probes")
        handed_over = self._files.load()
        gates = context.config.feature_gates
        self._set = ProbeSet(handed_over, frozenset(gate for gate in PROBE_GATES if gates.get(gate)))
        self._saved: dict[str, list[ProbeMemory]] = {uid: [*memories] for uid, memories in handed_over.items()}
        self._timers: dict[WorkerKey, tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: dict[WorkerKey, asyncio.Task[None]] = {}
        self._deadline: asyncio.TimerHandle | None = None
        self._complete = False
        self._closed = False
        self._waited = False
        context.resumption.subscribe(self._resumed)

    def _resumed(self, seconds: float) -> None:
        """Begin the tries that would have begun while the machine was suspended, now."""
        for key in sorted(self._timers):
            if (worker := self._set.worker(key)) is not None:
                worker.resumed(seconds)
                self._schedule(key, worker)

    def observed(self, uid: str, pod: RuntimePod | None) -> None:
        """Handle what the runtime shows of a pod now; None = nothing."""
        moment = Moment(self._clock.monotonic(), self._clock.wall())
        for container_id in self._set.observed(uid, pod, moment):
            self._results.delete(container_id, "the container is gone")
        self._update_workers(uid)

    def listed(self) -> None:
        """Begin the wait for first results: the first full list has succeeded."""
        self._set.listed()
        for uid in self._set.take_unused():
            self._saved.pop(uid, None)
            self._files.forget(uid)
        self._deadline = asyncio.get_running_loop().call_later(MAX_FIRST_RESULT_SECONDS, self._end_wait)
        self._consider_complete()

    def close(self) -> None:
        """End all tries; nothing is published from now on."""
        self._closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        for key in [*self._timers, *self._tasks]:
            self._stop(key)

    # -- what podsync publishes -----------------------------------------------------------------------------------

    def _on_probes(self, change: Change[PodProbes]) -> None:
        match change:
            case Freshness():
                self._consider_complete()
            case Put(uid, probes):
                self._turned(uid, self._set.probed(uid, probes))
            case Deleted(uid):
                self._turned(uid, self._set.probed(uid, None))

    def _on_status(self, change: Change[PodStatus]) -> None:
        match change:
            case Freshness():
                self._consider_complete()
            case Put(uid, status):
                self._set.status(uid, status.status)
                self._update_workers(uid)
            case Deleted(uid):
                self._set.status(uid, {})
                self._update_workers(uid)

    def _turned(self, uid: str, keys: set[WorkerKey]) -> None:
        """Stop those of these workers that have ended, and update the others of the pod."""
        for key in sorted(keys):
            if self._set.worker(key) is None:
                self._stop(key)
                self._metrics.ended(key)
        self._update_workers(uid)

    # -- tries ---------------------------------------------------------------------------------------------------

    def _update_workers(self, uid: str) -> None:
        """Update timers, tries and the stream to what is known of the pod."""
        if self._closed:
            return
        keys, abandoned = self._set.update_pod(uid, self._clock.monotonic(), self._jitter)
        for key in sorted(keys):
            worker = self._set.worker(key)
            assert worker is not None
            if key in abandoned:
                self._stop(key)
                worker.abandoned()
            self._schedule(key, worker)
        self._save(uid)
        for container_id, results in self._set.results_of(uid):
            if self._results.get(container_id) != results:
                self._results.put(container_id, results, "probed")
        self._consider_complete()

    def _save(self, uid: str) -> None:
        """Save what the probes of the pod have counted, before it is published."""
        memories = self._set.memories(uid)
        if memories == self._saved.get(uid, []):
            return
        if memories:
            self._saved[uid] = memories
            self._files.save(uid, memories)
        else:
            del self._saved[uid]
            self._files.forget(uid)

    def _schedule(self, key: WorkerKey, worker: ProbeWorker) -> None:
        due, timer = worker.due, self._timers.get(key)
        if timer is not None:
            if timer[0] == due:
                return
            timer[1].cancel()
            del self._timers[key]
        if due < inf:
            left = max(0.0, due - self._clock.monotonic())
            self._timers[key] = (due, asyncio.get_running_loop().call_later(left, self._begin, key, worker))

    def _begin(self, key: WorkerKey, worker: ProbeWorker) -> None:
        self._timers.pop(key, None)
        worker.begin(max(self._clock.monotonic(), worker.due))
        self._tasks[key] = asyncio.get_running_loop().create_task(self._attempt(key, worker))

    async def _attempt(self, key: WorkerKey, worker: ProbeWorker) -> None:
        container_id, began = worker.container_id, self._clock.monotonic()
        outcome = await self._try(worker.spec, container_id, self._set.address(key.pod_uid))
        if self._tasks.get(key) is not asyncio.current_task():
            return  # the try was abandoned when it had just ended
        del self._tasks[key]
        seconds = self._clock.monotonic() - began
        self._metrics.tried(key, *self._set.pod_reference(key.pod_uid), outcome.verdict, seconds)
        self._record(key, worker.spec, outcome)
        before, answered = worker.result, worker.has_answered
        worker.finished(container_id, outcome.verdict)
        failed = worker.result is ProbeResult.FAILURE and outcome.verdict is Verdict.FAILURE
        if failed and (worker.result != before or not self._set.results[container_id].failure):
            self._set.failed(key, container_id, outcome.output)
        elif worker.result == before:
            self._schedule(key, worker)
            self._save(key.pod_uid)
            if not answered:
                self._consider_complete()
            return
        if worker.result != before:
            log.info("%s of container %s (%s): %s", key.kind, key.container, container_id[:12], worker.result)
        self._update_workers(key.pod_uid)

    def _record(self, key: WorkerKey, spec: ProbeSpec, outcome: Outcome) -> None:
        if (entry := event_of(key.kind, outcome)) is None:
            return
        reason, message = entry
        namespace, name = self._set.pod_reference(key.pod_uid)
        event = KubeEvent(
            type="Warning",
            reason=reason,
            message=message,
            namespace=namespace,
            name=name,
            uid=key.pod_uid,
            field_path=spec.field_path,
        )
        self._events.record(event, cause=f"{key.kind} probe")

    def _stop(self, key: WorkerKey) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer[1].cancel()
        if (task := self._tasks.pop(key, None)) is not None:
            task.cancel()

    # -- completeness --------------------------------------------------------------------------------------------

    def _consider_complete(self) -> None:
        """Mark the stream complete once each probe has a first result, or the wait for them is over: without it, probes
        of running containers would seem to have lost their results."""
        known = self._probes.complete and self._statuses.complete
        if not self._complete and known and (self._waited or self._set.all_answered):
            self._complete = True
            self._results.mark_complete()

    def _end_wait(self) -> None:
        self._waited = True
        self._consider_complete()
