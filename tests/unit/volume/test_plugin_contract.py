"""What every volume plugin guarantees, the registered ones and one with a device layer: a deciding half without side
effects, set-up and teardown that may be killed before any system call, a reconstruction that finds what is on disk."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import backing_directory
from services.volume.adapters.csi_client import CsiDrivers
from services.volume.adapters.flex_drivers import FlexDrivers
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import FoundObject, FoundToken, SetUpInputs
from services.volume.core.files.token_cache import TokenKey
from services.volume.core.specs.flex_volume import Answer
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins import csi_staging, flex_volume, git_repo, local, nfs, scsi_disk
from services.volume.plugins.fc import FcPlugin
from services.volume.plugins.flex_volume import FlexVolumePlugin
from services.volume.plugins.iscsi import IscsiPlugin
from services.volume.plugins.plugin import DeviceMountableVolumePlugin, VolumePlugin
from services.volume.plugins.registry import PLUGINS, persistent_volume_spec, volume_spec
from shared.files.tree_removal import RemovalProgress
from shared.model.frozen_copy import replace
from shared.time.clock import SystemClock
from tests.fakes.csi_driver import CsiDriver
from tests.fakes.disk_plugin import WITH_DISKS
from tests.unit.volume.killing import STEPS, killed

CSI_DRIVER = "hostpath.csi.k8s.io"
EXAMPLES: dict[str, Any] = {
    "emptyDir": {"medium": "Memory", "mode": 0o1750},
    "hostPath": {"path": "/", "type": "Directory"},
    "image": {"reference": "registry/image"},
    "secret": {"secretName": "s", "defaultMode": 0o640},
    "configMap": {"name": "c", "defaultMode": 0o644},
    "downwardAPI": {
        "defaultMode": 0o644,
        "items": [{"path": "deep/name", "fieldRef": {"fieldPath": "metadata.name"}}],
    },
    "disk": {"name": "data"},
    "local": {"path": "/"},
    "nfs": {"server": "storage", "path": "/export"},
    "csi": {"driver": CSI_DRIVER},
    "iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-11.com.example:x", "lun": 0},
    "fc": {"targetWWNs": ["50060e801049cfd1"], "lun": 0},
    "flexVolume": {"driver": "vendor/driver", "secretRef": {"name": "s"}},
    "gitRepo": {"repository": "https://git.example/app", "directory": "app", "revision": "main"},
    "projected": {
        "defaultMode": 0o644,
        "sources": [
            {"secret": {"name": "s", "items": [{"key": "key", "path": "of/secret"}]}},
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        ],
    },
}
GATES = frozenset({"EmptyDirVolumeMode", "GitRepoVolumeDriver"})
GATHERED = SetUpInputs(
    objects={
        ObjectKey("Secret", "shop", "s"): FoundObject({"type": "vendor/driver", "data": {"key": "aw=="}}),
        ObjectKey("ConfigMap", "shop", "c"): FoundObject({"data": {"a": "1", "b": "2"}}),
    },
    tokens={TokenKey("shop", "builder", (), 3607, "web", "u"): FoundToken("jwt")},
)


def pod(field: str, source: object) -> dict[str, Any]:
    """A pod with one volume `v`."""
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {
            "securityContext": {"fsGroup": os.getegid()},
            "serviceAccountName": "builder",
            "containers": [{"name": "c"}],
            "volumes": [{"name": "v", field: source}],
        },
    }


def read(field: str) -> VolumeSpec:
    driver = {"metadata": {"name": CSI_DRIVER}, "spec": {"volumeLifecycleModes": ["Ephemeral"], "podInfoOnMount": True}}
    node, source = (
        Node(memory=1 << 30, labels={}, csi_driver=driver, gates=GATES, flex_attaches=True),
        EXAMPLES[field],
    )
    found = volume_spec(pod(field, source), "v", node, WITH_DISKS)
    if isinstance(found, Refused):  # only a PersistentVolume is of this type
        persistent = PersistentVolume(name="v", spec={field: source}, annotations={}, claim={})
        found = persistent_volume_spec(pod(field, source), persistent, node, WITH_DISKS)
    assert isinstance(found, VolumeSpec)
    return found


class Machine:
    """A root directory on which one process after the other works; mounts are played."""

    def __init__(self, root: Path, field: str, socket: str) -> None:
        self.socket = socket  # of a driver
        (root / "disks" / "data").mkdir(parents=True)
        self.directories = PodDirectories(str(root))
        self._plugin, self.spec = WITH_DISKS[field], read(field)

    @property
    def plugin(self) -> VolumePlugin[Any]:
        """As a new process has it."""
        return self._plugin(self.directories, SystemClock(), CsiDrivers(lambda _: self.socket))

    def mount_device(self) -> str:
        plugin = self.plugin
        if not isinstance(plugin, DeviceMountableVolumePlugin) or not self.spec.volume_name:
            return ""
        return plugin.mount_device(self.spec.volume_name, self.spec.source, GATHERED)

    @property
    def directory(self) -> Path:
        """Of the volume."""
        owner = "vendor/driver" if self.spec.plugin == FlexVolumePlugin.name else self.spec.plugin
        return self.directories.volume("u", owner, "v")

    def set_up(self) -> str:
        gathered = replace(GATHERED, device_path=self.mount_device())
        return self.plugin.set_up("u", "v", self.spec.source, gathered)

    def tear_down(self) -> None:
        self.plugin.tear_down("u", "v", RemovalProgress())

    def found(self) -> list[tuple[str, str]]:
        return [(volume.name, volume.plugin) for volume in self.plugin.reconstruct("u")]

    def is_complete(self) -> bool:
        """Whether a new process would use the volume as it is."""
        return any(volume.complete for volume in self.plugin.reconstruct("u"))

    def tree(self) -> dict[str, tuple[str, str]]:
        """Path -> mode and content, as containers see them."""
        top, seen = self.directories.pod("u"), dict[str, tuple[str, str]]()
        for directory, directories, files in os.walk(top, followlinks=True):
            directories[:] = [name for name in directories if not name.startswith("..")]
            for path in [Path(directory), *(Path(directory) / name for name in files)]:
                content = path.read_text() if path.is_file() else ""
                seen[str(path.relative_to(top))] = (oct(path.stat().st_mode), content)
        return seen


@pytest.fixture(params=sorted(WITH_DISKS))
def field(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str) -> Iterator[Iterator[Machine]]:
    """Any number of new machines."""
    mounts: set[str] = set()

    def mount_tmpfs(path: Path, *, size: int) -> None:
        mounts.add(str(path))

    def clone(directory: Path, lock: int, word: str, *words: str, options: Any = ()) -> None:
        if word == "clone":
            (directory / words[-1]).mkdir()
            (directory / words[-1] / "file").write_text("x")

    def call_flex_driver(self: FlexDrivers, driver: str, command: str, path: str, *_: str, **__: Any) -> Answer:
        mounts.add(path) if command.startswith("mount") else mounts.discard(path)
        return Answer()

    monkeypatch.setattr(backing_directory, "mount_tmpfs", mount_tmpfs)
    monkeypatch.setattr(local, "bind_with_options", lambda device, path, options: mounts.add(str(path)))
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) in mounts and Path(path).exists())
    monkeypatch.setattr(local, "is_mount_point", lambda path: str(path) in mounts)
    monkeypatch.setattr(nfs, "mount_filesystem", lambda export, path, kind, options: mounts.add(str(path)))
    monkeypatch.setattr(nfs, "is_mount_point", lambda path: str(path) in mounts)
    monkeypatch.setattr(nfs, "_unmount", lambda path: mounts.discard(str(path)))
    monkeypatch.setattr(git_repo, "_git", clone)
    monkeypatch.setattr(flex_volume, "is_mount_point", lambda path: str(path) in mounts)
    monkeypatch.setattr(FlexDrivers, "capabilities", lambda self, driver: Answer())
    monkeypatch.setattr(FlexDrivers, "call", call_flex_driver)
    monkeypatch.setattr(local, "unmount", lambda path: mounts.discard(str(path)))
    for plugin in (IscsiPlugin, FcPlugin):
        monkeypatch.setattr(plugin, "attach", lambda self, disk, gathered: "/dev/disk")
    monkeypatch.setattr(scsi_disk, "format_and_mount", lambda device, path, *_, **__: mounts.add(str(path)))
    monkeypatch.setattr(scsi_disk, "bind_with_options", lambda device, path, options: mounts.add(str(path)))
    monkeypatch.setattr(scsi_disk, "is_mount_point", lambda path: str(path) in mounts)
    monkeypatch.setattr(scsi_disk, "unmount_all", lambda path: mounts.discard(str(path)))
    with tempfile.TemporaryDirectory(prefix="csi") as short:  # the path of a socket has at most 107 bytes
        driver = CsiDriver(Path(short), Path(short) / "state", CSI_DRIVER, capabilities=())
        if field == "csi":
            driver.start()
        monkeypatch.setattr(csi_staging, "is_mount_point", driver.mounts.is_mounted)
        socket = str(driver.endpoint)
        yield (Machine(tmp_path / str(number), field, socket) for number in range(3 * STEPS))
        driver.stop()


def test_every_registered_plugin_has_an_example_and_a_name_of_its_own() -> None:
    assert EXAMPLES.keys() == WITH_DISKS.keys() > PLUGINS.keys()
    names = {plugin.name for plugin in WITH_DISKS.values()}
    assert len(names) == len(WITH_DISKS)
    assert all(name.startswith("kubernetes.io/") and name.count("/") == 1 for name in names)


def test_the_deciding_half_gives_equal_specs_for_equal_pods(field: str) -> None:
    first, second = read(field), read(field)
    assert (first, hash(first)) == (second, hash(second))
    assert first.plugin == WITH_DISKS[field].name


@pytest.mark.parametrize("source", [{}, {"type": 1, "path": None, "items": "x", "sources": [None, 1, {}]}])
def test_a_source_of_an_odd_shape_is_read_without_an_exception(field: str, source: object) -> None:
    assert isinstance(volume_spec(pod(field, source), "v", Node(), WITH_DISKS), VolumeSpec | Refused)


def test_set_up_again_finds_its_own_work_done(machines: Iterator[Machine]) -> None:
    machine = next(machines)
    path, tree = machine.set_up(), machine.tree()
    assert (machine.set_up(), machine.tree()) == (path, tree)


def test_a_volume_is_found_again_if_and_only_if_it_has_a_directory(machines: Iterator[Machine]) -> None:
    machine = next(machines)
    assert machine.found() == []
    path, directory = machine.set_up(), machine.directory
    assert machine.found() == ([("v", machine.spec.plugin)] if machine.spec.has_directory else [])
    assert path.startswith(str(directory)) is machine.spec.has_directory
    assert directory.exists() is machine.spec.has_directory


def test_a_teardown_takes_everything_and_may_be_repeated(machines: Iterator[Machine]) -> None:
    machine = next(machines)
    machine.tear_down()
    machine.set_up()
    for _ in range(2):
        machine.tear_down()
        assert machine.found() == []
    machine.directories.remove("u")
    assert machine.directories.uids() == []


@pytest.mark.long
@pytest.mark.share(4)
def test_a_set_up_killed_before_any_system_call_is_completed_by_the_next_process(machines: Iterator[Machine]) -> None:
    undisturbed = next(machines)
    undisturbed.set_up()
    for step in range(1, STEPS):
        machine = next(machines)
        if not killed(step, machine.set_up):
            break
        machine.set_up()
        assert machine.tree() == undisturbed.tree()
        machine.tear_down()
        assert machine.found() == []
    assert 4 < step < STEPS


@pytest.mark.share(4)
def test_only_a_volume_with_everything_in_place_is_found_complete(machines: Iterator[Machine]) -> None:
    undisturbed = next(machines)
    undisturbed.set_up()
    assert undisturbed.is_complete() is undisturbed.spec.requires_remount
    for step in range(1, STEPS):
        beginning, ending = next(machines), next(machines)
        ending.set_up()
        began, ended = killed(step, beginning.set_up), killed(step, ending.tear_down)
        for machine in (beginning, ending):
            assert not machine.is_complete() or machine.tree() == undisturbed.tree()
        if not began and not ended:
            break
    assert step < STEPS


@pytest.mark.share(4)
def test_what_a_killed_set_up_leaves_is_found_and_torn_down(machines: Iterator[Machine]) -> None:
    for step in range(1, STEPS):
        machine = next(machines)
        if not killed(step, machine.set_up):
            break
        volumes = machine.directories.pod("u") / "volumes"
        if any(volumes.glob("*/*")):
            assert machine.found() == [("v", machine.spec.plugin)]
        machine.tear_down()
        machine.directories.remove("u")
        assert machine.directories.uids() == []


@pytest.mark.share(4)
def test_a_teardown_killed_before_any_system_call_is_completed_by_the_next_process(
    machines: Iterator[Machine],
) -> None:
    for step in range(1, STEPS):
        machine = next(machines)
        machine.set_up()
        if not killed(step, machine.tear_down):
            break
        if machine.found():
            machine.tear_down()
        machine.directories.remove("u")
        assert machine.directories.uids() == []
    assert (step > 1) is machine.spec.has_directory
