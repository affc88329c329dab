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
from services.podsync.core.pod.performed import LastWritten
from services.podsync.core.pod.published import published
from services.podsync.core.pod.record import PodEvent, PodRecord
from services.podsync.core.pod.saved_record import must_be_saved, persisted
from services.podsync.core.pod.situation import Step
from services.podsync.core.status.pod_status import container_ids, is_starting
from shared.model.frozen_copy import replace
from shared.podspec.containers import field_path
from shared.time.timestamps import rfc3339


def save_and_publish(
    record: PodRecord, boot: int, cause: str, call: Call | None
) -> tuple[LastWritten, list[Instruction]]:
    """Return the record's new `last_written` and the instructions in their order. `boot`: the start number. A `call`
    that removes containers or sandboxes makes the save urgent: the record is then the only source of their facts."""
    out: list[Instruction] = []
    written = record.last_written
    changed = record.status != written.status
    if changed or written.saved != (record.saved, record.attempts):
        urgent = must_be_saved(record) or isinstance(call, RemoveContainers | RemoveSandboxes)
        written = replace(written, saved=(record.saved, record.attempts))
        out.append(SavePod(cause=cause, uid=record.uid, record=persisted(record), urgent=urgent))
    # Volumes of a pod that may run must not be unmounted: `finished` is published once nothing of it runs.
    is_known = record.saved.admission_decided and not record.may_run_after_end
    if written.published_from is not record.saved and is_known:
        shown = published(record.uid, record.name, record.namespace, record.saved)
        if shown != written.published:
            out.append(PublishAdmitted(cause=cause, published=shown))
        written = replace(written, published_from=record.saved, published=shown)
    running = container_ids(record)
    if (changed or running != written.container_ids) and record.saved.pod and record.may_be_shown:
        version = written.version + 1
        written = replace(written, status=record.status, container_ids=running, version=version)
        status = PodStatus(
            uid=record.uid,
            name=record.name,
            namespace=record.namespace,
            version=(boot, version),
            status=record.status,
            container_ids=running,
        )
        out.append(PublishStatus(cause=cause, status=status, on_the_way=is_starting(record)))
    return written, out


def kube_event(record: PodRecord, event: PodEvent, wall: float) -> KubeEvent:
    """Return the Kubernetes Event of the pod at `wall`, seconds since the epoch."""
    kind, reason, message, container = event
    return KubeEvent(
        type=kind,
        reason=reason,
        message=message,
        namespace=record.namespace,
        name=record.name,
        uid=record.uid,
        resource_version=record.resource_version,
        field_path=field_path(record.saved.pod, container) if container else "",
        time=rfc3339(wall),
    )


def with_shown_reasons(step: Step, events: list[PodEvent], now: float) -> list[PodEvent]:
    """Put the waiting reasons of the step into its record. Return the events without those of a reason that was shown
    a moment ago, or of a wait that was shown before."""
    record = step.record
    for container, reason in step.reasons.items():
        progress = record.progress(container)
        if progress.records_events(reason, now):
            progress = replace(progress, reason=reason, events_at=now)
            record = record.with_progress(progress, container)
        else:
            events = [e for e in events if e[3] != container or e not in step.events]
    if step.waits_for and record.waits_for == step.waits_for:
        events = [e for e in events if e not in step.events]
    step.record = record if step.waits_for == record.waits_for else replace(record, waits_for=step.waits_for)
    return events


def shown_from(record: PodRecord) -> tuple[object, ...]:
    """Return the parts of the record that a step may change and that the status is made from."""
    ways = (
        record.saved.state,
        record.saved.deleted,
        record.saved.ending,
        record.saved.outcome,
        record.saved.restarting_all,
        record.saved.resize,
        record.saved.actuated,
    )
    reasons = {name: progress.reason for name, progress in record.starts.items() if progress.reason}
    replacing = {name: saved.replacing for name, saved in record.saved.containers.items() if saved.replacing}
    return (*ways, reasons, replacing)
