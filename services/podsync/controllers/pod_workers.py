"""Carries out each pod's instructions in order, with one worker per pod: save before publish before act.
A call starts when everything before it in the queue is done, and then runs beside the worker; its outcome is an event.
The newest record that is not urgent is saved once no call of the pod is under way, or after half a second; a status
that a newer one is about to replace is published after a second, with many such pods after five. Has the named crash
points.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from services.podsync.adapters.saver import Saver
from services.podsync.controllers.pod_streams import PodStreams
from services.podsync.core.pod.events import CallFailed, Event
from services.podsync.core.pod.instruction_queue import InstructionQueue, Queued
from services.podsync.core.pod.instructions import (
    Call,
    CreateContainer,
    ForgetPod,
    Instruction,
    InterruptCall,
    PreparePod,
    PublishAdmitted,
    PublishStatus,
    PullImage,
    RunPodSandbox,
    SavePod,
    SetContainerCpus,
    StartContainer,
)
from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.model.frozen_copy import replace
from shared.process.crash import crash_point, is_armed
from shared.process.deadlines import Deadlines, Work, work_on
from shared.time.clock import Clock
from shared.tracing.tracer import Tracer

log = logging.getLogger(__name__)

SAVE_DELAY_SECONDS = 0.5  # after which a record that is not urgent is saved at the latest
# A pod that runs within this time goes from Pending to Running at once, and a deleted one that stops within it from
# Running to its end: fewer requests to the API server, each with effects in five processes, while the runtime works.
# Pods that start or end at the same time take longer, so each of them adds to the time of all.
STATUS_DELAY_SECONDS = 1.0
STATUS_DELAY_OF_EACH_SECONDS = 0.1
MAX_STATUS_DELAY_SECONDS = 5.0
BUILDING = (PreparePod, RunPodSandbox, PullImage, CreateContainer, StartContainer)


@dataclass(eq=False)
class PodWorker:
    """Has the waiting instructions of one pod, and the work that is under way for it."""

    queue: InstructionQueue = field(default_factory=InstructionQueue)
    calls: int = 0  # how many are under way
    request: "asyncio.Future[Event] | None" = None  # the newest call, once it was sent
    interrupted: bool = False  # the outcome of that call is not waited for
    passed: set[str] = field(default_factory=set)  # crash points before the next call that were passed already
    save_timer: asyncio.TimerHandle | None = None  # for the record in `queue.later`
    status_timer: asyncio.TimerHandle | None = None  # for the status in `queue.held`
    unsaved: SavePod | None = None  # the newest urgent save, while it could not be done
    forgotten: bool = False
    task: "asyncio.Task[Any] | None" = None
    work: Work | None = None  # while anything waits


class PodWorkers:
    """Has all workers of the process. A queue that is not empty, and each call, is work with a deadline: a worker that
    makes no progress and waits for nothing outside the process is a hang of the process."""

    def __init__(
        self,
        *,
        checkpoint: Checkpoint,
        streams: PodStreams,
        perform: Callable[[Call], Awaitable[Event]],
        end_reads: Callable[[str], None],
        finished: Callable[[Event], None],
        settled: Callable[[str], None],
        trouble: Callable[[str, str | None], None],
        clock: Clock,
        deadlines: Deadlines,
        tracer: Tracer,
    ) -> None:
        self._deadlines = deadlines
        self._tracer = tracer
        self._checkpoint = checkpoint
        self._streams = streams
        self._perform = perform
        self._finished = finished
        self._trouble = trouble
        self._clock = clock
        self._settled = settled
        self._end_reads = end_reads
        self._saver = Saver(checkpoint)
        self._workers: dict[str, PodWorker] = {}
        self._held: set[str] = set()  # UIDs of the pods with a status in `queue.held`
        self._tasks: set[asyncio.Task[Any]] = set()

    def add(self, uid: str, instruction: Instruction) -> None:
        """Put one instruction into the pod's queue."""
        worker = self._workers.setdefault(uid, PodWorker())
        worker.queue.add(instruction)
        if worker.queue.held is None:
            self._stop_status_timer(uid, worker)
        elif worker.status_timer is None:
            self._held.add(uid)
            self._release_status_in_time(uid, worker, asyncio.get_running_loop().time())
        if worker.task is None and worker.queue.waiting:
            self._start(uid, worker)
        elif worker.task is None:
            self._start_save_timer(uid, worker)

    def _start(self, uid: str, worker: PodWorker) -> None:
        worker.work = worker.work or self._deadlines.begin(f"the worker of pod {uid}")
        worker.task = self._spawn(self._work(uid, worker, worker.work), f"worker {uid}")

    def _start_save_timer(self, uid: str, worker: PodWorker) -> None:
        if worker.queue.later and worker.save_timer is None:
            loop = asyncio.get_running_loop()
            worker.save_timer = loop.call_later(SAVE_DELAY_SECONDS, self._release_save, uid, worker)

    def _release_save(self, uid: str, worker: PodWorker) -> None:
        """Save the record that is not urgent: it has waited long enough, or no call is under way any more."""
        if worker.save_timer is not None:
            worker.save_timer.cancel()
            worker.save_timer = None
        worker.queue.release_save()
        if worker.queue.waiting and worker.task is None:
            self._start(uid, worker)

    def _release_status_in_time(self, uid: str, worker: PodWorker, held_at: float) -> None:
        """Release the status that is held since `held_at` (seconds of the loop) once that was long enough."""
        loop, delay = asyncio.get_running_loop(), STATUS_DELAY_SECONDS + STATUS_DELAY_OF_EACH_SECONDS * len(self._held)
        due = held_at + min(delay, MAX_STATUS_DELAY_SECONDS)
        if due > loop.time():
            worker.status_timer = loop.call_at(due, self._release_status_in_time, uid, worker, held_at)
        else:
            self._release_status(uid, worker)

    def _release_status(self, uid: str, worker: PodWorker) -> None:
        worker.queue.release_status()
        self._stop_status_timer(uid, worker)
        if worker.queue.waiting and worker.task is None:
            self._start(uid, worker)

    def _stop_status_timer(self, uid: str, worker: PodWorker) -> None:
        self._held.discard(uid)
        if worker.status_timer is not None:
            worker.status_timer.cancel()
            worker.status_timer = None

    def when_done(self, reached: Callable[[], None]) -> None:
        """Call back once everything added so far is published; at once if nothing waits. Publishes held statuses first,
        because a follower takes a pod that is missing in a complete stream for gone."""
        for uid, worker in list(self._workers.items()):
            self._release_status(uid, worker)
        busy = [worker for worker in self._workers.values() if worker.task is not None]
        if not busy:
            reached()
            return
        left = len(busy)

        def pass_worker() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                reached()

        for worker in busy:
            worker.queue.waiting.append(pass_worker)

    async def until_done(self) -> None:
        """Wait until everything added so far is published."""
        reached = asyncio.Event()
        self.when_done(reached.set)
        await reached.wait()

    def save_soon(self, checkpoint: Checkpoint, key: str, data: dict[str, Any]) -> None:
        """Save a record that is not a pod's, beside all workers."""
        self._spawn(self._save(checkpoint, asyncio.to_thread(checkpoint.save, key, data), key), f"save {key}")

    async def save_now(self, checkpoint: Checkpoint, key: str, data: dict[str, Any]) -> str:
        """Save a record that is not a pod's, and wait for it. Return why it was not saved, "" = it was."""
        return await self._save(checkpoint, asyncio.to_thread(checkpoint.save, key, data), key)

    async def close(self) -> None:
        """End everything under way; the next process continues from the checkpoint."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for uid, worker in self._workers.items():
            self._stop_status_timer(uid, worker)
            if worker.save_timer is not None:
                worker.save_timer.cancel()
        await self._saver.drain()

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    async def _work(self, uid: str, worker: PodWorker, work: Work) -> None:
        work_on(work)
        while worker.queue.waiting:
            work.progressed()
            try:
                await self._do(uid, worker, worker.queue.waiting.popleft())
            except Exception:  # the worker must go on, or nothing would happen to its pod any more
                log.exception("an instruction for pod %s was not done", uid)
        work.ended()
        worker.task = worker.work = None
        if worker.forgotten:
            self._workers.pop(uid, None)
        elif worker.calls == 0:
            self._settled(uid)
            self._release_save(uid, worker)
        else:
            self._start_save_timer(uid, worker)

    async def _do(self, uid: str, worker: PodWorker, instruction: Queued) -> None:
        if not isinstance(instruction, Instruction):
            instruction()
            return
        match instruction:
            case SavePod(record=record, urgent=urgent):
                worker.forgotten = False
                failed = await self._save(self._checkpoint, self._saver.save(uid, record), uid)
                if urgent or not failed:
                    worker.unsaved = instruction if failed else None
                _pass(worker, "saved")
            case ForgetPod():
                worker.forgotten, worker.unsaved = True, None
                try:
                    await asyncio.to_thread(self._checkpoint.delete, uid)
                finally:  # the next process reads a record that stays, and forgets the pod again
                    self._streams.delete(uid, instruction.cause)
            case PublishAdmitted(published=published):
                self._streams.put(uid, published, instruction.cause)
                _pass(worker, "published")
            case PublishStatus(status=status):
                self._streams.put_status(uid, status, instruction.cause)
                _pass(worker, "published")
            case InterruptCall(reads_only=True):
                self._end_reads(uid)
            case InterruptCall():
                worker.interrupted = True
                if worker.request is not None:
                    worker.request.cancel()
            case Call():
                for point in ("saved", "published"):  # where there was nothing to save or to publish before it, too
                    if point not in worker.passed:
                        crash_point(f"podsync.{point}.{type(instruction).__name__}")
                worker.passed.clear()
                worker.calls += 1
                if not isinstance(instruction, SetContainerCpus):
                    worker.request, worker.interrupted = None, False
                self._spawn(self._call(worker, instruction), f"{type(instruction).__name__} {uid}")
            case _:
                log.error("an instruction of type %s is not known", type(instruction).__name__)

    async def _save(self, checkpoint: Checkpoint, saving: Awaitable[RecordLocation], key: str) -> str:
        """Wait for a record to be saved. Return why it was not, "" = it was."""
        try:
            kept = await saving
            why = "" if kept is not RecordLocation.NOWHERE else checkpoint.trouble or "no place to save to"
        except OSError as error:
            why = str(error)
        if why:
            why = f"cannot save the record of {key}: {why}"
            log.error("%s (free disk space: meanwhile pods are stopped, and no container is started)", why)
        self._trouble("checkpoint", why or checkpoint.trouble)
        return why

    async def _call(self, worker: PodWorker, call: Call) -> None:
        work = self._deadlines.begin(f"{type(call).__name__} of pod {call.uid}")
        try:
            work_on(work)
            await self._do_call(worker, call)
        finally:
            work.ended()

    async def _do_call(self, worker: PodWorker, call: Call) -> None:
        kind = type(call).__name__
        if worker.unsaved and isinstance(call, BUILDING):
            # An urgent record could not be written: build nothing that depends on it; stopping and removing continue.
            why = await self._save(self._checkpoint, self._saver.save(call.uid, worker.unsaved.record), call.uid)
            if why:
                self._finish_call(worker, call, self._failed(call, why))
                return
            worker.unsaved = None
        begun = False

        async def perform() -> Event:
            nonlocal begun
            begun = True
            with self._tracer.span(kind, pod=call.uid):
                return await self._perform(call)

        request = asyncio.ensure_future(perform())
        if not isinstance(call, SetContainerCpus):  # it is beside the call that an interruption is about
            worker.request = request
            if worker.interrupted:
                request.cancel()  # it was not sent yet
        if is_armed(f"podsync.calling.{kind}"):
            await asyncio.wait({request}, timeout=0.005)  # so that the request leaves this process before the kill
            crash_point(f"podsync.calling.{kind}")
        try:
            outcome = await request
        except asyncio.CancelledError:
            if not request.cancelled() or (own := asyncio.current_task()) is None or own.cancelling():
                raise
            outcome = replace(self._failed(call, "interrupted"), interrupted=True, begun=begun)
        except Exception as error:  # a bug: this pod's call is repeated, and other pods are not affected
            log.exception("%s of pod %s failed unexpectedly", kind, call.uid)
            outcome = self._failed(call, f"internal error: {type(error).__name__}: {error}")
        crash_point(f"podsync.acted.{kind}")
        self._finish_call(worker, call, outcome)

    def _finish_call(self, worker: PodWorker, call: Call, outcome: Event) -> None:
        """Report the outcome before the save is released: a call that follows delays the save further."""
        worker.calls -= 1
        self._finished(outcome)
        if worker.task is None and not worker.calls and not worker.forgotten:
            self._settled(call.uid)
            self._release_save(call.uid, worker)

    def _failed(self, call: Call, why: str) -> CallFailed:
        return CallFailed(
            cause=f"{type(call).__name__} failed here",
            uid=call.uid,
            call=call,
            completed_at=self._clock.monotonic(),
            code="",
            text=why,
            description=why,
        )


def _pass(worker: PodWorker, point: str) -> None:
    """Pass the crash point, which is named after the next call in the queue."""
    call = worker.queue.next_call()
    crash_point(f"podsync.{point}.{call}")
    if call != "none":
        worker.passed.add(point)
