"""How much disk the files of a pod use: logs, volumes, etc-hosts (node.md 7.5). Blocks while it counts.

A directory is counted on its filesystem, a file with several links once, and with no bound of entries, as du: a pod
that could end the count early would evade its limits. But a pod can also keep it from ending, by directories that it
makes ahead of it. So files are counted in turns: after each one there is a lower bound, and the next one begins with
another volume of the pod, or elsewhere in the same one.
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
from services.pleg.adapters.file_statuses import FileStatuses
from services.pleg.adapters.filesystem_reader import read_filesystem
from services.pleg.core.pod_files import DiskUse, PodFiles, with_use
from shared.pod_directory import DEVICES, ETC_HOSTS, VOLUMES, pod_directory

BLOCK_BYTES = 512
MAX_LINKED_FILES = 10_000  # of one directory, whose inode numbers are kept: some 1 MiB for each pod that is counted
ENTRIES_AT_ONCE = 512  # counted between two looks at the clock
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


class DirectoryCount:
    """Counts a directory with everything below it. Once `most_linked` files with several links are known, each link of
    a further one counts as its share: together they are the file, if all of them are below the directory."""

    def __init__(self, root: Path, most_linked: int = MAX_LINKED_FILES) -> None:
        self._statuses, self._most_linked = FileStatuses(root), most_linked
        self._linked: set[int] = set()
        self._used = self._inodes = 0
        self._used_by_shares = self._inodes_by_shares = 0.0

    def count(self, entries: int) -> bool:
        """Count at most so many entries; whether that was all."""
        left = entries
        for found in itertools.islice(self._statuses, entries):
            left -= 1
            size = found.st_blocks * BLOCK_BYTES
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                if found.st_ino in self._linked:
                    continue
                if len(self._linked) >= self._most_linked:
                    self._used_by_shares += size / found.st_nlink
                    self._inodes_by_shares += 1 / found.st_nlink
                    continue
                self._linked.add(found.st_ino)
            self._used, self._inodes = self._used + size, self._inodes + 1
        return left > 0

    def use(self) -> DiskUse:
        """What was counted so far; never less than before."""
        by_shares = (self._used_by_shares, self._inodes_by_shares)
        used, inodes = (math.ceil(round(number, 3)) for number in by_shares)
        return DiskUse(self._used + used, self._inodes + inodes)

    def turn(self) -> None:
        """Go on elsewhere in the directory; see FileStatuses."""
        self._statuses.turn()

    def close(self) -> None:
        """Count no more."""
        self._statuses.close()


@dataclass
class _Part:
    """The logs of a container, or a volume with its filesystem. `counts`: None = the filesystem has its figures."""

    name: str
    filesystem: FilesystemUsage | None = None
    ephemeral: bool = False
    counts: DirectoryCount | None = None

    def use(self) -> DiskUse:
        return self.counts.use() if self.counts is not None else DiskUse()

    def volume(self) -> VolumeUsage | None:
        if self.filesystem is None:
            return None
        filesystem = self.filesystem if self.counts is None else with_use(self.filesystem, self.counts.use())
        return VolumeUsage(name=self.name, filesystem=filesystem, ephemeral=self.ephemeral)


class PodCount:
    """Counts the files of one pod in turns; `logs` is its log directory. What vanishes meanwhile is left out. One
    thread at a time may count, while others read what was counted."""

    def __init__(self, root_dir: str, logs: Path, uid: str, wall: float, *, volumes: bool) -> None:
        self._directory, self._logs, self._wall, self._has_volumes = pod_directory(root_dir, uid), logs, wall, volumes
        self._other = DiskUse()
        self._by_plugins = self._begun = False
        self._parts: tuple[_Part, ...] = ()  # logs, then volumes
        self._left: deque[_Part] = deque()  # those that are not counted to their end, the next one first

    def count(self, seconds: float, monotonic: Callable[[], float]) -> bool:
        """Count for about so long, by this clock; whether everything is counted. The next turn begins with another part
        of the pod, and elsewhere in this one, so that what never ends does not hide the rest."""
        end = monotonic() + seconds
        if not self._begun:
            self._begin()
        while self._left:
            counts = self._left[0].counts
            if counts is None or counts.count(ENTRIES_AT_ONCE):
                self._left.popleft()
            elif monotonic() >= end:
                counts.turn()
                self._left.rotate(-1)
                return False
        return True

    def found(self) -> PodFiles:
        """What was counted so far, without what was not begun."""
        parts = self._parts
        return PodFiles(
            time=self._wall,
            logs={part.name: part.use() for part in parts if part.filesystem is None},
            volumes=tuple(volume for part in parts if (volume := part.volume()) is not None),
            other=self._other,
            measured_by_plugins=self._by_plugins,
        )

    def close(self) -> None:
        """Count no more; not while a thread counts."""
        for part in self._left:
            if part.counts is not None:
                part.counts.close()

    def _begin(self) -> None:
        other, parts = _use_of_file(self._directory / ETC_HOSTS), []
        for entry in _entries(self._logs):
            if entry.is_dir(follow_symlinks=False):
                parts.append(_Part(entry.name, counts=DirectoryCount(Path(entry.path))))
            else:
                other += _use_of_file(Path(entry.path))
        if self._has_volumes:
            parts += _volumes(self._directory / VOLUMES, self._wall)
            self._by_plugins = _has_measured(self._directory)
        self._other, self._parts, self._begun = other, tuple(parts), True
        self._left.extend(parts)


def _volumes(directory: Path, wall: float) -> list[_Part]:
    parts = []
    for plugin in _entries(directory):
        if plugin.name not in _PLUGINS:
            continue
        for volume in _entries(Path(plugin.path)):
            filesystem = read_filesystem(volume.path, wall)
            if filesystem is None or not volume.is_dir(follow_symlinks=False):
                continue
            in_memory = plugin.name == _EMPTY_DIR and os.path.ismount(volume.path)
            counts = None if in_memory else DirectoryCount(Path(volume.path))
            parts.append(_Part(volume.name, filesystem, _PLUGINS[plugin.name] and not in_memory, counts))
    return parts


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
