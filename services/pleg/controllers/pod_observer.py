"""Observes the runtime's pods: gives each event to `core.observation` and carries out its instructions in order.

Publishes `runtime.pods`, looks at single pods, watches processes by pidfd and keeps the timer of the next look.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from math import inf

from bus.interface import Change, Deleted, OwnedStream, Put
from bus.messages.podsync import PodStatus
from services.frame.launch import Context
from services.frame.pod_errors import PodErrors
from services.pleg.adapters.pidfd import ProcessWatches
from services.pleg.controllers.image_list import ImageReader
from services.pleg.controllers.prober import Prober
from services.pleg.core import events, instructions
from services.pleg.core.observation import Observation
from shared.cri.interface import Runtime, RuntimeCallError
from shared.metrics.family import histogram
from shared.model.runtime import RuntimePod

DURATION = histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of a look at one pod in the runtime.")

log = logging.getLogger(__name__)


class PodObserver:
    """Owns `runtime.pods`. Calls `relist` when the core needs a full list, `hurry` when the period of full lists became
    shorter, `listed` when the stream is complete."""

    def __init__(
        self,
        context: Context,
        runtime: Runtime,
        stream: OwnedStream[RuntimePod],
        watches: Callable[[Callable[[str], None]], ProcessWatches],
        images: ImageReader,
        prober: Prober,
        *,
        relist: Callable[[], None],
        hurry: Callable[[], None],
        listed: Callable[[], None],
    ) -> None:
        self._clock, self._runtime, self._stream = context.clock, runtime, stream
        self._tracer = context.tracer
        self._images, self._prober, self._relist, self._hurry = images, prober, relist, hurry
        self._listed, self._duration = listed, context.metrics.histogram(DURATION)
        self.observation = Observation()
        self._watches = watches(lambda entry_id: self.apply(events.ProcessExited(entry_id)))
        self._tasks: asyncio.TaskGroup | None = None
        self._next_look: tuple[float, asyncio.TimerHandle | None] = (inf, None)
        self._errors = PodErrors(log, context.bus.trouble, context.clock)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run looks as tasks of this group from now on."""
        self._tasks = tasks

    def stop(self) -> None:
        """Begin no more looks, because the task group ends."""
        self._tasks = None

    def close(self) -> None:
        """Release the timer and the pidfds."""
        if (timer := self._next_look[1]) is not None:
            timer.cancel()
        self._watches.close()

    def take_status(self, change: Change[PodStatus]) -> None:
        """Handle a change of `pods.status`, which names the containers whose exits podsync waits for."""
        match change:
            case Put(uid, status):
                named = events.StatusContainersChanged(uid, status.container_ids, status.name, status.namespace)
                self.apply(named)
            case Deleted(uid):
                self.apply(events.StatusContainersChanged(uid, ()))

    def apply(self, event: events.Event) -> None:
        """Give an event to the core and carry out its instructions, in order."""
        period = self.observation.relist_period
        pending: deque[events.Event] = deque([event])
        while pending:
            for instruction in self.observation.handle(pending.popleft(), self._clock.monotonic()):
                pending.extend(self._perform(instruction))
        if self.observation.relist_period < period:
            self._hurry()
        self._set_timer()

    def _perform(self, instruction: instructions.Instruction) -> tuple[events.Event, ...]:
        """Carry out the instruction; return the events it caused at once."""
        match instruction:
            case instructions.PublishPod(pod, cause):
                with self._errors.contained(pod.uid, "the observation"):
                    self._stream.put(pod.uid, pod, cause)
                    self._images.observed(pod)
                    self._prober.observed(pod.uid, pod)
            case instructions.WithdrawPod(uid, cause):
                self._stream.delete(uid, cause)
                with self._errors.contained(uid, "the observation"):
                    self._prober.observed(uid, None)
                self._errors.forget(uid)
            case instructions.MarkComplete():
                self._stream.mark_complete()
                self._listed()
            case instructions.ObservePod(uid, cause):
                log.debug("looking at pod %s: %s", uid, cause)
                if self._tasks is not None:
                    self._tasks.create_task(self._look(uid), name=f"look {uid}")
            case instructions.Relist(cause):
                log.debug("listing everything now: %s", cause)
                self._relist()
            case instructions.UnwatchProcess(entry_id):
                self._watches.unwatch(entry_id)
            case instructions.WatchProcess(entry_id, pid):
                try:
                    self._watches.watch(entry_id, pid)
                except OSError as error:
                    gone = isinstance(error, ProcessLookupError)
                    if not gone:
                        log.warning("cannot watch process %d of %s, will list more often: %s", pid, entry_id, error)
                    return (events.WatchFailed(entry_id, gone),)
        return ()

    async def _look(self, uid: str) -> None:
        began_at = self._clock.monotonic()
        seen: events.Event = events.ObservationFailed(uid)
        with self._errors.contained(uid, "the look"):
            try:
                with self._tracer.span("ObservePod", pod=uid):
                    pod = (await self._runtime.observe(uid)).get(uid)
                seen = events.PodObserved(uid, pod, pod.observed_at if pod else began_at)
                self._duration.observe(self._clock.monotonic() - began_at)
            except RuntimeCallError as error:
                log.debug("could not look at pod %s: %s", uid, error)
        self.apply(seen)

    def _set_timer(self) -> None:
        due, timer = self.observation.next_look, self._next_look[1]
        if due == self._next_look[0]:
            return
        if timer is not None:
            timer.cancel()
        if due < inf:
            left = max(0.0, due - self._clock.monotonic())
            self._next_look = (due, asyncio.get_running_loop().call_later(left, self._look_due))
        else:
            self._next_look = (inf, None)

    def _look_due(self) -> None:
        self._next_look = (inf, None)
        self.apply(events.TimePassed())
