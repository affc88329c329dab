"""An iscsi volume whose target does not answer: the event names the step of the kubelet, and a later try mounts it."""

from pathlib import Path

import pytest

from bus.messages.volume import VolumeState
from services.volume.plugins import scsi_disk
from services.volume.plugins.iscsi import IscsiPlugin
from tests.service.volume.node import started_node

SOURCE = {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-11.com.example:t", "lun": 1}


async def test_a_failed_login_is_an_event_of_waiting_for_the_attachment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started_node(tmp_path, monkeypatch)
    node.volumes.append({"name": "data", "iscsi": SOURCE})
    mounts, answers = set[str](), False

    def attach(*_: object) -> str:
        if not answers:
            raise OSError(5, "failed to get any path for iscsi disk, last err seen: refused")
        return "/dev/disk"

    monkeypatch.setattr(IscsiPlugin, "attach", attach)
    monkeypatch.setattr(scsi_disk, "format_and_mount", lambda device, path, *_, **__: mounts.add(str(path)))
    monkeypatch.setattr(scsi_disk, "bind_with_options", lambda device, path, options: mounts.add(str(path)))
    monkeypatch.setattr(scsi_disk, "is_mount_point", lambda path: str(path) in mounts)
    node.admit("u", "data")
    async with node.volume():
        (event, *_) = (await node.events.until(bool)).values()
        why = "failed to get any path for iscsi disk, last err seen: refused"
        text = f'MountVolume.WaitForAttach failed for volume "data" : {why}'
        assert (event.reason, event.message) == ("FailedMount", text)
        state = await node.mounted.until(lambda state: "u" in state and bool(state["u"].volumes["data"].error))
        assert state["u"].volumes["data"].error == text
        answers = True
        await node.mounted.until(lambda state: state["u"].volumes["data"].state is VolumeState.MOUNTED)
    assert str(node.directory("u") / "volumes/kubernetes.io~iscsi/data") in mounts
