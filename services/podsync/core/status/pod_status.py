"""The API status of a pod, put together: containers, phase, conditions, addresses (pods.md 9).

Pure: `now` is wall seconds; the newest status of the record is the baseline, so that transition times stay.
"""

from typing import Any

from bus.messages.pleg import RuntimeHandler
from bus.messages.podsync import PodState
from services.podsync.core.pod.gated_fields import POD_LEVEL_RESIZE, SANDBOX_CONDITION
from services.podsync.core.pod.pod_addresses import addresses
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.status.conditions import conditions
from services.podsync.core.status.container_facts import pod_facts
from services.podsync.core.status.container_status import container_statuses
from services.podsync.core.status.phase import pod_phase
from services.podsync.core.status.status_transitions import with_ends, withheld
from shared.model.runtime import ContainerState

__all__ = ["container_ids", "is_starting", "pod_status", "withheld"]

Json = dict[str, Any]


def pod_status(
    record: PodRecord,
    *,
    now: float,
    runtime_name: str,
    node_ips: tuple[str, ...],
    handlers: tuple[RuntimeHandler, ...] | None = None,
    gates_off: frozenset[str] = frozenset(),
) -> Json:
    """The whole status as it should be shown now. A rejected pod shows its rejection and nothing else (pods.md 3.3).
    `handlers`: those of the runtime, None = it reports none; `gates_off`: of `gated_fields.POD_GATES`."""
    generation = (record.saved.pod.get("metadata") or {}).get("generation")
    of_pod = pod_facts(record)
    base: Json = {"observedGeneration": generation} if generation else {}
    base |= {"startTime": record.saved.start_time, "qosClass": of_pod["qosClass"]}
    if record.saved.rejected:
        message = f"Pod was rejected: {record.saved.rejected_message}"
        return base | {"phase": "Failed", "reason": record.saved.rejected, "message": message}
    over = record.saved.state in (PodState.TERMINATED, PodState.FINISHED)
    containers = container_statuses(record, runtime_name, recursive=_mounts_recursively(record, handlers))
    phase = pod_phase(record, containers, over=over)
    shown = conditions(record, containers, phase, now=now)
    if SANDBOX_CONDITION in gates_off:
        shown = [condition for condition in shown if condition["type"] != "PodReadyToStartContainers"]
    status: Json = base | {
        "phase": phase,
        "conditions": shown,
        **(with_ends(record, containers) if over else containers).written(),
        **of_pod,
        **addresses(record, node_ips),
    }
    if phase == "Running":
        status["resources"] = _actual_resources(record) or of_pod["resources"]
    if POD_LEVEL_RESIZE in gates_off:
        status = {key: value for key, value in status.items() if key not in ("resources", "allocatedResources")}
    if record.saved.ending and phase == "Failed":
        status |= {"reason": record.saved.ending["reason"], "message": record.saved.ending["message"]}
        return status
    for key in ("reason", "message"):
        if record.status.get(key) and record.status.get("phase") == phase:
            status[key] = record.status[key]
    return status


def _actual_resources(record: PodRecord) -> Json | None:
    """Return what the pod's cgroup has (pods.md 9.2), or what was shown of the running pod until it is read."""
    if record.setup.resources is not None:
        return dict(record.setup.resources)
    return record.status.get("resources") if record.status.get("phase") == "Running" else None


def _mounts_recursively(record: PodRecord, handlers: tuple[RuntimeHandler, ...] | None) -> bool:
    """The pod's runtime handler makes read-only mounts recursive. That of a RuntimeClass is known of a sandbox."""
    name = record.sandboxes[0].runtime_handler if record.sandboxes else ""
    if not record.sandboxes and record.spec.get("runtimeClassName"):
        return False
    return any(handler.name == name and handler.recursive_read_only_mounts for handler in handlers or ())


def is_starting(record: PodRecord) -> bool:
    """Nothing of the pod has run yet and nothing keeps it from running: what it shows now it shows for moments."""
    made = all(c.state is ContainerState.CREATED for c in record.instances)
    return (
        made
        and not any(progress.reason for progress in record.starts.values())
        and record.status.get("phase") == "Pending"
    )


def container_ids(record: PodRecord) -> tuple[str, ...]:
    """Bare ids of the running instances: what pleg should be watching. One that is only created has no process yet,
    and naming it then would make pleg look too early and not again."""
    return tuple(c.id for c in record.instances if c.state is ContainerState.RUNNING)
