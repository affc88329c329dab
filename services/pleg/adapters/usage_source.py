"""Reads usage in threads: a cgroup file may wait for a lock of the kernel's, a walk through files takes its time."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from bus.messages.cgroup_details import FoundCgroups
from bus.messages.usage import NodeUsage, PodUsage
from services.pleg.adapters.cgroup_details_reader import CgroupDetailsReader
from services.pleg.adapters.disk_usage import measure_pod
from services.pleg.adapters.usage_reading import UsageReading
from services.pleg.core.pod_files import PodFiles
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

    async def read_cgroups(self, pods: Sequence[RuntimePod], imagefs: str) -> FoundCgroups:
        """Read every number of every cgroup of the pods, and of those above them."""
        ...

    async def measure(self, pod: PodUsage, *, volumes: bool) -> PodFiles:
        """Measure the files of a pod; without `volumes` only its logs and etc-hosts."""
        ...

    def close(self) -> None:
        """Begin no more readings."""
        ...


class HostUsage:
    """The usage of this host."""

    def __init__(self, config: EffectiveConfig, clock: Clock) -> None:
        above = tuple(part for part in config.cgroup_root.split("/") if part)
        pods_cgroup = (*above, "kubepods") if config.cgroups_per_qos else above
        hierarchies = find_hierarchies()
        self._reading = UsageReading(hierarchies, clock, config.root_dir, pods_cgroup)
        self._details = CgroupDetailsReader(hierarchies, clock, config.root_dir, pods_cgroup)
        self._clock, self._root_dir, self._logs = clock, config.root_dir, Path(config.pod_logs_dir)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")
        self._files_thread = ThreadPoolExecutor(1, thread_name_prefix="files")

    async def read_node(self, imagefs: str) -> NodeUsage:
        """See UsageSource."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._reading.read_node, imagefs)

    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        """See UsageSource."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._reading.read_pods, pods)

    async def read_cgroups(self, pods: Sequence[RuntimePod], imagefs: str) -> FoundCgroups:
        """See UsageSource."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._details.read, pods, imagefs)

    async def measure(self, pod: PodUsage, *, volumes: bool) -> PodFiles:
        """See UsageSource."""
        logs = self._logs / f"{pod.namespace}_{pod.name}_{pod.uid}"
        call = partial(measure_pod, self._root_dir, logs, pod.uid, self._clock.wall(), volumes=volumes)
        return await asyncio.get_running_loop().run_in_executor(self._files_thread, call)

    def close(self) -> None:
        """See UsageSource."""
        for thread in (self._thread, self._files_thread):
            thread.shutdown(wait=False, cancel_futures=True)
