"""Counts how much disk the files of a pod use: logs, volumes, etc-hosts (node.md 7.5). Each call blocks.
As du, it counts a directory on its filesystem, a file with several links once, and any number of entries: a pod that
could end the count early would evade its limits. But a pod can also keep the count from ending, by directories that it
makes ahead of it. So files are counted in turns: after each turn the sum so far is shown, and the next turn begins with
another volume of the pod, or elsewhere in the same one. A file that is removed after it was counted stays in the sum:
until a volume is counted to its end, it shows no more than all files of its filesystem use.
"""

import itertools
import math
import os
import stat
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bus.messages.usage import FilesystemUsage, VolumeUsage
from services.pleg.adapters.file_statuses import MAX_ASIDE_PARTS, FileStatuses, Places
from services.pleg.adapters.filesystem_reader import read_filesystem
from services.pleg.core.pod_files import DiskUse, PodFiles, with_use
from shared.pods.directory import DEVICES, ETC_HOSTS, VOLUMES, pod_directory

BLOCK_BYTES = 512
MAX_LINKED_FILES = 10_000  # of one pod; their inode numbers are kept while their volume is counted: some 1 MiB
ENTRIES_AT_ONCE = 512  # counted between two looks at the clock
# Directory of a plugin -> whether its volumes count as ephemeral storage.
_PLUGINS = {
    "kubernetes.io~empty-dir": True,
    "kubernetes.io~configmap": True,
    "kubernetes.io~secret": False,
    "kubernetes.io~projected": False,
    "kubernetes.io~downward-api": False,
}
_MEASURED_BY_PLUGINS = {"kubernetes.io~csi", "kubernetes.io~local-volume", "kubernetes.io~nfs"}
_EMPTY_DIR = "kubernetes.io~empty-dir"


class DirectoryCount:
    """Counts a directory with everything below it. A file with several links takes a place of `linked` until the count
    is closed. Once these are taken, each link of a further file counts as its share: together they are the file, if all
    of them are below the directory. Each part that is left for a later turn takes a place of `aside`."""

    def __init__(self, root: Path, linked: Places, aside: Places) -> None:
        self._statuses, self._places = FileStatuses(root, aside), linked
        self._linked: set[int] = set()
        self._used = self._inodes = 0
        self._used_by_shares = self._inodes_by_shares = 0.0

    def count(self, entries: int) -> bool:
        """Count at most `entries` further files and return whether no file is left."""
        left = entries
        for status in itertools.islice(self._statuses, entries):
            left -= 1
            size = status.st_blocks * BLOCK_BYTES
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                if status.st_ino in self._linked:
                    continue
                if not self._places.take():
                    self._used_by_shares += size / status.st_nlink
                    self._inodes_by_shares += 1 / status.st_nlink
                    continue
                self._linked.add(status.st_ino)
            self._used, self._inodes = self._used + size, self._inodes + 1
        return left > 0

    def use(self) -> DiskUse:
        """Return what was counted so far, which is never less than before."""
        used = self._used + math.ceil(round(self._used_by_shares, 3))
        return DiskUse(used, self._inodes + math.ceil(round(self._inodes_by_shares, 3)))

    def turn(self) -> None:
        """Continue elsewhere in the directory; see FileStatuses."""
        self._statuses.turn()

    def close(self) -> None:
        """End the count; what was counted is kept."""
        self._statuses.close()
        self._places.free += len(self._linked)
        self._linked = set()


@dataclass
class _Part:
    """Has the logs of a container, or a volume with its `path` and filesystem. `counts` None = the filesystem has its
    figures."""

    name: str
    filesystem: FilesystemUsage | None = None
    ephemeral: bool = False
    counts: DirectoryCount | None = None
    path: str = ""
    complete: bool = False  # whether it is counted to its end

    def end_turn(self) -> None:
        """Continue elsewhere in the next turn. Until then the figures are at most what all files of the filesystem use
        now."""
        if self.counts is not None:
            self.counts.turn()
        if self.filesystem is not None:
            self.filesystem = read_filesystem(self.path, self.filesystem.time) or self.filesystem

    def close(self) -> None:
        """End the count."""
        if self.counts is not None:
            self.counts.close()

    def use(self) -> DiskUse:
        return self.counts.use() if self.counts is not None else DiskUse()

    def volume(self) -> VolumeUsage | None:
        if self.filesystem is None:
            return None
        filesystem = self.filesystem
        if self.counts is not None:
            use = self.counts.use()
            filesystem = with_use(filesystem, use if self.complete else use.at_most(filesystem))
        return VolumeUsage(name=self.name, filesystem=filesystem, ephemeral=self.ephemeral)


class PodCount:
    """Counts the files of one pod in turns; `logs` is its log directory. Files that vanish meanwhile are left out. One
    thread at a time may count, while others read what was counted."""

    def __init__(self, root_dir: str, logs: Path, uid: str, wall: float, *, volumes: bool) -> None:
        self._directory, self._logs, self._wall, self._has_volumes = pod_directory(root_dir, uid), logs, wall, volumes
        self._other, self._linked, self._aside = DiskUse(), Places(MAX_LINKED_FILES), Places(MAX_ASIDE_PARTS)
        self._by_plugins = self._begun = False
        self._parts: tuple[_Part, ...] = ()  # logs, then volumes
        self._left: deque[_Part] = deque()  # parts that are not counted to their end, the next one first

    def count(self, seconds: float, monotonic: Callable[[], float]) -> bool:
        """Count for about `seconds`, by this clock; return whether everything is counted. The next turn begins with
        another part of the pod, and elsewhere in this one, so that a part that never ends does not hide the rest."""
        end = monotonic() + seconds
        if not self._begun:
            self._begin()
        while self._left:
            part = self._left[0]
            if part.counts is None or part.counts.count(ENTRIES_AT_ONCE):
                self._left.popleft().close()
                part.complete = True
            elif monotonic() >= end:
                part.end_turn()
                self._left.rotate(-1)
                return False
        return True

    def sum_up(self) -> PodFiles:
        """Return the sum of the parts whose count has begun."""
        parts = self._parts
        return PodFiles(
            time=self._wall,
            logs={part.name: part.use() for part in parts if part.filesystem is None},
            volumes=tuple(volume for part in parts if (volume := part.volume()) is not None),
            other=self._other,
            measured_by_plugins=self._by_plugins,
        )

    def close(self) -> None:
        """End the count; not to be called while a thread counts."""
        for part in self._left:
            part.close()

    def _begin(self) -> None:
        other, parts = _use_of_file(self._directory / ETC_HOSTS), []
        for entry in _entries(self._logs):
            if entry.is_dir(follow_symlinks=False):
                parts.append(_Part(entry.name, counts=self._count_directory(entry.path)))
            else:
                other += _use_of_file(Path(entry.path))
        if self._has_volumes:
            parts += self._volumes()
            self._by_plugins = _has_measured(self._directory)
        self._other, self._parts, self._begun = other, tuple(parts), True
        self._left.extend(parts)

    def _volumes(self) -> list[_Part]:
        parts = []
        for plugin in _entries(self._directory / VOLUMES):
            if plugin.name not in _PLUGINS:
                continue
            for volume in _entries(Path(plugin.path)):
                filesystem = read_filesystem(volume.path, self._wall)
                if filesystem is None or not volume.is_dir(follow_symlinks=False):
                    continue
                in_memory = plugin.name == _EMPTY_DIR and os.path.ismount(volume.path)
                counts = None if in_memory else self._count_directory(volume.path)
                ephemeral = _PLUGINS[plugin.name] and not in_memory
                parts.append(_Part(volume.name, filesystem, ephemeral, counts, volume.path))
        return parts

    def _count_directory(self, path: str) -> DirectoryCount:
        return DirectoryCount(Path(path), self._linked, self._aside)


def _has_measured(pod: Path) -> bool:
    volumes = {entry.name for entry in _entries(pod / VOLUMES)}
    return bool(volumes & _MEASURED_BY_PLUGINS) or bool(_entries(pod / DEVICES))


def _entries(directory: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _use_of_file(path: Path) -> DiskUse:
    try:
        return DiskUse(path.lstat().st_blocks * BLOCK_BYTES, 1)
    except OSError:
        return DiskUse()
