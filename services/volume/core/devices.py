"""The devices below volumes that pods share: mounted before the first volume, unmounted after the last one; pure."""

from services.volume.core.actual_state_of_world import ActualStateOfWorld, MountState
from services.volume.core.attachments import Attachments
from services.volume.core.desired_state_of_world import DesiredStateOfWorld
from services.volume.core.operation_backoff import OperationBackoff
from services.volume.core.operations import DeviceOperation, MountDevice, UnmountDevice
from services.volume.core.volume_spec import VolumeSpec


def due(
    desired: DesiredStateOfWorld, actual: ActualStateOfWorld, attachments: Attachments, *, may_unmount: bool
) -> list[DeviceOperation]:
    """Return the operations that bring the devices to what the pods need. `may_unmount`: every volume on disk is known
    and so is every pod. An attachable device waits until it is attached."""
    mounts = [
        MountDevice(unique_name, spec)
        for unique_name in desired.unique_names()
        if not is_mounted(actual, unique_name)
        and (spec := _waiting(desired, actual, unique_name)) is not None
        and (not spec.attachable or attachments.may_mount(unique_name))
    ]
    unmounts = [
        UnmountDevice(unique_name, device.plugin, device.volume_name)
        for unique_name, device in actual.devices.items()
        if may_unmount and not desired.sharing(unique_name) and not actual.is_used(unique_name)
    ]
    return [*mounts, *unmounts]


def attachable(desired: DesiredStateOfWorld, actual: ActualStateOfWorld) -> set[str]:
    """Return the unique names of the attachable devices that a pod needs or of which something is mounted."""
    needed = {name for name in desired.unique_names() if (spec := desired.spec_of_device(name)) and spec.attachable}
    return needed | {name for name, device in actual.devices.items() if device.attachable}


def is_mounted(actual: ActualStateOfWorld, unique_name: str) -> bool:
    """Return whether the device is certainly mounted."""
    device = actual.devices.get(unique_name)
    return device is not None and device.state is MountState.MOUNTED


def path_for(spec: VolumeSpec, actual: ActualStateOfWorld, backoff: OperationBackoff) -> str | None:
    """Return where the device of a volume is mounted, "" where the volume has none; None = the volume has to wait."""
    if not spec.unique_name:
        return ""
    if not is_mounted(actual, spec.unique_name) or backoff.running("", spec.unique_name) is not None:
        return None
    return actual.devices[spec.unique_name].path


def _waiting(desired: DesiredStateOfWorld, actual: ActualStateOfWorld, unique_name: str) -> VolumeSpec | None:
    """The first volume that needs the device: of a pod that starts or runs, or found on disk after a restart."""
    for uid, name in desired.sharing(unique_name):
        pod = desired.pods[uid]
        spec, volume = pod.mounts[name], actual.get(uid, name)
        if not pod.finished and ((volume is not None and volume.unique_name) or (pod.mounting and not spec.elsewhere)):
            return spec
    return None
