"""Messages of which podsync is the owner."""

from enum import StrEnum
from typing import Any

from msgspec import Struct, field


class PodState(StrEnum):
    """Lifecycle of a pod on this node (pods.md 4.1), in this order for one UID. A finished pod that another
    agent of the node has started since is TERMINATING again, or SYNC."""

    SYNC = "sync"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


class NumaMemory(Struct, frozen=True, kw_only=True):
    """Has an amount of memory that these NUMA nodes hold together."""

    nodes: tuple[int, ...]  # ids of NUMA nodes, in ascending order
    kind: str  # `memory`, or `hugepages-<size>`
    size: int  # bytes


class GivenDevices(Struct, frozen=True, kw_only=True):
    """Has the devices of one resource that a container has."""

    resource: str  # its name, such as `nvidia.com/gpu`
    ids: tuple[str, ...]  # the plugin's names of the devices, in ascending order


class AdmittedPod(Struct, frozen=True, kw_only=True):
    """Stream `pods.admitted`, key: pod UID. The verdict on a pod and its lifecycle state, without the pod itself."""

    uid: str  # pod UID
    name: str  # name of the pod
    namespace: str  # namespace of the pod
    # `sync`, `terminating`, `terminated` or `finished`, in this order; `finished` is followed by `terminating` when
    # another agent of the node has started the pod since, or by `sync` when a source lists it again
    state: PodState
    source: str = ""  # `file`, `http` or `api`; empty for a pod known only from the runtime
    rejected: str = ""  # reason of a refused admission; "" = admitted
    grace_seconds: int | None = None  # effective grace in seconds once terminating
    # container → the CPUs that it has alone, such as `2-3,8`; without the containers that share CPUs
    cpus: dict[str, str] = field(default_factory=dict)
    # container → memory that it has alone; without the containers whose memory is of any NUMA node
    memory: dict[str, tuple[NumaMemory, ...]] = field(default_factory=dict)
    # container → devices that it has, by resource; without the containers that have none
    devices: dict[str, tuple[GivenDevices, ...]] = field(default_factory=dict)
    # the CPUs of a pod with resources of its own, such as `2-7`, of which `cpus` and `pool_cpus` are parts; "" = none
    pod_cpus: str = ""
    # the memory of such a pod, of which `memory` has parts
    pod_memory: tuple[NumaMemory, ...] = ()
    # container → the CPUs of `pod_cpus` that it shares with other containers of the pod
    pool_cpus: dict[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether containers, volumes and cgroup are gone."""
        return self.state is PodState.FINISHED


class PodVolumes(Struct, frozen=True, kw_only=True):
    """Stream `pods.volumes`, key: pod UID. Which volumes each pod of `pods.admitted` needs mounted now, and which
    resource claims prepared.

    Once it is finished, `pods/<uid>` may be removed.
    """

    uid: str  # pod UID
    name: str  # name of the pod
    namespace: str  # namespace of the pod
    state: PodState  # as in `AdmittedPod`
    # what volumes are made from and what names resource claims: of `metadata` the name, namespace, UID, labels and
    # annotations; `spec`, with only the name, resources, restart policy, security context, mounts and devices of each
    # container; of `status`, where there are some, `resourceClaimStatuses` and `extendedResourceClaimStatus` as the API
    # server has them. Empty while neither a volume nor a claim is needed
    pod: dict[str, Any] = field(default_factory=dict)
    # spec volumes it needs mounted now; empty from `terminated` on; while the pod is stopped because the machine shuts
    # down, those whose content an unmount would remove
    volumes: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether containers, volumes and cgroup are gone."""
        return self.state is PodState.FINISHED


class PodProbes(Struct, frozen=True, kw_only=True):
    """Stream `pods.probes`, key: pod UID. The probes of an admitted pod, until its containers are gone."""

    name: str  # of the pod
    namespace: str  # of the pod
    # `containers` and `initContainers` (only sidecars) with probes; of each its name, restart policy, ports, probes,
    # the names of its environment variables and the values that the spec contains
    spec: dict[str, Any]
    terminating: bool = False  # the pod is being stopped: only readiness, and all of a sidecar, is probed on
    deletion_requested: bool = False  # the pod has a deletion timestamp


class PodStatus(Struct, frozen=True, kw_only=True):
    """Stream `pods.status`, key: pod UID: the pod status for the API, as podsync computes it.

    `version` orders statuses of one pod across restarts: (boot counter on disk, number within the boot).
    """

    uid: str  # pod UID
    name: str  # name of the pod
    namespace: str  # namespace of the pod
    version: tuple[int, int]  # start number kept on disk, counter within that start: orders statuses across restarts
    status: dict[str, Any]  # PodStatus as the API has it
    container_ids: tuple[str, ...] = ()  # bare CRI ids of the running instances, shown or not, for pleg to watch
    waits_for: str = ""  # its turn to start, in words, while it waits for nothing else; the API server never has it


class ImagePull(Struct, frozen=True, kw_only=True):
    """Stream `pods.pulls`, key: pod UID: how far the pull is that the pod waits for, where the runtime shows it.

    Disposable: every 2 s while it lasts. Times in seconds.
    """

    image: str  # its name with tag or digest
    seconds: float  # since the runtime was asked for it
    arrived: int  # bytes of its layers that are there
    total: int  # bytes of all its layers, compressed; 0 = the manifest is not there yet
    layers: int  # their number
    rate: int  # bytes per second in the last 10 s
    idle: float  # seconds since the last byte arrived
    # images that are pulled from the same repository at the same time, whose layers are counted here as well
    shared_with: tuple[str, ...] = ()


class NodePressure(Struct, frozen=True, kw_only=True):
    """Stream `node.pressure`, key `node`: the pressure conditions that podsync decides (node.md 1.7, 5)."""

    # pressure conditions: `type`, `status`, `reason`, `message`, `lastTransitionTime`
    conditions: tuple[dict[str, str], ...]


class ShutdownGroup(Struct, frozen=True, kw_only=True):
    """Has the pods that stop together when the machine shuts down."""

    priority: int  # of the lowest pods in it
    seconds: float  # that they get together
    pods: int  # of which something is left: a container, or a mounted volume


class NodeShutdown(Struct, frozen=True, kw_only=True):
    """Stream `node.shutdown`, key `node`: the shutdown of the machine that is in progress, or the last one.

    There is no item where the configuration gives pods no time, and none before the first shutdown.
    """

    in_progress: bool  # the pods stop, or have stopped, and no pod is admitted
    over: bool = False  # the machine may go on: every pod has stopped, or its time is over
    signal: str = ""  # what began the shutdown, such as `PrepareForShutdown`
    began: str = ""  # RFC 3339
    groups: tuple[ShutdownGroup, ...] = ()  # in the order in which they stop; empty once it is not in progress
    group: int = -1  # index of the group that stops now, or stopped last; -1 = none
    unfinished: tuple[str, ...] = ()  # descriptions of pods that had not stopped when the time of their group ended


class NodeResources(Struct, frozen=True, kw_only=True):
    """Stream `node.resources`, key `node`: what this node has and what pods may have of it (node.md 1.6).

    Resource name -> quantity text: cpu, memory, pods, ephemeral-storage, hugepages-<size>, and each resource of
    `devices.resources`, with all devices as capacity and the healthy ones as allocatable.
    """

    capacity: dict[str, str]  # resource name -> quantity text
    allocatable: dict[str, str]  # the same, less what is reserved
    exclusive_cpus: str = ""  # CPUs that containers can get alone, such as `1-7`; "" = none, with cpuManagerPolicy none
    # CPUs of the other containers while no container has CPUs alone; "" = all, with cpuManagerPolicy none
    shared_cpus: str = ""
    memory: tuple[NumaMemory, ...] = ()  # that containers can get alone; none without memoryManagerPolicy Static
    # whether the amounts have all resources of device plugins; false until this process has received all of
    # `devices.resources`
    devices_known: bool = False
