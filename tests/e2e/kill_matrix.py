"""A process of volume that is killed at a step: forked, with the real plugins, mounts and programs, and a real SIGKILL.

A step is a system call that changes something, or a mount, an unmount, a program or a call of a CSI driver, before and
after each: each crash point of the plugins is the state before some step. The process finds what is on disk, takes the
pods, and performs what its core decides until nothing is left to do. The other processes are played by values.
"""

import os
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bus.messages.podsync import PodState, PodVolumes
from services.volume.adapters import root_dir
from services.volume.adapters.csi_client import CsiDrivers
from services.volume.adapters.mounts import mount_table
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import ContentError, FoundObject, FoundToken, SetUpInputs
from services.volume.core.operations.operations import MountDevice, MountVolume, Operation
from services.volume.core.operations.outcome import Outcome
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld
from services.volume.plugins.plugin_calls import PluginCalls
from services.volume.plugins.registry import persistent_volume_spec, volume_of, volume_spec
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import below
from shared.model.objects import Object
from shared.time.clock import SystemClock
from tests.support.runtime.loop_devices import backing_files

CONFIG = {"data": {"key": "content"}}
DRIVER = "hostpath.csi.k8s.io"
NODE = Node(name="n", labels={}, csi_driver={"spec": {"attachRequired": False}})
UID = "u1"
_TURNS = 60
_CHANGING = {
    "chmod", "chown", "fchmod", "fchown", "lchown", "link", "mkdir", "open", "rename", "replace", "rmdir", "symlink",
    "unlink",
}  # fmt: skip
# File -> functions of which the call and the return are steps.
_AROUND = {
    "mounts.py": {"_mount", "unmount", "unmount_all"},
    "programs.py": {"run"},
    "csi_client.py": {"_call"},
}
_DONE, _FAILED = 0, 3


@dataclass(frozen=True)
class Kind:
    """One type of volume: its source in spec.volumes, or the spec of its PersistentVolume."""

    name: str
    source: Mapping[str, Any]
    persistent: bool = False
    block: bool = False
    keeps: bool = False  # what was written to it stays after the pod

    @property
    def has_device(self) -> bool:
        """Return whether it is on a loop device."""
        return self.block or "local" in self.source


@dataclass
class Machine:
    """A root directory for one kind of volume, and new processes of volume. `path`: a short one, as of sockets."""

    path: Path
    kind: Kind

    def __post_init__(self) -> None:
        self.root, self.errors = self.path / "root", self.path / "errors"
        # A process that gets a mount namespace meanwhile, as a container does, has copies of the mounts that there are.
        # Below a shared mount they end there, too, and hold a device no longer than here.
        assert root_dir.prepare(str(self.root)) is None

    def process(self, *, wanted: bool, kill_at: int = 0) -> bool:
        """Run a process, with the pod or after it has finished; `kill_at`: the step before which it is killed, 0 =
        none. Return whether it was killed. Raises AssertionError where it could not do all."""
        child = os.fork()
        if child == 0:
            code = _FAILED
            try:
                _kill_at(kill_at)
                _Process(self, wanted=wanted).run()
                code = _DONE
            except BaseException:
                self.errors.write_text(traceback.format_exc())
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and kill_at:
            return True
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == _DONE, self.errors.read_text()
        return False

    def mounts(self) -> list[str]:
        """Every mount point below the root directory, as often as something is mounted there, and the loop devices on
        what is below it."""
        found = [file for file in backing_files().values() if f"{self.root}/" in file]
        mounts = [point for point in below(mount_table(), str(self.root)) if point != str(self.root)]
        return sorted([*mounts, *found])

    def left(self) -> list[str]:
        """What is below the root directory, but for the directories that all volumes share."""
        shared = {self.root / "plugins" / "kubernetes.io" / "csi" / name for name in (DRIVER, "volumeDevices")}
        shared |= {
            self.root / "plugins" / "kubernetes.io" / "csi" / "volumeDevices" / n for n in ("staging", "publish")
        }
        found = [*(self.root / "pods").rglob("*"), *(self.root / "plugins" / "kubernetes.io" / "csi").rglob("*")]
        found += list((self.root / "plugins" / "kubernetes.io" / "local-volume").glob("*/*"))
        return sorted(str(path) for path in found if path not in shared)

    def pod(self) -> Object:
        source = dict(self.kind.source)
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}} if self.kind.persistent else {"name": "v"}
        use = {"volumeDevices": [{"name": "v"}]} if self.kind.block else {"volumeMounts": [{"name": "v"}]}
        spec = {
            "volumes": [volume if self.kind.persistent else {**volume, **source}],
            "containers": [{"name": "c", **use}],
            "serviceAccountName": "builder",
        }
        return {"metadata": {"name": "web", "namespace": "shop", "uid": UID}, "spec": spec}

    def spec_of(self, pod: Object, name: str) -> VolumeSpec | Refused:
        """As the populator reads it, with what the API server has."""
        volume = volume_of(pod, name) or {}
        if "persistentVolumeClaim" not in volume:
            return volume_spec(pod, name, NODE)
        spec = {**self.kind.source, "accessModes": ["ReadWriteOnce"]}
        spec |= {"volumeMode": "Block"} if self.kind.block else {}
        claim = {"metadata": {"name": "c", "namespace": "shop", "uid": "c"}}
        persistent = PersistentVolume(name="pv", spec=spec, annotations={}, claim=claim)
        return persistent_volume_spec(pod, persistent, NODE)

    def endpoint(self, driver: str) -> str:
        return str(self.root / "plugins" / driver / "csi.sock")


class _Process:
    def __init__(self, machine: Machine, *, wanted: bool) -> None:
        self._machine, self._wanted = machine, wanted
        self._calls = PluginCalls(
            PodDirectories(str(machine.root)), SystemClock(), drivers=CsiDrivers(machine.endpoint)
        )
        self._reconciler = Reconciler(DesiredStateOfWorld(machine.spec_of), ActualStateOfWorld())
        self._now = 1000.0  # monotonic seconds: each turn ends every back-off

    def run(self) -> None:
        """Find everything, then work until nothing is due. Raises AssertionError where something is left to do."""
        reconciler = self._reconciler
        reconciler.add_devices_on_disk(self._calls.find_devices())
        for uid in self._calls.uids():
            reconciler.add_volumes_on_disk(uid, self._calls.find_volumes(uid))
        self._admit()
        reconciler.desired.set_freshness(complete=True, stale=False)
        errors: list[str] = []
        for _ in range(_TURNS):
            self._now += 200.0
            due: list[Operation] = [*reconciler.device_operations(self._now)]
            for uid in reconciler.pods():
                due += reconciler.operations(uid, self._now)
            if not due:
                break
            errors = [error for operation in due if (error := self._perform(operation))]
        assert not errors, errors
        shown = reconciler.view(UID)
        states = [volume.state for volume in shown.volumes.values()] if shown is not None else []
        assert states == (["mounted"] if self._wanted else []), shown

    def _admit(self) -> None:
        state = PodState.SYNC if self._wanted else PodState.FINISHED
        names = ("v",) if self._wanted else ()
        pod = PodVolumes(uid=UID, name="web", namespace="shop", state=state, pod=self._machine.pod(), volumes=names)
        self._reconciler.desired.admit(pod)

    def _perform(self, operation: Operation) -> str:
        gathered = SetUpInputs()
        if isinstance(operation, MountVolume | MountDevice):
            gathered = _content(operation.spec.objects, operation.spec.tokens)
        try:
            performed = self._calls.perform(operation, gathered, RemovalProgress())
            outcome = Outcome(host_path=performed.host_path)
        except (OSError, ContentError) as error:
            outcome = Outcome(error=str(error))
        self._reconciler.done(operation, self._now, outcome)
        return f"{operation}: {outcome.error}" if outcome.error else ""


def _content(objects: Iterable[ObjectKey], tokens: Iterable[Any]) -> SetUpInputs:
    found = {key: FoundObject({**CONFIG, "metadata": {"resourceVersion": "1"}}) for key in objects}
    return SetUpInputs(objects=found, tokens={key: FoundToken("jwt") for key in tokens})


def _kill_at(step: int) -> None:
    """From now on the steps of this thread are counted."""
    if not step:
        return
    seen = 0

    def reached() -> None:
        nonlocal seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(frame: Any, event: str, called: Any) -> None:
        if event == "c_call":
            if getattr(called, "__module__", "") == "posix" and called.__name__ in _CHANGING:
                reached()
        elif event in ("call", "return"):
            code = frame.f_code
            if code.co_name in _AROUND.get(os.path.basename(code.co_filename), ()):  # noqa: PTH119
                reached()

    sys.setprofile(count)
