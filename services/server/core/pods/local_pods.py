"""Decides how the Pods API shows a pod (server.md 16.1): the desired pod with the status that this node computed."""

from bus.messages.sources import ApiPodStatus, DesiredPod
from shared.model.objects import Object

_UNVERIFIED = {  # in place of Ready, while nothing has been computed that confirms it
    "status": "False",
    "reason": "ContainersNotReady",
    "message": "Kubelet is initializing pod containers",
}


def local_pod(entry: DesiredPod, computed: Object | None, known: ApiPodStatus | None) -> Object:
    """Return the pod. `computed`: its status of podsync, None = it has none yet; `known`: the API server's."""
    status = computed
    if status is None:
        status = _unverified(known.status if known is not None else entry.pod.get("status") or {})
    pod = {**entry.pod, "status": status}
    if known is not None:
        pod["metadata"] = {**pod["metadata"], "resourceVersion": known.resource_version}
    return pod


def _unverified(status: Object) -> Object:
    """Return the status of a pod that may not be shown as ready on the word of the API server alone."""
    conditions = status.get("conditions") or ()
    return {
        "phase": "Pending",
        **status,
        "conditions": [
            {**each, **_UNVERIFIED} if (each.get("type"), each.get("status")) == ("Ready", "True") else each
            for each in conditions
        ],
    }
