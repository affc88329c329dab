"""One lane per pod: does the pod's instructions in the order they came, save before publish before act.

A call starts when everything before it in the lane is done and then runs beside the lane; its outcome comes back as an
event. What is in no hurry to be saved is, newest only, once no call of the pod is under way or half a second has
passed; a status that a newer one is about to replace is shown after a second. Holds the named crash points.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from bus.interface import OwnedStream
from bus.messages.podsync import AdmittedPod, PodStatus
from services.podsync.adapters.saver import Saver
from services.podsync.core.pod.events import CallFailed, Event
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
    RemoveContainers,
    RemoveSandboxes,
    RunPodSandbox,
    SavePod,
    StartContainer,
)
from shared.checkpoint import Checkpoint, Kept
from shared.clock import Clock
from shared.crash import crash_point, is_armed
from shared.deadlines import Deadlines, Work, work_on

log = logging.getLogger(__name__)

LATER_SECONDS = 0.5  # what is in no hurry waits for the end of a row of calls, at most so long
# A pod that runs within this time goes from Pending to Running at once: one request to the API server, and what follows
# from it in five processes, less in the very moment in which the runtime starts the pod.
SHOWN_AFTER_SECONDS = 1.0
BUILDING = (PreparePod, RunPodSandbox, PullImage, CreateContainer, StartContainer)


class Barrier:
    """Calls back once every lane it was put into has come to it."""

    def __init__(self, reached: Callable[[], None]) -> None:
        self._reached, self._lanes = reached, 0

    def put_into(self, lane: "Lane") -> None:
        """One more lane to wait for."""
        self._lanes += 1
        lane.waiting.append(self)

    def come_to(self) -> None:
        """A lane has done everything that stood before."""
        self._lanes -= 1
        if self._lanes == 0:
            self._reached()


class Lane:
    """The instructions of one pod that wait to be done."""

    def __init__(self) -> None:
        self.waiting: deque[Instruction | Barrier] = deque()
        self.later: SavePod | None = None  # the newest record that is in no hurry
        self.held: PublishStatus | None = None  # the newest status while a newer one is on its way
        self.calls = 0  # under way
        self.request: asyncio.Future[Event] | None = None  # of the newest call, once it is on its way
        self.interrupted = False  # and nobody waits for it
        self.passed: set[str] = set()  # crash points that lie before the next call and were passed on the way to it
        self.flush: asyncio.TimerHandle | None = None  # when what is in no hurry is done whatever comes
        self.show: asyncio.TimerHandle | None = None  # when the held status is shown
        self.unsaved: SavePod | None = None  # the newest urgent save, while it could not be done
        self.forgotten = False
        self.worker: asyncio.Task[Any] | None = None
        self.work: Work | None = None  # while anything waits


class Lanes:
    """All lanes of the process. What waits in a lane, and each call, is work with a deadline: a lane without
    progress that waits for nothing outside is a hang of the process."""

    def __init__(
        self,
        *,
        checkpoint: Checkpoint,
        admitted: OwnedStream[AdmittedPod],
        statuses: OwnedStream[PodStatus],
        perform: Callable[[Call], Awaitable[Event]],
        finished: Callable[[Event], None],
        trouble: Callable[[str, str | None], None],
        clock: Clock,
        deadlines: Deadlines,
    ) -> None:
        self._deadlines = deadlines
        self._checkpoint, self._admitted, self._statuses = checkpoint, admitted, statuses
        self._perform, self._finished, self._trouble, self._clock = perform, finished, trouble, clock
        self._saver = Saver(checkpoint)
        self._lanes: dict[str, Lane] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def add(self, uid: str, instruction: Instruction) -> None:
        """Put one instruction at the end of the pod's lane."""
        lane = self._lanes.setdefault(uid, Lane())
        if isinstance(instruction, SavePod) and not instruction.urgent:
            lane.later = instruction
        elif isinstance(instruction, PublishStatus) and instruction.on_the_way:
            lane.held = instruction
            if lane.show is None:
                lane.show = asyncio.get_running_loop().call_later(SHOWN_AFTER_SECONDS, self._show, uid, lane)
        else:
            if isinstance(instruction, SavePod | ForgetPod):
                lane.later = None  # what waits is older
            if isinstance(instruction, PublishStatus | ForgetPod):
                self._drop_held(lane)
            elif isinstance(instruction, RemoveContainers | RemoveSandboxes) and lane.later:
                lane.waiting.append(lane.later)  # it may tell what only the runtime tells as well, until then
                lane.later = None
            lane.waiting.append(instruction)
        if lane.worker is None and lane.waiting:
            self._start(uid, lane)
        elif lane.later and lane.flush is None and lane.worker is None:
            lane.flush = asyncio.get_running_loop().call_later(LATER_SECONDS, self._flush, uid, lane)

    def _start(self, uid: str, lane: Lane) -> None:
        lane.work = lane.work or self._deadlines.begin(f"the lane of pod {uid}")
        lane.worker = self._spawn(self._work(uid, lane, lane.work), f"lane {uid}")

    def _flush(self, uid: str, lane: Lane) -> None:
        """What was in no hurry has waited long enough, or for the last call in a row."""
        if lane.flush is not None:
            lane.flush.cancel()
            lane.flush = None
        if lane.later is not None:
            lane.waiting.append(lane.later)
            lane.later = None
        if lane.waiting and lane.worker is None:
            self._start(uid, lane)

    def _show(self, uid: str, lane: Lane) -> None:
        if lane.held is not None:
            lane.waiting.append(lane.held)
        self._drop_held(lane)
        if lane.waiting and lane.worker is None:
            self._start(uid, lane)

    def _drop_held(self, lane: Lane) -> None:
        lane.held = None
        if lane.show is not None:
            lane.show.cancel()
            lane.show = None

    def when_done(self, reached: Callable[[], None]) -> None:
        """Call back once everything handed in so far is published; at once if nothing waits. No status is held back
        then: what is complete must list every pod, or its followers would take the missing for gone."""
        for uid, lane in list(self._lanes.items()):
            self._show(uid, lane)
        busy = [lane for lane in self._lanes.values() if lane.worker is not None]
        if not busy:
            reached()
            return
        barrier = Barrier(reached)
        for lane in busy:
            barrier.put_into(lane)

    def save_soon(self, checkpoint: Checkpoint, key: str, data: dict[str, Any]) -> None:
        """Save something that is not a pod's, beside all lanes."""
        self._spawn(self._save(checkpoint, asyncio.to_thread(checkpoint.save, key, data), key), f"save {key}")

    async def close(self) -> None:
        """End everything under way; the checkpoint tells the next life where to go on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self._lanes.values():
            self._drop_held(lane)
            if lane.flush is not None:
                lane.flush.cancel()
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

    async def _work(self, uid: str, lane: Lane, work: Work) -> None:
        work_on(work)
        while lane.waiting:
            work.progressed()
            try:
                await self._do(uid, lane, lane.waiting.popleft())
            except Exception:  # a lane that stopped would leave its pod alone for ever
                log.exception("an instruction for pod %s was not done", uid)
        work.ended()
        lane.worker = lane.work = None
        if lane.forgotten:
            self._lanes.pop(uid, None)
        elif lane.calls == 0:
            self._flush(uid, lane)
        elif lane.flush is None and lane.later:
            lane.flush = asyncio.get_running_loop().call_later(LATER_SECONDS, self._flush, uid, lane)

    async def _do(self, uid: str, lane: Lane, instruction: Instruction | Barrier) -> None:
        match instruction:
            case Barrier():
                instruction.come_to()
            case SavePod(record=record, urgent=urgent):
                lane.forgotten = False
                failed = await self._save(self._checkpoint, self._saver.save(uid, record), uid)
                if urgent or not failed:
                    lane.unsaved = instruction if failed else None
                _pass(lane, "saved")
            case ForgetPod():
                lane.forgotten, lane.unsaved = True, None
                try:
                    await asyncio.to_thread(self._checkpoint.delete, uid)
                finally:  # a record that stays is taken up and forgotten again by the next life
                    self._statuses.delete(uid, instruction.cause)
                    self._admitted.delete(uid, instruction.cause)
            case PublishAdmitted(admitted=admitted):
                self._admitted.put(uid, admitted, instruction.cause)
                _pass(lane, "published")
            case PublishStatus(status=status):
                self._statuses.put(uid, status, instruction.cause)
                _pass(lane, "published")
            case InterruptCall():
                lane.interrupted = True
                if lane.request is not None:
                    lane.request.cancel()
            case Call():
                for point in ("saved", "published"):  # where there was nothing to save or to publish before it, too
                    if point not in lane.passed:
                        crash_point(f"podsync.{point}.{type(instruction).__name__}")
                lane.passed.clear()
                lane.calls += 1
                lane.request, lane.interrupted = None, False
                self._spawn(self._call(lane, instruction), f"{type(instruction).__name__} {uid}")
            case _:
                log.error("no way to do %s", type(instruction).__name__)

    async def _save(self, checkpoint: Checkpoint, saving: Awaitable[Kept], key: str) -> str:
        """Wait for a record to be saved; returns why it was not, "" when it was."""
        try:
            kept = await saving
            why = "" if kept is not Kept.NOWHERE else checkpoint.trouble or "no place to save to"
        except OSError as error:
            why = str(error)
        if why:
            why = f"cannot save the record of {key}: {why}"
            log.error("%s (free disk space: pods go on ending meanwhile, no container is started)", why)
        self._trouble("checkpoint", why or checkpoint.trouble)
        return why

    async def _call(self, lane: Lane, call: Call) -> None:
        work = self._deadlines.begin(f"{type(call).__name__} of pod {call.uid}")
        try:
            work_on(work)
            await self._do_call(lane, call)
        finally:
            work.ended()

    async def _do_call(self, lane: Lane, call: Call) -> None:
        kind = type(call).__name__
        if lane.unsaved and isinstance(call, BUILDING):
            # what must not be forgotten could not be written: build nothing on it; ending and removing go on
            why = await self._save(self._checkpoint, self._saver.save(call.uid, lane.unsaved.record), call.uid)
            if why:
                self._ended_call(lane, call, self._failed(call, why))
                return
            lane.unsaved = None
        begun = False

        async def perform() -> Event:
            nonlocal begun
            begun = True
            return await self._perform(call)

        request = lane.request = asyncio.ensure_future(perform())
        if lane.interrupted:
            request.cancel()  # before it was on its way
        if is_armed(f"podsync.calling.{kind}"):
            await asyncio.wait({request}, timeout=0.005)  # let the request leave this process before it dies
            crash_point(f"podsync.calling.{kind}")
        try:
            outcome = await request
        except asyncio.CancelledError:
            if not request.cancelled() or (own := asyncio.current_task()) is None or own.cancelling():
                raise
            outcome = replace(self._failed(call, "interrupted"), interrupted=True, begun=begun)
        except Exception as error:  # a bug, or a pod of a shape nobody thought of: it costs this pod a retry, not more
            log.exception("%s of pod %s failed unexpectedly", kind, call.uid)
            outcome = self._failed(call, f"internal error: {type(error).__name__}: {error}")
        crash_point(f"podsync.acted.{kind}")
        self._ended_call(lane, call, outcome)

    def _ended_call(self, lane: Lane, call: Call, outcome: Event) -> None:
        """What follows is decided first: the next call in a row lets what is in no hurry wait on."""
        lane.calls -= 1
        self._finished(outcome)
        if lane.worker is None and not lane.calls and not lane.forgotten:
            self._flush(call.uid, lane)

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


def _pass(lane: Lane, point: str) -> None:
    """The crash point is named after the kind of the call this batch leads to."""
    call = next((type(i).__name__ for i in lane.waiting if isinstance(i, Call)), "none")
    crash_point(f"podsync.{point}.{call}")
    if call != "none":
        lane.passed.add(point)
