"""Messages of which podsync is the owner."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class PodState(StrEnum):
    """Lifecycle of a pod on this node (pods.md 4.1). Never goes backwards for one UID."""

    SYNC = "sync"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class AdmittedPod:
    """Stream `pods.admitted`, key: pod UID. What podsync has taken on, and how far it is with it.

    `volumes` names the spec volumes the pod needs mounted now; it is empty from state terminated on, and `finished`
    says that containers, volumes and cgroup are gone, so that `pods/<uid>` may be removed.
    `pod` is empty for a pod known only from the runtime.
    """

    uid: str
    name: str
    namespace: str
    state: PodState
    pod: dict[str, Any]
    volumes: tuple[str, ...] = ()
    source: str = ""  # file | http | api, "" = known only from the runtime
    rejected: str = ""  # admission reason, "" = admitted
    grace_seconds: int | None = None  # effective grace once terminating

    @property
    def finished(self) -> bool:
        """Containers, volumes and cgroup are gone."""
        return self.state is PodState.FINISHED


@dataclass(frozen=True, kw_only=True)
class PodStatus:
    """Stream `pods.status`, key: pod UID: the pod status for the API, as podsync computes it.

    `version` orders statuses of one pod across restarts: (boot counter on disk, number within the boot).
    """

    uid: str
    name: str
    namespace: str
    version: tuple[int, int]
    status: dict[str, Any]
    container_ids: tuple[str, ...] = ()  # bare CRI ids of the running instances, shown or not, for pleg to watch


@dataclass(frozen=True, kw_only=True)
class NodePressure:
    """Stream `node.pressure`, key `node`: the pressure conditions that podsync decides (node.md 1.7, 5)."""

    conditions: tuple[dict[str, str], ...]  # {type, status, reason, message, lastTransitionTime}


@dataclass(frozen=True, kw_only=True)
class NodeResources:
    """Stream `node.resources`, key `node`: what this node has and what pods may have of it (node.md 1.6).

    Resource name -> quantity text: cpu, memory, pods, ephemeral-storage, hugepages-<size>.
    """

    capacity: dict[str, str]
    allocatable: dict[str, str]
