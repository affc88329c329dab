"""One lane per pod: does the pod's instructions in the order they came, save before publish before act.

A call starts when everything before it in the lane is done and then runs beside the lane; its outcome comes back as an
event. What is not urgent to save is saved when the lane is idle, newest only. Holds the named crash points.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bus.interface import OwnedStream
from bus.messages.podsync import AdmittedPod, PodStatus
from services.podsync.core.events import CallFailed, Event
from services.podsync.core.instructions import (
    Call,
    CreateContainer,
    ForgetPod,
    Instruction,
    PreparePod,
    PublishAdmitted,
    PublishStatus,
    PullImage,
    RunPodSandbox,
    SavePod,
    StartContainer,
)
from shared.checkpoint import Checkpoint, Kept
from shared.clock import Clock
from shared.crash import crash_point, is_armed

log = logging.getLogger(__name__)

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
        self.unsaved: SavePod | None = None  # the newest urgent save, while it could not be done
        self.forgotten = False
        self.worker: asyncio.Task[Any] | None = None


class Lanes:
    """All lanes of the process."""

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
    ) -> None:
        self._checkpoint, self._admitted, self._statuses = checkpoint, admitted, statuses
        self._perform, self._finished, self._trouble, self._clock = perform, finished, trouble, clock
        self._lanes: dict[str, Lane] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def add(self, uid: str, instruction: Instruction) -> None:
        """Put one instruction at the end of the pod's lane."""
        lane = self._lanes.setdefault(uid, Lane())
        if isinstance(instruction, SavePod) and not instruction.urgent:
            lane.later = instruction
        else:
            if isinstance(instruction, SavePod | ForgetPod):
                lane.later = None  # what waits is older
            lane.waiting.append(instruction)
        if lane.worker is None:
            lane.worker = self._spawn(self._work(uid, lane), f"lane {uid}")

    def when_done(self, reached: Callable[[], None]) -> None:
        """Call back once everything handed in so far is saved and published; at once if nothing waits."""
        busy = [lane for lane in self._lanes.values() if lane.worker is not None]
        if not busy:
            reached()
            return
        barrier = Barrier(reached)
        for lane in busy:
            barrier.put_into(lane)

    def save_soon(self, checkpoint: Checkpoint, key: str, data: dict[str, Any]) -> None:
        """Save something that is not a pod's, beside all lanes."""
        self._spawn(self._save(checkpoint, key, data), f"save {key}")

    async def close(self) -> None:
        """End everything under way; the checkpoint tells the next life where to go on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    async def _work(self, uid: str, lane: Lane) -> None:
        while lane.waiting or lane.later:
            try:
                if lane.waiting:
                    await self._do(uid, lane, lane.waiting.popleft())
                elif lane.later:
                    later, lane.later = lane.later, None
                    if not await self._save(self._checkpoint, later.uid, later.record):
                        lane.unsaved = None
            except Exception:  # a lane that stopped would leave its pod alone for ever
                log.exception("an instruction for pod %s was not done", uid)
        lane.worker = None
        if lane.forgotten:
            self._lanes.pop(uid, None)

    async def _do(self, uid: str, lane: Lane, instruction: Instruction | Barrier) -> None:
        match instruction:
            case Barrier():
                instruction.come_to()
            case SavePod(record=record):
                lane.forgotten = False
                lane.unsaved = instruction if await self._save(self._checkpoint, uid, record) else None
                crash_point(f"podsync.saved.{_next_call(lane)}")
            case ForgetPod():
                lane.forgotten, lane.unsaved = True, None
                try:
                    await asyncio.to_thread(self._checkpoint.delete, uid)
                finally:  # a record that stays is taken up and forgotten again by the next life
                    self._statuses.delete(uid, instruction.cause)
                    self._admitted.delete(uid, instruction.cause)
            case PublishAdmitted(admitted=admitted):
                self._admitted.put(uid, admitted, instruction.cause)
                crash_point(f"podsync.published.{_next_call(lane)}")
            case PublishStatus(status=status):
                self._statuses.put(uid, status, instruction.cause)
                crash_point(f"podsync.published.{_next_call(lane)}")
            case Call():
                self._spawn(self._call(lane, instruction), f"{type(instruction).__name__} {uid}")
            case _:
                log.error("no way to do %s", type(instruction).__name__)

    async def _save(self, checkpoint: Checkpoint, key: str, data: dict[str, Any]) -> str:
        """Save in a thread; returns why it failed, "" when it did not."""
        try:
            kept = await asyncio.to_thread(checkpoint.save, key, data)
            why = "" if kept is not Kept.NOWHERE else checkpoint.trouble or "no place to save to"
        except OSError as error:
            why = str(error)
        if why:
            why = f"cannot save the record of {key}: {why}"
            log.error("%s (free disk space: pods go on ending meanwhile, no container is started)", why)
        self._trouble("checkpoint", why or checkpoint.trouble)
        return why

    async def _call(self, lane: Lane, call: Call) -> None:
        kind = type(call).__name__
        if lane.unsaved and isinstance(call, BUILDING):
            # what must not be forgotten could not be written: build nothing on it; ending and removing go on
            why = await self._save(self._checkpoint, call.uid, lane.unsaved.record)
            if why:
                self._finished(self._failed(call, why))
                return
            lane.unsaved = None
        request = asyncio.ensure_future(self._perform(call))
        if is_armed(f"podsync.calling.{kind}"):
            await asyncio.wait({request}, timeout=0.005)  # let the request leave this process before it dies
            crash_point(f"podsync.calling.{kind}")
        try:
            outcome = await request
        except Exception as error:  # a bug, or a pod of a shape nobody thought of: it costs this pod a retry, not more
            log.exception("%s of pod %s failed unexpectedly", kind, call.uid)
            outcome = self._failed(call, f"internal error: {type(error).__name__}: {error}")
        crash_point(f"podsync.acted.{kind}")
        self._finished(outcome)

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


def _next_call(lane: Lane) -> str:
    """The kind of the call this batch leads to, for the names of crash points."""
    return next((type(i).__name__ for i in lane.waiting if isinstance(i, Call)), "none")
