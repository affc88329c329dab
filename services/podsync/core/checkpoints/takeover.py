"""Turns the files of the CPU and memory managers into placements of pods, and placements into the files.

A placement from a file counts for a pod of which this agent has none: one that a Go kubelet admitted. The files are
written for a Go kubelet that the node is given back to.
"""

from collections.abc import Mapping
from typing import TypeVar

from services.podsync.core.checkpoints.cpu_state import CpuState
from services.podsync.core.checkpoints.memory_state import MemoryState
from services.podsync.core.placement.machine_memory import MachineMemory
from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from shared.model.machine_topology import CpuSet

Placements = Mapping[str, PodPlacement]  # by pod UID
_Given = TypeVar("_Given")


def placements_of(cpu: CpuState | None, memory: MemoryState | None) -> dict[str, PodPlacement]:
    """Return the placement of each pod that a file names. Which nodes the topology manager chose is in no file."""
    cpus, blocks = cpu.containers if cpu else {}, memory.containers if memory else {}
    found = {}
    for uid in sorted(cpus.keys() | blocks.keys()):
        own_cpus, own_blocks = cpus.get(uid, {}), blocks.get(uid, {})
        containers = {
            name: ContainerPlacement(cpus=own_cpus.get(name, frozenset()), memory=own_blocks.get(name, ()))
            for name in sorted(own_cpus.keys() | own_blocks.keys())
        }
        given = {name: placement for name, placement in containers.items() if placement.cpus or placement.memory}
        if given:
            found[uid] = PodPlacement(containers=given)
    return found


def cpu_state_of(policy: str, shared_pool: CpuSet, placements: Placements) -> CpuState:
    """Return the content of cpu_manager_state. With policy none the Go kubelet writes neither CPUs nor entries."""
    if policy != "static":
        return CpuState(policy=policy)
    containers = {
        uid: {name: given.cpus for name, given in placement.containers.items() if given.cpus}
        for uid, placement in placements.items()
    }
    return CpuState(policy=policy, shared_pool=shared_pool, containers=_without_empty(containers))


def memory_state_of(policy: str, machine: MachineMemory, placements: Placements) -> MemoryState:
    """Return the content of memory_manager_state. With policy None the Go kubelet writes no nodes and no entries."""
    if policy != "Static":
        return MemoryState(policy=policy)
    containers = {
        uid: {name: given.memory for name, given in placement.containers.items() if given.memory}
        for uid, placement in placements.items()
    }
    return MemoryState(policy=policy, machine=machine, containers=_without_empty(containers))


def _without_empty(containers: Mapping[str, Mapping[str, _Given]]) -> dict[str, Mapping[str, _Given]]:
    return {uid: named for uid, named in containers.items() if named}
