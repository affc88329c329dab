"""Which iSCSI disk a volume is, what iscsiadm is told, and what the kernel shows of its sessions."""

import time
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters.iscsi_initiator import IscsiInitiator
from services.volume.adapters.scsi_disks import ScsiDisks
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.specs.iscsi_volume import (
    Attached,
    IscsiDisk,
    Session,
    attached,
    interface_settings,
    is_shared,
    session_to,
    volume_name_of,
    with_port,
)
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.scsi_disks import DeviceMap, multipath_above
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.registry import persistent_volume_spec, volume_spec

IQN = "iqn.2026-11.com.example:t"
# As iscsiadm 2.1.8 prints it; lines of the same kind are left out.
SHOWN = """# BEGIN RECORD 2.1.8
iface.iscsi_ifacename = default
iface.net_ifacename = <empty>
iface.ipaddress = <empty>
iface.prefix_len = 0
iface.transport_name = tcp
iface.initiatorname = <empty>
iface.discovery_logout = <empty>
# END RECORD
"""


def read(node: Node | None = None, **source: Any) -> VolumeSpec | Refused:
    source = {"targetPortal": "192.0.2.1", "iqn": IQN, "lun": 1, **source}
    pod = {"metadata": {"namespace": "shop", "uid": "u"}, "spec": {"volumes": [{"name": "v", "iscsi": source}]}}
    return volume_spec(pod, "v", node or Node())


def disk(**source: Any) -> IscsiDisk:
    found = read(**source)
    assert isinstance(found, VolumeSpec) and isinstance(found.source, IscsiDisk)
    return found.source


def test_a_volume_has_the_names_of_the_kubelet() -> None:
    found = read(portals=["192.0.2.2:3261", "192.0.2.1:3260", "2001:db8::1"])
    assert isinstance(found, VolumeSpec) and isinstance(found.source, IscsiDisk)
    assert found.unique_name == f"kubernetes.io/iscsi/192.0.2.1:{IQN}:1"
    assert found.source.portals == ("192.0.2.1:3260", "192.0.2.2:3261", "[2001:db8::1]:3260")
    assert found.source.directory == f"iface-default/192.0.2.1:3260-{IQN}-lun-1"
    own = disk(initiatorName="iqn.2026-11.com.example:me", iscsiInterface="be2iscsi")
    assert (own.iface, own.template) == ("192.0.2.1:3260:v", "be2iscsi")
    assert own.directory == f"iface-192.0.2.1:3260:v/192.0.2.1:3260-{IQN}-lun-1"


def test_a_volume_waits_for_the_attach_detach_controller_where_there_is_one() -> None:
    waits = read()
    at_once = read(Node(attaches=True))
    assert isinstance(waits, VolumeSpec) and isinstance(at_once, VolumeSpec)
    assert (waits.attachable, at_once.attachable) == (True, False)


def test_the_secret_of_a_persistent_volume_is_where_it_says() -> None:
    source = {"targetPortal": "192.0.2.1", "iqn": IQN, "lun": 1, "chapAuthSession": True}
    for reference, namespace in (({"name": "s"}, "shop"), ({"name": "s", "namespace": "storage"}, "storage")):
        spec = {"iscsi": {**source, "secretRef": reference}, "volumeMode": "Block"}
        persistent = PersistentVolume(name="pv", spec=spec, annotations={}, claim={})
        found = persistent_volume_spec({"metadata": {"namespace": "shop"}}, persistent, Node(labels={}))
        assert isinstance(found, VolumeSpec) and found.block and not found.selinux_relabel
        assert found.objects == {ObjectKey("VolumeSecret", namespace, "s")}
    unused = read(secretRef={"name": "s"})
    assert isinstance(unused, VolumeSpec) and unused.objects == frozenset()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"targetPortal": "storage.example:3260"}, "the portal 'storage.example:3260' of an iscsi volume must be"),
        ({"portals": ["--version"]}, "the portal '--version' of"),
        ({"portals": ["192.0.2.1:70000"]}, "the portal '192.0.2.1:70000' of"),
        ({"portals": [f"192.0.2.{n}" for n in range(40)]}, "the portal one of 41 of"),
        ({"iqn": "iqn.2026-11.example:a/../../b"}, "without a slash"),
        ({"iqn": "-o"}, "must begin with iqn., eui. or naa."),
        ({"initiatorName": "me"}, "must begin with iqn., eui. or naa."),
        ({"lun": 256}, "must be from 0 to 255"),
        ({"lun": "0"}, "must be from 0 to 255"),
        ({"iscsiInterface": "../x"}, "is no name of an interface"),
        ({"iscsiInterface": "-I"}, "is no name of an interface"),
        ({"chapAuthSession": True}, "needs a secretRef"),
        ({"fsType": "fuse"}, "is no file system of a disk"),
        ({"fsType": "ext4.evil"}, "is no file system of a disk"),
        ({"fsType": "../../tmp/x"}, "is no file system of a disk"),
    ],
)
def test_a_value_that_could_become_an_option_or_another_path_is_refused(source: dict[str, Any], why: str) -> None:
    found = read(**source)
    assert isinstance(found, Refused) and why in found.reason and "\n" not in found.reason


@pytest.mark.parametrize(
    ("portal", "expected"),
    [
        ("192.0.2.1", "192.0.2.1:3260"),
        ("192.0.2.1:1", "192.0.2.1:1"),
        ("[2001:DB8::0:1]:3261", "[2001:db8::1]:3261"),
        ("[2001:db8::1]", "[2001:db8::1]:3260"),
        ("192.0.2.1:0", ""),
        ("192.0.2.999", ""),
        ("[192.0.2.1", ""),
        ("", ""),
    ],
)
def test_a_portal_has_a_port_and_the_address_as_the_kernel_writes_it(portal: str, expected: str) -> None:
    assert with_port(portal) == expected


def test_of_an_interface_what_is_set_is_copied() -> None:
    assert interface_settings(" ".join(SHOWN.split())) == (("iface.prefix_len", "0"), ("iface.transport_name", "tcp"))


def test_what_a_disk_was_attached_by_is_in_its_record_or_in_its_directory() -> None:
    own = disk(portals=["192.0.2.2"], initiatorName="iqn.2026-11.com.example:me")
    found = attached(own.record(), "nothing", "nothing")
    portals = ("192.0.2.1:3260", "192.0.2.2:3260")
    assert found == Attached(portals, IQN, 1, "192.0.2.1:3260:v", cloned=True)
    plain = attached(disk().record(), "nothing", "nothing")
    assert plain == attached({}, f"192.0.2.1:3260-{IQN}-lun-1", "default")
    assert attached({"Portals": [], "Lun": {}}, "lost+found", "default") is None
    assert volume_name_of(f"192.0.2.1:3260-{IQN}-lun-1") == f"192.0.2.1:3260:{IQN}:1"
    assert volume_name_of("lost+found") == ""
    assert plain is not None and found is not None
    assert is_shared(plain, "192.0.2.1:3260", [plain]) and not is_shared(plain, "192.0.2.1:3260", [found])
    assert not is_shared(plain, "192.0.2.2:3260", [plain])


def test_only_a_map_of_multipath_is_the_disk_below_it() -> None:
    lvm = DeviceMap("dm-0", "vg-data", "LVM-abc", frozenset({"sdb"}))
    path = DeviceMap("dm-1", "mpatha", "mpath-3600", frozenset({"sdc", "sdd"}))
    assert multipath_above(["sdb"], [lvm, path]) is None
    assert multipath_above(["sdb", "sdd"], [lvm, path]) == path
    assert multipath_above(["dm-1"], [lvm, path]) == path


def test_sessions_are_read_from_the_tree_of_linux(tmp_path: Path) -> None:
    """The tree is that of Linux 6.1 after a login by open-iscsi 2.1.8."""
    device = tmp_path / "sys/devices/platform/host0/session1"
    connection = device / "connection1:0/iscsi_connection/connection1:0"
    session = device / "iscsi_session/session1"
    for path in (connection, session, device / "target0:0:0/0:0:0:7/block/sda", tmp_path / "sys/class/iscsi_session"):
        path.mkdir(parents=True)
    shown = {"address": "10.77.0.1", "port": "3260", "persistent_address": "fe80::1", "persistent_port": "3261"}
    for name, content in shown.items():
        (connection / name).write_text(f"{content}\n")
    (session / "targetname").write_text(f"{IQN}\n")
    (session / "ifacename").write_text("default\n")
    (session / "device").symlink_to("../../../session1")
    (tmp_path / "sys/class/iscsi_session/session1").symlink_to(session)
    [found] = IscsiInitiator(ScsiDisks(tmp_path)).sessions()
    assert found == Session(0, IQN, "default", frozenset({"10.77.0.1:3260", "[fe80::1]:3261"}), {7: "sda"})
    assert session_to("[fe80::1]:3261", IQN, "default", [found]) == found
    assert session_to("10.77.0.1:3260", IQN, "other", [found]) is None


def test_the_map_of_a_disk_is_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks, waits = ScsiDisks(tmp_path), list[float]()

    def appear(seconds: float) -> None:
        waits.append(seconds)
        (tmp_path / "sys/block/dm-3/slaves/sdb").mkdir(parents=True)
        (tmp_path / "sys/block/dm-3/dm").mkdir()
        (tmp_path / "sys/block/dm-3/dm/uuid").write_text("mpath-1\n")

    monkeypatch.setattr(time, "sleep", appear)
    assert disks.best(["sdb"], 0.0) == str(tmp_path / "dev/sdb")
    assert disks.best(["sdb", "sdc"], 60.0) == str(tmp_path / "dev/dm-3")
    assert len(waits) == 1
