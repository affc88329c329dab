"""Decides what is left of an accepted resize: containers to restart, cgroup and containers to update (pods.md 5.6).
`cri/resize_writes` decides the order of the writes. A container that does not run gets its resources when it is
created; one that was created before is updated once it runs.
"""

from services.podsync.core.pod.allocation import RESTART, resize_event
from services.podsync.core.pod.instructions import ContainerUpdate, ResizePod
from services.podsync.core.pod.step import Step, StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.runtime import Container, ContainerState
from shared.podspec.resources import pod_level, resource_list

_RESIZED = ("cpu", "memory")


def restarts_for_resize(tracked: TrackedPod, spec: Object, instance: Container) -> bool:
    """Return whether this running instance has other amounts of a resource whose change needs a restart."""
    actuated = tracked.saved.actuated.get(instance.name)
    if actuated is None:
        return False
    inherited = pod_level(tracked.saved.pod, "limits").keys() - resource_list(spec, "limits").keys()
    policies = {entry.get("resourceName"): entry.get("restartPolicy") for entry in spec.get("resizePolicy") or ()}
    restarted = [name for name in _RESIZED if policies.get(name) == RESTART]
    kinds = {name: ("requests",) if name in inherited else ("requests", "limits") for name in restarted}
    own = {"resources": actuated}
    return any(
        resource_list(spec, kind).get(name) != resource_list(own, kind).get(name)
        for name in restarted
        for kind in kinds[name]
    )


def resize_pod(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the step that resizes the pod, without a call where there is nothing to resize (yet). Its pod has a
    completed resize no more."""
    resize = tracked.saved.resize
    if resize is None:
        return Step(tracked=tracked)
    actuated = tracked.saved.actuated
    newest = [c for c in tracked.instances if c.name in actuated and c is tracked.instances_of(c.name)[0]]
    updates = tuple(
        ContainerUpdate(container=instance.name, container_id=instance.id, given=actuated[instance.name])
        for instance in newest
        if instance.state is ContainerState.RUNNING
    )
    if resize.cgroup_written and not updates:
        if any(instance.state is ContainerState.CREATED for instance in newest):
            return Step(tracked=tracked)  # the container starts with its actuated resources, and is updated then
        tracked = replace(tracked, saved=replace(tracked.saved, resize=None))
        return Step(tracked=tracked, events=[resize_event(tracked.saved.pod, "completed", resize.generation)])
    if tracked.retry.resize_at > inputs.now:
        return Step(tracked=tracked, wake_at=tracked.retry.resize_at)
    sandbox = tracked.sandboxes[0].id if tracked.sandboxes else ""
    return Step(tracked=tracked, call=ResizePod(uid=tracked.uid, sandbox_id=sandbox, containers=updates))
