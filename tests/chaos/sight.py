"""What one client of the API server has seen of pods, node and lease: Ready times, flaps, the lease's age. Pure.

Events come in with the CLOCK_MONOTONIC second of their arrival; nothing here knows of the agent.
"""

from collections.abc import Iterable
from itertools import pairwise

from shared.model.objects import Object
from tests.support.agents.conditions import condition_of, is_ready


class Sight:
    """Everything seen since `begin`. Pods are distinguished by UID, so that a new one of an old name is no flap."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}  # UID -> as last seen
        self.ready_at: dict[str, float] = {}  # UID -> when it was first Ready
        self.renewals: list[float] = []
        self.pod_flaps: list[str] = []
        self.node_flaps: list[str] = []
        self._node_ready = False
        self._renewed = ""

    def begin(self) -> None:
        """Count flaps and the lease's age from here; the last renewal before it stays as the first."""
        self.pod_flaps, self.node_flaps, self.renewals = [], [], self.renewals[-1:]

    def pod(self, kind: str, pod: Object, at: float) -> None:
        """A pod was ADDED, MODIFIED or DELETED."""
        uid, name = str(pod["metadata"]["uid"]), str(pod["metadata"]["name"])
        before = self.pods.get(uid)
        if kind == "DELETED":
            self.pods.pop(uid, None)
            if before is not None and "deletionTimestamp" not in before["metadata"] and _is_mirror(before):
                self.pod_flaps.append(f"mirror pod {name} vanished")
            return
        self.pods[uid] = pod
        if is_ready(pod):
            self.ready_at.setdefault(uid, at)
        elif before is not None and is_ready(before) and "deletionTimestamp" not in pod["metadata"]:
            why = condition_of(pod, "Ready")
            self.pod_flaps.append(f"pod {name} was Ready and is not: {why.get('reason')} {why.get('message')}")

    def listed(self, pods: Iterable[Object], at: float) -> None:
        """All pods there are: the others are gone."""
        there = {str(pod["metadata"]["uid"]): pod for pod in pods}
        for uid in self.pods.keys() - there.keys():
            self.pod("DELETED", self.pods[uid], at)
        for pod in there.values():
            self.pod("MODIFIED", pod, at)

    def node(self, node: Object) -> None:
        """Our Node changed."""
        ready = is_ready(node)
        if self._node_ready and not ready:
            why = condition_of(node, "Ready")
            self.node_flaps.append(f"node {why.get('status')}: {why.get('reason')} {why.get('message')}")
        self._node_ready = ready

    def lease(self, renewed: str, at: float) -> None:
        """The lease was seen with this renewTime."""
        if renewed != self._renewed:
            self._renewed = renewed
            self.renewals.append(at)

    def lease_gap(self, now: float) -> float | None:
        """The longest time without a renewal that ended after `begin`, up to now. None before the first one."""
        if not self.renewals:
            return None
        marks = [*self.renewals, now]
        return max(later - earlier for earlier, later in pairwise(marks))

    def named(self, name: str) -> Object | None:
        """The pod of this name that is not being deleted."""
        found = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["name"] == name and "deletionTimestamp" not in pod["metadata"]
        ]
        return found[0] if found else None

    def restarts(self) -> list[str]:
        """Containers whose restartCount is not 0, as `pod/container n`."""
        return [
            f"{pod['metadata']['name']}/{status['name']} {status['restartCount']}"
            for pod in self.pods.values()
            for status in (pod.get("status") or {}).get("containerStatuses") or ()
            if status.get("restartCount")
        ]


def _is_mirror(pod: Object) -> bool:
    return "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
