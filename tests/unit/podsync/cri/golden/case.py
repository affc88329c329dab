"""The base pod with its two messages in full, and how a case differs from it.

A case names what of the pod (or the node) differs and what of the messages must then differ; everything else of both
messages must stay as it is here. Places in a message are keys joined by colons; a value of None means: absent. Zero
values are absent throughout, as on the wire (POD, RuntimeDefault, TCP, Merge, PROPAGATION_PRIVATE and attempt 0 are
zero values). Environments are written as a map, for their order does not matter.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from services.podsync.core.cri.container_config import container_config
from services.podsync.core.cri.container_inputs import ContainerInputs
from services.podsync.core.cri.container_mounts import MountedVolume
from services.podsync.core.cri.sandbox_config import sandbox_config
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import ImageStatus, Message
from shared.model.objects import Object

BOTH = ("v2", "v1")
MASKED = [
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    "/sys/devices/virtual/powercap",
]  # fmt: skip
READONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

METADATA = {
    "name": "web",
    "namespace": "ns1",
    "uid": "U",
    "labels": {"app": "web"},
    "annotations": {"kubernetes.io/config.source": "api"},
}
SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
    "enableServiceLinks": True,
    "nodeName": "n1",
    "serviceAccountName": "sa",
}
CONTAINER = {
    "name": "c",
    "image": "nginx:1.27",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
NODE = {
    "node_name": "n1",
    "node_ips": ("192.0.2.7", "2001:db8::7"),
    "cluster_dns": ("10.96.0.10",),
    "cluster_domain": "cluster.local",
    "resolv_conf": "search host.example\nnameserver 192.0.2.53\noptions timeout:1\n",
    "memory_capacity": 16 << 30,
    "swap_capacity": 4 << 30,
    "swap_controller": True,
    "page_sizes": ("2MB", "1GB"),
    "allocatable": {"cpu": "3920m", "memory": "15Gi", "ephemeral-storage": "90Gi"},
}
SERVICES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
HOSTS = {"container_path": "/etc/hosts", "host_path": "/pods/U/etc-hosts"}
IMAGE = ImageStatus(id="sha256:abc", size=1)

POD_LABELS = {"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "ns1", "io.kubernetes.pod.uid": "U"}
NAMESPACES = {"pid": "CONTAINER", "userns_options": {"mode": "NODE"}}

SANDBOX: Message = {
    "metadata": {"name": "web", "namespace": "ns1", "uid": "U"},
    "hostname": "web",
    "log_directory": "/var/log/pods/ns1_web_U",
    "dns_config": {
        "servers": ["10.96.0.10"],
        "searches": ["ns1.svc.cluster.local", "svc.cluster.local", "cluster.local", "host.example"],
        "options": ["ndots:5"],
    },
    "labels": {"app": "web", **POD_LABELS},
    "annotations": {"kubernetes.io/config.source": "api"},
    "linux": {
        "cgroup_parent": "/kubepods/besteffort/podU",
        "security_context": {"namespace_options": NAMESPACES, "seccomp": {}},
        "resources": {"cpu_period": 100000, "cpu_shares": 2},
        "overhead": {},
    },
}
OF_CONTAINER: Message = {
    "metadata": {"name": "c"},
    "image": {"image": "sha256:abc", "user_specified_image": "nginx:1.27"},
    "envs": {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
    "mounts": [
        HOSTS,
        {"container_path": "/dev/termination-log", "host_path": "/pods/U/containers/c/0a1b2c3d"},
    ],
    "labels": {**POD_LABELS, "io.kubernetes.container.name": "c"},
    "annotations": {
        "io.kubernetes.container.hash": "7549f4e",
        "io.kubernetes.container.restartCount": "0",
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": "File",
        "io.kubernetes.pod.terminationGracePeriod": "30",
    },
    "log_path": "c/0.log",
    "linux": {
        "resources": {
            "cpu_period": 100000,
            "cpu_shares": 2,
            "oom_score_adj": 1000,
            "hugepage_limits": [{"page_size": "2MB"}, {"page_size": "1GB"}],
        },
        "security_context": {
            "namespace_options": NAMESPACES,
            "run_as_user": {},
            "masked_paths": MASKED,
            "readonly_paths": READONLY,
            "seccomp": {"profile_type": "Unconfined"},
        },
    },
}
UNIFIED = {"memory.oom.group": "1", "memory.swap.max": "0"}  # what v2 has beside it

# Places that many cases name.
RESOURCES = "linux:resources"
SECURITY = "linux:security_context"
NOTES = "annotations:io.kubernetes"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What differs from the base. `container`, `spec`, `metadata`: fields of the pod; `node`: facts; `given`: further
    arguments of `container_config`; `of`: which container's message; `on`: cgroup versions. `sandbox` and `message`:
    the places of the sandbox's and the container's message that must differ, and the values there; `on_v1`, `on_v2`:
    further ones of the container's message on that version of cgroups alone."""

    name: str
    container: Object = field(default_factory=dict)
    spec: Object = field(default_factory=dict)
    metadata: Object = field(default_factory=dict)
    node: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    of: str = "c"
    on: tuple[str, ...] = BOTH
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)
    on_v1: Mapping[str, Any] = field(default_factory=dict)
    on_v2: Mapping[str, Any] = field(default_factory=dict)


def pod_of(case: Case) -> Object:
    """The base pod with the case's differences; of a list of containers `containers` replaces all."""
    spec = {**SPEC, "containers": [{**CONTAINER, **case.container}], **case.spec}
    return {"metadata": {**METADATA, **case.metadata}, "spec": deepcopy(spec)}


def another(name: str, **fields: Any) -> Object:
    """One more container, like the base's but for its name."""
    return {**CONTAINER, "name": name, **fields}


def facts_of(case: Case, version: str) -> NodeFacts:
    """The node of the case."""
    return NodeFacts(**{**NODE, "cgroup_v2": version == "v2", **case.node})


def volume(path: str = "/v", **fields: Any) -> dict[str, MountedVolume]:
    """A mounted volume `v`."""
    return {"v": MountedVolume(host_path=path, **fields)}


def built(case: Case, version: str) -> tuple[Message, Message]:
    """Our sandbox's and container's message."""
    pod, facts, given = pod_of(case), facts_of(case, version), dict(case.given)
    every = [c for key in ("initContainers", "containers", "ephemeralContainers") for c in pod["spec"].get(key, ())]
    shared = {key: given[key] for key in ("mappings", "volume_groups") if key in given}
    arguments = {
        "restart_count": 0,
        "image_ref": "sha256:abc",
        "image": IMAGE,
        "pod_ips": ("10.0.0.5",),
        "volumes": {},
        "subpaths": {},
        "etc_hosts_path": "/pods/U/etc-hosts",
        "termination_path": f"/pods/U/containers/{case.of}/0a1b2c3d",
        "service_env": SERVICES,
        "references": {},
    }
    sandbox = sandbox_config(pod, facts=facts, attempt=given.pop("sandbox_attempt", 0), **shared)
    wanted = next(c for c in every if c["name"] == case.of)
    return sandbox, container_config(pod, wanted, ContainerInputs(**{**arguments, **given}), facts=facts)


def expected(case: Case, version: str) -> tuple[Message, Message]:
    """The messages that the case requires."""
    sandbox, message = deepcopy(SANDBOX), deepcopy(OF_CONTAINER)
    if version == "v2":
        message["linux"]["resources"]["unified"] = dict(UNIFIED)
    further = case.on_v1 if version == "v1" else case.on_v2
    for target, changes in ((sandbox, case.sandbox), (message, {**case.message, **further})):
        for place, value in changes.items():
            _put(target, place.split(":"), value)
    return sandbox, message


def _put(target: Message, keys: list[str], value: Any) -> None:
    """A place below one that stays absent is not made; a place that is to be absent must have been there."""
    *way, last = keys
    for key in way:
        target = target.setdefault(key, {})
    if value is None:
        del target[last]
    else:
        target[last] = deepcopy(value)


def named(key: str, image: str) -> dict[str, str]:
    """The places of a container's message that follow from its name alone; `image` is the hash of name and image."""
    return {
        "metadata:name": key,
        "labels:io.kubernetes.container.name": key,
        f"{NOTES}.container.hash": image,
        "log_path": f"{key}/0.log",
    }


def without_message_file(key: str, image: str) -> dict[str, Any]:
    """The same places of a container whose `terminationMessagePath` is empty, and those that follow from that."""
    return {**named(key, image), f"{NOTES}.container.terminationMessagePath": "", "mounts": [HOSTS]}
