"""Decides which iSCSI disk a volume is, and what iscsiadm is told about it (volumes.md 13.5); pure. No text and no repr
has a value of a Secret. What the tenant writes becomes a part of paths and an argument of iscsiadm, and is checked for
both."""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from msgspec import Struct, field

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import ContentError, Problem, SetUpInputs
from services.volume.core.specs.csi_attachment import secret_of
from services.volume.core.specs.scsi_disks import DiskUse, why_invalid_use
from shared.model.fields import number, text
from shared.model.objects import Object

DEFAULT_PORT = 3260
_MAX_LUN = 255
_MAX_PORTALS = 32
_IQN = re.compile(r"(?:iqn|eui|naa)\.[A-Za-z0-9.:_-]{1,219}")
_IFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,63}")
_PORTAL = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::([0-9]{1,5}))?")
_DIRECTORY = re.compile(r"(.+?:[0-9]{1,5})-(.+)-lun-([0-9]+)")
_DISCOVERY, _SESSION = "discovery.sendtargets.auth", "node.session.auth"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Pairs = tuple[tuple[str, str], ...]


class IscsiDisk(Struct, frozen=True):
    """A disk that targets of a storage offer. `portals`: `<address>:<port>`, the first is the volume's targetPortal;
    `volume_name`: as the attach-detach controller names the volume; `spec_name`: of the volume; `template`: the
    interface that `iface` is a copy of with the initiator's name, "" = `iface` is used as it is."""

    volume_name: str
    spec_name: str
    portals: tuple[str, ...]
    iqn: str
    lun: int
    iface: str
    template: str = ""
    initiator_name: str = ""
    chap_discovery: bool = False
    chap_session: bool = False
    secret: ObjectKey | None = None
    use: DiskUse = field(default_factory=DiskUse)

    @property
    def directory(self) -> str:
        """Return its directory below those of the plugin."""
        return f"iface-{self.iface}/{self.portals[0]}-{self.iqn}-lun-{self.lun}"

    def record(self) -> Object:
        """Return what a teardown needs, with the kubelet's names in iscsi.json, and the name of the volume."""
        return {
            "VolumeName": self.volume_name,
            "VolName": self.spec_name,
            "Portals": list(self.portals),
            "Iqn": self.iqn,
            "Lun": str(self.lun),
            "InitIface": self.template,
            "Iface": self.iface,
            "InitiatorName": self.initiator_name,
        }


class Chap(Struct, frozen=True):
    """The settings of iscsiadm with which target and initiator prove who they are; () = they do not."""

    discovery: Pairs = field(default=())
    session: Pairs = field(default=())

    def __repr__(self) -> str:
        """Return no secret."""
        return "Chap()"


class Attached(Struct, frozen=True):
    """What the record of a disk says: `cloned`: `iface` was made for this volume alone."""

    portals: tuple[str, ...]
    iqn: str
    lun: int
    iface: str
    cloned: bool


class Session(Struct, frozen=True):
    """A session of the kernel. `portals`: those that its connections have now and had at login; `disks`: LUN -> name of
    the disk."""

    host: int
    iqn: str
    iface: str
    portals: frozenset[str]
    disks: Mapping[int, str]


def iscsi_disk(source: Object, spec_name: str, secret: ObjectKey | None, use: DiskUse) -> IscsiDisk | str:
    """Return the disk of a source, or why there can be none."""
    raw = text(source.get("targetPortal"))
    listed = source.get("portals")
    written = [raw, *(map(text, listed) if isinstance(listed, list) else ())]
    portals = [with_port(portal) for portal in written]
    iqn, lun, initiator = text(source.get("iqn")), number(source.get("lun") or 0), text(source.get("initiatorName"))
    iface, template = text(source.get("iscsiInterface")) or "default", ""
    chap_discovery, chap_session = source.get("chapAuthDiscovery") is True, source.get("chapAuthSession") is True
    if "" in portals or len(portals) > _MAX_PORTALS:
        wrong = ascii(written[portals.index("")]) if "" in portals else f"one of {len(portals)}"
        return f"the portal {wrong} of an iscsi volume must be <IP address> or <IP address>:<port>, of {_MAX_PORTALS}"
    if not _IQN.fullmatch(iqn) or (initiator and not _IQN.fullmatch(initiator)):
        return "iqn and initiatorName of an iscsi volume must begin with iqn., eui. or naa., without a slash"
    if lun is None or not 0 <= lun <= _MAX_LUN:
        return f"the lun of an iscsi volume must be from 0 to {_MAX_LUN}"
    if not _IFACE.fullmatch(iface):
        return f"the iscsiInterface {iface!a} is no name of an interface of iscsiadm"
    if (chap_discovery or chap_session) and secret is None:
        return "an iscsi volume with chapAuthDiscovery or chapAuthSession needs a secretRef"
    if why := why_invalid_use(use):
        return why
    if initiator:
        iface, template = f"{portals[0]}:{spec_name}", iface
    return IscsiDisk(
        volume_name=f"{raw}:{iqn}:{lun}",
        spec_name=spec_name,
        portals=tuple(dict.fromkeys(portals)),
        iqn=iqn,
        lun=lun,
        iface=iface,
        template=template,
        initiator_name=initiator,
        chap_discovery=chap_discovery,
        chap_session=chap_session,
        secret=secret if chap_discovery or chap_session else None,
        use=use,
    )


def with_port(portal: str) -> str:
    """Return `<address>:<port>`, with the address as the kernel writes it; "" = it is no portal."""
    found = _PORTAL.fullmatch(portal)
    address, port = (found[1] or found[2], int(found[3] or DEFAULT_PORT)) if found else (portal, DEFAULT_PORT)
    try:
        read = ip_address(address)
    except ValueError:
        return ""
    return (f"[{read}]:{port}" if read.version == 6 else f"{read}:{port}") if 0 < port < 1 << 16 else ""


def chap_of(disk: IscsiDisk, gathered: SetUpInputs) -> Chap:
    """Return the settings with the values of the disk's Secret. Raises ContentError, whose text has no value."""
    values = secret_of(disk.secret, "secretRef", gathered)
    problems = [
        Problem(f"the value of {key} has a control character") for key in values if _CONTROL.search(values[key])
    ]
    asked = {_DISCOVERY: disk.chap_discovery, _SESSION: disk.chap_session}
    for prefix in (prefix for prefix, wanted in asked.items() if wanted):
        for key in (f"{prefix}.username", f"{prefix}.password"):
            if not values.get(key):
                problems.append(Problem(f"the Secret of the iscsi volume has no {key}"))
    if problems:
        raise ContentError(problems)
    return Chap(*(_settings(prefix, values) if wanted else () for prefix, wanted in asked.items()))


def _settings(prefix: str, values: Mapping[str, str]) -> Pairs:
    keys = [f"{prefix}.{name}" for name in ("username", "password", "username_in", "password_in")]
    return ((f"{prefix}.authmethod", "CHAP"), *((key, values[key]) for key in keys if values.get(key)))


def interface_settings(shown: str) -> Pairs:
    """Return the settings of an interface that `iscsiadm -o show` printed, except for its name and those that are
    empty."""
    words = shown.split()
    named = [
        index for index, word in enumerate(words) if word.startswith("iface.") and words[index + 1 : index + 2] == ["="]
    ]
    pairs = ((words[index], " ".join(words[index + 2 : index + 3])) for index in named)
    return tuple(
        (key, value) for key, value in pairs if key != "iface.iscsi_ifacename" and value not in ("", "<empty>")
    )


def volume_name_of(directory: str) -> str:
    """Return the volume that the kubelet's directory is of, where no record names it; "" = it is of none."""
    found = _DIRECTORY.fullmatch(directory)
    return f"{found[1]}:{found[2]}:{found[3]}" if found else ""


def attached(record: Object, directory: str, iface: str) -> Attached | None:
    """Return what is to be detached, from the record of the disk, or where there is none from its directory and the
    name of its interface; None = neither says it."""
    listed = record.get("Portals")
    portals = tuple(dict.fromkeys(map(text, listed))) if isinstance(listed, list) else ()
    iqn, lun, named = text(record.get("Iqn")), text(record.get("Lun")), text(record.get("Iface"))
    if portals and iqn and lun.isdecimal() and named:
        cloned = bool(record.get("InitiatorName")) and named == f"{portals[0]}:{text(record.get('VolName'))}"
        return Attached(portals, iqn, int(lun), named, cloned)
    found = _DIRECTORY.fullmatch(directory)
    return Attached((found[1],), found[2], int(found[3]), iface, cloned=False) if found else None


def session_to(portal: str, iqn: str, iface: str, sessions: Iterable[Session]) -> Session | None:
    """Return the session of this interface with the target at the portal."""
    return next((one for one in sessions if (one.iqn, one.iface) == (iqn, iface) and portal in one.portals), None)


def is_shared(disk: Attached, portal: str, others: Iterable[Attached]) -> bool:
    """Return whether another volume of this node may use the session of the portal."""
    return any((other.iqn, other.iface) == (disk.iqn, disk.iface) and portal in other.portals for other in others)
