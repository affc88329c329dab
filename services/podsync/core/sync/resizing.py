"""What is left of an accepted resize: containers to restart, the pod's cgroup and containers to update (pods.md 5.6).

The order of the writes is decided in `cri/resize_writes`. A container that does not run gets its resources when it is
created; one that was created before is updated once it runs.
"""

from services.podsync.core.pod.allocation import RESTART, resize_event
from services.podsync.core.pod.instructions import ContainerUpdate, ResizePod
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.situation import Step, StepInputs
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.runtime import Container, ContainerState
from shared.podspec.resources import pod_level, resource_list

_RESIZED = ("cpu", "memory")


def restarts_for_resize(record: PodRecord, spec: Object, instance: Container) -> bool:
    """Whether this running instance was given other amounts of a resource whose change takes a restart."""
    given = record.saved.actuated.get(instance.name)
    if given is None:
        return False
    inherited = pod_level(record.saved.pod, "limits").keys() - resource_list(spec, "limits").keys()
    policies = {entry.get("resourceName"): entry.get("restartPolicy") for entry in spec.get("resizePolicy") or ()}
    restarted = [name for name in _RESIZED if policies.get(name) == RESTART]
    kinds = {name: ("requests",) if name in inherited else ("requests", "limits") for name in restarted}
    own = {"resources": given}
    return any(
        resource_list(spec, kind).get(name) != resource_list(own, kind).get(name)
        for name in restarted
        for kind in kinds[name]
    )


def resize_pod(record: PodRecord, inputs: StepInputs) -> Step:
    """The call that resizes the pod; a step without a call when there is nothing to resize, or to resize yet. Notes
    that a resize is completed."""
    resize = record.saved.resize
    if resize is None:
        return Step(record=record)
    given = record.saved.actuated
    newest = [each for each in record.instances if each.name in given and each is record.instances_of(each.name)[0]]
    updates = tuple(
        ContainerUpdate(container=instance.name, container_id=instance.id, given=given[instance.name])
        for instance in newest
        if instance.state is ContainerState.RUNNING
    )
    if resize.cgroup_written and not updates:
        if any(instance.state is ContainerState.CREATED for instance in newest):
            return Step(record=record)  # it is started with what it was given, and updated then
        record = replace(record, saved=replace(record.saved, resize=None))
        return Step(record=record, events=[resize_event(record.saved.pod, "completed", resize.generation)])
    if record.retry.resize_at > inputs.now:
        return Step(record=record, wake_at=record.retry.resize_at)
    sandbox = record.sandboxes[0].id if record.sandboxes else ""
    return Step(record=record, call=ResizePod(uid=record.uid, sandbox_id=sandbox, containers=updates))
