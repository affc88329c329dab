"""Volumes that pods share: their device is mounted once before the first of them, unmounted after the last, and found
again by a process that comes after a kill at any system call."""

from pathlib import Path

import pytest

from bus.messages.podsync import PodState, PodVolumes
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.operations import MountDevice, Operation, UnmountDevice, UnmountVolume
from services.volume.core.operations.outcome import Outcome
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import Node
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld
from services.volume.plugins.plugin_calls import PluginCalls
from services.volume.plugins.registry import volume_spec
from shared.files.tree_removal import RemovalProgress
from shared.time.clock import SystemClock
from tests.fakes.disk_plugin import WITH_DISKS
from tests.unit.volume.killing import STEPS, killed

VOLUMES = [
    {"name": "v", "disk": {"name": "data"}},
    {"name": "w", "disk": {"name": "data"}},
    {"name": "raw", "disk": {"name": "data", "block": True}},
]
UNIQUE = "kubernetes.io/disk/data"


class Process:
    """Volume without its loop, started on what earlier processes left below a root directory."""

    def __init__(self, root: Path) -> None:
        (root / "disks" / "data").mkdir(parents=True, exist_ok=True)
        self.now = 0.0
        self.root, directories = root, PodDirectories(str(root))
        self.calls = PluginCalls(directories, SystemClock(), WITH_DISKS)
        desired = DesiredStateOfWorld(lambda pod, name: volume_spec(pod, name, Node(), WITH_DISKS))
        self.reconciler = Reconciler(desired, ActualStateOfWorld())
        self.reconciler.add_devices_on_disk(self.calls.find_devices())
        for uid in directories.uids():
            self.reconciler.add_volumes_on_disk(uid, self.calls.find_volumes(uid))
        desired.set_freshness(complete=True, stale=False)

    def admit(self, uid: str, *volumes: str, state: PodState = PodState.SYNC, capacity: int = 0) -> None:
        spec = {"volumes": [*VOLUMES, {"name": "large", "disk": {"name": "data", "bytes": capacity}}]}
        pod = {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec}
        self.reconciler.desired.admit(
            PodVolumes(uid=uid, name=uid, namespace="default", state=state, pod=pod, volumes=volumes)
        )

    def started(self) -> list[Operation]:
        pods = self.reconciler.pods()
        of_pods = [operation for uid in pods for operation in self.reconciler.operations(uid, self.now)]
        return [*of_pods, *self.reconciler.device_operations(self.now)]

    def perform(self, operation: Operation) -> list[str]:
        """The messages of its events."""
        return self.end(operation) if self.begin(operation) else []

    def begin(self, operation: Operation) -> bool:
        """The operation has its turn; whether it is performed."""
        if self.reconciler.perform(operation, self.now):
            return True
        self.reconciler.abandoned(operation)
        return False

    def end(self, operation: Operation) -> list[str]:
        """The messages of its events."""
        try:
            performed = self.calls.perform(operation, SetUpInputs(), RemovalProgress())
            outcome = Outcome(host_path=performed.host_path)
        except OSError as error:
            outcome = Outcome(error=str(error.strerror))
        return [event.message for event in self.reconciler.done(operation, self.now, outcome).events]

    def settle(self) -> None:
        """Perform all there is to do."""
        while started := self.started():
            for operation in started:
                self.perform(operation)

    def log(self) -> list[str]:
        """What the plugin has done, of all processes."""
        return (self.root / "log").read_text().splitlines() if (self.root / "log").exists() else []

    def left(self) -> list[str]:
        """Files, links and directories below the root directory, but for the log."""
        paths = (path for path in self.root.rglob("*") if path.name != "log")
        return sorted(f"{path.relative_to(self.root)}{' is a link' * path.is_symlink()}" for path in paths)


def running(process: Process, *uids: str, volume: str = "v") -> None:
    """podsync as it admits these pods, and nothing of others."""
    for uid in uids:
        process.admit(uid, volume)
    process.settle()


def ended(process: Process, *uids: str) -> None:
    """podsync as these pods are finished."""
    for uid in uids:
        process.admit(uid, state=PodState.FINISHED)
    process.settle()


def test_two_pods_share_a_device_that_is_mounted_before_the_first_and_unmounted_after_the_last(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "a", "b")
    mounts = ["mount device data", "mount v of a", "mount v of b"]
    assert process.log() == mounts
    view = process.reconciler.view("b")
    assert view is not None
    assert Path(view.volumes["v"].host_path).resolve() == tmp_path / "disks" / "data"
    ended(process, "a")
    assert process.log() == [*mounts, "unmount v of a"]
    ended(process, "b")
    assert process.log() == [*mounts, "unmount v of a", "unmount v of b", "unmount device data"]
    plugins = ["plugins", "plugins/kubernetes.io", "plugins/kubernetes.io/disk"]
    assert process.left() == ["disks", "disks/data", *plugins, "pods"]


def test_two_volumes_of_one_pod_share_a_device(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.admit("a", "v", "w")
    process.settle()
    process.admit("a", "w")
    process.settle()
    assert process.log() == ["mount device data", "mount v of a", "mount w of a", "unmount v of a"]


@pytest.mark.parametrize("volume", ["v", pytest.param("raw", marks=pytest.mark.long)])
def test_a_kill_before_any_system_call_loses_no_mount_and_leaves_none(tmp_path: Path, volume: str) -> None:
    undisturbed = Process(tmp_path / "undisturbed")
    running(undisturbed, "a", "b", volume=volume)
    mounted = undisturbed.left()
    ended(undisturbed, "a")
    shared_by_one = undisturbed.left()
    ended(undisturbed, "b")
    nothing = undisturbed.left()
    for step in range(1, STEPS):
        root = tmp_path / str(step)
        process, kills = Process(root), 0

        def of_all(process: Process) -> None:
            running(process, "a", "b", volume=volume)

        def of_b(process: Process) -> None:
            process.admit("b", volume)
            ended(process, "a")

        def of_none(process: Process) -> None:
            ended(process, "a", "b")

        for phase, expected in ((of_all, mounted), (of_b, shared_by_one), (of_none, nothing)):
            if killed(step, lambda phase=phase, process=process: phase(process)):  # type: ignore[misc]
                kills += 1
                process = Process(root)
                phase(process)
            assert process.left() == expected
        if not kills:
            break
    assert 20 < step < STEPS


@pytest.mark.parametrize("state", [PodState.SYNC, PodState.TERMINATING])
def test_a_restarted_process_keeps_what_a_pod_has_mounted(tmp_path: Path, state: PodState) -> None:
    running(Process(tmp_path), "a")
    process = Process(tmp_path)
    assert process.started() == []  # a is not unknown for long enough
    process.admit("a", "v", state=state)
    process.settle()
    view = process.reconciler.view("a")
    assert view is not None and view.volumes["v"].state == "mounted"
    assert not [line for line in process.log() if line.startswith("unmount")]


def test_a_device_that_cannot_be_mounted_is_an_error_of_each_pod_that_waits_for_it(tmp_path: Path) -> None:
    process = Process(tmp_path)
    (tmp_path / "disks" / "data").rmdir()
    for uid in ("a", "b"):
        process.admit(uid, "v")
    (operation,) = process.started()
    message = 'MountVolume.MountDevice failed for volume "v" : No such file or directory'
    assert process.perform(operation) == [message, message]
    for uid in ("a", "b"):
        view = process.reconciler.view(uid)
        assert view is not None and (view.volumes["v"].state, view.volumes["v"].error) == ("error", message)
    assert process.started() == []
    process.now += 0.5
    (tmp_path / "disks" / "data").mkdir()
    process.settle()
    assert process.log() == ["mount device data", "mount v of a", "mount v of b"]


def test_what_is_left_of_a_device_that_could_not_be_mounted_is_removed_with_its_pods(tmp_path: Path) -> None:
    process = Process(tmp_path)
    (tmp_path / "disks" / "data").rmdir()
    process.admit("a", "v")
    (operation,) = process.started()
    process.perform(operation)
    process.admit("a", state=PodState.FINISHED)
    assert isinstance(process.started()[-1], UnmountDevice)


def test_a_volume_is_not_mounted_on_a_device_that_is_being_unmounted(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "a")
    process.admit("a", state=PodState.TERMINATED)
    (unmount,) = process.started()
    process.perform(unmount)
    (unmount,) = process.started()
    assert isinstance(unmount, UnmountDevice)
    process.calls.perform(unmount, SetUpInputs(), RemovalProgress())
    process.admit("b", "v")
    assert process.started() == []
    process.reconciler.done(unmount, process.now)
    assert [type(operation) for operation in process.started()] == [MountDevice]


def test_a_device_that_waits_to_be_unmounted_is_used_by_a_pod_that_comes_meanwhile(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "a")
    process.admit("a", state=PodState.TERMINATED)
    process.perform(*process.started())
    (unmount,) = process.started()
    process.admit("b", "v")
    assert not process.reconciler.still_due(unmount, process.now)
    process.perform(unmount)
    process.settle()
    assert process.log() == ["mount device data", "mount v of a", "unmount v of a", "mount v of b"]


def test_a_device_stays_while_a_volume_may_be_mounted_on_it(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.admit("a", "v")
    process.perform(*process.started())
    (mount,) = process.started()
    process.admit("a", state=PodState.TERMINATED)  # while the volume is being mounted
    assert process.started() == []
    process.perform(mount)
    assert [type(operation) for operation in process.started()] == [UnmountVolume]


def test_a_volume_is_not_unmounted_for_one_pod_while_it_is_mounted_for_another(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "a")
    process.admit("b", "v")
    (mount,) = process.started()
    assert process.begin(mount)
    process.admit("a", state=PodState.TERMINATED)
    assert process.started() == []
    assert "a" in process.reconciler.concerned(mount)
    process.end(mount)
    (unmount,) = process.started()
    process.admit("c", "v")
    assert process.started() == []
    assert "c" in process.reconciler.concerned(unmount)
    process.perform(unmount)
    process.settle()
    assert process.log()[-2:] == ["unmount v of a", "mount v of c"]


def test_an_unmount_goes_before_the_mounts_that_are_not_performed_yet(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "old")
    for uid in ("a", "b"):
        process.admit(uid, "v")
    first, queued = process.started()
    assert process.begin(first)
    process.admit("old", state=PodState.TERMINATED)
    assert process.started() == []  # the unmount waits for the first mount
    process.admit("c", "v")
    assert process.started() == []  # the third mount waits for the unmount
    process.end(first)
    assert not process.begin(queued)
    assert {"b", "c", "old"} <= set(process.reconciler.concerned(queued))
    (unmount,) = process.started()
    assert unmount == UnmountVolume("old", "kubernetes.io/disk/v")
    process.perform(unmount)
    process.settle()
    assert process.log()[-4:] == ["mount v of a", "unmount v of old", "mount v of b", "mount v of c"]


def test_an_unmount_waits_for_no_mount_that_waits_for_its_content_or_its_turn(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "old")
    process.admit("a", "v")
    (mount,) = process.started()
    process.admit("old", state=PodState.TERMINATED)
    (unmount,) = process.started()
    assert process.begin(unmount)
    assert not process.begin(mount)
    assert process.started() == []
    assert "a" in process.reconciler.concerned(unmount)
    process.end(unmount)
    process.settle()
    assert process.log()[-2:] == ["unmount v of old", "mount v of a"]


def test_mounts_that_wait_for_an_unmount_go_on_when_it_is_due_no_more(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "old")
    process.admit("a", "v")
    (first,) = process.started()
    assert process.begin(first)
    process.admit("old", state=PodState.TERMINATED)
    assert process.started() == []
    process.admit("b", "v")
    assert process.started() == []
    process.admit("old", "v")
    process.end(first)
    (mount,) = process.started()  # of "b", which is looked at after the pod for which it has waited
    assert (mount.uid, process.begin(mount)) == ("b", True)


def test_a_failing_unmount_lets_mounts_go_on_between_its_attempts(tmp_path: Path) -> None:
    process = Process(tmp_path)
    running(process, "old")
    process.admit("old", state=PodState.TERMINATED)
    (unmount,) = process.started()
    assert process.begin(unmount)
    process.reconciler.done(unmount, process.now, Outcome(error="busy"))
    process.admit("a", "v")
    (mount,) = process.started()
    assert process.begin(mount)
    process.now += 0.5
    assert process.started() == []
    process.admit("b", "v")
    assert process.started() == []
    process.end(mount)
    assert process.started() == [unmount]


def test_no_device_is_unmounted_on_what_is_incomplete_or_stale_or_not_read(tmp_path: Path) -> None:
    running(Process(tmp_path), "a")
    process = Process(tmp_path)
    process.admit("a", state=PodState.FINISHED)
    unmount = process.started()
    process.perform(*unmount)
    for complete, stale, found_all in ((False, False, True), (True, True, True), (True, False, False)):
        process.reconciler.desired.set_freshness(complete=complete, stale=stale)
        process.reconciler.actual.unread = set() if found_all else {"other"}
        assert process.reconciler.device_operations(process.now) == []
    process.reconciler.actual.unread = set()
    assert process.reconciler.device_operations(process.now) == [UnmountDevice(UNIQUE, "kubernetes.io/disk", "data")]


def test_a_block_volume_is_mapped_from_the_device_that_others_have_mounted(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.admit("a", "v", "raw")
    process.settle()
    view = process.reconciler.view("a")
    assert view is not None
    assert view.volumes["raw"].host_path == str(tmp_path / "pods/a/volumeDevices/kubernetes.io~disk/raw")
    ended(process, "a")
    lines = ["mount device data", "mount v of a", "map raw of a", "unmount v of a", "unmap raw of a"]
    assert process.log() == [*lines, "unmount device data"]


def test_a_block_volume_whose_device_cannot_be_mounted_has_the_events_of_a_map(tmp_path: Path) -> None:
    process = Process(tmp_path)
    (tmp_path / "disks" / "data").rmdir()
    process.admit("a", "raw")
    (operation,) = process.started()
    outcome = Outcome(error="no such disk")
    (event,) = process.reconciler.done(operation, process.now, outcome).events
    message = 'MapVolume.SetUpDevice failed for volume "raw" : no such disk'
    assert (event.reason, event.message) == ("FailedMapVolume", message)


def test_a_volume_that_is_to_be_larger_is_expanded_once_while_it_is_mounted(tmp_path: Path) -> None:
    process = Process(tmp_path)
    for capacity in (100, 100, 200, 200, 150):
        process.admit("a", "large", capacity=capacity)
        process.settle()
    assert process.log() == ["mount device data", "mount large of a", "expand large of a to 200"]


def test_a_volume_that_cannot_be_expanded_stays_mounted_and_is_tried_again(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.admit("a", "large", capacity=100)
    process.settle()
    (tmp_path / "disks" / "data").rename(tmp_path / "disks" / "away")
    process.admit("a", "large", capacity=200)
    message = 'NodeExpandVolume.NodeExpandVolume failed for volume "large" : No such file or directory'
    assert process.perform(*process.started()) == [message]
    view = process.reconciler.view("a")
    assert view is not None and (view.volumes["large"].state, view.volumes["large"].error) == ("mounted", "")
    (tmp_path / "disks" / "away").rename(tmp_path / "disks" / "data")
    assert process.started() == []
    process.now += 0.5
    process.settle()
    assert process.log()[-1] == "expand large of a to 200"
