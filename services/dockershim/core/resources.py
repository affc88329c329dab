"""LinuxContainerResources as fields of Docker's HostConfig and of its POST /containers/ID/update. Pure."""

from typing import Any


def resources_of(resources: Any) -> dict[str, Any]:
    """Return Docker's fields. Swap follows CRI: as much memory and swap together as the message says, else no swap."""
    fields: dict[str, Any] = {
        "CpuPeriod": resources.cpu_period,
        "CpuQuota": resources.cpu_quota,
        "CpuShares": resources.cpu_shares,
        "CpusetCpus": resources.cpuset_cpus,
        "CpusetMems": resources.cpuset_mems,
        "Memory": resources.memory_limit_in_bytes,
        "MemorySwap": resources.memory_swap_limit_in_bytes or resources.memory_limit_in_bytes,
    }
    return {name: value for name, value in fields.items() if value}
