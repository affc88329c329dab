"""iscsi volumes with open-iscsi, multipath-tools and the kernel's target, on a node of the tests' API server whose
attach-detach controller attaches them. The tests are one plan, in this order."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object, uid
from tests.machine import iscsi_target
from tests.machine.iscsi_target import CHAP, CHAP_IMAGE, CHAP_IQN, IMAGE, IQN, disks, records, sessions
from tests.machine.joined import MachineCluster
from tests.machine.machine import Machine
from tests.machine.root import WITH_MORE, cached_root
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [
    pytest.mark.root, pytest.mark.night, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(2400),
]  # fmt: skip

SECONDS = 5 * WAIT_SECONDS
ROOT_DIR = "/var/lib/bulkhead/kubelet"
PLUGIN = f"{ROOT_DIR}/plugins/kubernetes.io/iscsi"
# A line for each start, on the disk before the pod is Ready.
_WRITE = "cat /proc/sys/kernel/random/uuid >> /data/starts; sync; exec sleep 1000000"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(package: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MachineCluster]:
    root = cached_root("install", *WITH_MORE, "open-iscsi", "targetcli-fb", "multipath-tools")
    async with MachineCluster(tmp_path_factory.mktemp("iscsi"), root=root, package=package) as running:
        iscsi_target.offer_disks(running.machine)
        try:
            yield running
        finally:
            print(running.machine.last_lines())


def pod_with(cluster: MachineCluster, name: str, source: dict[str, Any]) -> Object:
    pod = cluster.pod(name, "sh", "-c", _WRITE)
    pod["spec"]["volumes"] = [{"name": "data", "iscsi": {"lun": 0, **source}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return pod


def web_with(cluster: MachineCluster) -> Object:
    """A pod with the disk of two portals; at a third one nothing listens."""
    first, second = iscsi_target.portals(cluster.machine)
    source = {"targetPortal": first, "portals": [second, f"{cluster.machine.ip}:3261"], "iqn": IQN}
    return pod_with(cluster, "web", source)


async def start(cluster: MachineCluster, pod: Object) -> str:
    """Create a pod, and return where its volume is mounted once it is Ready."""
    created = await cluster.create(pod)
    await cluster.wait_ready(pod["metadata"]["name"], seconds=SECONDS)
    return f"{ROOT_DIR}/pods/{uid(created)}/volumes/kubernetes.io~iscsi/data"


async def end(cluster: MachineCluster, name: str, iqn: str) -> None:
    """Delete a pod; nothing of its volume is left."""
    await cluster.delete_pod(name)
    await cluster.wait_gone(name, seconds=SECONDS)
    machine = cluster.machine
    await asyncio.to_thread(machine.wait_until, f'[ -z "$(find {PLUGIN} -mindepth 1)" ]')
    mounted = machine.call("grep", "iscsi", "/proc/mounts").stdout
    noted = [record for record in records(machine) if record.endswith(f" {iqn}")]
    assert (mounted, sessions(machine), noted, disks(machine)) == ("", [], [], [])


def starts(machine: Machine, path: str) -> list[str]:
    """The lines that the pod has written at its starts."""
    return machine.must("cat", f"{path}/starts").split()


def identity(machine: Machine, image: str) -> str:
    """The identity of the file system on a disk, which a new file system does not have."""
    return machine.must("blkid", "-p", "-s", "UUID", "-s", "TYPE", "-o", "export", image)


def write_from_inside(cluster: MachineCluster) -> None:
    cluster.plane.kubectl("exec", "web", "--", "sh", "-c", "echo later > /data/later && sync && rm /data/later")


def volume_process(machine: Machine) -> int:
    """The process of volume, 0 = there is none."""
    shown = machine.call("bulkhead", "status", "-o", "json").stdout
    rows = json.loads(shown)["processes"] if shown else []
    return next((row["pid"] for row in rows if row["service"] == "volume" and row["pid"]), 0)


async def test_a_disk_of_three_portals_of_which_one_fails_is_mounted_by_its_multipath_map(node: MachineCluster) -> None:
    machine = node.machine
    path = await start(node, web_with(node))
    assert sessions(machine) == sorted(f"{portal} {IQN}" for portal in iscsi_target.portals(machine))
    source, kind = machine.must("findmnt", "-n", "-o", "SOURCE,FSTYPE", path).split()
    assert (source.startswith("/dev/mapper/3600"), kind) == (True, "ext4"), source
    assert sorted(name[:2] for name in disks(machine)) == ["dm", "sd", "sd"]
    assert len(starts(machine, path)) == 1


async def test_a_kill_of_volume_changes_nothing(node: MachineCluster) -> None:
    machine = node.machine

    def state() -> tuple[object, ...]:
        mounted = machine.must("grep", "iscsi", "/proc/mounts")
        return mounted, machine.must("iscsiadm", "-m", "session"), disks(machine), machine.tasks()

    before, process = state(), volume_process(machine)
    machine.must("kill", "-9", str(process))

    async def is_back() -> bool:
        return await asyncio.to_thread(volume_process, machine) not in (0, process)

    await node.wait_for(is_back, "volume to run again", SECONDS, every=1.0)
    machine.must("bulkhead", "status", f"--wait-ready={machine.within:g}")
    assert state() == before
    write_from_inside(node)


async def test_a_path_that_fails_holds_up_a_write_only_until_the_other_one_has_it(node: MachineCluster) -> None:
    machine = node.machine
    rule = ["INPUT", "-d", "127.0.0.1", "-p", "tcp", "--dport", "3260", "-j", "DROP"]
    machine.must("iptables", "-I", *rule)
    try:
        machine.wait_until("dmsetup status | grep -q 'multipath.* F '")
        write_from_inside(node)
    finally:
        machine.must("iptables", "-D", *rule)
    machine.wait_until("! dmsetup status | grep -q 'multipath.* F '")


async def test_after_a_power_cut_the_pod_has_its_file_system_again(node: MachineCluster) -> None:
    machine = node.machine
    pod = await node.get_pod("web")
    assert pod is not None
    path = f"{ROOT_DIR}/pods/{uid(pod)}/volumes/kubernetes.io~iscsi/data"
    restarts, before = pod["status"]["containerStatuses"][0]["restartCount"], identity(machine, IMAGE)
    [first] = starts(machine, path)
    machine.cut()

    def again(pod: Object) -> bool:
        status = pod["status"]["containerStatuses"][0]
        return bool(status["restartCount"] == restarts + 1 and status["ready"])

    await node.wait_pod("web", again, "to run again", SECONDS)
    assert (starts(machine, path)[:-1], identity(machine, IMAGE)) == ([first], before)
    assert len(sessions(machine)) == 2


async def test_a_later_pod_finds_what_the_first_one_wrote_though_records_of_iscsiadm_are_empty(
    node: MachineCluster,
) -> None:
    machine = node.machine
    before = identity(machine, IMAGE)
    await end(node, "web", IQN)
    machine.must("e2fsck", "-f", "-n", IMAGE)
    iscsi_target.empty_records(machine)
    path = await start(node, web_with(node))
    assert len(sessions(machine)) == 2
    assert (len(starts(machine, path)), identity(machine, IMAGE)) == (3, before)
    await end(node, "web", IQN)


async def test_a_target_that_is_not_there_is_named_in_an_event(node: MachineCluster) -> None:
    portal, _ = iscsi_target.portals(node.machine)
    await node.create(pod_with(node, "gone", {"targetPortal": portal, "iqn": f"{IQN}.gone"}))
    event = await node.wait_event_of("gone", "FailedMount")
    expected = (
        'MountVolume.WaitForAttach failed for volume "data" : failed to get any path for iscsi disk, last err seen: '
        f"iscsi: failed to log in to portal {portal}: exit status 21: iscsiadm: No records found"
    )
    assert event["message"] == expected
    await end(node, "gone", f"{IQN}.gone")


async def test_a_pod_waits_for_the_right_password_which_no_text_shows(node: MachineCluster) -> None:
    machine, (portal, _) = node.machine, iscsi_target.portals(node.machine)
    iscsi_target.ask_for_chap_at_discovery(machine, asked=True)
    wrong = {**CHAP, "node.session.auth.password": "wrong-horse-1"}
    secret = {"metadata": {"name": "chap"}, "type": "kubernetes.io/iscsi-chap", "stringData": wrong}
    await node.create({"kind": "Secret", **secret})
    chap = {"chapAuthDiscovery": True, "chapAuthSession": True, "secretRef": {"name": "chap"}}
    await node.create(pod_with(node, "chap", {"targetPortal": portal, "iqn": CHAP_IQN, **chap}))
    event = await node.wait_event_of("chap", "FailedMount")
    assert f"iscsi: failed to log in to portal {portal}: exit status 24: " in event["message"], event
    node.plane.kubectl("patch", "secret", "chap", "-p", json.dumps({"stringData": CHAP}))
    await node.wait_ready("chap", seconds=SECONDS)
    assert sessions(machine) == [f"{portal} {CHAP_IQN}"]
    assert "TYPE=ext4" in identity(machine, CHAP_IMAGE)
    texts = json.dumps(await node.events_of("chap"))
    for value in (*CHAP.values(), "wrong-horse-1"):
        if value.endswith("-1"):
            assert value not in texts
            assert machine.call("grep", "-rlF", value, "/var/log/bulkhead").returncode == 1
    await end(node, "chap", CHAP_IQN)
