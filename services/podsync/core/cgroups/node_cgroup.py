"""Decides the values of kubepods, the cgroup above all pods, and of the cgroups of the system's and Kubernetes' daemons
(node.md 4.5). Pure.
The limits of kubepods include what eviction reserves, unlike the Node's allocatable: pods may use it until eviction
acts.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.model.quantity import ZERO
from shared.podspec.resources import hugepage_size, parse_resources, shares

PODS = "pods"  # of enforceNodeAllocatable
PIDS = "pid"


class NodeCapacity(Struct, frozen=True, kw_only=True):
    """Has the capacity of the machine, and what is reserved of it."""

    cpus: int
    memory: int  # bytes
    pids: int  # the smaller of kernel.pid_max and kernel.threads-max; 0 = not known
    hugepages: Mapping[str, int] = field(default_factory=dict)  # page size ("2MB") -> bytes in the pool
    cpu_list: str = ""  # every CPU, such as 0-7
    reserved: tuple[Mapping[str, str], ...] = ()  # resource -> quantity: systemReserved, kubeReserved


def kubepods_values(capacity: NodeCapacity, enforced: tuple[str, ...], *, with_cpus: bool = False) -> CgroupValues:
    """Return the values of kubepods; without `pods` in `enforced` they are the machine's capacity. `with_cpus`: they
    also name the CPUs."""
    kept = capacity.reserved if PODS in enforced else ()

    def left(resource: str, total: int, unit: int = 1) -> int:
        reserved = [parse_resources(reservation).get(resource, ZERO) for reservation in kept]
        return max(0, total - sum(amount.milli() if unit == 1000 else amount.base() for amount in reserved))

    sizes = {}
    for size, total in capacity.hugepages.items():
        taken = [
            amount.base()
            for reservation in kept
            for resource, amount in parse_resources(reservation).items()
            if hugepage_size(resource) == size
        ]
        sizes[size] = max(0, total - sum(taken))
    return CgroupValues(
        cpu_shares=shares(left("cpu", capacity.cpus * 1000, unit=1000)),
        memory_limit=left("memory", capacity.memory) or None,
        pids_limit=left(PIDS, capacity.pids) if capacity.pids else None,
        hugepage_limits=sizes,
        cpuset_cpus=capacity.cpu_list if with_cpus else "",
    )


class Reservation(Struct, frozen=True, kw_only=True):
    """Has a reservation for daemons, and their cgroup. `kind`: system or kube; `cgroup`: as configured."""

    kind: str
    cgroup: str
    amounts: Mapping[str, str]  # resource -> quantity
    compressible: bool  # only CPU is enforced


def enforced_reservations(
    enforced: tuple[str, ...], system: tuple[str, Mapping[str, str]], kube: tuple[str, Mapping[str, str]]
) -> list[Reservation]:
    """Return the reservations that enforceNodeAllocatable names. `system`, `kube`: a cgroup and its amounts."""
    return [
        Reservation(kind=kind, cgroup=cgroup, amounts=amounts, compressible=f"{name}-compressible" in enforced)
        for kind, name, (cgroup, amounts) in (("system", "system-reserved", system), ("kube", "kube-reserved", kube))
        if cgroup and (name in enforced or f"{name}-compressible" in enforced)
    ]


def reservation_values(reservation: Reservation, *, protect_memory: bool = False) -> CgroupValues:
    """Return the values of the daemons' cgroup. What is not reserved stays as it is, but where the hugetlb controller
    exists, page sizes that are not reserved get 0 (node.md 4.3). `protect_memory`: the memory is not reclaimed."""
    amounts = parse_resources(reservation.amounts)
    cpu, memory, pids = amounts.get("cpu"), amounts.get("memory"), amounts.get(PIDS)
    cpu_shares = None if cpu is None else shares(cpu.milli())
    if reservation.compressible:
        return CgroupValues(cpu_shares=cpu_shares)
    sizes = {size: amount.base() for name, amount in amounts.items() if (size := hugepage_size(name))}
    return CgroupValues(
        cpu_shares=cpu_shares,
        memory_limit=None if memory is None else memory.base() or None,
        memory_min=memory.base() if protect_memory and memory is not None else None,
        pids_limit=None if pids is None else pids.base(),
        hugepage_limits=sizes,
    )
