"""On a host with SELinux, a CSI volume is mounted with the label of its pod where the driver takes labels."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.volume.adapters import host_resources
from services.volume.core.specs.selinux_mount import GATE
from services.volume.plugins import csi
from shared.host.mountinfo import MountPoint
from tests.service.volume.csi_cluster import DRIVER, CsiCluster, running_csi_cluster
from tests.unit.volume.claims import PV

DEFAULT = "system_u:object_r:container_file_t:s0"
PLUGIN = f"kubernetes.io/csi/{DRIVER}"
CONTEXT = f'context="{DEFAULT}:c1,c2"'


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    monkeypatch.setattr(host_resources, "file_label", lambda: DEFAULT)
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.csi_driver(attachRequired=False, seLinuxMount=True)
        cluster.bind()
        cluster.objects[PV]["spec"] |= {"accessModes": ["ReadWriteOncePod"], "mountOptions": ["noatime"]}
        yield cluster


def run(cluster: CsiCluster, uid: str, level: str = "s0:c1,c2", state: PodState = PodState.SYNC) -> None:
    cluster.run(uid, state, selinux={"seLinuxOptions": {"level": level}})


def two_levels() -> list[dict[str, Any]]:
    """Two containers that mount the volume, with different labels."""
    context = "securityContext"
    return [
        {"name": level, "volumeMounts": [{"name": "v"}], context: {"seLinuxOptions": {"level": level}}}
        for level in ("s1", "s2")
    ]


def flags(call: dict[str, Any]) -> list[str]:
    found: list[str] = call["volume_capability"]["mount"].get("mount_flags", [])
    return found


def counted(cluster: CsiCluster) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of the SELinux metrics that have any, by name without its common beginning."""
    begin = "volume_manager_selinux_"
    families = {family.name: series for family, series in cluster.metrics.collect() if family.name.startswith(begin)}
    return {
        name.removeprefix(begin): {labels: values[0] for labels, values in series.items()}
        for name, series in families.items()
        if series
    }


def play_mount(cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch, super_options: frozenset[str]) -> None:
    """The mount table shows the published volume of the pod `a` with these options."""
    mount = MountPoint(str(cluster.target("a")), "xfs", shared=False, super_options=super_options)
    root = MountPoint("/", "ext4", shared=False, super_options=frozenset({"seclabel"}))
    monkeypatch.setattr(csi, "mount_table", lambda: (root, mount))


def record(cluster: CsiCluster, pattern: str) -> dict[str, str]:
    (path,) = cluster.root.glob(pattern)
    found: dict[str, str] = json.loads(path.read_text())
    return found


@pytest.mark.long
async def test_the_volume_is_staged_and_published_with_the_label_and_not_relabelled(cluster: CsiCluster) -> None:
    async with cluster.volume():
        run(cluster, "a")
        await cluster.until_mounted("a")
        assert (shown := cluster.shown("a")) is not None and not shown.selinux_relabel
        (staged,), (published,) = cluster.driver.calls("NodeStageVolume"), cluster.driver.calls("NodePublishVolume")
        assert flags(staged) == flags(published) == ["noatime", CONTEXT]
        for pattern in ("plugins/kubernetes.io/csi/*/*/vol_data.json", "pods/a/volumes/*/*/vol_data.json"):
            assert record(cluster, pattern)["seLinuxMountContext"] == f"{DEFAULT}:c1,c2"
    async with cluster.volume():  # the device is found with its label, and stays
        await cluster.until_mounted("a")
        assert cluster.driver.calls("NodeUnstageVolume", "NodeUnpublishVolume") == []
        run(cluster, "a", state=PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.parametrize("takes_labels, modes", [(False, ["ReadWriteOncePod"]), (True, ["ReadWriteOnce"])])
async def test_without_support_the_runtime_relabels(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch, takes_labels: bool, modes: list[str]
) -> None:
    cluster.csi_driver(attachRequired=False, seLinuxMount=takes_labels)
    cluster.objects[PV]["spec"]["accessModes"] = modes
    play_mount(cluster, monkeypatch, super_options=frozenset({"rw", "seclabel"}))
    async with cluster.volume():
        run(cluster, "a")
        await cluster.until_mounted("a")
        assert (shown := cluster.shown("a")) is not None and shown.selinux_relabel
        assert [flags(call) for call in cluster.driver.calls("NodeStageVolume", "NodePublishVolume")] == [
            ["noatime"],
            ["noatime"],
        ]
        assert "seLinuxMountContext" not in record(cluster, "pods/a/volumes/*/*/vol_data.json")


@pytest.mark.long
@pytest.mark.parametrize("super_options", [(), ("seclabel", 'context="system_u:object_r:nfs_t:s0"')])
async def test_files_that_can_have_no_label_of_their_own_are_not_relabelled(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch, super_options: tuple[str, ...]
) -> None:
    cluster.csi_driver(attachRequired=False)
    play_mount(cluster, monkeypatch, super_options=frozenset(super_options))
    async with cluster.volume():
        run(cluster, "a")
        await cluster.until_mounted("a")
        assert (shown := cluster.shown("a")) is not None and not shown.selinux_relabel


@pytest.mark.long
async def test_a_pod_with_another_label_waits_until_the_volume_is_unmounted(cluster: CsiCluster) -> None:
    cluster.objects[PV]["spec"]["accessModes"] = ["ReadWriteMany"]
    async with cluster.volume(gates={GATE: True}):
        run(cluster, "a")
        await cluster.until_mounted("a")
        run(cluster, "b", level="s0:c7")
        why = f'conflicting SELinux labels of volume pv-1: "{DEFAULT}:c1,c2" and "{DEFAULT}:c7"'
        assert why in await cluster.until_error("b")
        assert counted(cluster) == {
            "volumes_admitted_total": {(PLUGIN, "RWX"): 1.0},
            "volume_context_mismatch_errors_total": {(PLUGIN, "RWX"): 1.0},
        }
        assert (shown := cluster.shown("a")) is not None and shown.state is VolumeState.MOUNTED
        assert len(cluster.driver.calls("NodeStageVolume")) == 1
        run(cluster, "a", state=PodState.FINISHED)
        await cluster.until_mounted("b")
        staged = cluster.driver.calls("NodeStageVolume", "NodeUnstageVolume")
        assert [call["method"] for call in staged] == ["NodeStageVolume", "NodeUnstageVolume", "NodeStageVolume"]
        assert flags(staged[-1]) == ["noatime", f'context="{DEFAULT}:c7"']


async def test_what_the_gate_would_refuse_is_counted_while_it_is_off(cluster: CsiCluster) -> None:
    """With it a cluster finds the pods that would not start after an upgrade."""
    cluster.objects[PV]["spec"]["accessModes"] = ["ReadWriteOnce", "ReadWriteMany"]
    async with cluster.volume():
        run(cluster, "a")
        await cluster.until_mounted("a")
        assert counted(cluster) == {"volumes_admitted_total": {(PLUGIN, "RWX"): 1.0}}
        run(cluster, "b", level="s0:c7")
        cluster.run("c", containers=two_levels())
        for uid in "bc":
            await cluster.until_mounted(uid)
        assert counted(cluster) == {
            "volumes_admitted_total": {(PLUGIN, "RWX"): 1.0},
            "volume_context_mismatch_warnings_total": {(PLUGIN, "RWX"): 1.0},
            "pod_context_mismatch_warnings_total": {("RWX",): 1.0},
        }


@pytest.mark.parametrize("staged_as", ["s0:c1,c2", "s0:c7"])
async def test_a_staged_volume_that_no_pod_has_gets_the_label_of_the_next_pod(
    cluster: CsiCluster, staged_as: str
) -> None:
    """As a kill leaves it between the teardown for one pod and the removal of the device."""
    async with cluster.volume():
        run(cluster, "a", level=staged_as)
        cluster.driver.fault("NodePublishVolume", "INTERNAL", times=1000)
        await cluster.until_error("a")
    cluster.driver.fault("NodePublishVolume")
    async with cluster.volume():
        run(cluster, "a", state=PodState.FINISHED)
        run(cluster, "b")
        await cluster.until_mounted("b")
        methods = [call["method"] for call in cluster.driver.calls("NodeStageVolume", "NodeUnstageVolume")]
        assert flags(cluster.driver.calls("NodeStageVolume")[-1]) == ["noatime", CONTEXT]
        if staged_as != "s0:c1,c2":
            assert methods[-2:] == ["NodeUnstageVolume", "NodeStageVolume"]


async def test_containers_with_different_labels_are_an_error(cluster: CsiCluster) -> None:
    async with cluster.volume():
        cluster.run("a", containers=two_levels())
        assert "multiple SELinux labels found: " in await cluster.until_error("a")
        assert counted(cluster) == {"pod_context_mismatch_errors_total": {("RWOP",): 1.0}}


@pytest.mark.parametrize(("mode", "name"), [("ReadWriteOncePod", "errors"), ("ReadWriteOnce", "warnings")])
async def test_options_of_which_no_label_can_be_made_are_counted(cluster: CsiCluster, mode: str, name: str) -> None:
    cluster.objects[PV]["spec"]["accessModes"] = [mode]
    async with cluster.volume():
        run(cluster, "a", level='s0",exec')
        await cluster.until_mounted("a")
        short = {"ReadWriteOncePod": "RWOP", "ReadWriteOnce": "RWO"}[mode]
        assert counted(cluster) == {f"container_{name}_total": {(short,): 1.0}}
