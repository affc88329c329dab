"""Machines with memory in small units, and pods that request some of it."""

from typing import Any

from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.memory_policy import MemoryPolicy
from services.podsync.core.placement.pod_placement import ContainerPlacement, MemoryBlock, PodPlacement
from shared.model.machine_topology import MachineTopology, NumaNode

Json = dict[str, Any]
PAGES = "hugepages-2Mi"


def machine_of(*memory: int, pages: tuple[int, ...] = ()) -> MachineTopology:
    """Return a machine with this memory, in bytes, of NUMA node 0, 1, ...; `pages`: bytes of it in huge pages."""
    held = [*pages, *[0] * len(memory)]
    return MachineTopology(
        nodes={
            node: NumaNode(id=node, memory=size, huge_pages={PAGES: held[node]} if held[node] else {})
            for node, size in enumerate(memory)
        }
    )


def static_policy(machine: MachineTopology, reserved: dict[int, int] | None = None) -> MemoryPolicy:
    """Return the policy Static with this memory, in bytes, reserved of each node."""
    by_kind = {node: {"memory": size} for node, size in (reserved or {}).items()}
    return MemoryPolicy(machine, MemorySettings(static=True, reserved=by_kind))


def container_of(name: str, memory: int | str, pages: int = 0, **more: Any) -> Json:
    """Return a container with a CPU, this memory and these bytes of huge pages; its requests are its limits."""
    amounts = {"cpu": "1", "memory": str(memory), **({PAGES: str(pages)} if pages else {})}
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}, **more}


def pod_of(*containers: Json, init: tuple[Json, ...] = (), uid: str = "u", **spec: Any) -> Json:
    """Return a Guaranteed pod of these containers."""
    return {"metadata": {"uid": uid}, "spec": {"initContainers": list(init), "containers": list(containers), **spec}}


def block(nodes: tuple[int, ...], size: int, kind: str = "memory") -> MemoryBlock:
    """Return a block of these nodes."""
    return MemoryBlock(nodes=frozenset(nodes), kind=kind, size=size)


def placed(**blocks: MemoryBlock | tuple[MemoryBlock, ...]) -> PodPlacement:
    """Return the placement of a pod whose containers have these blocks."""
    return PodPlacement(
        containers={
            name: ContainerPlacement(memory=given if isinstance(given, tuple) else (given,))
            for name, given in blocks.items()
        }
    )
