"""Converts a pod's placement to what its record has of it, and back. Reads and writes no file.

"placement": {"main": {"cpus": "2-3", "affinity": [0], "memory": [{"nodes": [0], "kind": "memory", "size": 1024}]}}

A container with devices has "devices" beside these, see `devices_format`; one that shares CPUs with containers of its
pod has "pool". What a pod was given as a whole is under the name "", which no container has.
"""

from typing import Any

from services.podsync.core.placement.hint import NodeSet
from services.podsync.core.placement.pod_placement import ContainerPlacement, MemoryBlock, PodPlacement
from services.podsync.core.pod.devices_format import plain_devices, read_devices
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.machine_topology import CpuSet
from shared.podspec.support import MAX_CONTAINERS

MAX_NODES = 1024  # NUMA nodes, as many as Linux has at most
_WHOLE = ""  # key of what the pod was given
MAX_BLOCKS = 64  # of one container: one for each kind of memory


def plain_placement(placement: PodPlacement) -> dict[str, Any]:
    """Return the placement as JSON has it, by container; {} where nothing was given."""
    containers = {name: _plain(given) for name, given in placement.containers.items()}
    if not placement.cpus and not placement.memory:
        return containers
    return {**containers, _WHOLE: _plain(ContainerPlacement(cpus=placement.cpus, memory=placement.memory))}


def read_placement(saved: dict[str, Any]) -> PodPlacement:
    """Return what `plain_placement` wrote; {} is `NOT_PLACED`. Raises KeyError, TypeError, ValueError or
    AttributeError where a value is not understood: without it, another pod would be given the same CPUs or devices."""
    if len(saved) > MAX_CONTAINERS + (_WHOLE in saved):
        raise ValueError(f"placement of {len(saved)} containers")
    given = {name: _read(entry) for name, entry in saved.items()}
    whole = given.pop(_WHOLE, ContainerPlacement())
    return PodPlacement(containers=given, cpus=whole.cpus, memory=whole.memory)


def _plain(given: ContainerPlacement) -> dict[str, Any]:
    blocks = [{"nodes": sorted(block.nodes), "kind": block.kind, "size": block.size} for block in given.memory]
    affinity = None if given.affinity is None else sorted(given.affinity)
    plain = {"cpus": write_cpus(given.cpus), "memory": blocks, "affinity": affinity}
    if given.pool:
        plain["pool"] = write_cpus(given.pool)
    return {**plain, "devices": plain_devices(given.devices)} if given.devices else plain


def _read(given: dict[str, Any]) -> ContainerPlacement:
    blocks, affinity = given["memory"], given["affinity"]
    if len(blocks) > MAX_BLOCKS:
        raise ValueError(f"{len(blocks)} blocks of memory")
    memory = tuple(
        MemoryBlock(nodes=_nodes(block["nodes"]), kind=str(block["kind"]), size=int(block["size"])) for block in blocks
    )
    return ContainerPlacement(
        cpus=_cpus(given["cpus"]),
        pool=_cpus(given.get("pool", "")),
        memory=memory,
        devices=read_devices(given["devices"]) if "devices" in given else (),
        affinity=None if affinity is None else _nodes(affinity),
    )


def _cpus(text: str) -> CpuSet:
    cpus = parse_cpus(text) if text else frozenset()
    if cpus is None:
        raise ValueError(f"{text[:80]!r} is no list of CPUs")
    return cpus


def _nodes(listed: list[int]) -> NodeSet:
    if len(listed) > MAX_NODES:
        raise ValueError(f"{len(listed)} NUMA nodes")
    return frozenset(map(int, listed))
