"""emptyDir: a directory of the pod's own, or a tmpfs (volumes.md 13.1)."""

from dataclasses import dataclass, field

from services.volume.adapters.backing_directory import set_up_at, tear_down_at
from services.volume.core.outcome import FoundVolume
from services.volume.core.payload import SetUpInputs
from services.volume.core.pod_fields import fs_group, tmpfs_size
from services.volume.core.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.plugin import VolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity

MEMORY = "Memory"


@dataclass(frozen=True)
class EmptyDir:
    """A directory with mode 0777. `medium`: "" or Memory; `size`: bytes of the tmpfs, 0 = the kernel's default;
    `fs_group`: the group ID it belongs to."""

    medium: str = ""
    size: int = field(default=0, compare=False)  # what the node can give may change under a mounted volume
    fs_group: int | None = None


class EmptyDirPlugin(VolumePlugin[EmptyDir]):
    """Its data is the pod's: no error takes it away, only a teardown."""

    name = "kubernetes.io/empty-dir"

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """See VolumePlugin; a medium of huge pages is refused."""
        medium = str(source.get("medium") or "")
        if medium == "HugePages" or medium.startswith("HugePages-"):
            return Refused(f"emptyDir medium {medium} is not supported yet")
        if medium not in ("", MEMORY):
            return Refused(f'unknown storage medium "{medium}"')
        size = 0
        if medium == MEMORY:
            try:
                limit = parse_quantity(source["sizeLimit"]).base() if source.get("sizeLimit") is not None else 0
            except QuantityError as error:
                return Refused(f"emptyDir sizeLimit: {error}")
            size = tmpfs_size(pod, node.memory, limit)
        return VolumeSpec(plugin=cls.name, source=EmptyDir(medium, size, fs_group(pod)), selinux_relabel=True)

    def set_up(self, uid: str, volume: str, source: EmptyDir, gathered: SetUpInputs) -> str:
        """See VolumePlugin."""
        self._directories.make(uid)
        path = self._directories.empty_dir(uid, volume)
        marker = self._directories.empty_dir_marker(uid, volume)
        set_up_at(path, marker, tmpfs=source.medium == MEMORY, size=source.size, fs_group=source.fs_group)
        return str(path)

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """See VolumePlugin."""
        tear_down_at(self._directories.empty_dir(uid, volume), self._directories.empty_dir_marker(uid, volume), removed)

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return one for each directory, and for each marker that a killed teardown left."""
        return [FoundVolume(name, self.name) for name in self._directories.empty_dirs(uid)]
