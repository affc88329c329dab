"""Turns the files of the CPU, memory and device managers into placements of pods, and placements into the files of the
first two; `device_takeover` makes that of devices.

A placement from a file counts for a pod of which this agent has none: one that a Go kubelet admitted. The files are
written for a Go kubelet that the node is given back to.
"""

from collections.abc import Mapping
from typing import TypeVar

from services.podsync.core.checkpoints.cpu_state import CpuState
from services.podsync.core.checkpoints.device_takeover import Given
from services.podsync.core.checkpoints.memory_state import MemoryState
from services.podsync.core.placement.machine_memory import MachineMemory
from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from shared.model.machine_topology import CpuSet

Placements = Mapping[str, PodPlacement]  # by pod UID
_Part = TypeVar("_Part")


def placements_of(
    cpu: CpuState | None, memory: MemoryState | None, given_devices: Given | None = None
) -> dict[str, PodPlacement]:
    """Return the placement of each pod that a file names. Which nodes the topology manager chose is in no file, nor
    whether a container of a pod with resources of its own has its part alone: `pod_division.with_pools`."""
    cpus, blocks = cpu.containers if cpu else {}, memory.containers if memory else {}
    pod_cpus, pod_blocks = cpu.pods if cpu else {}, memory.pods if memory else {}
    devices = given_devices or {}
    found = {}
    for uid in sorted(cpus.keys() | blocks.keys() | devices.keys()):
        own_cpus, own_blocks, own_devices = cpus.get(uid, {}), blocks.get(uid, {}), devices.get(uid, {})
        containers = {
            name: ContainerPlacement(
                cpus=own_cpus.get(name, frozenset()),
                memory=own_blocks.get(name, ()),
                devices=own_devices.get(name, ()),
            )
            for name in sorted(own_cpus.keys() | own_blocks.keys() | own_devices.keys())
        }
        given = {name: each for name, each in containers.items() if each.cpus or each.memory or each.devices}
        if given:
            whole = pod_cpus.get(uid, frozenset()), pod_blocks.get(uid, ())
            found[uid] = PodPlacement(containers=given, cpus=whole[0], memory=whole[1])
    return found


def cpu_state_of(policy: str, shared_pool: CpuSet, placements: Placements) -> CpuState:
    """Return the content of cpu_manager_state. With policy none the Go kubelet writes neither CPUs nor entries."""
    if policy != "static":
        return CpuState(policy=policy)
    containers = {
        uid: {
            name: given.cpus or given.pool for name, given in placement.containers.items() if given.cpus or given.pool
        }
        for uid, placement in placements.items()
    }
    pods = {uid: placement.cpus for uid, placement in placements.items() if placement.cpus}
    return CpuState(policy=policy, shared_pool=shared_pool, containers=_without_empty(containers), pods=pods)


def memory_state_of(policy: str, machine: MachineMemory, placements: Placements) -> MemoryState:
    """Return the content of memory_manager_state. With policy None the Go kubelet writes no nodes and no entries."""
    if policy != "Static":
        return MemoryState(policy=policy)
    containers = {
        uid: {
            name: given.memory or placement.memory
            for name, given in placement.containers.items()
            if given.memory or placement.memory
        }
        for uid, placement in placements.items()
    }
    pods = {uid: placement.memory for uid, placement in placements.items() if placement.memory}
    return MemoryState(policy=policy, machine=machine, containers=_without_empty(containers), pods=pods)


def _without_empty(containers: Mapping[str, Mapping[str, _Part]]) -> dict[str, Mapping[str, _Part]]:
    return {uid: named for uid, named in containers.items() if named}
