"""Which disk of a Fibre Channel storage a volume is, and what becomes of its paths, on a tree of links and of /sys as
Linux and udev make it for two ports of a storage."""

from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import scsi_disks
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.programs import ProgramResult
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.specs.fc_volume import FcDisk, disk_of
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.fc import FcPlugin
from services.volume.plugins.registry import volume_spec
from shared.time.clock import SystemClock

FIRST, SECOND = "50060e801049cfd1", "50060e801049cfd2"
WWID = "360060e8010049cfd00000000000000a1"


def read(**source: Any) -> VolumeSpec | Refused:
    pod = {"metadata": {"namespace": "shop", "uid": "u"}, "spec": {"volumes": [{"name": "v", "fc": source}]}}
    return volume_spec(pod, "v", Node())


def disk(**source: Any) -> FcDisk:
    found = read(**source)
    assert isinstance(found, VolumeSpec) and isinstance(found.source, FcDisk)
    return found.source


class San:
    """A machine with two paths, sdb and sdc, to LUN 7."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.commands = root, list[str]()
        hosts = [f"sys/class/scsi_host/host{number}" for number in (1, 2)]
        for path in ("sys/block", *hosts, "dev/disk/by-path", "dev/disk/by-id"):
            (root / path).mkdir(parents=True)
        for host in (1, 2):
            (root / f"sys/class/scsi_host/host{host}/scan").write_text("")
        for port, name, bus in ((FIRST, "sdb", "0000:05:00.0"), (SECOND, "sdc", "0000:05:00.1")):
            (root / f"sys/block/{name}/device").mkdir(parents=True)
            (root / f"sys/block/{name}/device/delete").write_text("")
            (root / f"dev/{name}").write_text("")
            for link in (
                f"pci-{bus}-fc-0x{port}-lun-7",
                f"pci-{bus}-fc-0x{port}-lun-7-part1",
                f"pci-{bus}-fc-0x{port}-lun-77",
            ):
                (root / "dev/disk/by-path" / link).symlink_to(f"../../{name if link.endswith('-7') else 'sdz'}")
        (root / f"dev/disk/by-id/scsi-{WWID}").symlink_to("../../sdc")
        (root / "dev/disk/by-id/scsi-HITACHI_5001").symlink_to("../../sdb")
        monkeypatch.setattr(FcPlugin, "machine", root)
        monkeypatch.setattr(scsi_disks, "run", self._run)
        self.plugin = FcPlugin(PodDirectories(str(root / "root")), SystemClock())

    def _run(self, *command: str) -> ProgramResult:
        self.commands.append(" ".join(command).replace(str(self.root), ""))
        return ProgramResult(0, "")

    def add_map(self, uuid: str = f"mpath-{WWID}") -> None:
        block = self.root / "sys/block/dm-4"
        for path in ("slaves/sdb", "slaves/sdc", "dm"):
            (block / path).mkdir(parents=True)
        (block / "dm/uuid").write_text(f"{uuid}\n")
        (block / "dm/name").write_text("mpatha\n")
        (self.root / "dev/dm-4").write_text("")

    def attach(self, **source: Any) -> str:
        return self.plugin.attach(disk(**source), SetUpInputs()).removeprefix(str(self.root))

    def detach(self, **source: Any) -> None:
        self.plugin.detach(Path("/nowhere"), disk(**source).record())

    def scans(self) -> list[str]:
        return [(self.root / f"sys/class/scsi_host/host{host}/scan").read_text() for host in (1, 2)]

    def deleted(self) -> list[str]:
        return [name for name in ("sdb", "sdc") if (self.root / f"sys/block/{name}/device/delete").read_text() == "1"]


@pytest.fixture
def san(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> San:
    return San(tmp_path, monkeypatch)


def test_a_volume_has_the_names_of_the_kubelet() -> None:
    by_port = read(targetWWNs=[FIRST, SECOND], lun=7, wwids=["ignored"])
    assert isinstance(by_port, VolumeSpec) and by_port.attachable
    assert by_port.unique_name == f"kubernetes.io/fc/[{FIRST} {SECOND}]:7"
    assert disk(targetWWNs=[FIRST, SECOND], lun=7).directory == f"{FIRST}-{SECOND}-lun-7"
    by_id = read(wwids=["HITACHI 5001", WWID])
    assert isinstance(by_id, VolumeSpec) and by_id.unique_name == f"kubernetes.io/fc/[HITACHI 5001 {WWID}]"
    assert disk(wwids=["HITACHI 5001", WWID]).directory == f"HITACHI_5001-{WWID}"


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"targetWWNs": [FIRST]},
        {"targetWWNs": [FIRST], "lun": 256},
        {"targetWWNs": ["../x"], "lun": 1},
        {"targetWWNs": [".*"], "lun": 1},
        {"wwids": ["a/b"]},
        {"wwids": [".."]},
        {"wwids": ["volumeDevices"]},
        {"wwids": ["x" * 100] * 3},
        {"wwids": [None]},
        {"wwids": [WWID], "fsType": "fuse"},
    ],
)
def test_what_could_become_another_path_is_refused(source: dict[str, Any]) -> None:
    assert isinstance(read(**source), Refused)


def test_a_record_or_the_directory_of_a_go_kubelet_names_the_disk() -> None:
    for source in ({"targetWWNs": [FIRST, SECOND], "lun": 7}, {"wwids": [WWID]}, {"wwids": ["HITACHI 5001-a"]}):
        wanted = disk(**source)
        assert disk_of(wanted.record(), "anything").volume_name == wanted.volume_name
    assert disk_of({}, f"{FIRST}-{SECOND}-lun-7").volume_name == f"[{FIRST} {SECOND}]:7"
    assert disk_of({}, WWID).volume_name == f"[{WWID}]"


def test_without_a_map_the_first_path_is_used_after_a_look_for_disks(san: San) -> None:
    assert san.attach(targetWWNs=[SECOND, FIRST], lun=7) == "/dev/sdc"
    assert san.scans() == ["- - -", "- - -"]
    assert san.attach(wwids=["HITACHI 5001"]) == "/dev/sdb"
    with pytest.raises(OSError, match="no fc disk found"):
        san.attach(targetWWNs=[FIRST], lun=8)


def test_the_multipath_map_is_used_at_once(san: San) -> None:
    san.add_map()
    assert san.attach(targetWWNs=[FIRST], lun=7) == san.attach(wwids=[WWID]) == "/dev/dm-4"
    assert san.scans() == ["", ""]


def test_another_device_above_a_path_is_not_the_disk(san: San) -> None:
    san.add_map(uuid="LVM-abc")
    assert san.attach(targetWWNs=[FIRST], lun=7) == "/dev/sdb"


def test_what_is_detached_is_flushed_and_all_its_paths_are_removed(san: San) -> None:
    san.detach(targetWWNs=[FIRST], lun=7)
    assert (san.commands, san.deleted()) == (["blockdev --flushbufs /dev/sdb"], ["sdb"])
    san.commands.clear()
    san.add_map()
    san.detach(wwids=[WWID])
    assert san.commands == ["blockdev --flushbufs /dev/dm-4", "multipath -f mpatha"]
    assert san.deleted() == ["sdb", "sdc"]
    san.detach(targetWWNs=[FIRST], lun=9)  # it is gone already
    assert len(san.commands) == 2


def test_a_disk_that_is_in_use_stays(san: San, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scsi_disks.ScsiDisks, "is_used", lambda self, name: True)
    with pytest.raises(OSError, match="is in use when it was no longer expected to be in use"):
        san.detach(targetWWNs=[FIRST], lun=7)
    assert san.deleted() == []
