"""When the start of a container is over: with its postStart hook, where it has one (pods.md 5.5, 8.4).

The kubelet reads the runtime again after the sync that ran the hook, so until then it shows the container as it was.
"""

from dataclasses import replace

from bus.messages.podsync import PodState
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.saved import without
from shared.model.runtime import Container, ContainerState


def start_under_way(record: PodRecord, instance: Container) -> bool:
    """The instance is being started: its postStart has not ended, or failed and the instance is about to be stopped for
    that. A pod that ends shows what runs."""
    if record.saved.state is not PodState.SYNC or instance.state not in (
        ContainerState.CREATED,
        ContainerState.RUNNING,
    ):
        return False
    if instance.state is ContainerState.CREATED:
        found = record.container(instance.name)
        return found is not None and bool((found[1].get("lifecycle") or {}).get("postStart"))
    return instance.id in (record.saved.hooks_owed.get(instance.name), record.saved.hooks_failed.get(instance.name))


def with_start_over(record: PodRecord, *containers: str) -> PodRecord:
    """The record when the newest starts of these containers are over: what they replaced is not needed any more."""
    saved = record.saved
    if not any(c in saved.hooks_owed or c in saved.replacing or c in saved.held_back for c in containers):
        return record
    saved = replace(
        saved,
        hooks_owed=without(saved.hooks_owed, *containers),
        replacing=without(saved.replacing, *containers),
        held_back=without(saved.held_back, *containers),
    )
    return replace(record, saved=saved)
