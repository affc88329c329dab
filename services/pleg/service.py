"""pleg at work: lists, looks, watches and publishes as its core says. Decides nothing itself."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from math import inf

from bus.interface import Change, Deleted, Put
from bus.messages.podsync import PodStatus
from bus.messages.streams import NODE_IMAGES, NODE_OBSERVED, PODS_STATUS, RUNTIME_PODS
from services.frame.launch import Context
from services.frame.pod_errors import PodErrors
from services.pleg.adapters.event_reader import EventReader
from services.pleg.adapters.image_reader import ImageReader
from services.pleg.adapters.machine import read_machine
from services.pleg.adapters.node_reader import MachineReader, NodeReader
from services.pleg.adapters.pidfd import Pidfds, ProcessWatches
from services.pleg.adapters.probe_try import ProbeTrier
from services.pleg.adapters.waiting import wait_for
from services.pleg.controllers.prober import Prober, Try
from services.pleg.core import events, instructions
from services.pleg.core.node import NodeFacts
from services.pleg.core.observation import Observation
from services.pleg.core.retry import Retry
from services.pleg.core.runtime_trouble import RuntimeTrouble
from shared.cri.client import CriRuntime
from shared.cri.interface import PartialObservationError, Runtime, RuntimeCallError

log = logging.getLogger(__name__)

LOOP = "relist"  # its progress is the time of the last successful full list


def build(context: Context) -> "Pleg":
    """The service for `services.frame.launch`."""
    config = context.config
    runtime = CriRuntime(
        config.container_runtime_endpoint,
        config.image_service_endpoint,
        config.runtime_request_timeout,
        monotonic=context.clock.monotonic,
    )
    return Pleg(context, runtime)


class Pleg:
    """The one owner of `runtime.pods`, `node.observed` and `node.images`; of probes, `Prober` is."""

    def __init__(
        self,
        context: Context,
        runtime: Runtime,
        watches: Callable[[Callable[[str], None]], ProcessWatches] = Pidfds,
        machine: MachineReader = read_machine,
        attempt: Try | None = None,
    ) -> None:
        self._config, self._bus, self._clock, self._runtime = context.config, context.bus, context.clock, runtime
        self._pods_stream = self._bus.own(RUNTIME_PODS)
        self._node_stream = self._bus.own(NODE_OBSERVED)
        self._bus.follow(PODS_STATUS, self._on_status)
        trier = ProbeTrier(runtime, self._clock, self._config.runtime_request_timeout)
        self._prober = Prober(context, attempt or trier)
        self._images = ImageReader(runtime, self._clock, self._bus.own(NODE_IMAGES))
        self._observation, self._facts = Observation(), NodeFacts(self._config.eviction_hard)
        self._watches = watches(lambda entry_id: self._apply(events.ProcessExited(entry_id)))
        self._events = EventReader(
            runtime,
            self._clock,
            on_event=lambda event: self._apply(events.RuntimeHinted(event.pod_uid, event.type)),
            on_turn=self._event_stream_turned,
            relist=self._want_relist,
        )
        self._node = NodeReader(
            runtime,
            self._clock,
            self._facts,
            self._config.root_dir,
            changed=self._publish_node,
            trouble=lambda error: self._trouble("status", error),
            machine=machine,
        )
        self._tasks: asyncio.TaskGroup | None = None
        self._relist_wanted = False
        self._reconsider = asyncio.Event()  # set when the next relist may be due earlier than thought
        self._next_look: tuple[float, asyncio.TimerHandle | None] = (inf, None)
        self._mistakes = PodErrors(log, self._bus.trouble, self._clock)
        self._runtime_trouble = RuntimeTrouble(self._config.container_runtime_endpoint)

    async def run(self) -> None:
        """Observe until cancelled. Nothing in the runtime is touched, at the end as little as before."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._events.run(), name="event-stream")
                tasks.create_task(self._relists(), name="relists")
                tasks.create_task(self._node.run(), name="node")
                tasks.create_task(self._images.run(), name="images")
                try:
                    await asyncio.Event().wait()
                finally:
                    self._tasks = None  # hints that come from now on find nobody to look
        finally:
            if (timer := self._next_look[1]) is not None:
                timer.cancel()
            self._watches.close()
            self._prober.close()
            await self._runtime.close()

    async def _relists(self) -> None:
        retry = Retry()
        while True:
            self._relist_wanted = False
            began_at = self._clock.monotonic()
            try:
                await self._relist(began_at)
            except RuntimeCallError as error:
                if not retry.failing:
                    self._node.runtime_turned()
                self._trouble("list", error)
                await asyncio.sleep(retry.failed())
                continue
            if retry.failing:
                retry.succeeded()
                self._node.runtime_turned()
                self._events.runtime_back()
            self._bus.progress(LOOP)
            self._facts.relisted(self._clock.monotonic())
            self._events.listed(began_at)
            await self._until_next_relist(self._clock.monotonic())

    async def _relist(self, began_at: float) -> None:
        try:
            pods, unseen = await self._runtime.observe(), frozenset[str]()
        except PartialObservationError as partial:
            pods, unseen = partial.pods, partial.unseen
            self._trouble("list", partial)
        else:
            self._trouble("list", None)
        self._apply(events.Relisted(pods, began_at, unseen))

    async def _until_next_relist(self, listed_at: float) -> None:
        while not self._relist_wanted:
            left = listed_at + self._observation.relist_period - self._clock.monotonic()
            if left <= 0:
                return
            await wait_for(self._reconsider, left)

    def _want_relist(self) -> None:
        self._relist_wanted = True
        self._reconsider.set()

    def _on_status(self, change: Change[PodStatus]) -> None:
        match change:
            case Put(uid, status):
                self._apply(events.ContainersNamed(uid, status.container_ids))
            case Deleted(uid):
                self._apply(events.ContainersNamed(uid, ()))

    def _event_stream_turned(self, connected: bool) -> None:
        self._apply(events.EventStreamTurned(connected))
        self._facts.event_stream_turned(connected)
        self._publish_node()

    async def _look(self, uid: str) -> None:
        began_at = self._clock.monotonic()
        seen: events.Event = events.ObservationFailed(uid)
        with self._mistakes.contained(uid, "the look"):
            try:
                pod = (await self._runtime.observe(uid)).get(uid)
                seen = events.PodObserved(uid, pod, pod.observed_at if pod else began_at)
            except RuntimeCallError as error:
                log.debug("could not look at pod %s: %s", uid, error)
        self._apply(seen)

    def _apply(self, event: events.Event) -> None:
        """Hand an event to the core and do what it says, in order."""
        period = self._observation.relist_period
        pending: deque[events.Event] = deque([event])
        while pending:
            for instruction in self._observation.handle(pending.popleft(), self._clock.monotonic()):
                pending.extend(self._perform(instruction))
        if self._observation.relist_period < period:
            self._reconsider.set()
        self._set_timer()

    def _perform(self, instruction: instructions.Instruction) -> tuple[events.Event, ...]:
        """Do it; what that brought about at once comes back as events."""
        match instruction:
            case instructions.PublishPod(pod, cause):
                with self._mistakes.contained(pod.uid, "the observation"):
                    self._pods_stream.put(pod.uid, pod, cause)
                    self._images.observed(pod)
                    self._prober.observed(pod.uid, pod)
            case instructions.WithdrawPod(uid, cause):
                self._pods_stream.delete(uid, cause)
                with self._mistakes.contained(uid, "the observation"):
                    self._prober.observed(uid, None)
                self._mistakes.forget(uid)
            case instructions.MarkComplete():
                self._pods_stream.mark_complete()
                self._prober.listed()
            case instructions.ObservePod(uid, cause):
                log.debug("looking at pod %s: %s", uid, cause)
                if self._tasks is not None:
                    self._tasks.create_task(self._look(uid), name=f"look {uid}")
            case instructions.Relist(cause):
                log.debug("listing everything now: %s", cause)
                self._want_relist()
            case instructions.UnwatchProcess(entry_id):
                self._watches.unwatch(entry_id)
            case instructions.WatchProcess(entry_id, pid):
                try:
                    self._watches.watch(entry_id, pid)
                except OSError as error:
                    gone = isinstance(error, ProcessLookupError)
                    if not gone:
                        log.warning("cannot watch process %d of %s, will list more often: %s", pid, entry_id, error)
                    return (events.WatchRefused(entry_id, gone),)
        return ()

    def _set_timer(self) -> None:
        due, timer = self._observation.next_look, self._next_look[1]
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
        self._apply(events.TimePassed())

    def _publish_node(self) -> None:
        self._bus.progress("node")
        if (observed := self._facts.to_publish(self._clock.monotonic())) is not None:
            self._node_stream.put("node", observed, "node facts")
            self._node_stream.mark_complete()

    def _trouble(self, source: str, error: RuntimeCallError | None) -> None:
        """Say in the beat, and once in the log, what is wrong with the runtime; None = this call went well."""
        if self._runtime_trouble.note(source, error):
            line = self._runtime_trouble.line
            log.error("%s", line) if line else log.info("the container runtime answers again")
            self._bus.trouble("runtime", line)
