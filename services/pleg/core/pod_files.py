"""Joins what the files of a pod use with the usage of its cgroups (node.md 7.5). Pure."""

from collections.abc import Mapping

from msgspec import Struct

from bus.messages.usage import MAX_AMOUNT, ContainerUsage, FilesystemUsage, NodeUsage, PodUsage, VolumeUsage
from services.pleg.core.mountpoints import Mountpoints, mountpoints_of
from shared.cri.interface import FilesystemFiles, RuntimeFilesystems
from shared.model.frozen_copy import replace


class DiskUse(Struct, frozen=True):
    """Has bytes and inodes of some files."""

    used: int = 0
    inodes: int = 0

    def __add__(self, other: "DiskUse") -> "DiskUse":
        return DiskUse(self.used + other.used, self.inodes + other.inodes)

    def at_least(self, other: "DiskUse") -> "DiskUse":
        """Return the larger of both bytes, and of both inodes."""
        return DiskUse(max(self.used, other.used), max(self.inodes, other.inodes))

    def at_most(self, filesystem: FilesystemUsage) -> "DiskUse":
        """Return this use, or what all files of the filesystem use where that is less and known (btrfs has no
        inodes)."""
        used = min(self.used, filesystem.used or 0) if filesystem.capacity else self.used
        return DiskUse(used, min(self.inodes, filesystem.inodes_used or 0) if filesystem.inodes else self.inodes)


class PodFiles(Struct, frozen=True, kw_only=True):
    """Has the use of the files of one pod at one time (wall clock seconds). `logs`: by container; `other`: of other
    files in its log directory, and of etc-hosts."""

    time: float
    logs: Mapping[str, DiskUse]
    volumes: tuple[VolumeUsage, ...]
    other: DiskUse
    measured_by_plugins: bool = False  # whether there are volumes whose figures only volume can read


def at_least(counted: PodFiles, before: PodFiles | None) -> PodFiles:
    """Return what was counted so far of files whose count has not ended, each figure at least as large as that of the
    count before. Parts that are not counted yet keep their figures."""
    if before is None:
        return counted
    names = dict.fromkeys((*before.logs, *counted.logs))
    none = DiskUse()
    logs = {name: counted.logs.get(name, none).at_least(before.logs.get(name, none)) for name in names}
    volumes = {volume.name: volume for volume in before.volumes}
    for volume in counted.volumes:
        if (old := volumes.get(volume.name)) is not None:
            use = _use(volume.filesystem).at_least(_use(old.filesystem))
            volume = replace(volume, filesystem=with_use(volume.filesystem, use))
        volumes[volume.name] = volume
    other = counted.other.at_least(before.other)
    return replace(counted, logs=logs, volumes=tuple(volumes.values()), other=other)


def with_use(filesystem: FilesystemUsage, use: DiskUse) -> FilesystemUsage:
    """Return the filesystem with what some files on it use in place of what all use, at most `MOST`."""
    return replace(filesystem, used=min(use.used, MAX_AMOUNT), inodes_used=min(use.inodes, MAX_AMOUNT))


def with_files(
    pod: PodUsage,
    files: PodFiles | None,
    layers: Mapping[str, FilesystemFiles],
    node: NodeUsage,
    mountpoints: Mountpoints | None,
) -> PodUsage:
    """Return the usage with what is known of its files; `layers`: writable layers by container id; `mountpoints`:
    of the runtime, None = not known yet."""
    containers = tuple(
        replace(
            container,
            rootfs=_rootfs(container, layers.get(container.id), node, mountpoints),
            logs=_on(node.nodefs, files.time, files.logs.get(container.name, DiskUse())) if files else None,
        )
        for container in pod.containers
    )
    if files is None:
        return replace(pod, containers=containers)
    total = files.other
    parts = [part for container in containers for part in (container.rootfs, container.logs) if part]
    for part in (*parts, *(volume.filesystem for volume in files.volumes if volume.ephemeral)):
        total += _use(part)
    ephemeral = _on(node.nodefs, files.time, total)
    return replace(pod, containers=containers, volumes=files.volumes, ephemeral_storage=ephemeral)


def with_runtime_files(node: NodeUsage, reported: RuntimeFilesystems) -> NodeUsage:
    """Return the usage with what images and writable layers use; where the runtime keeps both in one place it is one
    figure."""
    images = next(iter(reported.images), None)
    layers = next(iter(reported.containers), None) if mountpoints_of(reported).split else images
    return replace(node, imagefs=_used(node.imagefs, images), containerfs=_used(node.containerfs, layers))


def _use(filesystem: FilesystemUsage) -> DiskUse:
    return DiskUse(filesystem.used or 0, filesystem.inodes_used or 0)


def _used(filesystem: FilesystemUsage | None, files: FilesystemFiles | None) -> FilesystemUsage | None:
    if filesystem is None or files is None:
        return filesystem
    return replace(filesystem, used=files.used, inodes_used=files.inodes_used)


def _rootfs(
    container: ContainerUsage, layer: FilesystemFiles | None, node: NodeUsage, mountpoints: Mountpoints | None
) -> FilesystemUsage | None:
    if layer is None:
        return None
    known = mountpoints or Mountpoints()
    below = {known.images: node.imagefs, known.layers: node.containerfs}.get(layer.mountpoint)
    time = container.cgroup.time if container.cgroup else node.cgroup.time
    return replace(_on(below, time, DiskUse()), used=layer.used, inodes_used=layer.inodes_used)


def _on(filesystem: FilesystemUsage | None, time: float, use: DiskUse) -> FilesystemUsage:
    return replace(with_use(filesystem or FilesystemUsage(time=time), use), time=time)
