"""Sets up the volumes of files (secret, configMap, downwardAPI, projected) by the atomic writer, in a directory or
tmpfs (volumes.md 9)."""

import contextlib
import os
from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import ClassVar

from services.volume.adapters.atomic_writer import AtomicWriter
from services.volume.adapters.backing_directory import is_of_this_boot, is_ready, mark_boot, set_up_at, tear_down_at
from services.volume.adapters.ownership import give_to_group
from services.volume.core.files.files_source import Files, Part, PartReader, nested_mounts
from services.volume.core.files.payload import Payload, SetUpInputs, make_payload
from services.volume.core.files.payload_paths import top_components
from services.volume.core.operations.outcome import FoundVolume
from services.volume.core.specs.pod_fields import fs_group, fs_user, tmpfs_size
from services.volume.core.specs.volume_spec import Node, VolumeSpec
from services.volume.plugins.plugin import VolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.model import objects
from shared.model.fields import number
from shared.model.objects import Object


class FilesPlugin(VolumePlugin[Files]):
    """Base of the plugins for volumes of files; a subclass lists the parts of its source. Containers get the volume
    read-only. Once set up, it keeps its old content while newer content cannot be had."""

    in_memory: ClassVar[bool] = True  # the files are on a tmpfs

    @classmethod
    @abstractmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return the parts in order. Pure."""

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec:
        """Return the spec of the volume; an error in a part of the source is an error of set-up."""
        reader = PartReader(pod, node.allocatable, node.gates)
        files = Files(
            parts=cls.parts(reader, volume, source),
            default_mode=number(source.get("defaultMode")),
            default_user=reader.user(source, "defaultUser"),
            fs_group=fs_group(pod),
            fs_user=fs_user(pod),
            nested=nested_mounts(pod, volume),
            pod_uid=objects.uid(pod),
            size=tmpfs_size(pod, node.memory),
        )
        return VolumeSpec(
            plugin=cls.name,
            source=files,
            read_only=True,
            selinux_relabel=True,
            requires_remount=True,
            objects=files.objects,
            tokens=files.tokens,
            certificates=files.certificates,
            provisional=node.provisional and reader.used_allocatable,
        )

    def set_up(self, uid: str, volume: str, source: Files, gathered: SetUpInputs) -> str:
        """Write the files of the volume and return its path; see `show`."""
        return self.show(uid, volume, source, make_payload(source, gathered))

    def show(self, uid: str, volume: str, source: Files, payload: Payload) -> str:
        """Show these files and no others; return the host path. What is mounted already is used, and stays when the
        files cannot be written; a first set-up that fails leaves nothing. Raises OSError, and ContentError for a path
        that no file may have."""
        self._directories.make(uid)
        path, marker = self._paths(uid, volume)
        give = None if source.fs_group is None else partial(give_to_group, group=source.fs_group, read_only=True)
        writer = AtomicWriter(path, give)
        first = writer.current is None
        try:
            set_up_at(path, marker, tmpfs=self.in_memory, size=source.size)
            _make_nested(path, source, payload)
            writer.write(payload, wall=self._clock.wall())
            if not self.in_memory:
                mark_boot(marker)
        except Exception:
            if first:
                with contextlib.suppress(OSError):
                    tear_down_at(path, marker)
            raise
        return str(path)

    def has_old_files(self, uid: str, volume: str) -> bool:
        """Return whether replaced files are still kept. Raises OSError."""
        return AtomicWriter(self._paths(uid, volume)[0]).has_old_files

    def remove_old_files(self, uid: str, volume: str) -> bool:
        """Remove the replaced files that were kept long enough; return whether there are others. Raises OSError."""
        writer = AtomicWriter(self._paths(uid, volume)[0])
        writer.remove_old_files(wall=self._clock.wall())
        return writer.has_old_files

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Remove the volume with its files."""
        tear_down_at(*self._paths(uid, volume), removed)

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return a volume for each directory. It is complete if a set-up has succeeded in this boot of the machine: the
        object may have changed while the machine was off, and a power cut may have emptied the files."""
        return [self._look(uid, volume) for volume in self._directories.volumes_of(uid, self.name)]

    def _look(self, uid: str, volume: str) -> FoundVolume:
        path, marker = self._paths(uid, volume)
        of_this_boot = os.path.ismount(path) if self.in_memory else is_of_this_boot(marker)
        backed = is_ready(marker) and of_this_boot
        return FoundVolume(volume, self.name, str(path), complete=backed and AtomicWriter(path).current is not None)

    def _paths(self, uid: str, volume: str) -> tuple[Path, Path]:
        return self._directories.volume(uid, self.name, volume), self._directories.files_marker(uid, volume)


def _make_nested(path: Path, source: Files, payload: Payload) -> None:
    """Make the directories on which other volumes are mounted, except below files of this volume."""
    taken = top_components(payload)
    for nested in source.nested:
        directory = path
        for part in nested.split("/"):
            directory /= part
            if directory.parent == path and (part in taken or directory.is_symlink()):
                break
            if not directory.is_dir():
                directory.mkdir()
                directory.chmod(0o755)
