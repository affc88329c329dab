"""Decides when the start of a container is over: with its postStart hook, where it has one (pods.md 5.5, 8.4).
The kubelet reads the runtime again after the sync that ran the hook, so until then it shows the container as it was.
"""

from bus.messages.podsync import PodState
from services.podsync.core.pod.saved import with_container
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState


def start_under_way(tracked: TrackedPod, instance: Container) -> bool:
    """Return whether the instance is being started: its postStart has not ended, or has failed and the instance is not
    stopped yet. A pod that ends shows what runs."""
    if tracked.saved.state is not PodState.SYNC or instance.state not in (
        ContainerState.CREATED,
        ContainerState.RUNNING,
    ):
        return False
    if instance.state is ContainerState.CREATED:
        entry = tracked.container(instance.name)
        return entry is not None and bool((entry[1].get("lifecycle") or {}).get("postStart"))
    saved = tracked.saved.container(instance.name)
    return instance.id in (saved.hook_owed, saved.hook_failed)


def with_start_over(tracked: TrackedPod, name: str) -> TrackedPod:
    """Return the pod after the newest start of the container is over, without the instance that it replaced."""
    container = replace(tracked.saved.container(name), hook_owed="", replacing="", held_back="")
    saved = with_container(tracked.saved, name, container)
    return tracked if saved is tracked.saved else replace(tracked, saved=saved)
