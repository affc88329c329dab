"""Compares the desired with the actual state of the world, and returns the difference as operations and as
`volumes.mounted`; pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bus.messages.event import KubeEvent
from bus.messages.volume import MountedVolumes, VolumesInUse, VolumeState
from services.volume.core.events.attach_limits import AttachLimits
from services.volume.core.events.mount_events import of_failure, of_success
from services.volume.core.events.pod_events import PodEvents
from services.volume.core.files.payload import FailureKind
from services.volume.core.mounting import devices, expansions
from services.volume.core.mounting.mount_refusals import refusal_of
from services.volume.core.mounting.orphans import Orphans
from services.volume.core.mounting.refreshes import Key, Refreshes
from services.volume.core.mounting.view import may_belong, message, settling, usable, view
from services.volume.core.mounting.volume_states import volume_after_mount, volume_being_mounted, volume_on_disk
from services.volume.core.operations.operation_backoff import OperationBackoff
from services.volume.core.operations.operations import (
    DeviceOperation,
    ExpandVolume,
    MakePodDirectories,
    MountDevice,
    MountVolume,
    Operation,
    RemoveOldFiles,
    RemovePodDirectory,
    UnmountDevice,
    UnmountVolume,
)
from services.volume.core.operations.outcome import FollowUp, FoundDevice, FoundVolume, Outcome
from services.volume.core.specs.volume_spec import Refused, VolumeSpec, spec_name, unique_name
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld, ActualVolume, MountState
from services.volume.core.world.attachments import Attachments
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld, DesiredVolumes
from shared.model.frozen_copy import replace

QUIET_SECONDS = 10.0  # during which a failure LAGGING or UNANSWERED is not reported
HOLD_SECONDS = 5.0  # after the start of this process; until then a provisional volume waits for the node's resources


@dataclass
class Reconciler:
    """Decides the operations on the volumes of all pods.

    When something has changed, `pods` returns the pods to look at, and `operations` what each of them needs. The caller
    calls `perform` right before it carries out an operation, and `done` after it, or `abandoned` instead of both.
    """

    desired: DesiredStateOfWorld
    actual: ActualStateOfWorld
    attachments: Attachments = field(default_factory=lambda: Attachments(""))
    _backoff: OperationBackoff = field(default_factory=OperationBackoff)
    _orphans: Orphans = field(default_factory=Orphans)
    _failing_since: dict[Key, float] = field(default_factory=dict)
    refreshes: Refreshes = field(default_factory=Refreshes)
    _events: PodEvents = field(default_factory=PodEvents)
    # Subpaths that are being bound: pod UID, name of the volume in the pod -> its key, for each of them.
    _preparing: dict[Key, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.desired.is_mounted = self.actual.is_mounted
        self.attach_limits = AttachLimits(self.desired, self.actual, self.attachments, self._events)

    def add_volumes_on_disk(self, uid: str, volumes: Iterable[FoundVolume]) -> None:
        """Add what was found on disk at start: the directory `pods/<uid>` with these volumes."""
        self.actual.directories.add(uid)
        for volume in volumes:
            key = volume.key or volume.name
            if self.actual.get(uid, key) is None:
                self.actual.put(uid, key, volume_on_disk(volume))

    def add_devices_on_disk(self, found: Iterable[FoundDevice]) -> None:
        """Add the devices of which something was found on disk or in the mount table at start."""
        for device in found:
            name = unique_name(device.plugin, device.volume_name)
            self.actual.devices.setdefault(name, devices.device_on_disk(device))

    def begin_subpath(self, uid: str, volume: str) -> str:
        """Return where a volume is mounted of which a subpath is to be bound, "" = it is not mounted for a pod that
        needs it. Until `end_subpath` it is not unmounted; from now on its subpaths are unmounted before it."""
        pod, shown = self.desired.pods.get(uid), self.view(uid)
        if pod is None or pod.finished or volume not in pod.volumes or shown is None:
            return ""
        actual, mounted = self.actual.get(uid, pod.key(volume)), shown.volumes[volume]
        if actual is None or mounted.state is not VolumeState.MOUNTED:
            return ""
        if mounted.host_path:
            actual.subpaths = True
            self._preparing.setdefault((uid, volume), []).append(pod.key(volume))
        return mounted.host_path

    def end_subpath(self, uid: str, volume: str) -> None:
        """Note that a subpath is bound, or could not be bound."""
        self._preparing[uid, volume].pop()
        if not self._preparing[uid, volume]:
            del self._preparing[uid, volume]

    def spec_name(self, uid: str, volume: str) -> str:
        """Return the name that the directories of a volume have. `volume`: its name in the pod."""
        pod = self.desired.pods.get(uid)
        return spec_name(pod.key(volume)) if pod is not None else volume

    def object_changed(self, changed: str, version: str, waiting: Iterable[Key] = ()) -> list[str]:
        """Request a refresh of the volumes that show an object, unless they have this version of it. `changed`: its key
        in `objects.changed`; `waiting`: volumes that wait for it. Return the UIDs of all their pods."""
        showing = [*self.desired.showing(changed), *waiting]
        for uid, name in showing:
            self._backoff.retry_now(uid, name)
            if self.refreshes.used((uid, name), changed) != version:
                self.refreshes.ask((uid, name))
        return [uid for uid, _ in showing]

    def concerned(self, operation: Operation) -> list[str]:
        """Return the UIDs of the pods for which the end of the operation may change something: its own pod, and those
        that share its device or still have it mounted."""
        device = devices.unique_name_of(operation, self.actual)
        sharing = [*self.desired.sharing(device), *self.actual.users(device)]
        return [operation.uid, *(uid for uid, _ in sharing)] if operation.uid else [uid for uid, _ in sharing]

    def refresh_all(self) -> None:
        """Request a refresh of every mounted volume whose content may change."""
        for uid, name, volume in self.actual.every():
            if volume.requires_remount and volume.state is MountState.MOUNTED:
                self.refreshes.ask((uid, name))

    def pods(self) -> list[str]:
        """Return the UIDs of all pods for which there may be something to do; those whose unmounts wait first."""
        self.actual.directories |= {uid for uid, pod in self.desired.pods.items() if not pod.finished}
        on_disk = self.actual.uids()
        self.desired.withdrawn &= on_disk
        self._events.keep(self.desired.pods)
        return sorted(self.desired.pods.keys() | on_disk, key=lambda uid: (not self._backoff.waits(uid), uid))

    def operations(self, uid: str, now: float) -> list[Operation]:
        """Return what to start now for this pod; each runs until `done` or `abandoned` is called."""
        started: list[Operation] = []
        self._backoff.look_again(uid)
        for operation in self._due(uid, now):
            if devices.may_start(operation, self.actual, self._backoff, now):
                self._backoff.start(operation)
                if isinstance(operation, MountVolume):
                    if (refusal := self._refusal_of(uid, operation.volume, operation.spec)) is not None:
                        self._refuse(operation, refusal, now)
                        continue
                    self.refreshes.begin((uid, operation.volume))
                    self._use_device(operation)
                started.append(operation)
        return started

    def device_operations(self, now: float) -> list[DeviceOperation]:
        """Return what to start now for devices; each runs until `done` is called."""
        due = self._due_devices()
        started = [operation for operation in due if devices.may_start(operation, self.actual, self._backoff, now)]
        for operation in started:
            self._backoff.start(operation)
        return started

    def volumes_in_use(self) -> VolumesInUse | None:
        """Return the value of `volumes.in_use`, None = it has not changed. Until every volume on disk and every pod is
        known, it keeps the names that the Node has; a device that is being mounted or unmounted is in use."""
        running = [mount for mount in self._backoff.running_for("") if isinstance(mount, MountDevice)]
        being_mounted = {mount.volume for mount in running if mount.spec.attachable}
        used = devices.attachable(self.desired, self.actual) | being_mounted
        if not self.attachments.use(used, complete=self._is_complete()):
            return None
        in_use = self.attachments.in_use or frozenset()
        return VolumesInUse(generation=self.attachments.generation, volumes=tuple(sorted(in_use)))

    def still_due(self, operation: Operation, now: float) -> bool:
        """Return whether an operation is still due: its pod may have come back or gone meanwhile."""
        return operation in (self._due(operation.uid, now) if operation.uid else self._due_devices())

    def perform(self, operation: Operation, now: float) -> bool:
        """Return whether an operation that has its turn is to be performed. It is not if it is not due any more, or if
        it is a mount while an unmount of the same volume waits or runs; then it is decided again after that."""
        goes = self.still_due(operation, now) and not devices.excludes(operation, self.actual, self._backoff)
        if goes:
            self._backoff.perform(operation)
        return goes

    def abandoned(self, operation: Operation) -> None:
        """Note that an operation was not performed when it had its turn."""
        self._backoff.abandoned(operation)

    def events(self, uid: str, now: float) -> list[KubeEvent]:
        """Return the events of this pod that are due: for volumes that cannot be mounted, each once, and for volumes
        that have been missing for too long."""
        return self._events.due(uid, self.desired.pods.get(uid), self.view(uid), self.attachments, now)

    def returned(self, operation: Operation) -> None:
        """Note that the hanging call of an operation has returned, and retry volumes with the same path on the node."""
        self._backoff.returned(operation)
        path = operation.spec.node_path if isinstance(operation, MountVolume) else ""
        for uid, pod in self.desired.pods.items():
            for name, spec in pod.mounts.items():
                if path and spec.node_path == path:
                    self._backoff.retry_now(uid, name)

    def drivers_changed(self, plugin: str) -> None:
        """Retry at once what failed without a driver of this plugin, because one was registered."""
        self._backoff.retry_all_now(f"{plugin}/")

    def done(self, operation: Operation, now: float, outcome: Outcome | None = None) -> FollowUp:
        """Store how an operation ended, and return what follows."""
        outcome = outcome or Outcome()
        error = outcome.error
        wait = 0.0
        if error:
            growing = outcome.kind is not FailureKind.UNANSWERED
            wait = self._backoff.failed(operation, now, growing=growing, under_way=outcome.under_way)
        else:
            self._backoff.succeeded(operation)
        quiet = self._is_quiet(operation, now, outcome)
        match operation:
            case MakePodDirectories(uid):
                self.actual.directories.add(uid)
                if not error:
                    self.actual.prepared.add(uid)
            case MountVolume(uid):
                self.actual.directories.add(uid)
                self._mount_done(operation, outcome, shown="" if quiet else error)
            case RemoveOldFiles(uid, name) if not error:
                self.refreshes.keeps_old_files((uid, name), outcome.old_files_at)
            case ExpandVolume():
                expansions.done(operation, outcome, self.actual)
            case UnmountVolume(uid, name):
                if not error:
                    self._retry_others(uid, name)
                    self.actual.drop(uid, name)
                    self.refreshes.forget((uid, name))
                elif volume := self.actual.get(uid, name):
                    volume.state = MountState.UNCERTAIN
                    volume.error = message(name, error, step="UnmountVolume.TearDown")
            case RemovePodDirectory(uid):
                self.actual.prepared.discard(uid)
                if not error:
                    self.actual.directories.discard(uid)
                    self._orphans.forget(uid)
                    self._backoff.forget(uid)
                    self.refreshes.forget_pod(uid)
            case MountDevice() | UnmountDevice():
                devices.done(operation, outcome, self.actual, shown="" if quiet else error)
        if error:
            events = of_failure(operation, outcome, self.desired, self.actual) if not quiet else ()
        else:
            events = of_success(operation, outcome, self.desired)
        return FollowUp(retry_in=wait, events=tuple(events), quiet=quiet)

    def _refusal_of(self, uid: str, key: str, spec: VolumeSpec) -> Refused | None:
        return refusal_of(uid, key, spec, self.desired, self.actual, self.attachments)

    def _refuse(self, operation: MountVolume, refusal: Refused, now: float) -> None:
        """Let a mount fail before it begins; nothing of its volume is there."""
        key, spec = (operation.uid, operation.volume), operation.spec
        self._backoff.failed(operation, now)
        error = message(operation.volume, refusal.reason, step=refusal.step)
        self.actual.put(*key, ActualVolume(MountState.UNCERTAIN, on_disk=False, spec=spec, error=error))
        self._events.refused(self.desired.pods[operation.uid], error, refusal)

    def _retry_others(self, uid: str, key: str) -> None:
        """Retry the other pods that share the device of a volume, because they may have waited for its unmount."""
        volume = self.actual.get(uid, key)
        if volume is not None and volume.unique_name:
            for other in self.desired.sharing(volume.unique_name):
                self._backoff.retry_now(*other)

    def _is_quiet(self, operation: Operation, now: float, outcome: Outcome) -> bool:
        """Return whether a failure is not reported yet: one that is expected to end soon is reported only after
        `QUIET_SECONDS`."""
        key = (operation.uid, operation.volume)
        if outcome.kind is FailureKind.LASTING:
            self._failing_since.pop(key, None)
            return False
        return now - self._failing_since.setdefault(key, now) < QUIET_SECONDS

    def _mount_done(self, operation: MountVolume, outcome: Outcome, shown: str) -> None:
        key, spec = (operation.uid, operation.volume), operation.spec
        before = self.actual.get(*key)
        if not outcome.error:
            self.refreshes.succeeded(key, outcome.versions, outcome.refresh_at)
            self.refreshes.keeps_old_files(key, outcome.old_files_at)
        elif usable(before, spec):
            return  # its old content stays in use
        volume = volume_after_mount(operation, outcome, before, shown)
        expansions.mounted(volume, before, spec, self.actual)
        self.actual.put(*key, volume)

    def view(self, uid: str) -> MountedVolumes | None:
        """Return the value of `volumes.mounted` for this pod; None = nothing of it is mounted or wanted."""
        found, rejected = view(uid, self.desired, self.actual, self._backoff), self.attach_limits.rejections.get(uid)
        return replace(found, attach_limit=rejected) if found is not None and rejected else found

    def settling(self, uid: str) -> bool:
        """Return whether `volumes.mounted` waits for the outcome of a first attempt."""
        return settling(self.desired.pods.get(uid), self.view(uid), self._backoff)

    def next_attempt(self, now: float) -> float | None:
        """Return when to call `operations` again though nothing changed."""
        moments = (
            self._orphans.next_at(now),
            self._backoff.next_attempt(now),
            self.refreshes.next_at(now),
            self._events.next_at(now),
            self.desired.hold_until,
        )
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def _due(self, uid: str, now: float) -> list[Operation]:
        desired = self.desired.pods.get(uid)
        return [*self._unmounts(uid, desired, now), *self._mounts(desired, now)]

    def _mounts(self, desired: DesiredVolumes | None, now: float) -> list[Operation]:
        if desired is None or desired.finished:
            return []
        uid, operations = desired.uid, list[Operation]()
        if desired.mounting and uid not in self.actual.prepared and not desired.volumes:
            operations.append(MakePodDirectories(uid))
        for name, spec in desired.mounts.items():
            volume = self.actual.get(uid, name)
            if usable(volume, spec) and not desired.mounting:
                continue  # a pod that ends keeps what it has
            if spec.provisional and now < self.desired.hold_until:
                continue
            mounted = volume is not None and volume.state is MountState.MOUNTED and volume.spec == spec
            if spec.requires_remount and self.refreshes.due((uid, name), now):
                mounted = False
            refused = self._refusal_of(uid, name, spec) is not None
            device_path = "" if refused else devices.path_for(spec, self.actual, self._backoff)
            if not mounted and device_path is not None and (desired.mounting or volume is not None):
                operations.append(MountVolume(uid, name, spec, device_path))
            elif mounted and volume is not None and expansions.is_due(volume, spec):
                operations.append(ExpandVolume(uid, name, spec, spec.capacity))
            elif mounted and self.refreshes.old_files_due((uid, name), now):
                operations.append(RemoveOldFiles(uid, name, spec.plugin))
        return operations

    def _use_device(self, operation: MountVolume) -> None:
        """Note that the volume may be mounted on its device from now on, so that the device stays until the volume is
        unmounted."""
        spec, key = operation.spec, (operation.uid, operation.volume)
        before = self.actual.get(*key)
        if spec.unique_name and (before is None or not before.unique_name):
            self.actual.put(*key, volume_being_mounted(operation))

    def _due_devices(self) -> list[DeviceOperation]:
        return devices.due(self.desired, self.actual, self.attachments, may_unmount=self._is_complete())

    def _is_complete(self) -> bool:
        """Return whether every pod is listed and every volume on disk is known, so that devices may be unmounted."""
        return self.desired.exhaustive and not self.actual.unread and not self.actual.on_unknown_devices

    def _unmounts(self, uid: str, desired: DesiredVolumes | None, now: float) -> list[Operation]:
        if not self._orphans.may_unmount(uid, self.desired, now):
            return []
        operations: list[Operation] = []
        preparing = {key for (pod, _), keys in self._preparing.items() if pod == uid for key in keys}
        for name, volume in self.actual.volumes_of(uid):
            if name in preparing or (desired is not None and may_belong(name, volume, desired)):
                continue
            if volume.to_tear_down:
                operations.append(UnmountVolume(uid, name))
            elif self._backoff.running(uid, name) is None:
                self.actual.drop(uid, name)  # a hostPath has nothing to tear down
        gone = desired is None or desired.finished
        if gone and uid in self.actual.directories and not self.actual.volumes_of(uid):
            operations.append(RemovePodDirectory(uid))
        return operations
