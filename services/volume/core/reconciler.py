"""The difference between the desired and the actual state of the world, as operations; and as what followers see.

Knows no paths and no kernel: it says what to do, is told how it went, and says what is mounted.
"""

from dataclasses import dataclass, field

from bus.messages.event import KubeEvent
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.volume.core.actual_state_of_world import ActualStateOfWorld, ActualVolume, MountState
from services.volume.core.desired_state_of_world import DesiredStateOfWorld, DesiredVolumes
from services.volume.core.operations import (
    MakePodDirectories,
    MountVolume,
    Operation,
    OperationBackoff,
    RemovePodDirectory,
    UnmountVolume,
)
from services.volume.core.volume_source import EmptyDir, Refused

# A pod directory may appear before the word of its pod reaches this process, and a podsync that lost its records may
# find a pod again in the runtime; only what stays unknown for this long (seconds) is an orphan.
ORPHAN_GRACE = 2.0


@dataclass
class Reconciler:
    """Call `operations` whenever something changed; of each that it returns ask `still_due` right before performing it,
    then tell `done`, or `abandoned` if it is not due any more."""

    desired: DesiredStateOfWorld
    actual: ActualStateOfWorld
    _backoff: OperationBackoff = field(default_factory=OperationBackoff)
    _refusals_said: set[tuple[str, str]] = field(default_factory=set)
    _unknown_since: dict[str, float] = field(default_factory=dict)

    def found(self, uid: str, volumes: tuple[str, ...]) -> None:
        """At start `pods/<uid>` was found on disk, with the directories of these emptyDir volumes."""
        self.actual.directories.add(uid)
        for name in volumes:
            self.actual.volumes.setdefault((uid, name), ActualVolume(state=MountState.UNCERTAIN, on_disk=True))

    def found_directory(self, uid: str) -> None:
        """A later look found `pods/<uid>` on disk."""
        self.actual.directories.add(uid)

    def operations(self, now: float) -> list[Operation]:
        """What to start now; each is considered under way until `done` is told."""
        self.actual.directories |= {uid for uid, pod in self.desired.pods.items() if not pod.finished}
        started: list[Operation] = []
        for uid in sorted(self.desired.pods.keys() | self.actual.uids()):
            for operation in self._due(uid, now):
                if self._backoff.may_start(operation, now):
                    self._backoff.start(operation)
                    started.append(operation)
        self.desired.taken_away &= self.actual.uids()
        return started

    def still_due(self, operation: Operation, now: float) -> bool:
        """Whether an operation that has waited for its turn would be started now: the pod may be back, or be gone."""
        return operation in self._due(operation.uid, now)

    def abandoned(self, operation: Operation) -> None:
        """An operation was not due any more and has not been performed."""
        self._backoff.abandoned(operation)

    def refusals(self) -> list[KubeEvent]:
        """Events for wanted volumes that cannot be mounted whatever happens; each is said once."""
        events = []
        refused = {
            (pod.uid, name): source.reason
            for pod in self.desired.pods.values()
            for name, source in pod.volumes.items()
            if isinstance(source, Refused)
        }
        for (uid, name), reason in refused.items():
            if (uid, name) not in self._refusals_said:
                events.append(_failed_mount(self.desired.pods[uid], name, reason))
        self._refusals_said = set(refused)
        return events

    def done(self, operation: Operation, now: float, *, host_path: str = "", error: str = "") -> "Done":
        """An operation ended; `error` is the kubelet's inner text, "" = success."""
        wait = self._backoff.failed(operation, now) if error else 0.0
        if not error:
            self._backoff.succeeded(operation)
        match operation:
            case MakePodDirectories(uid):
                self.actual.directories.add(uid)
                if not error:
                    self.actual.prepared.add(uid)
            case MountVolume(uid, name, source):
                self.actual.directories.add(uid)
                self.actual.volumes[uid, name] = ActualVolume(
                    state=MountState.UNCERTAIN if error else MountState.MOUNTED,
                    on_disk=isinstance(source, EmptyDir),
                    host_path=host_path,
                    source=source,
                    error=_message(name, error) if error else "",
                )
            case UnmountVolume(uid, name):
                if not error:
                    self.actual.volumes.pop((uid, name), None)
                elif (uid, name) in self.actual.volumes:
                    self.actual.volumes[uid, name].state = MountState.UNCERTAIN
                    self.actual.volumes[uid, name].error = _message(name, error, step="UnmountVolume.TearDown")
            case RemovePodDirectory(uid):
                self.actual.prepared.discard(uid)
                if not error:
                    self.actual.directories.discard(uid)
                    self._unknown_since.pop(uid, None)
                    self._backoff.forget(uid)
        pod = self.desired.pods.get(operation.uid)
        event = None
        if error and isinstance(operation, MountVolume) and pod is not None:
            event = _failed_mount(pod, operation.volume, error)
        return Done(retry_in=wait, event=event)

    def view(self, uid: str) -> MountedVolumes | None:
        """What followers are to know of this pod; None = nothing of it is mounted or wanted."""
        desired = self.desired.pods.get(uid)
        wanted = desired.volumes if desired is not None else {}
        volumes: dict[str, MountedVolume] = {}
        for name, source in wanted.items():
            volume = self.actual.volumes.get((uid, name))
            if isinstance(source, Refused):
                volumes[name] = MountedVolume(state=VolumeState.ERROR, error=_message(name, source.reason))
            elif isinstance(self._backoff.running(uid, name), UnmountVolume):
                volumes[name] = MountedVolume(state=VolumeState.PENDING)  # wanted again while it is taken away
            elif volume is None or (volume.source != source and not volume.error):
                volumes[name] = MountedVolume(state=VolumeState.PENDING)
            elif volume.error:
                volumes[name] = MountedVolume(state=VolumeState.ERROR, error=volume.error)
            else:
                volumes[name] = MountedVolume(state=VolumeState.MOUNTED, host_path=volume.host_path)
        for name, volume in self.actual.of(uid):
            if name not in wanted:
                undecided = desired is None and uid not in self.desired.taken_away  # podsync may still speak of it
                state = VolumeState.PENDING if undecided else VolumeState.UNMOUNTING
                volumes[name] = MountedVolume(state=state, host_path=volume.host_path, error=volume.error)
        return MountedVolumes(uid=uid, volumes=volumes) if volumes else None

    def settling(self, uid: str) -> bool:
        """A first attempt is under way and no error is known yet: its outcome is awaited before followers are told."""
        view = self.view(uid)
        states = {name: volume.state for name, volume in view.volumes.items()} if view is not None else {}
        return VolumeState.ERROR not in states.values() and any(
            state is VolumeState.PENDING and isinstance(self._backoff.running(uid, name), MountVolume)
            for name, state in states.items()
        )

    def next_attempt(self, now: float) -> float | None:
        """When `operations` is to be asked again though nothing changed."""
        orphans = (since + ORPHAN_GRACE for since in self._unknown_since.values() if since + ORPHAN_GRACE > now)
        moments = [*orphans, *(m for m in [self._backoff.next_attempt(now)] if m is not None)]
        return min(moments, default=None)

    def _due(self, uid: str, now: float) -> list[Operation]:
        desired = self.desired.pods.get(uid)
        return [*self._mounts(desired), *self._unmounts(uid, desired, now)]

    def _mounts(self, desired: DesiredVolumes | None) -> list[Operation]:
        if desired is None or desired.finished:
            return []
        uid, operations = desired.uid, list[Operation]()
        if desired.mounting and uid not in self.actual.prepared and not desired.volumes:
            operations.append(MakePodDirectories(uid))
        for name, source in desired.volumes.items():
            if isinstance(source, Refused):
                continue
            volume = self.actual.volumes.get((uid, name))
            mounted = volume is not None and volume.state is MountState.MOUNTED and volume.source == source
            if not mounted and (desired.mounting or volume is not None):
                operations.append(MountVolume(uid, name, source))
        return operations

    def _unmounts(self, uid: str, desired: DesiredVolumes | None, now: float) -> list[Operation]:
        if not self._may_take_from(uid, desired, now):
            return []
        wanted = desired.volumes if desired is not None else {}
        operations: list[Operation] = []
        for name, volume in self.actual.of(uid):
            if name in wanted:
                continue
            if volume.on_disk:
                operations.append(UnmountVolume(uid, name))
            elif self._backoff.running(uid, name) is None:
                del self.actual.volumes[uid, name]  # a hostPath has nothing to tear down
        gone = desired is None or desired.finished
        if gone and uid in self.actual.directories and not any(self.actual.of(uid)):
            operations.append(RemovePodDirectory(uid))
        return operations

    def _may_take_from(self, uid: str, desired: DesiredVolumes | None, now: float) -> bool:
        if desired is not None or not self.desired.exhaustive:
            self._unknown_since.pop(uid, None)
            return self.desired.exhaustive  # what is said of a listed pod may be an older word than one not read yet
        if uid in self.desired.taken_away:
            return True
        return now - self._unknown_since.setdefault(uid, now) >= ORPHAN_GRACE


@dataclass(frozen=True)
class Done:
    """What follows from the end of an operation: seconds until it may run again, and an event to record."""

    retry_in: float
    event: KubeEvent | None


def _message(volume: str, error: str, *, step: str = "MountVolume.SetUp") -> str:
    return f'{step} failed for volume "{volume}" : {error}'


def _failed_mount(pod: DesiredVolumes, volume: str, error: str) -> KubeEvent:
    return KubeEvent(
        type="Warning",
        reason="FailedMount",
        message=_message(volume, error),
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
    )
