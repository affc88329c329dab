"""Has the pods of the node that start, and follows how far each is; which begins next is decided in `turns`. Nothing
of it is on disk: the next process finds the same from the pods.
"""

import itertools

from bus.messages.podsync import PodState
from services.podsync.core.pod.instructions import KillPod, LookAtPod, PreparePod, RunPodSandbox
from services.podsync.core.pod.step import WAITS_FOR_TURN
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.start_order.rank import rank_of
from services.podsync.core.start_order.turns import Start, StartState, next_change, who_begins
from shared.model.frozen_copy import replace

_BEFORE_THE_SANDBOX = (LookAtPod, PreparePod, KillPod)


class StartQueue:
    """Follows the pods that start. `places`: how many start at once, 0 = any number."""

    def __init__(self, places: int, root_dir: str) -> None:
        self.places = places
        self._root_dir = root_dir
        self._starts: dict[str, Start] = {}
        self._numbers = itertools.count()

    def must_wait(self, tracked: TrackedPod, now: float) -> bool:
        """Return whether a pod that has all but its sandbox waits for its turn."""
        if not self.places or len(self._starts) - (tracked.uid in self._starts) < self.places:
            return False
        mine = self._start(tracked, StartState.WAITING, now)
        return tracked.uid not in who_begins({**self._starts, tracked.uid: mine}.values(), self.places, now)

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the UIDs of the waiting pods that may begin now, in their order."""
        return who_begins(self._starts.values(), self.places, now) if self._waits() else ()

    def next_change(self, now: float) -> float:
        """Return when a place becomes free if nothing happens before; infinity where no pod waits."""
        return next_change(self._starts.values(), now) if self._waits() else float("inf")

    def follow(self, uid: str, tracked: TrackedPod | None, now: float) -> None:
        """Take in how far the start of the pod is now; None = there is no such pod any more. Called after every
        decision about it."""
        state = self._state(tracked, now) if tracked is not None and self.places else None
        if tracked is None or state is None:
            self._starts.pop(uid, None)
        elif (before := self._starts.get(uid)) is None or before.state is not state:
            self._starts[uid] = self._start(tracked, state, now)

    def _waits(self) -> bool:
        return any(start.state is StartState.WAITING for start in self._starts.values())

    def _start(self, tracked: TrackedPod, state: StartState, now: float) -> Start:
        if (before := self._starts.get(tracked.uid)) is not None:
            return replace(before, state=state, since=now)
        has_failed = tracked.retry.failures_of(RunPodSandbox) > 0
        rank = rank_of(tracked.saved.pod, static=tracked.is_static, root_dir=self._root_dir, has_failed=has_failed)
        return Start(uid=tracked.uid, rank=rank, number=next(self._numbers), state=state, since=now)

    def _state(self, tracked: TrackedPod, now: float) -> StartState | None:
        """Return how far the start of the pod is, None = it does not start, or waits for something else."""
        saved = tracked.saved
        if saved.state is not PodState.SYNC or saved.rejected or not saved.admission_decided:
            return None
        if tracked.call is None:
            return StartState.WAITING if tracked.waits_for == WAITS_FOR_TURN and tracked.retry.at <= now else None
        if isinstance(tracked.call, RunPodSandbox):
            return StartState.BEGUN
        if isinstance(tracked.call, _BEFORE_THE_SANDBOX) and not tracked.ready_sandboxes:
            return StartState.COMING
        return None
