"""Decides what is saved and published after a decision about one pod: only what differs from what was written last.
The record is saved first where only podsync has what changed. Decides nothing about the pod.
"""

from bus.messages.event import KubeEvent
from bus.messages.podsync import PodStatus
from services.podsync.core.pod.instructions import (
    Call,
    Instruction,
    PublishAdmitted,
    PublishStatus,
    RemoveContainers,
    RemoveSandboxes,
    SavePod,
)
from services.podsync.core.pod.progress import LastWritten
from services.podsync.core.pod.published_items import published
from services.podsync.core.pod.saved_format import must_be_saved, persisted
from services.podsync.core.pod.step import WAITS_FOR_TURN, Step
from services.podsync.core.pod.tracked_pod import PodEvent, TrackedPod
from services.podsync.core.status.pod_status import container_ids, is_on_the_way
from shared.model.frozen_copy import replace
from shared.podspec.containers import field_path
from shared.time.timestamps import rfc3339


def save_and_publish(
    tracked: TrackedPod, boot: int, cause: str, call: Call | None
) -> tuple[LastWritten, list[Instruction]]:
    """Return the pod's new `last_written` and the instructions in their order. `boot`: the start number. A `call`
    that removes containers or sandboxes makes the save urgent: the record is then the only source of their facts."""
    out: list[Instruction] = []
    written = tracked.last_written
    changed = tracked.status != written.status
    if changed or written.saved != (tracked.saved, tracked.attempts):
        urgent = must_be_saved(tracked) or isinstance(call, RemoveContainers | RemoveSandboxes)
        written = replace(written, saved=(tracked.saved, tracked.attempts))
        out.append(SavePod(cause=cause, uid=tracked.uid, record=persisted(tracked), urgent=urgent))
    # Volumes of a pod that may run must not be unmounted: `finished` is published once nothing of it runs.
    is_known = tracked.saved.admission_decided and not tracked.may_run_after_end
    if written.published_from is not tracked.saved and is_known:
        shown = published(tracked.uid, tracked.name, tracked.namespace, tracked.saved)
        if shown != written.published:
            out.append(PublishAdmitted(cause=cause, published=shown))
        written = replace(written, published_from=tracked.saved, published=shown)
    running, waits_for = container_ids(tracked), WAITS_FOR_TURN if tracked.waits_for == WAITS_FOR_TURN else ""
    shown_besides = (running, waits_for)
    if (
        (changed or shown_besides != (written.container_ids, written.waits_for))
        and tracked.saved.pod
        and tracked.may_be_shown
    ):
        version, on_the_way = written.version + 1, is_on_the_way(tracked, written.status)
        written = replace(written, status=tracked.status, container_ids=running, waits_for=waits_for, version=version)
        status = PodStatus(
            uid=tracked.uid,
            name=tracked.name,
            namespace=tracked.namespace,
            version=(boot, version),
            status=tracked.status,
            container_ids=running,
            waits_for=waits_for,
        )
        out.append(PublishStatus(cause=cause, status=status, on_the_way=on_the_way))
    return written, out


def kube_event(tracked: TrackedPod, event: PodEvent, wall: float) -> KubeEvent:
    """Return the Kubernetes Event of the pod at `wall`, seconds since the epoch."""
    kind, reason, message, container = event
    return KubeEvent(
        type=kind,
        reason=reason,
        message=message,
        namespace=tracked.namespace,
        name=tracked.name,
        uid=tracked.uid,
        resource_version=tracked.resource_version,
        field_path=field_path(tracked.saved.pod, container) if container else "",
        time=rfc3339(wall),
    )


def with_shown_reasons(step: Step, events: list[PodEvent], now: float) -> list[PodEvent]:
    """Put the waiting reasons of the step into its pod. Return the events without those of a reason that was shown
    a moment ago, or of a wait that was shown before."""
    tracked = step.tracked
    for container, reason in step.reasons.items():
        progress = tracked.progress(container)
        if progress.records_events(reason, now):
            progress = replace(progress, reason=reason, events_at=now)
            tracked = tracked.with_progress(progress, container)
        else:
            events = [e for e in events if e[3] != container or e not in step.events]
    if step.waits_for and tracked.waits_for == step.waits_for:
        events = [e for e in events if e not in step.events]
    step.tracked = tracked if step.waits_for == tracked.waits_for else replace(tracked, waits_for=step.waits_for)
    return events


def shown_from(tracked: TrackedPod) -> tuple[object, ...]:
    """Return the parts of the pod that a step may change and that the status is made from."""
    ways = (
        tracked.saved.state,
        tracked.saved.deleted,
        tracked.saved.ending,
        tracked.saved.outcome,
        tracked.saved.restarting_all,
        tracked.saved.shutdown,
        tracked.saved.resize,
        tracked.saved.actuated,
    )
    reasons = {name: progress.reason for name, progress in tracked.starts.items() if progress.reason}
    replacing = {name: saved.replacing for name, saved in tracked.saved.containers.items() if saved.replacing}
    return (*ways, reasons, replacing)
