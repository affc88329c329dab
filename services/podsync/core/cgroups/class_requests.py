"""Sums what the pods of each QoS class request (node.md 4.4, 4.6)."""

from collections.abc import Iterable

from msgspec import Struct

from shared.model.objects import Object, uid
from shared.model.quantity import ZERO
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import pod_requests


class ClassRequests(Struct, frozen=True, kw_only=True):
    """Has the sums over the active pods: CPU in millicores, memory in bytes."""

    burstable_cpu: int = 0
    burstable_memory: int = 0
    guaranteed_memory: int = 0


class RequestSums:
    """Computes the sums, and keeps what each pod requests: every start of a pod needs the sums, and the other pods are
    the same objects then."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Object, ClassRequests]] = {}  # UID -> the pod and its requests

    def total(self, active_pods: Iterable[Object]) -> ClassRequests:
        """Return the sums over these pods, and forget all others."""
        before, self._read = self._read, {}
        for pod in active_pods:
            known = before.get(pod_uid := uid(pod))
            self._read[pod_uid] = known if known is not None and known[0] is pod else (pod, _requested(pod))
        requests = [requested for _, requested in self._read.values()]
        return ClassRequests(
            burstable_cpu=sum(requested.burstable_cpu for requested in requests),
            burstable_memory=sum(requested.burstable_memory for requested in requests),
            guaranteed_memory=sum(requested.guaranteed_memory for requested in requests),
        )


def _requested(pod: Object) -> ClassRequests:
    qos = qos_class(pod)
    if qos is QosClass.BEST_EFFORT:
        return ClassRequests()
    requests = pod_requests(pod)
    memory = requests.get("memory", ZERO).base()
    if qos is QosClass.GUARANTEED:
        return ClassRequests(guaranteed_memory=memory)
    return ClassRequests(burstable_cpu=requests.get("cpu", ZERO).milli(), burstable_memory=memory)
