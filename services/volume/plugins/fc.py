"""Mounts fc volumes: disks of a Fibre Channel storage, inline in the pod or as PersistentVolumes (volumes.md 13.6). The
host bus adapters find the disks; nothing logs in."""

import errno
from pathlib import Path

from services.volume.core.files.payload import SetUpInputs
from services.volume.core.specs.fc_volume import FcDisk, disk_of, fc_disk, links_to
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.scsi_disks import persistent_use, use_of
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.scsi_disk import ScsiDiskPlugin
from shared.model.objects import Object


class FcPlugin(ScsiDiskPlugin[FcDisk]):
    """Mounts fc volumes."""

    name = "kubernetes.io/fc"

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec of an inline volume."""
        return cls.spec_of(fc_disk(source, use_of(pod, source, read_only=source.get("readOnly") is True)), node)

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec | Refused:
        """Return the spec of a PersistentVolume."""
        return cls.spec_of(fc_disk(source, persistent_use(pod, persistent, source)), persistent.node)

    def attach(self, disk: FcDisk, gathered: SetUpInputs) -> str:
        """Return the multipath map of the disk, else its first path, after a look for new disks where there is no
        map."""
        found = self._paths_of(disk)
        if not self.disks.has_map(found):
            self.disks.scan_all()
            found = self._paths_of(disk)
        if not found:
            raise OSError(errno.ENXIO, "no fc disk found")
        return self.disks.best(found, 0.0)

    def detach(self, directory: Path, record: Object) -> None:
        """Remove the disk of every path."""
        if found := self._paths_of(disk_of(record, directory.name)):
            self.disks.remove(found)

    def _paths_of(self, disk: FcDisk) -> list[str]:
        return links_to(disk, self.disks.links("by-path"), self.disks.links("by-id"))

    def volume_name_of(self, directory: Path) -> str:
        """Return the volume that the directory of a Go kubelet is of."""
        return disk_of({}, directory.name).volume_name

    def folders(self, top: Path) -> list[Path]:
        """Return the one directory."""
        return [top] if top.is_dir() else []
