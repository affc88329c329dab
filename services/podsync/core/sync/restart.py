"""Decides whether a container is started (again), by its kind, its state and its restart policy (pods.md 5.3).
`crash_backoff` decides when.
"""

from typing import Any

from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.restart_rules import kind_of, restarts_after, restarts_all, restarts_failed
from shared.model.runtime import Container, ContainerState
from shared.podspec.containers import ContainerKind

__all__ = [
    "has_initialized",
    "init_failed",
    "restarts_after",
    "restarts_all",
    "should_restart",
]


def should_restart(tracked: TrackedPod, spec: dict[str, Any], instance: Container | None) -> bool:
    """Return whether the kubelet would start this container, of any kind, now, apart from back-off and order
    (ShouldContainerBeRestarted)."""
    if tracked.deletion_requested:
        return False
    ephemeral = kind_of(tracked, spec) is ContainerKind.EPHEMERAL
    if instance is None:
        return not (ephemeral and spec["name"] in tracked.attempts.containers)  # an ephemeral container has one start
    if instance.state is ContainerState.CREATED:
        return True
    if instance.state is ContainerState.UNKNOWN:
        return not ephemeral
    if instance.state is ContainerState.RUNNING:
        return False
    if tracked.saved.container(spec["name"]).replacing == instance.id:
        return True  # killed so that it starts again; the policy is for containers that end by themselves
    if kind_of(tracked, spec) is ContainerKind.INIT:
        return init_failed(instance) and restarts_failed(tracked, spec, instance.exit_code)
    return restarts_after(tracked, spec, instance.exit_code)


def init_failed(instance: Container) -> bool:
    """Return whether this instance of an init container has failed."""
    return instance.exit_code != 0 or instance.reason == "OOMKilled"


def has_initialized(tracked: TrackedPod) -> bool:
    """Return whether the init containers have completed: they have while a regular container runs, or is created in the
    current sandbox. An ended regular container does not show it, for a pod initializes again in a new sandbox."""
    if not tracked.init_containers:
        return True
    sandbox = tracked.sandboxes[0].id if tracked.sandboxes else ""
    for spec in tracked.containers:
        newest = next(iter(tracked.instances_of(str(spec["name"]))), None)
        if newest is None:
            continue
        if newest.state is ContainerState.RUNNING:
            return True
        if newest.state is ContainerState.CREATED and newest.sandbox_id == sandbox:
            return True
    return False
