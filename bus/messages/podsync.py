"""Messages of which podsync is the owner."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class PodState(StrEnum):
    """Lifecycle of a pod on this node (pods.md 4.1), in this order for one UID. A finished pod that another
    agent of the node has started since is TERMINATING again, or SYNC."""

    SYNC = "sync"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class AdmittedPod:
    """Stream `pods.admitted`, key: pod UID. The verdict on a pod and its lifecycle state, without the pod itself."""

    uid: str
    name: str
    namespace: str
    state: PodState
    source: str = ""  # file | http | api, "" = known only from the runtime
    rejected: str = ""  # admission reason, "" = admitted
    grace_seconds: int | None = None  # effective grace once terminating

    @property
    def finished(self) -> bool:
        """Containers, volumes and cgroup are gone."""
        return self.state is PodState.FINISHED


@dataclass(frozen=True, kw_only=True)
class PodVolumes:
    """Stream `pods.volumes`, key: pod UID. Which volumes each pod of `pods.admitted` needs mounted now.

    `volumes` names volumes of the spec; it is empty from state terminated on. `finished`: `pods/<uid>` may be removed.
    `pod` is what volumes are made from: name, namespace, UID, labels, annotations and the spec, whose containers have
    only their name, resources, restart policy, security context and mounts. Empty when the pod needs no volume.
    """

    uid: str
    name: str
    namespace: str
    state: PodState
    pod: dict[str, Any] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Containers, volumes and cgroup are gone."""
        return self.state is PodState.FINISHED


@dataclass(frozen=True, kw_only=True)
class PodProbes:
    """Stream `pods.probes`, key: pod UID. The probes of each admitted pod that has any, until its containers are gone.

    `spec` has the pod's containers and sidecars (`containers`, `initContainers`), each with its name, restart policy,
    ports, probes and the environment variables whose value the spec contains.
    """

    name: str
    namespace: str
    spec: dict[str, Any]
    terminating: bool = False
    deletion_requested: bool = False  # metadata.deletionTimestamp is set


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
class ImagePull:
    """Stream `pods.pulls`, key: pod UID: how far the pull is that the pod waits for, where the runtime shows it.

    Disposable: every 2 s while it lasts. Times in seconds.
    """

    image: str
    seconds: float  # since the runtime was asked for the image
    arrived: int  # bytes of the layers that are there
    total: int  # bytes of all layers; 0 = the manifest is not there yet
    layers: int
    rate: int  # bytes per second in the last 10 s
    idle: float  # since the last byte arrived
    shared_with: tuple[str, ...] = ()  # images pulled from the same repository whose layers are counted here as well


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
