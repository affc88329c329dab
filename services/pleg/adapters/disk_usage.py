"""How much disk the files of a pod use: logs, volumes, etc-hosts (node.md 7.5). Blocks for as long as a walk takes.

A walk stays on the filesystem of its directory, counts a file with several links once, and has no bound of entries, as
du: a pod that could end it early would evade its limits. The caller pauses for twenty times as long as a walk took.
"""

import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bus.messages.usage import VolumeUsage
from services.pleg.adapters.file_statuses import statuses
from services.pleg.adapters.filesystem_reader import read_filesystem
from services.pleg.core.pod_files import DiskUse, PodFiles, with_use
from shared.pod_directory import DEVICES, ETC_HOSTS, VOLUMES, pod_directory

BLOCK_BYTES = 512
MAX_LINKED_FILES = 100_000  # of one walk, whose inode numbers are kept: some 10 MiB
# Directory of a plugin -> whether what its volumes use counts as ephemeral storage.
_PLUGINS = {
    "kubernetes.io~empty-dir": True,
    "kubernetes.io~configmap": True,
    "kubernetes.io~secret": False,
    "kubernetes.io~projected": False,
    "kubernetes.io~downward-api": False,
}
_MEASURED_BY_PLUGINS = {"kubernetes.io~csi", "kubernetes.io~local-volume", "kubernetes.io~nfs"}
_EMPTY_DIR = "kubernetes.io~empty-dir"


def measure_pod(root_dir: str, logs: Path, uid: str, wall: float, *, volumes: bool) -> PodFiles:
    """Measure the files of one pod; `logs` is its log directory. What vanishes meanwhile is left out."""
    directory = pod_directory(root_dir, uid)
    by_container = {}
    other = _use_of_file(directory / ETC_HOSTS)
    for entry in _entries(logs):
        if entry.is_dir(follow_symlinks=False):
            by_container[entry.name] = disk_usage(Path(entry.path))
        else:
            other += _use_of_file(Path(entry.path))
    found = tuple(_volumes(directory / VOLUMES, wall)) if volumes else ()
    by_plugins = volumes and _has_measured(directory)
    return PodFiles(time=wall, logs=by_container, volumes=found, other=other, measured_by_plugins=by_plugins)


def disk_usage(root: Path, most_linked: int = MAX_LINKED_FILES) -> DiskUse:
    """The disk use of a directory with everything below it. Once `most_linked` files with several links are known, each
    link of a further one counts as its share: together they are the file, if all of them are below the directory."""
    used = inodes = 0
    used_by_shares = inodes_by_shares = 0.0
    linked: set[int] = set()
    for found in statuses(root):
        size = found.st_blocks * BLOCK_BYTES
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if found.st_ino in linked:
                continue
            if len(linked) >= most_linked:
                used_by_shares += size / found.st_nlink
                inodes_by_shares += 1 / found.st_nlink
                continue
            linked.add(found.st_ino)
        used, inodes = used + size, inodes + 1
    return DiskUse(used + math.ceil(round(used_by_shares, 3)), inodes + math.ceil(round(inodes_by_shares, 3)))


def _volumes(directory: Path, wall: float) -> Iterator[VolumeUsage]:
    for plugin in _entries(directory):
        if plugin.name not in _PLUGINS:
            continue
        for volume in _entries(Path(plugin.path)):
            filesystem = read_filesystem(volume.path, wall)
            if filesystem is None or not volume.is_dir(follow_symlinks=False):
                continue
            in_memory = plugin.name == _EMPTY_DIR and os.path.ismount(volume.path)
            if not in_memory:
                filesystem = with_use(filesystem, disk_usage(Path(volume.path)))
            ephemeral = _PLUGINS[plugin.name] and not in_memory
            yield VolumeUsage(name=volume.name, filesystem=filesystem, ephemeral=ephemeral)


def _has_measured(pod: Path) -> bool:
    volumes = {entry.name for entry in _entries(pod / VOLUMES)}
    return bool(volumes & _MEASURED_BY_PLUGINS) or bool(_entries(pod / DEVICES))


def _entries(directory: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _use_of_file(path: Path) -> DiskUse:
    try:
        return DiskUse(path.lstat().st_blocks * BLOCK_BYTES, 1)
    except OSError:
        return DiskUse()
