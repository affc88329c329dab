"""iscsi volumes on loop devices, with a double of iscsiadm: logged in once, shared, logged out; whatever is killed."""

import errno
import json
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import block_devices, block_maps, iscsi_initiator, root_dir, scsi_disks
from services.volume.adapters.mounts import mount_table, unmount_all
from services.volume.core.files.payload import ContentError
from services.volume.core.specs.iscsi_volume import IscsiDisk
from services.volume.core.specs.volume_spec import VolumeSpec
from services.volume.plugins import iscsi, scsi_disk
from services.volume.plugins.plugin import AttachError
from shared.host.mountinfo import below
from tests.e2e.iscsi_machine import IQN, PORTAL, IscsiMachine, inline, output, persistent
from tests.support.installed.lacking import require_command
from tests.support.runtime.loop_devices import devices_below, exclusive_loop_devices, is_unused
from tests.support.waits.deadline import WAIT_SECONDS
from tools.leftovers import wait_until

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]
NODE = f"node -p {PORTAL} -T {IQN} -I default"
DISCOVERY = f"discoverydb -t sendtargets -p {PORTAL} -I default"
CHAP = {
    "discovery.sendtargets.auth.username": "finder",
    "discovery.sendtargets.auth.password": "f1nders-keepers",
    "node.session.auth.username": "user",
    "node.session.auth.password": "correct-horse",
}
OTHER = "10.77.0.2:3260"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[IscsiMachine]:
    for program in ("losetup", "mkfs.ext4", "blkid", "wipefs"):
        require_command(program)
    if not Path("/dev/loop-control").exists():
        pytest.skip("the kernel of this machine has no loop devices")
    monkeypatch.setattr(iscsi, "MULTIPATH_SECONDS", 0.0)
    with exclusive_loop_devices():
        machine = IscsiMachine(tmp_path, monkeypatch, programs="session_of_others" in request.node.name)
        assert root_dir.prepare(str(machine.root)) is None
        try:
            yield machine
        finally:
            for point in below(mount_table(), str(tmp_path)):
                unmount_all(Path(point))
            for device in [*machine.loops(), *devices_below(tmp_path)]:  # the one above another first
                subprocess.run(["losetup", "-d", device], check=False, stderr=subprocess.DEVNULL)


def end(machine: IscsiMachine) -> None:
    """What the next process does with pods that are gone; nothing of them is left."""
    for uid in machine.directories.uids():
        machine.stop(uid)
    assert wait_until(lambda: is_unused(machine.device) or bool(machine.left()), WAIT_SECONDS)
    assert wait_until(lambda: has_detached(machine.detach), WAIT_SECONDS)
    assert machine.left() == []
    assert wait_until(lambda: is_unused(machine.device), WAIT_SECONDS), f"{machine.device} is in use"


def has_detached(detach: Callable[[], None]) -> bool:
    """Return whether the disk could be detached: the mount namespace of another test may keep its mount a while."""
    try:
        detach()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def unmount(machine: IscsiMachine, spec: VolumeSpec) -> None:
    """Unmount the device of one volume, again while it is in use, as the next pass over the volumes does."""
    assert wait_until(lambda: has_detached(lambda: machine.plugin.unmount_device(spec.volume_name)), WAIT_SECONDS)


def test_a_disk_is_logged_in_to_once_shared_by_pods_and_logged_out_of_after_the_last_one(machine: IscsiMachine) -> None:
    first = machine.start("a", inline(fs_group=4321))
    assert machine.calls() == [
        "iface -I default -o show",
        f"{DISCOVERY} -o new",
        f"{DISCOVERY} --discover",
        f"{NODE} -o update -n node.session.scan -v manual",
        f"{NODE} --login",
        f"node -p {PORTAL} -T {IQN} -o update -n node.startup -v manual",
    ]
    second = machine.start("b", inline())
    (first / "data").write_text("kept")
    assert (second / "data").read_text() == "kept"
    assert (first.stat().st_gid, first.stat().st_mode & stat.S_ISGID) == (4321, stat.S_ISGID)
    assert machine.calls() == []
    unique_name = f"kubernetes.io/iscsi/{PORTAL}:{IQN}:0"
    assert [found.unique_name for found in machine.plugin.reconstruct("b")] == [unique_name] == [inline().unique_name]
    with pytest.raises(OSError, match="is still mounted by other references"):
        machine.detach()
    end(machine)
    assert machine.calls() == [f"{NODE} --logout", f"{NODE} -o delete"]
    assert (machine.start("c", inline(readOnly=True)) / "data").read_text() == "kept"
    end(machine)


def test_a_block_volume_is_a_device_that_is_locked_until_the_pod_ends(machine: IscsiMachine) -> None:
    link = machine.start("a", persistent())
    assert (str(link.readlink()), stat.S_ISBLK(link.stat().st_mode)) == (machine.device, True)
    machine.start("b", persistent())
    assert [event.reason for event in machine.reported] == ["SuccessfulMountVolume"] * 4
    assert [found.unique_name for found in machine.plugin.reconstruct("b")] == [persistent().unique_name]
    machine.stop("a")
    with pytest.raises(OSError, match="is still referenced from other Pods"):
        machine.detach()
    end(machine)


def test_both_sides_prove_who_they_are_and_no_text_has_a_secret(machine: IscsiMachine) -> None:
    machine.targets[PORTAL] |= {
        "discovery": {"username": "finder", "password": CHAP["discovery.sendtargets.auth.password"]},
        "session": {"username": "user", "password": CHAP["node.session.auth.password"]},
    }
    machine.offer()
    volume = inline(chapAuthDiscovery=True, chapAuthSession=True, secretRef={"name": "s"})
    (machine.start("a", volume, CHAP) / "data").write_text("kept")
    end(machine)
    for key in ("discovery.sendtargets.auth.password", "node.session.auth.password"):
        with pytest.raises(AttachError, match=r"failed to (sendtargets|log in) to portal .*exit status 24") as raised:
            machine.start("a", volume, {**CHAP, key: "wrong-horse"})
        assert "horse" not in str(raised.value) and "keepers" not in str(raised.value)
        with pytest.raises(ContentError, match=f"the Secret of the iscsi volume has no {key}"):
            machine.start("a", volume, {**CHAP, key: ""})
        end(machine)
    with pytest.raises(ContentError, match=r"the value of node.session.auth.username has a control character"):
        machine.start("a", volume, {**CHAP, "node.session.auth.username": "x\nnode.startup = automatic"})
    end(machine)


def test_of_two_portals_one_may_fail_and_is_tried_five_times(machine: IscsiMachine) -> None:
    (machine.start("a", inline(portals=[OTHER])) / "data").write_text("kept")
    assert sum(f"-p {OTHER} -I default --discover" in call for call in machine.calls()) == 5
    assert len(machine.sessions()) == 1
    end(machine)
    machine.targets = {OTHER: machine.targets[PORTAL]}
    machine.offer()
    assert (machine.start("a", inline(portals=[OTHER])) / "data").read_text() == "kept"
    end(machine)
    machine.targets = {}
    machine.offer()
    with pytest.raises(AttachError, match=r"failed to get any path for iscsi disk, last err seen: .*refused"):
        machine.start("a", inline(portals=[OTHER]))
    end(machine)


def test_a_record_that_a_power_cut_left_empty_holds_up_no_login(machine: IscsiMachine) -> None:
    empty = {"iface": {}, "discoverydb": {}, "node": {}, "empty": [f"{PORTAL} {IQN} default"]}
    (machine.world / "database.json").write_text(json.dumps(empty))
    (machine.start("a", inline()) / "data").write_text("kept")
    assert f"{NODE} -o new" in machine.calls()
    end(machine)


def test_the_multipath_map_above_two_paths_is_mounted_and_flushed(machine: IscsiMachine) -> None:
    block, dev = machine.world / "sys/block/dm-0", machine.world / "dev"
    machine.targets = {portal: {"iqn": IQN, "luns": {"0": disk}} for portal, disk in ((PORTAL, "sdb"), (OTHER, "sdc"))}
    machine.offer()
    for path in (block / "slaves" / "sdb", block / "slaves" / "sdc", block / "dm", dev):
        path.mkdir(parents=True)
    (block / "dm" / "uuid").write_text("mpath-3600\n")
    (block / "dm" / "name").write_text("mpatha\n")
    (dev / "dm-0").symlink_to(machine.device)
    for disk in ("sdb", "sdc"):
        (dev / disk).write_text("")
    machine.start("a", inline(portals=[OTHER]))
    [mounted] = {mount.source for mount in mount_table() if mount.path.startswith(f"{machine.root}/pods")}
    assert mounted == machine.device
    assert len(machine.sessions()) == 2
    end(machine)
    assert (machine.world / "multipath").read_text() == "-f mpatha\n"


def test_a_session_of_others_is_used_and_stays_while_another_disk_of_it_is_in_use(
    machine: IscsiMachine, tmp_path: Path
) -> None:
    image = tmp_path / "other.img"
    subprocess.run(["truncate", "-s", "64M", str(image)], check=True)
    other = output("losetup", "-f", "--show", str(image))
    machine.targets[PORTAL]["luns"]["1"] = Path(other).name
    machine.offer()
    for command in (f"{DISCOVERY} -o new", f"{DISCOVERY} --discover", f"{NODE} --login"):
        subprocess.run(["iscsiadm", "-m", *command.split()], check=True, stdout=subprocess.DEVNULL)
    machine.calls()
    subprocess.run(["mkfs.ext4", "-q", other], check=True)
    mine = tmp_path / "mine"
    mine.mkdir()
    subprocess.run(["mount", other, str(mine)], check=True)
    machine.start("a", inline())
    assert machine.calls() == ["iface -I default -o show"]
    machine.stop("a")
    assert wait_until(lambda: has_detached(machine.detach), WAIT_SECONDS)
    assert (machine.calls(), len(machine.sessions())) == ([], 1)
    assert (machine.world / "sys/block" / Path(machine.device).name / "device/delete").read_text() == "1"
    subprocess.run(["umount", str(mine)], check=True)
    machine.start("a", inline())
    machine.start("b", inline(lun=1))
    machine.stop("a")
    unmount(machine, inline())
    assert len(machine.sessions()) == 1  # the other volume has it
    end(machine)


def test_a_volume_with_a_name_of_the_initiator_has_an_interface_of_its_own(machine: IscsiMachine) -> None:
    volume = inline(initiatorName="iqn.2026-11.com.example:me")
    machine.start("a", volume)
    name = f"{PORTAL}:v"
    wanted = {"iface.transport_name": "tcp", "iface.initiatorname": "iqn.2026-11.com.example:me", "iface.mtu": "9000"}
    assert machine.database()["iface"] == {name: wanted}
    assert [key.split()[-1] for key in machine.database()["node"]] == [name]
    end(machine)
    assert machine.database()["iface"] == {}


def test_portals_that_take_long_are_not_all_tried(machine: IscsiMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iscsi, "MAX_PASS_SECONDS", 0.0)
    dead = [f"10.77.1.{number}:3260" for number in range(1, 20)]
    machine.targets = {OTHER: machine.targets[PORTAL]}
    machine.offer()
    with pytest.raises(AttachError, match="failed to get any path"):
        machine.start("a", inline(portals=[*dead, OTHER]))
    asked = {call.split(" -p ")[1].split()[0] for call in machine.calls() if "--discover" in call}
    assert asked == {PORTAL}
    end(machine)


def test_two_volumes_with_one_disk_or_one_interface_do_not_end_each_other(
    machine: IscsiMachine, tmp_path: Path
) -> None:
    # A block volume of LUN 0 at another portal of the same target name, which is another disk there.
    image = tmp_path / "other.img"
    subprocess.run(["truncate", "-s", "64M", str(image)], check=True)
    other = output("losetup", "-f", "--show", str(image))
    machine.targets[OTHER] = {"iqn": IQN, "luns": {"0": Path(other).name}}
    machine.offer()
    machine.start("b", persistent(targetPortal=OTHER))
    machine.start("a", inline())
    machine.stop("a")
    unmount(machine, inline())
    assert not (machine.world / "sys/block" / Path(other).name / "device/delete").read_text().strip()
    end(machine)


def test_a_disk_that_a_block_volume_has_stays(machine: IscsiMachine) -> None:
    machine.start("b", persistent())
    short = inline(targetPortal=PORTAL.removesuffix(":3260"))
    with pytest.raises(OSError, match="is in use, but not by this volume"):
        machine.start("a", short)
    machine.plugin.unmount_device(short.volume_name)
    deleted = machine.world / "sys/block" / Path(machine.device).name / "device/delete"
    assert not deleted.read_text().strip() and len(machine.sessions()) == 1
    end(machine)


def test_an_interface_stays_while_a_volume_of_another_target_has_it(machine: IscsiMachine) -> None:
    machine.targets[PORTAL]["luns"]["1"] = machine.targets[PORTAL]["luns"]["0"]
    machine.offer()
    own: dict[str, Any] = {"initiatorName": f"{IQN}.me"}
    machine.start("a", inline(**own))
    with pytest.raises(AttachError):
        machine.start("b", inline(iqn=f"{IQN}.gone", **own))
    assert machine.database()["iface"]
    machine.plugin.unmount_device(inline(iqn=f"{IQN}.gone", **own).volume_name)
    assert machine.database()["iface"]
    end(machine)
    assert machine.database()["iface"] == {}


class KilledError(BaseException):
    """In place of SIGKILL."""


MODULES = (block_devices, block_maps, iscsi_initiator, scsi_disks, scsi_disk)


OF_DISKS = ("recorded", "attached", "unmounted", "unmapped", "removed", "detached")
OF_SESSIONS = ("interface", "discovery", "discovered", "login", "logged_in", "logged_out", "forgotten")


def points(machine: IscsiMachine, monkeypatch: pytest.MonkeyPatch, volume: VolumeSpec) -> list[str]:
    """Every point at which a process may be killed between a start and an end."""
    seen: list[str] = []
    with monkeypatch.context() as noted:
        for module in MODULES:
            noted.setattr(module, "crash_point", seen.append)
        machine.start("a", volume)
        end(machine)
    return seen


@pytest.mark.parametrize("volume", [inline(initiatorName=f"{IQN}.me"), persistent()], ids=["mounted", "block"])
def test_a_kill_at_each_step_leaves_work_that_the_next_process_completes(
    machine: IscsiMachine, monkeypatch: pytest.MonkeyPatch, volume: VolumeSpec
) -> None:
    every = list(dict.fromkeys(points(machine, monkeypatch, volume)))
    named = {f"volume.disk.{step}" for step in OF_DISKS} | {f"volume.iscsi.{step}" for step in OF_SESSIONS}
    assert isinstance(volume.source, IscsiDisk)
    assert named - set(every) == (set() if volume.source.template else {"volume.iscsi.interface"})
    for point in every:
        for goes_on in (False, True):

            def reached(name: str, point: str = point) -> None:
                if name == point:
                    raise KilledError

            if point == "volume.device.formatted":
                subprocess.run(["wipefs", "-qa", machine.device], check=True)
            with monkeypatch.context() as killed:
                for module in MODULES:
                    killed.setattr(module, "crash_point", reached)
                with pytest.raises(KilledError):
                    machine.start("a", volume)
                    end(machine)
            if goes_on:
                machine.start("a", volume)  # the pod may still be there
            end(machine)  # or it may be gone when the next process starts
            assert machine.database()["iface"] == {}, point


def test_volumes_of_a_go_kubelet_are_taken_over_and_torn_down(machine: IscsiMachine) -> None:
    volume = inline(targetPortal="10.77.0.1", portals=[OTHER])
    machine.targets[OTHER] = machine.targets[PORTAL]
    machine.offer()
    machine.start("a", volume)
    [record] = (machine.root / "plugins").rglob(".*.json")
    record.unlink()  # which only this agent has
    assert [found.volume_name for found in machine.plugin.reconstruct_devices()] == [f"{PORTAL}:{IQN}:0"]
    machine.start("a", volume)
    machine.plugin.unmount_device(f"{PORTAL}:{IQN}:0")  # the name has changed, and nothing of the old one is left
    assert [found.unique_name for found in machine.plugin.reconstruct("a")] == [volume.unique_name]
    record.unlink()
    assert len(machine.sessions()) == 2
    end(machine)
