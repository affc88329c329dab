"""A staged CSI volume that is still mounted elsewhere is not unstaged."""

from pathlib import Path

import pytest

from services.volume.adapters.csi_records import save_record
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.plugins import csi, csi_staging
from shared.host.mountinfo import MountPoint
from shared.time.clock import SystemClock


def test_a_device_that_is_mounted_elsewhere_is_not_unstaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = csi.CsiPlugin(PodDirectories(str(tmp_path)), SystemClock())
    directory = plugin._staged._directory("driver.example", "data")
    (directory / "globalmount").mkdir(parents=True)
    save_record(directory, {"volumeHandle": "data", "driverName": "driver.example"})
    paths = (str(directory / "globalmount"), "/pods/a/mount")
    table = tuple(MountPoint(path, "ext4", shared=False, device="7:0", root="/") for path in paths)
    monkeypatch.setattr(csi_staging, "mount_table", lambda: table)
    with pytest.raises(OSError, match=r"is still mounted by other references \[/pods/a/mount\]"):
        plugin.unmount_device("driver.example^data")
