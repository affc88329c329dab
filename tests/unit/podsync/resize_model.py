"""What a resize does to a model of the kernel and the runtime: the values of cgroups, and those of containers."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from services.podsync.core.cri.resize_writes import (
    Write,
    WriteCgroup,
    memory_decreases,
    refuse_memory_in_use,
    resize_writes,
)
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.instructions import ResizePod
from shared.model.frozen_copy import replace

NODE = NodeFacts(node_name="node1", memory_capacity=8 << 30, cgroup_v2=False)
_OF_CGROUP = {"memory_limit": "memory", "cpu_quota": "cpu", "cpu_shares": "shares"}
_OF_CONTAINER = {"memory_limit_in_bytes": "memory", "cpu_quota": "cpu", "cpu_shares": "shares"}


def writes(call: ResizePod, pod: dict[str, Any], current: CgroupValues, usage: Mapping[str, int]) -> list[Write]:
    """The writes, as `calls/resizing` has them from the core. `usage`: bytes by container id, "" for the pod's."""
    decreases = memory_decreases(pod, call.containers, current, NODE)
    refuse_memory_in_use((one, usage.get(one.container_id, 0)) for one in decreases)
    return resize_writes(pod, call.containers, current, NODE)


def perform(
    write: Write, call: ResizePod, cgroups: dict[str, CgroupValues], resources: dict[str, dict[str, Any]]
) -> str:
    """Put it into the model; return what changed, such as `pod memory 1000` or `c cpu 20000`."""
    if isinstance(write, WriteCgroup):
        given = {name: value for name, value in asdict(write.values).items() if value not in (None, {}, "")}
        cgroups[call.uid] = replace(cgroups[call.uid], **given)
        changed = {_OF_CGROUP[name]: value for name, value in given.items() if name in _OF_CGROUP}
        name = "pod"
    else:
        name = next(u.container for u in call.containers if u.container_id == write.container_id)
        before = resources[write.container_id]
        resources[write.container_id] = {**before, **write.resources}
        sent = {key: value for key, value in write.resources.items() if key in _OF_CONTAINER}
        changed = {_OF_CONTAINER[key]: value for key, value in sent.items() if value != before.get(key)}
    return " ".join([name, *(f"{key} {value}" for key, value in changed.items())])
