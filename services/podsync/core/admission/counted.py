"""Computes the requests with which a pod of the node counts when another one is admitted (pods.md 3.1). Pure."""

from collections.abc import Sequence

from services.podsync.core.admission.taken import Taken, taken_by
from services.podsync.core.pod.allocation import Resources, allocation_of, with_allocation
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.podspec.resources import ResourceList, pod_requests, resource_list


def taken_by_pods(pods: Sequence[TrackedPod]) -> Taken:
    """Return what these pods take of the node."""
    return taken_by([tracked.saved.pod for tracked in pods], [counted_requests(tracked) for tracked in pods])


def counted_requests(tracked: TrackedPod) -> ResourceList:
    """Return the pod's requests. Each running container counts with the larger of its allocated and its actuated
    resources: a resize to less makes room only once it is carried out."""
    if not tracked.saved.actuated:
        return tracked.version.requests
    actuated = {c.name: tracked.saved.actuated[c.name] for c in tracked.alive if c.name in tracked.saved.actuated}
    if not actuated:
        return tracked.version.requests
    allocation = tracked.saved.allocation or allocation_of(tracked.saved.pod)
    containers = {
        name: _larger(resources, actuated[name]) if name in actuated else resources
        for name, resources in allocation.containers.items()
    }
    return pod_requests(with_allocation(tracked.saved.pod, replace(allocation, containers=containers)))


def _larger(allocated: Resources, actuated: Resources) -> Resources:
    """Return what is allocated, with those requests of `actuated` that are larger."""
    requests = dict(allocated.get("requests") or {})
    known = resource_list({"resources": allocated}, "requests")
    for name, amount in resource_list({"resources": actuated}, "requests").items():
        if name not in known or known[name] < amount:
            requests[name] = actuated["requests"][name]
    return {**allocated, "requests": requests}
