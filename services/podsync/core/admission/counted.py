"""What a pod of the node counts with when another one is admitted (pods.md 3.1). Pure."""

from collections.abc import Sequence

from services.podsync.core.admission.taken import Taken, taken_by
from services.podsync.core.pod.allocation import Resources, allocation_of, with_allocation
from services.podsync.core.pod.record import PodRecord
from shared.model.frozen_copy import replace
from shared.podspec.resources import ResourceList, pod_requests, resource_list


def taken_by_records(records: Sequence[PodRecord]) -> Taken:
    """What these pods take of the node."""
    return taken_by([record.saved.pod for record in records], [counted_requests(record) for record in records])


def counted_requests(record: PodRecord) -> ResourceList:
    """The pod's requests, of each running container the larger of what is allocated to it and what it has been given: a
    resize to less makes room only once it is carried out. Computed once for each version of the pod without one."""
    actuated = record.saved.actuated
    given = {c.name: actuated[c.name] for c in record.alive if c.name in actuated} if actuated else {}
    if not given:
        return record.version.requests
    allocation = record.saved.allocation or allocation_of(record.saved.pod)
    containers = {
        name: _larger(resources, given[name]) if name in given else resources
        for name, resources in allocation.containers.items()
    }
    return pod_requests(with_allocation(record.saved.pod, replace(allocation, containers=containers)))


def _larger(allocated: Resources, given: Resources) -> Resources:
    """What is allocated, with the requests of `given` that are larger."""
    requests = dict(allocated.get("requests") or {})
    known = resource_list({"resources": allocated}, "requests")
    for name, amount in resource_list({"resources": given}, "requests").items():
        if name not in known or known[name] < amount:
            requests[name] = given["requests"][name]
    return {**allocated, "requests": requests}
