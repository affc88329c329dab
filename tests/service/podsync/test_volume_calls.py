"""The processes of a pod get from its volumes the labels of SELinux (pods.md 6.8) and the groups of PersistentVolumes
(volumes.md 2.9)."""

from pathlib import Path

import pytest

from bus.messages.volume import MountedVolume, VolumeState
from services.podsync.core.pod.events import CallDone
from shared.model.frozen_copy import replace
from tests.service.podsync.performer import Performer, a_container, a_pod

VOLUMES = {
    "own": MountedVolume(state=VolumeState.MOUNTED, host_path="/own", selinux_relabel=True),
    "host": MountedVolume(state=VolumeState.MOUNTED, host_path="/srv"),
}
GROUPS = {"a": 5005, "b": 70, "c": None, "d": 5005}


@pytest.mark.parametrize("selinux", [False, True])
async def test_all_but_a_path_of_the_node_is_relabelled_where_selinux_is_on(tmp_path: Path, selinux: bool) -> None:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in VOLUMES]
    spec = a_container(volumeMounts=mounts, terminationMessagePath="/dev/termination-log")
    volumes = [{"name": "own", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/srv"}}]
    stage = Performer(tmp_path, a_pod(spec, enableServiceLinks=True, volumes=volumes), volumes=VOLUMES)
    stage.calls.facts = replace(stage.calls.facts, selinux_enabled=selinux)
    done = await stage.create()
    assert isinstance(done, CallDone), done
    [request] = stage.runtime.requests("CreateContainer")
    relabelled = {m["container_path"] for m in request["config"]["mounts"] if m.get("selinux_relabel")}
    assert relabelled == ({"/own", "/etc/hosts", "/dev/termination-log"} if selinux else set())


async def test_each_group_is_given_once_to_sandbox_and_container(tmp_path: Path) -> None:
    """The pod asks for group 70 itself."""
    volumes = {
        name: MountedVolume(state=VolumeState.MOUNTED, host_path=f"/{name}", group=group)
        for name, group in GROUPS.items()
    }
    context = {"fsGroup": 1, "supplementalGroups": [70]}
    pod = a_pod(a_container(), enableServiceLinks=True, securityContext=context)
    stage = Performer(tmp_path, pod, volumes=volumes)
    done = await stage.create()
    assert isinstance(done, CallDone), done
    [request] = stage.runtime.requests("CreateContainer")
    for config in (request["config"], request["sandbox_config"]):
        groups = config["linux"]["security_context"]["supplemental_groups"]
        assert sorted(map(int, groups)) == [1, 70, 5005]
