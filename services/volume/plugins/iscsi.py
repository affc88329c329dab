"""Mounts iscsi volumes: disks that targets of a storage offer, inline in the pod or as PersistentVolumes (volumes.md
13.5). The program iscsiadm logs in and out; sessions that are there already are used."""

import errno
import time
from pathlib import Path

from services.volume.adapters.iscsi_initiator import IscsiInitiator
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.specs.iscsi_volume import (
    Attached,
    Chap,
    IscsiDisk,
    attached,
    chap_of,
    is_shared,
    iscsi_disk,
    session_to,
    volume_name_of,
)
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.scsi_disks import persistent_use, use_of
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.scsi_disk import ScsiDiskPlugin
from shared.model import objects
from shared.model.fields import dictionary, text
from shared.model.objects import Object

MAX_ATTEMPTS = 5  # at the portals of one disk
MIN_ATTEMPTS = 2  # at all portals, where at least MIN_PATHS answer
MIN_PATHS = 2
MAX_ATTACH_SECONDS = 60.0  # after which portals that fail are not tried again, where one answers
MAX_PASS_SECONDS = 300.0  # after which no further portal is tried: other volumes of the target wait meanwhile
MULTIPATH_SECONDS = 10.0  # in which the multipath map of several portals appears


class IscsiPlugin(ScsiDiskPlugin[IscsiDisk]):
    """Mounts iscsi volumes."""

    name = "kubernetes.io/iscsi"
    record_inside = "iscsi.json"

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec of an inline volume, whose Secret is in the namespace of the pod."""
        name = text(dictionary(source.get("secretRef")).get("name"))
        key = ObjectKey("Secret", objects.namespace(pod), name) if name else None
        use = use_of(pod, source, read_only=source.get("readOnly") is True)
        return cls._spec(iscsi_disk(source, volume, key, use), node)

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec | Refused:
        """Return the spec of a PersistentVolume."""
        reference = dictionary(source.get("secretRef"))
        namespace = text(reference.get("namespace")) or objects.namespace(pod)
        key = ObjectKey("VolumeSecret", namespace, text(reference.get("name"))) if reference.get("name") else None
        use = persistent_use(pod, persistent, source)
        return cls._spec(iscsi_disk(source, persistent.name, key, use), persistent.node)

    @classmethod
    def _spec(cls, disk: IscsiDisk | str, node: Node) -> VolumeSpec | Refused:
        if isinstance(disk, str):
            return Refused(disk)
        needed = frozenset({disk.secret} if disk.secret is not None else ())
        return cls.spec_of(disk, node, objects=needed, served_by=disk.iqn)

    @property
    def _initiator(self) -> IscsiInitiator:
        return IscsiInitiator(self.disks)

    def attach(self, disk: IscsiDisk, gathered: SetUpInputs) -> str:
        """Log in at all portals, and return the multipath map of the disk, else its first path."""
        chap = chap_of(disk, gathered)
        with self.locked(disk.iqn):  # no login beside a logout
            self._initiator.require_ended(disk.iqn)
            self._initiator.prepare_interface(disk)
            paths = self._log_in(disk, chap)
        return self.disks.best(paths, MULTIPATH_SECONDS if len(disk.portals) > 1 else 0.0)

    def _log_in(self, disk: IscsiDisk, chap: Chap) -> list[str]:
        """Return the names of the disk at the portals that answer, in their order."""
        found, failure, began = dict[str, str](), "", time.monotonic()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            for portal in disk.portals:
                try:
                    found[portal] = found.get(portal) or self._initiator.disk_at(disk, portal, chap)
                except OSError as error:
                    failure = error.strerror or str(error)
                if time.monotonic() - began > MAX_PASS_SECONDS:
                    break
            if not found:
                if disk.template and not self._is_interface_shared(disk):
                    self._initiator.remove_interface(disk.iface)
                raise OSError(errno.EIO, f"failed to get any path for iscsi disk, last err seen: {failure}")
            late = time.monotonic() - began > MAX_ATTACH_SECONDS
            enough = attempt >= MIN_ATTEMPTS and len(found) >= MIN_PATHS
            if late or enough or len(found) == len(disk.portals):
                break
        return [found[portal] for portal in disk.portals if portal in found]

    def _is_interface_shared(self, disk: IscsiDisk) -> bool:
        return any(other.iface == disk.iface for other in self._others(self._root / disk.directory))

    def detach(self, directory: Path, record: Object) -> None:
        """Remove the disk of every session, and log out of portals that no other volume needs."""
        disk = attached(record, directory.name, _iface(directory))
        if disk is None:
            return
        with self.locked(disk.iqn):
            self._initiator.require_ended(disk.iqn)
            others = self._others(directory)
            # Another directory may be of this disk; the last one to go removes it.
            needed = any(
                other.lun == disk.lun and is_shared(disk, portal, [other])
                for other in others
                for portal in disk.portals
            )
            mine = (session_to(portal, disk.iqn, disk.iface, self._initiator.sessions()) for portal in disk.portals)
            paths = {one.disks[disk.lun] for one in mine if one is not None and disk.lun in one.disks}
            if paths and not needed:
                self.disks.remove(sorted(paths))
            kept = [portal for portal in disk.portals if is_shared(disk, portal, others) or self._is_used(disk, portal)]
            for portal in disk.portals:
                if portal not in kept:
                    self._initiator.log_out(disk, portal)
            if disk.cloned and not kept and all(other.iface != disk.iface for other in others):
                self._initiator.remove_interface(disk.iface)

    def _others(self, directory: Path) -> list[Attached]:
        records = [attached(record, path.name, _iface(path)) for path, record in self.others(directory)]
        return [one for one in records if one is not None]

    def _is_used(self, disk: Attached, portal: str) -> bool:
        """Return whether another disk of the session is in use, also by what is no volume of a pod."""
        session = session_to(portal, disk.iqn, disk.iface, self._initiator.sessions())
        return session is not None and any(map(self.disks.is_disk_used, session.disks.values()))

    def volume_name_of(self, directory: Path) -> str:
        """Return the volume that the directory of a Go kubelet is of."""
        return volume_name_of(directory.name)

    def folders(self, top: Path) -> list[Path]:
        """Return the directories of the interfaces."""
        return sorted(folder for folder in top.glob("iface-*") if folder.is_dir())


def _iface(directory: Path) -> str:
    return directory.parent.name.removeprefix("iface-")
