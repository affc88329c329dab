"""The question what would become of a pod on this node. podsync answers it from its present state, and changes
nothing."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from bus.messages.podsync import GivenDevices, NumaMemory


@dataclass(frozen=True, kw_only=True)
class GetPodPreview:
    """Request to podsync: admission and start of this pod, if a source listed it now. `pod`: valid, with defaults, UID
    and the annotation of its source, as on `pods.desired`."""

    source: str  # the source that would list the pod: `file`, `http` or `api`
    # the Pod with defaults, UID and the annotation of its source, as on `pods.desired`
    pod: dict[str, Any] = field(hash=False)


class PreemptedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that would end to make room."""

    uid: str  # pod UID
    namespace: str  # its namespace
    name: str  # its name


class PreviewedImage(msgspec.Struct, frozen=True, kw_only=True):
    """The image of one container or of one image volume; one of `container` and `volume` is "".

    `present`: the runtime has it; None = the runtime did not answer in time.
    """

    image: str  # its name with the tag
    policy: str  # `Always`, `IfNotPresent` or `Never`
    container: str = ""  # the container it is for, "" = a volume
    volume: str = ""  # the image volume it is for, "" = a container
    present: bool | None = None  # whether the runtime has it; None = it did not answer in time
    providers: tuple[str, ...] = ()  # credential provider plugins that a pull would run
    problem: str = ""  # why no container starts from it: `<waiting reason>: <message>`


class PreviewedMount(msgspec.Struct, frozen=True, kw_only=True):
    """One mount or block device of a container."""

    container_path: str  # path in the container
    host_path: str = ""  # path on the node; "" = known only once the volume is mounted
    volume: str = ""  # name of the volume; "" = a file of the agent: the hosts file, the termination message
    kind: str = ""  # field of the volume's source, such as `configMap`
    read_only: bool = False  # the container cannot write to it


class PreviewedContainer(msgspec.Struct, frozen=True, kw_only=True):
    """One container."""

    name: str  # of the container
    kind: str  # `init`, `sidecar`, `regular` or `ephemeral`
    oom_score_adj: int = 0  # of its processes
    # numbers of the CRI resources that are not 0: `cpu_shares`, `cpu_quota`, `cpu_period` (microseconds),
    # `memory_limit_in_bytes`
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    cpus: str = ""  # the CPUs that it would have alone, such as `2-3,8`; "" = it shares CPUs
    pool_cpus: str = ""  # the CPUs of its pod that it would share with other containers of the pod; "" = none
    memory: tuple[NumaMemory, ...] = ()  # that it would have alone
    devices: tuple[GivenDevices, ...] = ()  # of device plugins that it would have, unless the plugin prefers others
    mounts: tuple[PreviewedMount, ...] = ()  # each mount and block device
    problem: str = ""  # why it does not start: `<waiting reason>: <message>`


class PreviewedPort(msgspec.Struct, frozen=True, kw_only=True):
    """One port of the node that the pod would take, and the pods (`<namespace>/<name>`) that have it."""

    protocol: str  # `TCP`, `UDP` or `SCTP`
    ip: str  # address of the node; "" = all
    port: int  # number
    pods: tuple[str, ...] = ()  # the pods that have this port: `<namespace>/<name>`


class PodPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to GetPodPreview. Without `waits_for` and `reason` the pod would be admitted."""

    waits_for: str = ""  # the fact that admission waits for; "" = it would decide now
    reason: str = ""  # of the rejection; "" = admitted
    message: str = ""  # of the rejection
    preempted: tuple[PreemptedPod, ...] = ()  # the pods that would end for this one
    qos_class: str = ""  # as in the pod's status
    cgroup: str = ""  # path of the pod's cgroup; "" = pods have none
    cgroup_files: dict[str, str] = msgspec.field(default_factory=dict)  # file of that cgroup -> text
    pod_cpus: str = ""  # the CPUs that a pod with resources of its own would have, such as `2-7`; "" = none
    pod_memory: tuple[NumaMemory, ...] = ()  # the memory that such a pod would have
    containers: tuple[PreviewedContainer, ...] = ()  # each container of the pod
    images: tuple[PreviewedImage, ...] = ()  # of each container and each image volume
    host_ports: tuple[PreviewedPort, ...] = ()  # each port of the node that the pod takes
    pressures: tuple[str, ...] = ()  # the node's pressure conditions that are True
    taints: tuple[str, ...] = ()  # taints of the Node that the pod does not tolerate: `<key>=<value>:<effect>`
    problems: tuple[str, ...] = ()  # what would keep the sandbox of an admitted pod from starting
