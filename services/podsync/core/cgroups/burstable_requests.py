"""The CPU that the Burstable pods of the node request together (node.md 4.3)."""

from collections.abc import Iterable

from shared.model.objects import Object, uid
from shared.model.quantity import ZERO
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import pod_requests


class BurstableRequests:
    """Reads each pod once: the sum is needed at every start of a pod, and the other pods are the same objects then."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Object, int]] = {}  # UID -> the pod, and what it requests in millicores

    def total(self, active_pods: Iterable[Object]) -> int:
        """Return the sum in millicores. Pods that are not given are forgotten."""
        before, self._read = self._read, {}
        for pod in active_pods:
            known = before.get(pod_uid := uid(pod))
            self._read[pod_uid] = known if known is not None and known[0] is pod else (pod, _requested(pod))
        return sum(requested for _, requested in self._read.values())


def _requested(pod: Object) -> int:
    return pod_requests(pod).get("cpu", ZERO).milli() if qos_class(pod) is QosClass.BURSTABLE else 0
