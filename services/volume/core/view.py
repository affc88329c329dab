"""What followers are told of the volumes of one pod, from the desired and the actual state of the world."""

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.volume.core.actual_state_of_world import ActualStateOfWorld, ActualVolume, MountState
from services.volume.core.desired_state_of_world import DesiredStateOfWorld
from services.volume.core.files_source import Files
from services.volume.core.operations import MountVolume, OperationBackoff, UnmountVolume
from services.volume.core.volume_spec import EmptyDir, Image, Refused, VolumeSource


def message(volume: str, error: str, *, step: str = "MountVolume.SetUp") -> str:
    """The kubelet's line for a failed operation (volumes.md 5.3)."""
    return f'{step} failed for volume "{volume}" : {error}'


def usable(volume: ActualVolume | None, source: VolumeSource) -> bool:
    """A volume of files that has been set up once: its content is whole, though it may be old."""
    return (
        volume is not None
        and isinstance(source, Files)
        and volume.state is MountState.MOUNTED
        and volume.plugin == source.plugin
    )


def view(
    uid: str, desired: DesiredStateOfWorld, actual: ActualStateOfWorld, running: OperationBackoff
) -> MountedVolumes | None:
    """The value of `volumes.mounted`; None = nothing of the pod is mounted or wanted."""
    pod = desired.pods.get(uid)
    wanted = pod.volumes if pod is not None else {}
    volumes = {name: _wanted(uid, name, source, actual, running) for name, source in wanted.items()}
    for name, volume in actual.of(uid):
        if name not in wanted:
            undecided = pod is None and uid not in desired.taken_away  # podsync may still speak of it
            state = VolumeState.PENDING if undecided else VolumeState.UNMOUNTING
            volumes[name] = MountedVolume(state=state, host_path=volume.host_path, error=volume.error)
    return MountedVolumes(uid=uid, volumes=volumes) if volumes else None


def _wanted(
    uid: str, name: str, source: VolumeSource, actual: ActualStateOfWorld, running: OperationBackoff
) -> MountedVolume:
    volume = actual.get(uid, name)
    if isinstance(source, Refused):
        return MountedVolume(state=VolumeState.ERROR, error=message(name, source.reason))
    if isinstance(running.running(uid, name), UnmountVolume):
        return MountedVolume(state=VolumeState.PENDING)  # wanted again while it is taken away
    if volume is not None and usable(volume, source):
        return _mounted(volume, source, read_only=True)
    if volume is None or (volume.source != source and not volume.error):
        return MountedVolume(state=VolumeState.PENDING)
    if volume.error:
        return MountedVolume(state=VolumeState.ERROR, error=volume.error)
    return _mounted(volume, source, read_only=isinstance(source, Image))


def _mounted(volume: ActualVolume, source: VolumeSource, *, read_only: bool) -> MountedVolume:
    """What belongs to the pod alone may be relabelled: not a path of the node, nor an image (volumes.md
    12.1)."""
    return MountedVolume(
        state=VolumeState.MOUNTED,
        host_path=volume.host_path,
        read_only=read_only,
        selinux_relabel=isinstance(source, EmptyDir | Files),
    )


def settling(uid: str, seen: MountedVolumes | None, running: OperationBackoff) -> bool:
    """A first attempt is under way and no error is known yet: its outcome is awaited before followers are told."""
    states = {name: volume.state for name, volume in seen.volumes.items()} if seen is not None else {}
    return VolumeState.ERROR not in states.values() and any(
        state is VolumeState.PENDING and isinstance(running.running(uid, name), MountVolume)
        for name, state in states.items()
    )
