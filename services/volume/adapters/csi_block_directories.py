"""Finds and removes the directories and records of block volumes of CSI drivers (volumes.md 14.3, 14.10); blocking.

The record of a PersistentVolume is written before anything else and removed last, once no pod has the device.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from services.volume.adapters.block_maps import remove_map
from services.volume.adapters.csi_records import RECORD, CsiRecordError, load_record, remove_record
from services.volume.adapters.mounts import is_mount_point, mount_table
from shared.files.tree_removal import remove_tree
from shared.host.mountinfo import below

FOLDER = "volumeDevices"


class CsiBlockDirectories:
    """The directories below `plugins/kubernetes.io/csi/volumeDevices`. `name` is that of the PersistentVolume."""

    def __init__(self, root: Path) -> None:
        self._root = root / FOLDER

    def global_map(self, name: str) -> Path:
        """Return the directory that contains a bind mount for each pod."""
        return self._root / name / "dev"

    def data(self, name: str) -> Path:
        """Return the directory that contains the record."""
        return self._root / name / "data"

    def staging(self, name: str) -> Path:
        """Return the staging directory of the driver."""
        return self._root / "staging" / name

    def target(self, name: str, uid: str) -> Path:
        """Return what the driver makes when it publishes the device for a pod."""
        return self._root / "publish" / name / uid

    def record(self, name: str) -> dict[str, str]:
        """Return the record of one PersistentVolume. Raises CsiRecordError, also where there is no record."""
        record = load_record(self.data(name))
        if record is None:
            raise CsiRecordError(self.data(name) / RECORD, "it does not exist")
        return record

    def records(self) -> dict[str, dict[str, str]]:
        """Return the record of each PersistentVolume. Records that cannot be read are left out, so that the volumes
        they describe are left as they are."""
        records = {}
        for path in sorted(self._root.glob(f"*/data/{RECORD}")):
            with suppress(CsiRecordError):
                if record := load_record(path.parent):
                    records[path.parent.parent.name] = record
        return records

    def published(self, uid: str) -> list[str]:
        """Return the names of the PersistentVolumes of which something is published for the pod."""
        return sorted(path.parent.name for path in (self._root / "publish").glob(f"*/{uid}"))

    def require_unused(self, name: str) -> None:
        """Remove the global map directory. Raises OSError where a pod has the device."""
        remove_map(self.global_map(name))
        published = self.target(name, "any").parent
        if users := sorted(entry.name for entry in published.iterdir()) if published.is_dir() else []:
            text = f'the device "{published}" is still published for Pods [{" ".join(users)}]'
            raise OSError(errno.EBUSY, text)

    def remove_target(self, name: str, uid: str) -> None:
        """Remove what the driver left at the target after it answered. Raises OSError where something is mounted."""
        target = self.target(name, uid)
        if is_mount_point(target):
            raise OSError(errno.EBUSY, f"kubernetes.io/csi: {target} is still mounted after the driver answered")
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)

    def remove_unrecorded(self) -> None:
        """Remove the empty directories that a kill left: before the record was written, or after it was removed."""
        for directory in sorted(self._root.glob("*")):
            name = directory.name
            others = (self.global_map(name), self.staging(name), self.target(name, "any").parent)
            if name in ("staging", "publish") or any(map(os.path.lexists, others)):
                continue
            data = self.data(name)
            with suppress(OSError):
                if load_record(data) is None:
                    remove_record(data)
            for empty in (data, directory):
                with suppress(OSError):
                    empty.rmdir()

    def remove(self, name: str) -> None:
        """Remove everything of the PersistentVolume, after it was unstaged. Raises OSError where something is
        mounted."""
        staging, published = self.staging(name), self.target(name, "any").parent
        if left := below(mount_table(staging), str(staging)):
            raise OSError(errno.EBUSY, f"kubernetes.io/csi: {left[0]} is still mounted after the driver answered")
        remove_tree(staging)
        if published.is_dir():
            published.rmdir()
        data = self.data(name)
        remove_record(data)
        for directory in (data, data.parent):
            if directory.is_dir():
                directory.rmdir()
