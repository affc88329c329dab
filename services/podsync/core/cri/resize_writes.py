"""Decides the writes that bring a pod's cgroup and its running containers to their allocation (pods.md 5.6).
Memory comes before CPU. The pod's cgroup grows before the containers and shrinks after them; its limit grows before its
request and shrinks after it. Performs no write.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from services.podsync.core.cgroups.pod_cgroup import CgroupValues, pod_cgroup_values
from services.podsync.core.cri.container_resources import container_resources
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.instructions import ContainerUpdate
from shared.cri.interface import Message
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.quantity import ZERO, Quantity
from shared.podspec.containers import find_container
from shared.podspec.resources import pod_level, resource_list

_UNPROTECTED = {"memory.min": "0", "memory.low": "0"}  # of a container without a request


class WriteCgroup(Struct, frozen=True, kw_only=True):
    """Writes these values to the pod's cgroup."""

    values: CgroupValues


class WriteContainer(Struct, frozen=True, kw_only=True):
    """Sends the runtime a container's resources, a CRI LinuxContainerResources."""

    container_id: str
    resources: Message


class MemoryDecrease(Struct, frozen=True, kw_only=True):
    """Has a memory limit in bytes that becomes smaller, of the pod (`container` "") or of a running container."""

    container: str
    container_id: str
    limit: int


Write = WriteCgroup | WriteContainer


class MemoryInUseError(Exception):
    """A memory limit would be smaller than what is in use; the text is the kubelet's."""


def memory_decreases(
    pod: Object, updates: Iterable[ContainerUpdate], current: CgroupValues | None, facts: NodeFacts
) -> list[MemoryDecrease]:
    """Return the memory limits that become smaller. `current`: of the pod's cgroup, None = pods have none."""
    decreases = []
    target = pod_cgroup_values(pod, facts).memory_limit
    if current is not None and target and (current.memory_limit is None or target < current.memory_limit):
        decreases.append(MemoryDecrease(container="", container_id="", limit=target))
    for update in updates:
        before, after = _limits(pod, update, "memory")
        if after and (not before or after < before):
            limit = after.base()
            decreases.append(MemoryDecrease(container=update.container, container_id=update.container_id, limit=limit))
    return decreases


def refuse_memory_in_use(decreases: Iterable[tuple[MemoryDecrease, int | None]]) -> None:
    """Raise MemoryInUseError for limits that are not above the usage beside them, in bytes; None = not known."""
    errors = []
    for decrease, usage in decreases:
        what = f'container "{decrease.container}"' if decrease.container else "pod"
        if usage is None:
            errors.append(f"missing {what} memory usage")
        elif usage >= decrease.limit:
            errors.append(f"attempting to set {what} memory limit ({decrease.limit}) below current usage ({usage})")
    if errors:
        text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        raise MemoryInUseError(f"cannot decrease memory limits: {text}")


def resize_writes(
    pod: Object, updates: Sequence[ContainerUpdate], current: CgroupValues | None, facts: NodeFacts
) -> list[Write]:
    """Return the writes. `pod` has what is allocated; `current` as for `memory_decreases`.

    No write has the shared CPUs: they may change before it is sent, and a runtime leaves a cpuset that is not named."""
    facts = replace(facts, shared_cpus="")
    target = pod_cgroup_values(pod, facts)
    # Because a page size without a limit is written as 0.
    unchanged = CgroupValues(hugepage_limits=target.hugepage_limits)
    memory_limit = replace(unchanged, memory_limit=target.memory_limit)
    memory_request = replace(unchanged, memory_min=target.memory_min, memory_low=target.memory_low)
    cpu_limit = replace(unchanged, cpu_quota=target.cpu_quota, cpu_period=target.cpu_period)
    cpu_request = replace(unchanged, cpu_shares=target.cpu_shares)
    writes: list[Write] = []
    for resource in ("memory", "cpu"):
        before: list[Write] = []
        after: list[Write] = []
        if current is not None and resource == "memory":
            _put(memory_limit, target.memory_limit, current.memory_limit, before, after)
            _put(memory_request, _protected(target), _protected(current), before, after)
            if facts.protects_memory and _protected(current) and not _protected(target):
                after.append(WriteCgroup(values=replace(unchanged, memory_min=0, memory_low=0)))
        elif current is not None:
            _put(cpu_limit, target.cpu_quota, current.cpu_quota, before, after)
            _put(cpu_request, target.cpu_shares, current.cpu_shares, before, after)
        writes += [*before, *_container_writes(pod, updates, resource, facts), *reversed(after)]
    return writes


def _protected(values: CgroupValues) -> int:
    """Return the bytes of memory that the kernel keeps for the cgroup: its request, where MemoryQoS protects
    requests."""
    return values.memory_min or values.memory_low or 0


def _put(
    values: CgroupValues, target: int | None, current: int | None, before: list[Write], after: list[Write]
) -> None:
    """Append the write to `before` where the value grows, to `after` where it shrinks; to none where it stays the same
    or is no longer limited."""
    if not target or target == current:
        return
    grows = _magnitude(target) > _magnitude(current)
    (before if grows else after).append(WriteCgroup(values=values))


def _magnitude(limit: int | None) -> float:
    """Return the limit as a number to compare: no limit is the largest one."""
    return float("inf") if limit is None or limit < 0 else limit


def _container_writes(pod: Object, updates: Sequence[ContainerUpdate], resource: str, facts: NodeFacts) -> list[Write]:
    """Return the writes of the containers, decreases first. With the writes of memory, CPU still is as it was actuated
    before."""
    decreases: list[Write] = []
    increases: list[Write] = []
    for update in updates:
        before, after = _specs(pod, update)
        limits = _limits(pod, update, resource)
        requests = (_request(before, resource), _request(after, resource))
        if limits[0] == limits[1] and requests[0] == requests[1]:
            continue
        old, new = limits if limits[0] != limits[1] else requests
        mixed = after if resource == "cpu" else _mixed(before, after)
        resources = container_resources(pod, mixed, facts)
        if facts.protects_memory and resource == "memory" and requests[0] > requests[1] == ZERO:
            resources = {**resources, "unified": {**_UNPROTECTED, **resources.get("unified", {})}}
        sent = WriteContainer(container_id=update.container_id, resources=resources)
        (increases if new > old else decreases).append(sent)
    return [*decreases, *increases]


def _specs(pod: Object, update: ContainerUpdate) -> tuple[Object, Object]:
    """Return the container with its actuated resources, and with its allocated ones."""
    entry = find_container(pod, update.container)
    spec = dict(entry[1]) if entry is not None else {}
    return {**spec, "resources": dict(update.given)}, spec


def _mixed(before: Object, after: Object) -> Object:
    """Return the container with the memory of `after` and everything else of `before`."""
    resources: Object = dict(after.get("resources") or {})
    for kind, default in (("requests", {}), ("limits", {"cpu": "0"})):  # "0" so that no limit of the pod is inherited
        old, new = ((spec.get("resources") or {}).get(kind) or {} for spec in (before, after))
        amounts = default | {name: amount for name, amount in old.items() if name != "memory"}
        resources[kind] = amounts | {name: amount for name, amount in new.items() if name == "memory"}
    return {**after, "resources": resources}


def _limits(pod: Object, update: ContainerUpdate, resource: str) -> tuple[Quantity, Quantity]:
    """Return the container's actuated limit and its allocated one; zero where there is none. The actuated resources
    include the limits that the pod had then."""
    before, after = (resource_list(spec, "limits") for spec in _specs(pod, update))
    return before.get(resource, ZERO), {**pod_level(pod, "limits"), **after}.get(resource, ZERO)


def _request(spec: Object, resource: str) -> Quantity:
    return resource_list(spec, "requests").get(resource, ZERO)
