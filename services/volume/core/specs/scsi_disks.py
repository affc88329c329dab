"""Decides which device of the node a volume on a SCSI disk is mounted from, and how a pod uses it: what iscsi and fc
have in common (volumes.md 13.5, 13.6); pure."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.pod_fields import changes_group_always, fs_group
from shared.model.fields import text
from shared.model.objects import Object

# A type with a dot, or one of FUSE, would let mount run a program that the volume names.
_FILESYSTEM = re.compile(r"(?!fuse)[a-z0-9_]{0,20}")


@dataclass(frozen=True)
class DiskUse:
    """How a pod uses a disk. `filesystem`: "" = the default; `options`: sorted mount options; `fs_group`: a group ID;
    `always`: every file is given to the group at each mount; `persistent_volume`: its name, "" = an inline volume."""

    filesystem: str = ""
    options: tuple[str, ...] = field(default=(), compare=False)
    read_only: bool = False
    block: bool = False
    fs_group: int | None = None
    always: bool = True
    persistent_volume: str = ""


class DeviceMap(Struct, frozen=True):
    """A device of device mapper. `name`: of the kernel, as `dm-0`; `mapped`: its own name; `uuid`: begins with its
    kind; `paths`: the names of the devices below it."""

    name: str
    mapped: str
    uuid: str
    paths: frozenset[str]


def use_of(
    pod: Object,
    source: Object,
    options: Iterable[str] = (),
    *,
    read_only: bool,
    block: bool = False,
    persistent_volume: str = "",
) -> DiskUse:
    """Return how the pod uses the disk of this source. `options`: of a PersistentVolume."""
    return DiskUse(
        filesystem=text(source.get("fsType")),
        options=tuple(sorted(set(options))),
        read_only=read_only,
        block=block,
        fs_group=fs_group(pod),
        always=changes_group_always(pod),
        persistent_volume=persistent_volume,
    )


def persistent_use(pod: Object, persistent: PersistentVolume, source: Object) -> DiskUse:
    """Return how the pod uses the disk of a PersistentVolume with this source."""
    return use_of(
        pod,
        source,
        persistent.mount_options,
        read_only=persistent.read_only or source.get("readOnly") is True,
        block=persistent.block,
        persistent_volume=persistent.name,
    )


def why_invalid_use(use: DiskUse) -> str:
    """Return why no disk is mounted so, "" = it is. Neither value becomes an option of a program."""
    if not _FILESYSTEM.fullmatch(use.filesystem):
        return f"the fsType {use.filesystem!a} is no file system of a disk"
    if any(option.startswith("-") for option in use.options):
        return "a mount option must not begin with -"
    return ""


def multipath_above(disks: Collection[str], maps: Iterable[DeviceMap]) -> DeviceMap | None:
    """Return the multipath map that has one of the disks as a path, or is one of them; None = there is none. Another
    device above a disk, such as one of LVM, is not the disk."""
    for one in maps:
        if one.uuid.startswith("mpath-") and (one.name in disks or not one.paths.isdisjoint(disks)):
            return one
    return None
