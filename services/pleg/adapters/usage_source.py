"""Reads usage in threads, because a cgroup file may wait for a lock of the kernel, and a walk through files takes
long."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from bus.messages.cgroup_details import FoundCgroups, HostFilesystem
from bus.messages.usage import NodeUsage, PodUsage
from services.pleg.adapters.cgroup_details_reader import CgroupDetailsReader
from services.pleg.adapters.disk_usage import PodCount
from services.pleg.adapters.filesystem_reader import FilesystemReader
from services.pleg.adapters.memory_notifications import MemoryNotifications
from services.pleg.adapters.usage_reading import UsageReading
from services.pleg.core.memory_thresholds import MEMORY, PODS, ROOT, usage_thresholds
from services.pleg.core.mountpoints import Mountpoints
from services.pleg.core.pod_files import PodFiles
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.host.cgroup_layout import find_hierarchies
from shared.host.cgroup_name import cgroup_name
from shared.host.machine import meminfo
from shared.model.frozen_copy import replace
from shared.model.runtime import RuntimePod
from shared.time.clock import Clock

MAX_COUNTS = 16  # pods whose files are counted at the same time: usually one, and several where some hang


class FilesCount(Protocol):
    """Counts the files of one pod in turns, as `CountInThreads` does."""

    async def count(self, seconds: float) -> bool: ...
    def sum_up(self) -> PodFiles: ...
    def close(self) -> None: ...


class UsageSource(Protocol):
    """Reads usage without rates, as `HostUsage` does."""

    async def read_node(self, mountpoints: Mountpoints | None) -> NodeUsage: ...
    async def watch_memory(self, node: NodeUsage, notify: Callable[[], None]) -> None: ...
    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]: ...
    async def read_cgroups(self, pods: Sequence[RuntimePod], mountpoints: Mountpoints | None) -> FoundCgroups: ...
    def count_files(self, pod: PodUsage, *, volumes: bool) -> FilesCount: ...
    def close(self) -> None: ...


class HostUsage:
    """Reads the usage of this host."""

    def __init__(self, config: EffectiveConfig, clock: Clock) -> None:
        above = tuple(part for part in config.cgroup_root.split("/") if part)
        pods_cgroup = (*above, "kubepods") if config.cgroups_per_qos else above
        hierarchies = self._hierarchies = find_hierarchies()
        self._pods_names = [cgroup_name(pods_cgroup, driver).strip("/") for driver in ("cgroupfs", "systemd")]
        thresholds = (config.eviction_hard.get(MEMORY), config.eviction_soft.get(MEMORY))
        self._amounts = tuple(amount for amount in thresholds if amount is not None)
        self._limits_pods = "pods" in config.enforce_node_allocatable
        self._huge_pages = meminfo().get("Hugetlb", 0) if enabled(config.feature_gates, "HugepageAwareEviction") else 0
        self._notifications: MemoryNotifications | None = None
        named = (
            ("kubelet", config.kubelet_cgroups),
            ("runtime", config.runtime_cgroups),
            ("misc", config.system_cgroups),
        )
        daemons = {name: path for name, path in named if path.strip("/")}
        self._reading = UsageReading(hierarchies, clock, pods_cgroup, daemons)
        self._details = CgroupDetailsReader(hierarchies, clock, pods_cgroup)
        self._clock, self._root_dir, self._logs = clock, config.root_dir, Path(config.pod_logs_dir)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")
        self._filesystem = FilesystemReader()
        self._files_threads = ThreadPoolExecutor(MAX_COUNTS, thread_name_prefix="files")

    async def read_node(self, mountpoints: Mountpoints | None) -> NodeUsage:
        """Read the node; `mountpoints`: of the runtime's images and writable layers, None = not known yet."""
        nodefs, images, layers = await self._filesystems(mountpoints)
        node = await asyncio.get_running_loop().run_in_executor(self._thread, self._reading.read_node)
        return replace(
            node,
            nodefs=nodefs.usage if nodefs else None,
            imagefs=images.usage if images else None,
            containerfs=layers.usage if layers else None,
            nodefs_device=nodefs.device if nodefs else "",
            imagefs_device=images.device if images else "",
            containerfs_device=layers.device if layers else "",
        )

    async def watch_memory(self, node: NodeUsage, notify: Callable[[], None]) -> None:
        """Call `notify` when the kernel reports that memory becomes short, by this reading of the node."""
        loop = asyncio.get_running_loop()
        if self._notifications is None:
            self._notifications = MemoryNotifications(loop, notify)
        await loop.run_in_executor(self._thread, self._watch_memory, self._notifications, node)

    def _watch_memory(self, notifications: MemoryNotifications, node: NodeUsage) -> None:
        if not self._amounts:
            return
        if self._hierarchies.unified is not None:
            notifications.watch_stalls(Path("/proc/pressure/memory"))
            for name in self._pods_names:
                notifications.watch_stalls(self._hierarchies.unified / name / "memory.pressure")
        elif (memory := self._hierarchies.by_controller.get("memory")) is not None:
            wanted = usage_thresholds(node, self._amounts, limits_pods=self._limits_pods, huge_pages=self._huge_pages)
            of_pods = [memory / name for name in self._pods_names if (memory / name).is_dir()]
            for place, directories in ((ROOT, [memory]), (PODS, of_pods[:1])):
                for directory in directories:
                    notifications.watch_usage(directory, {a: at for (where, a), at in wanted.items() if where == place})

    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        """Read all pods; one without a running container has no usage."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._reading.read_pods, pods)

    async def read_cgroups(self, pods: Sequence[RuntimePod], mountpoints: Mountpoints | None) -> FoundCgroups:
        """Read every number of every cgroup of the pods, and of those above them."""
        by_device = {read.device: read for read in await self._filesystems(mountpoints) if read is not None}
        cgroups = await asyncio.get_running_loop().run_in_executor(self._thread, self._details.read, pods)
        return replace(cgroups, filesystems=tuple(by_device.values()))

    def count_files(self, pod: PodUsage, *, volumes: bool) -> FilesCount:
        """Begin to count the files of a pod; without `volumes` only its logs and etc-hosts."""
        logs = self._logs / f"{pod.namespace}_{pod.name}_{pod.uid}"
        count = PodCount(self._root_dir, logs, pod.uid, self._clock.wall(), volumes=volumes)
        return CountInThreads(count, self._files_threads, self._clock)

    def close(self) -> None:
        """Begin no more readings."""
        if self._notifications is not None:
            self._notifications.close()
        for threads in (self._thread, self._files_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        self._filesystem.close()

    async def _filesystems(
        self, mountpoints: Mountpoints | None
    ) -> tuple[HostFilesystem | None, HostFilesystem | None, HostFilesystem | None]:
        """Read the filesystems of the root directory, of the images and of writable layers, each one once."""
        wall, root = self._clock.wall(), self._root_dir
        if mountpoints is None:
            return await self._filesystem.read(root, wall), None, None
        images, layers = mountpoints.images or root, mountpoints.layers or root
        paths = list(dict.fromkeys((root, images, layers)))
        read = dict(zip(paths, await asyncio.gather(*(self._filesystem.read(p, wall) for p in paths)), strict=True))
        return read[root], read[images], read[layers]


class CountInThreads:
    """Counts the files of one pod in turns, each in one of the threads."""

    def __init__(self, pod: PodCount, threads: ThreadPoolExecutor, clock: Clock) -> None:
        self._pod, self._threads, self._clock = pod, threads, clock
        self.sum_up, self.close = pod.sum_up, pod.close

    async def count(self, seconds: float) -> bool:
        """Count for about `seconds`; return whether everything is counted. It lasts as long as a mount of the pod does
        not answer, and delays no other pod while fewer than MAX_COUNTS pods are counted."""
        call = self._pod.count
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, seconds, self._clock.monotonic)
