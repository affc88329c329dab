"""Reads usage in a thread of its own: a cgroup file may wait for a lock of the kernel's."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from bus.messages.usage import NodeUsage, PodUsage
from services.pleg.adapters.usage_reading import UsageReading
from shared.cgroup_layout import find_hierarchies
from shared.clock import Clock
from shared.config.effective import EffectiveConfig
from shared.model.runtime import RuntimePod


class UsageSource(Protocol):
    """What is read; without rates."""

    async def read_node(self, imagefs: str) -> NodeUsage:
        """Read the node; `imagefs`: mount point of the images, "" = on the filesystem of the root directory."""
        ...

    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        """Read all pods; one without a running container has no usage."""
        ...

    def close(self) -> None:
        """Begin no more readings."""
        ...


class HostUsage:
    """The usage of this host."""

    def __init__(self, config: EffectiveConfig, clock: Clock) -> None:
        above = tuple(part for part in config.cgroup_root.split("/") if part)
        pods_cgroup = (*above, "kubepods") if config.cgroups_per_qos else above
        self._reading = UsageReading(find_hierarchies(), clock, config.root_dir, pods_cgroup)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")

    async def read_node(self, imagefs: str) -> NodeUsage:
        """See UsageSource."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._reading.read_node, imagefs)

    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        """See UsageSource."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._reading.read_pods, pods)

    def close(self) -> None:
        """See UsageSource."""
        self._thread.shutdown(wait=False, cancel_futures=True)
