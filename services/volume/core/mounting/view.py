"""Makes the value of `volumes.mounted` for one pod, from the desired and the actual state of the world; pure."""

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.volume.core.operations.operation_backoff import OperationBackoff
from services.volume.core.operations.operations import MountDevice, MountVolume, UnmountVolume
from services.volume.core.specs.volume_spec import Refused, Unprocessed, VolumeSpec, spec_name
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld, ActualVolume, MountState
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld, DesiredVolumes


def mount_step(spec: VolumeSpec) -> str:
    """Return the kubelet's name for the step that sets up a volume for a pod (volumes.md 5.5, 5.8)."""
    return "MapVolume.MapPodDevice" if spec.block else "MountVolume.SetUp"


def device_step(spec: VolumeSpec, failed: str = "") -> str:
    """Return the kubelet's name for the step that mounts the device of a volume (volumes.md 5.5, 5.8). `failed`: the
    step before it that failed, "" = none."""
    if failed:
        return f"{'MapVolume' if spec.block else 'MountVolume'}.{failed}"
    return "MapVolume.SetUpDevice" if spec.block else "MountVolume.MountDevice"


def message(volume: str, error: str, *, step: str = "MountVolume.SetUp") -> str:
    """Return the kubelet's line for a failed operation on the volume with this key (volumes.md 5.3)."""
    return f'{step} failed for volume "{spec_name(volume)}" : {error}'


def usable(volume: ActualVolume | None, spec: VolumeSpec) -> bool:
    """Return whether a volume whose content may change has been set up once: its content is complete, but may be
    old."""
    return (
        volume is not None
        and spec.requires_remount
        and volume.state is MountState.MOUNTED
        and volume.plugin == spec.plugin
    )


def may_belong(key: str, volume: ActualVolume, desired: DesiredVolumes) -> bool:
    """Return whether the pod may need what is mounted: it has that volume, or a volume that is refused now, for example
    because its claim or its CSIDriver is not read yet."""
    if key in desired.mounts or (desired.has_refused and volume.is_persistent):
        return True
    return not volume.plugin and any(spec_name(wanted) == key for wanted in desired.mounts)  # its subpaths


def view(
    uid: str, desired: DesiredStateOfWorld, actual: ActualStateOfWorld, running: OperationBackoff
) -> MountedVolumes | None:
    """Return the value of `volumes.mounted`; None = nothing of the pod is mounted or wanted."""
    pod = desired.pods.get(uid)
    volumes = dict[str, MountedVolume]()
    mounts = set[str]()
    for name, spec in pod.volumes.items() if pod is not None else ():
        key = pod.key(name) if pod is not None else ""
        mounts.add(key)
        if isinstance(spec, Refused):
            volumes[name] = _refused(name, spec)
        elif pod is not None:
            volumes[name] = _wanted(uid, key, pod.mounts[key], actual, running)
    for name, volume in actual.volumes_of(uid):
        if name not in mounts:
            undecided = pod is None and uid not in desired.withdrawn  # podsync may still admit it
            undecided = undecided or (pod is not None and pod.has_refused and volume.is_persistent)
            state = VolumeState.PENDING if undecided else VolumeState.UNMOUNTING
            volumes[name] = MountedVolume(state=state, host_path=volume.host_path, error=volume.error)
    return MountedVolumes(uid=uid, volumes=volumes) if volumes else None


def _refused(name: str, spec: Refused) -> MountedVolume:
    if not spec.reason:
        return MountedVolume(state=VolumeState.PENDING)
    error = spec.reason if isinstance(spec, Unprocessed) else message(name, spec.reason, step=spec.step)
    return MountedVolume(state=VolumeState.ERROR, error=error, unsupported=spec.unsupported)


def _wanted(
    uid: str, name: str, spec: VolumeSpec, actual: ActualStateOfWorld, running: OperationBackoff
) -> MountedVolume:
    volume = actual.get(uid, name)
    if isinstance(running.running(uid, name), UnmountVolume):
        return MountedVolume(state=VolumeState.PENDING)  # it is torn down, and set up again afterwards
    if volume is not None and usable(volume, spec):
        return _mounted(volume, spec)
    if volume is None or (volume.spec != spec and not volume.error):
        device = actual.devices.get(spec.unique_name)
        failed = device if device is not None and device.error else None
        error = message(name, failed.error, step=device_step(spec, failed.step)) if failed is not None else ""
        return MountedVolume(state=VolumeState.ERROR if error else VolumeState.PENDING, error=error)
    if volume.error:
        return MountedVolume(state=VolumeState.ERROR, error=volume.error)
    return MountedVolume(state=VolumeState.PENDING) if volume.held else _mounted(volume, spec)


def _mounted(volume: ActualVolume, spec: VolumeSpec) -> MountedVolume:
    return MountedVolume(
        state=VolumeState.MOUNTED,
        host_path=volume.host_path,
        read_only=spec.read_only,
        block=spec.block,
        selinux_relabel=spec.selinux_relabel and volume.takes_labels,
        group=spec.group,
        health=volume.health if spec.reports_health else (),
    )


def settling(pod: DesiredVolumes | None, seen: MountedVolumes | None, running: OperationBackoff) -> bool:
    """Return whether a first attempt runs and no error is known yet. Then followers receive only its outcome, and no
    state before it."""
    states = {name: volume.state for name, volume in seen.volumes.items()} if seen is not None else {}
    return VolumeState.ERROR not in states.values() and any(
        state is VolumeState.PENDING and pod is not None and _is_being_mounted(pod, name, running)
        for name, state in states.items()
    )


def _is_being_mounted(pod: DesiredVolumes, name: str, running: OperationBackoff) -> bool:
    key = pod.key(name)
    if isinstance(running.running(pod.uid, key), MountVolume):
        return True
    spec = pod.mounts.get(key)
    return isinstance(spec, VolumeSpec) and isinstance(running.running("", spec.unique_name), MountDevice)
