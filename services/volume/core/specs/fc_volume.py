"""Decides which disk of a Fibre Channel storage a volume is, and which links of udev lead to it (volumes.md 13.6). What
the tenant writes becomes a part of paths, and is checked for that. Pure."""

import re
from collections.abc import Mapping

from msgspec import Struct, field

from services.volume.core.specs.scsi_disks import DiskUse, why_invalid_use
from shared.model.fields import number, text
from shared.model.objects import Object

_MAX_LUN = 255
_MAX_NAMES = 64
_MAX_DIRECTORY_CHARACTERS = 200
_WWN = re.compile(r"[0-9A-Fa-f]{1,32}")
_WWID = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:+-]{0,127}")


class FcDisk(Struct, frozen=True):
    """A disk that ports of a storage offer: a LUN of ports with these names, or a disk with one of these identifiers.
    `lun` None = it has identifiers."""

    names: tuple[str, ...]
    lun: int | None = None
    use: DiskUse = field(default_factory=DiskUse)

    @property
    def volume_name(self) -> str:
        """Return the name that the attach-detach controller gives the volume: a list as Go prints it."""
        listed = f"[{' '.join(self.names)}]"
        return listed if self.lun is None else f"{listed}:{self.lun}"

    @property
    def directory(self) -> str:
        """Return its directory below those of the plugin."""
        listed = "-".join(name.replace(" ", "_") for name in self.names)
        return listed if self.lun is None else f"{listed}-lun-{self.lun}"

    def record(self) -> Object:
        """Return what a teardown needs, and the name of the volume."""
        return {"VolumeName": self.volume_name, "Names": list(self.names), "Lun": self.lun}


def fc_disk(source: Object, use: DiskUse) -> FcDisk | str:
    """Return the disk of a source, or why there can be none. Names of ports count, where there are some."""
    wwns, wwids = _texts(source.get("targetWWNs")), _texts(source.get("wwids"))
    lun = number(source.get("lun")) if wwns else None
    if not wwns and not wwids:
        return "an fc volume needs targetWWNs and lun, or wwids"
    if wwns and (lun is None or not 0 <= lun <= _MAX_LUN):
        return f"the lun of an fc volume must be from 0 to {_MAX_LUN}"
    names, form = (wwns, _WWN) if wwns else (wwids, _WWID)
    if len(names) > _MAX_NAMES or not all(map(form.fullmatch, names)):
        return f"targetWWNs of an fc volume are hexadecimal, wwids have no slash, and there are {_MAX_NAMES} at most"
    disk = FcDisk(tuple(names), lun, use)
    if len(disk.directory) > _MAX_DIRECTORY_CHARACTERS or disk.directory == "volumeDevices":
        return f"the names of an fc volume have more than {_MAX_DIRECTORY_CHARACTERS} characters together"
    return why_invalid_use(use) or disk


def _texts(listed: object) -> list[str]:
    return [text(name) for name in listed] if isinstance(listed, list) else []


def disk_of(record: Object, directory: str) -> FcDisk:
    """Return the disk of a record, or where there is none of the directory that a Go kubelet has made."""
    names = _texts(record.get("Names"))
    if names:
        return FcDisk(tuple(names), number(record.get("Lun")))
    *parts, last = directory.split("-")
    if len(parts) > 1 and parts[-1] == "lun" and last.isdecimal():
        return FcDisk(tuple(parts[:-1]), int(last))
    return FcDisk((*parts, last))


def links_to(disk: FcDisk, by_path: Mapping[str, str], by_id: Mapping[str, str]) -> list[str]:
    """Return the names of the devices that links lead to, in the order of the disk's names. `by_path`, `by_id`: name of
    a link -> name of the device."""
    if disk.lun is None:
        wanted = [f"scsi-{name.replace(' ', '_')}" for name in disk.names]
        return list(dict.fromkeys(by_id[link] for link in wanted if link in by_id))
    forms = [re.compile(rf"(?:pci-.*-fc|fc)-0x{re.escape(name)}-lun-{disk.lun}") for name in disk.names]
    found = (device for form in forms for link, device in sorted(by_path.items()) if form.fullmatch(link))
    return list(dict.fromkeys(found))
