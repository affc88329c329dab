"""Decides when pending resizes are decided, and in which order, and puts the results into `TrackedPods` (pods.md 5.6).

A resize is decided when a source lists it, and again when there may be room: pods come, change, end or go, the node's
allocatable or pressure changes, or some time has passed. `resize_verdict` decides.
"""

from bus.messages.podsync import PodState
from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.admission.resize_verdict import (
    INIT_CONTAINERS,
    POD_LEVEL,
    VOLUMES,
    ResizeVerdict,
    decide_resize,
    order,
)
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.allocation import (
    PendingResize,
    ResizeInProgress,
    actuated_after,
    resize_event,
    with_allocation,
)
from services.podsync.core.pod.claim_status import with_claim_status
from services.podsync.core.pod.instructions import Call, CreateContainer, PreparePod, ResizePod
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from shared.model.frozen_copy import replace

FIRST_RETRY_SECONDS = 30.0
RETRY_SECONDS = 180.0
_NOT_DECLARED = "Pod requires node features that are not available: "
# The allocation does not change during these calls, which use what the pod has when they begin.
_USES_ALLOCATION = (PreparePod, CreateContainer, ResizePod)


class Resizes:
    """Decides the pending resizes of one node."""

    def __init__(self, pods: TrackedPods, admissions: Admissions) -> None:
        self._pods, self._admissions = pods, admissions
        self._waiting: dict[str, None] = {}  # UIDs
        self.retry_at = 0.0  # steady seconds, 0 = nothing waits

    def waits_for(self, call: Call) -> bool:
        """Return whether a resize may have waited for the end of this call: one of this pod, or one of any pod for
        room."""
        return isinstance(call, ResizePod) or (call.uid in self._waiting and isinstance(call, _USES_ALLOCATION))

    def on_listed(self, tracked: TrackedPod) -> None:
        """Note a resize that a source lists, so that it is decided next."""
        pending = tracked.saved.pending_resize
        if pending is not None and not pending.is_over:
            self._waiting[tracked.uid] = None

    def decide(self, now: float) -> list[str]:
        """Decide what waits, the first in the queue first. Return the UIDs of the pods that changed."""
        if not self._waiting:
            return []
        candidates: list[tuple[TrackedPod, PendingResize]] = []
        for uid in list(self._waiting):
            tracked = self._pods.by_uid.get(uid)
            pending = tracked.saved.pending_resize if tracked is not None else None
            if tracked is None or pending is None or pending.is_over or not _may_be_resized(tracked):
                del self._waiting[uid]
            elif tracked.saved.admission_decided and self._admissions.can_decide(tracked):
                candidates.append((tracked, pending))
        touched: list[str] = []
        for uid, pending in [(tracked.uid, pending) for tracked, pending in sorted(candidates, key=_order)]:
            # Read again: the resize decided before this one may have preempted the pod.
            tracked = self._pods.by_uid[uid]
            if _may_be_resized(tracked) and not isinstance(tracked.call, _USES_ALLOCATION):
                touched += self._decide(tracked, pending, now)
        self.retry_at = now + (RETRY_SECONDS if self.retry_at else FIRST_RETRY_SECONDS) if self._waiting else 0.0
        return touched

    def _decide(self, tracked: TrackedPod, pending: PendingResize, now: float) -> list[str]:
        wanted = with_allocation(tracked.saved.pod, pending.wanted)
        phase = str(tracked.api_status.get("phase") or "")
        view = self._admissions.view(self._admissions.node)
        saved, taken = tracked.saved, self._admissions.taken()
        listed = with_allocation(with_claim_status(saved), pending.wanted)
        verdict = decide_resize(listed, saved.pod, phase, view, taken, saved.placement)
        if verdict.reason:
            return self._refuse(tracked, pending, verdict, now)
        if verdict.victims and not self._admissions.sources_complete:
            return []  # some of the victims may not be listed any more
        del self._waiting[tracked.uid]
        saved = replace(
            tracked.saved,
            pod=wanted,
            allocation=pending.wanted,
            actuated=actuated_after(
                tracked.saved.actuated, tracked.saved.allocation or pending.wanted, pending.wanted, wanted
            ),
            pending_resize=None,
            resize=ResizeInProgress(generation=pending.generation),
            victims=(*tracked.saved.victims, *verdict.victims),
        )
        tracked = replace(tracked, saved=saved, retry=replace(tracked.retry, resize_at=0.0))
        self._pods.put(tracked.with_event(*resize_event(wanted, "started", pending.generation)))
        return [*self._admissions.preempt(tracked, verdict.victims, now, verdict.lacking), tracked.uid]

    def _refuse(self, tracked: TrackedPod, pending: PendingResize, verdict: ResizeVerdict, now: float) -> list[str]:
        """Record that the resize is deferred or infeasible, with one Event for each generation and reason."""
        is_new = not pending.decided or pending.reason != verdict.reason
        decided = replace(
            pending, decided=True, reason=verdict.reason, message=verdict.message, since=pending.since or now
        )
        if decided.is_over:
            del self._waiting[tracked.uid]
        if decided == pending:
            return []
        tracked = replace(tracked, saved=replace(tracked.saved, pending_resize=decided))
        if is_new:
            wanted = with_allocation(tracked.saved.pod, pending.wanted)
            if verdict.message in (POD_LEVEL, INIT_CONTAINERS, VOLUMES) and self._admissions.facts.declares_features:
                text = _NOT_DECLARED + verdict.message.partition(" ")[0]
                tracked = tracked.with_event("Warning", "FailedNodeDeclaredFeaturesCheck", text, "")
            event = resize_event(wanted, verdict.reason, pending.generation, verdict.message)
            tracked = tracked.with_event(*event)
        self._pods.put(tracked)
        return [tracked.uid]


def _may_be_resized(tracked: TrackedPod) -> bool:
    saved = tracked.saved
    return saved.state is PodState.SYNC and not saved.rejected and not lifecycle.has_ended(tracked)


def _order(candidate: tuple[TrackedPod, PendingResize]) -> tuple[bool, int, bool, bool, float]:
    tracked, pending = candidate
    return order(with_allocation(tracked.saved.pod, pending.wanted), tracked.saved.pod, pending.since)
