"""Sets up emptyDir volumes: a directory of the pod's own, a tmpfs or huge pages (volumes.md 13.1)."""

import errno
import os
from dataclasses import dataclass, field

from services.volume.adapters.backing_directory import set_up_at, tear_down_at
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundVolume
from services.volume.core.specs.gates import EMPTY_DIR_MODE
from services.volume.core.specs.pod_fields import fs_group, huge_page_size, tmpfs_size
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.plugin import VolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec.memory_volumes import MEMORY
from shared.podspec.volume_types import is_of_huge_pages

MAX_MODE = 0o1777


@dataclass(frozen=True)
class EmptyDir:
    """A directory. `medium`: "", Memory, HugePages or HugePages-<size>; `size`: bytes of the tmpfs, 0 = the kernel's
    default; `fs_group`: the group ID it belongs to; `mode`: permission bits that the pod asks for, None = 0777, or
    those of a new mount; `page_size`: bytes of a huge page, 0 = it has none."""

    medium: str = ""
    size: int = field(default=0, compare=False)  # the node's memory may change while the volume is mounted
    fs_group: int | None = None
    mode: int | None = field(default=None, compare=False)  # a volume that is mounted keeps its own
    page_size: int = 0


class EmptyDirPlugin(VolumePlugin[EmptyDir]):
    """Sets up emptyDir volumes. Their data belongs to the pod: only a teardown removes it, and no error does."""

    name = "kubernetes.io/empty-dir"

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec of the emptyDir; one of huge pages is refused where the pod requests none."""
        medium, page_size = str(source.get("medium") or ""), 0
        if is_of_huge_pages(medium):
            found = huge_page_size(pod, medium)
            if isinstance(found, str):
                return Refused(found)
            page_size = found
        elif medium not in ("", MEMORY):
            return Refused(f'unknown storage medium "{medium}"')
        mode = source.get("mode") if EMPTY_DIR_MODE in node.gates else None
        if mode is not None and (isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= MAX_MODE):
            return Refused(f"emptyDir mode {mode} is not from 0 to {MAX_MODE}")
        size = 0
        if medium == MEMORY:
            try:
                limit = parse_quantity(source["sizeLimit"]).base() if source.get("sizeLimit") is not None else 0
            except QuantityError as error:
                return Refused(f"emptyDir sizeLimit: {error}")
            size = tmpfs_size(pod, node.memory, limit)
        found_source = EmptyDir(medium, size, fs_group(pod), mode, page_size)
        return VolumeSpec(plugin=cls.name, source=found_source, selinux_relabel=True)

    def set_up(self, uid: str, volume: str, source: EmptyDir, gathered: SetUpInputs) -> str:
        """Make the directory or the mount, and return its path. Raises OSError."""
        self._directories.make(uid)
        path = self._directories.empty_dir(uid, volume)
        marker = self._directories.empty_dir_marker(uid, volume)
        tmpfs = source.medium == MEMORY
        set_up_at(
            path,
            marker,
            tmpfs=tmpfs,
            size=source.size,
            page_size=source.page_size,
            fs_group=source.fs_group,
            mode=source.mode,
        )
        if source.page_size and (mounted := os.statvfs(path).f_bsize) != source.page_size:
            why = f"pagesize '{mounted}' and requested medium size '{source.page_size}' differ"
            raise OSError(errno.EINVAL, f"pod {uid}: mounted dir {path} {why}")
        return str(path)

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Remove the emptyDir with its content."""
        tear_down_at(self._directories.empty_dir(uid, volume), self._directories.empty_dir_marker(uid, volume), removed)

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return a volume for each directory, and for each marker that a killed teardown left."""
        return [FoundVolume(name, self.name) for name in self._directories.empty_dirs(uid)]
