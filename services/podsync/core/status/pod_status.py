"""Assembles the API status of a pod: containers, phase, conditions, addresses (pods.md 9).
Pure: `now` is wall seconds. The new status continues from the earlier one, so that transition times stay.
"""

from typing import Any

from bus.messages.pleg import RuntimeHandler
from bus.messages.podsync import PodState
from services.podsync.core.placement.reported_devices import Reported
from services.podsync.core.pod.gated_fields import (
    POD_LEVEL_RESIZE,
    RESOURCE_HEALTH,
    RESOURCE_HEALTH_MESSAGE,
    SANDBOX_CONDITION,
)
from services.podsync.core.pod.pod_addresses import addresses
from services.podsync.core.pod.tracked_pod import TERMINAL_PHASES, TrackedPod
from services.podsync.core.status.conditions import conditions
from services.podsync.core.status.container_facts import pod_facts
from services.podsync.core.status.container_status import container_statuses
from services.podsync.core.status.phase import pod_phase
from services.podsync.core.status.status_transitions import with_ends, withheld
from services.podsync.core.status.volume_health import volume_health
from shared.model.runtime import ContainerState

__all__ = ["container_ids", "is_on_the_way", "pod_status", "withheld"]

Json = dict[str, Any]


def pod_status(
    tracked: TrackedPod,
    *,
    now: float,
    runtime_name: str,
    node_ips: tuple[str, ...],
    handlers: tuple[RuntimeHandler, ...] | None = None,
    gates_off: frozenset[str] = frozenset(),
    devices: Reported | None = None,
) -> Json:
    """Return the complete status as of now. A rejected pod shows its rejection and nothing else (pods.md 3.3).
    `handlers`: those of the runtime, None = it reports none; `gates_off`: of `gated_fields.POD_GATES`; `devices`: what
    device plugins report."""
    generation = (tracked.saved.pod.get("metadata") or {}).get("generation")
    of_pod = pod_facts(tracked)
    base: Json = {"observedGeneration": generation} if generation else {}
    base |= {"startTime": tracked.saved.start_time, "qosClass": of_pod["qosClass"]}
    if tracked.saved.rejected:
        message = f"Pod was rejected: {tracked.saved.rejected_message}"
        return base | {"phase": "Failed", "reason": tracked.saved.rejected, "message": message}
    over = tracked.saved.state in (PodState.TERMINATED, PodState.FINISHED)
    containers = container_statuses(
        tracked,
        runtime_name,
        recursive=_mounts_recursively(tracked, handlers),
        devices=None if RESOURCE_HEALTH in gates_off else devices,
        messages=RESOURCE_HEALTH_MESSAGE not in gates_off,
    )
    phase = pod_phase(tracked, containers, over=over)
    shown = conditions(tracked, containers, phase, now=now)
    if SANDBOX_CONDITION in gates_off:
        shown = [condition for condition in shown if condition["type"] != "PodReadyToStartContainers"]
    status: Json = base | {
        "phase": phase,
        "conditions": shown,
        **(with_ends(tracked, containers) if over else containers).written(),
        **of_pod,
        **addresses(tracked, node_ips),
    }
    if health := volume_health(tracked.volumes, tracked.status, over=over, now=now):
        status["volumeHealth"] = health
    if phase == "Running":
        status["resources"] = _actual_resources(tracked) or of_pod["resources"]
    if POD_LEVEL_RESIZE in gates_off:
        status = {key: value for key, value in status.items() if key not in ("resources", "allocatedResources")}
    if tracked.saved.ending and phase == "Failed":
        status |= {"reason": tracked.saved.ending["reason"], "message": tracked.saved.ending["message"]}
        return status
    for key in ("reason", "message"):
        if tracked.status.get(key) and tracked.status.get("phase") == phase:
            status[key] = tracked.status[key]
    return status


def _actual_resources(tracked: TrackedPod) -> Json | None:
    """Return what the pod's cgroup has (pods.md 9.2), or what was shown of the running pod until it is read."""
    if tracked.setup.resources is not None:
        return dict(tracked.setup.resources)
    return tracked.status.get("resources") if tracked.status.get("phase") == "Running" else None


def _mounts_recursively(tracked: TrackedPod, handlers: tuple[RuntimeHandler, ...] | None) -> bool:
    """Return whether the pod's runtime handler makes read-only mounts recursive. The handler of a RuntimeClass is known
    once the pod has a sandbox."""
    name = tracked.sandboxes[0].runtime_handler if tracked.sandboxes else ""
    if not tracked.sandboxes and tracked.spec.get("runtimeClassName"):
        return False
    return any(handler.name == name and handler.recursive_read_only_mounts for handler in handlers or ())


def is_on_the_way(tracked: TrackedPod, shown: Json) -> bool:
    """Return whether the status changes again within moments: nothing of the pod has run yet and nothing keeps it from
    running, or the pod was deleted and is being stopped. `shown`: the status before. Who serves requests is known at
    once: Ready may change long before the last container of a deleted pod has ended."""
    phase = tracked.status.get("phase")
    if tracked.saved.state is PodState.TERMINATING:
        runs = any(c.state is ContainerState.RUNNING for c in tracked.instances)
        turned = runs and _is_ready(tracked.status) != _is_ready(shown)
        return tracked.saved.deleted and phase not in TERMINAL_PHASES and not turned
    made = all(c.state is ContainerState.CREATED for c in tracked.instances)
    return made and not any(progress.reason for progress in tracked.starts.values()) and phase == "Pending"


def _is_ready(status: Json) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))


def container_ids(tracked: TrackedPod) -> tuple[str, ...]:
    """Return the ids of the running instances, which pleg watches. A created instance is not among them: pleg would
    observe it before it has a process, and not again."""
    return tuple(c.id for c in tracked.instances if c.state is ContainerState.RUNNING)
