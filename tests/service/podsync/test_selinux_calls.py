"""On a node with SELinux, CreateContainer asks the runtime to relabel what belongs to the pod (pods.md 6.8)."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import CallDone
from shared.model.frozen_copy import replace
from tests.service.podsync.performer import UID, Performer, a_container, a_pod

VOLUMES = {
    "own": MountedVolume(state=VolumeState.MOUNTED, host_path="/own", selinux_relabel=True),
    "host": MountedVolume(state=VolumeState.MOUNTED, host_path="/srv"),
}


class Mounting(Performer):
    """A pod with both volumes, the hosts file and a termination message file."""

    def __init__(self, directory: Path) -> None:
        mounts = [{"name": name, "mountPath": f"/{name}"} for name in VOLUMES]
        spec = a_container(volumeMounts=mounts, terminationMessagePath="/dev/termination-log")
        volumes = [{"name": "own", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/srv"}}]
        super().__init__(directory, a_pod(spec, enableServiceLinks=True, volumes=volumes))

    def view(self) -> Any:
        return replace(super().view(), volumes=MountedVolumes(uid=UID, volumes=VOLUMES))


@pytest.mark.parametrize("selinux", [False, True])
async def test_all_but_a_path_of_the_node_is_relabelled_where_selinux_is_on(tmp_path: Path, selinux: bool) -> None:
    stage = Mounting(tmp_path)
    stage.calls.facts = replace(stage.calls.facts, selinux_enabled=selinux)
    done = await stage.create()
    assert isinstance(done, CallDone), done
    [request] = stage.runtime.requests("CreateContainer")
    relabelled = {m["container_path"] for m in request["config"]["mounts"] if m.get("selinux_relabel")}
    assert relabelled == ({"/own", "/etc/hosts", "/dev/termination-log"} if selinux else set())
