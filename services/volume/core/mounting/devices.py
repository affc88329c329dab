"""Decides when the devices below volumes that pods share are mounted and unmounted: before the first volume, and after
the last one; pure."""

from services.volume.core.operations.operation_backoff import OperationBackoff
from services.volume.core.operations.operations import (
    DeviceOperation,
    ExpandVolume,
    MountDevice,
    MountVolume,
    Operation,
    UnmountDevice,
    UnmountVolume,
)
from services.volume.core.operations.outcome import FoundDevice, Outcome
from services.volume.core.specs.volume_spec import VolumeSpec
from services.volume.core.world.actual_state_of_world import ActualDevice, ActualStateOfWorld, MountState
from services.volume.core.world.attachments import Attachments
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld


def due(
    desired: DesiredStateOfWorld, actual: ActualStateOfWorld, attachments: Attachments, *, may_unmount: bool
) -> list[DeviceOperation]:
    """Return the operations that bring the devices to the state that the pods need. `may_unmount`: every volume on disk
    and every pod is known. An attachable device waits until it is attached. A device that is mounted with another
    SELinux label is unmounted first, once no pod has a volume on it or needs that label."""
    mounts = [
        MountDevice(unique_name, spec, device_path=attachments.device_path(unique_name) if spec.attachable else "")
        for unique_name in desired.unique_names()
        if not is_mounted(actual, unique_name)
        and (spec := _waiting(desired, actual, unique_name)) is not None
        and (not spec.attachable or attachments.may_mount(unique_name))
    ]
    unmounts = [
        UnmountDevice(unique_name, device.plugin, device.volume_name)
        for unique_name, device in actual.devices.items()
        if may_unmount and not is_needed(desired, unique_name, device) and not actual.is_used(unique_name)
    ]
    return [*mounts, *unmounts]


def attachable(desired: DesiredStateOfWorld, actual: ActualStateOfWorld) -> set[str]:
    """Return the unique names of the attachable devices that a pod needs or of which something is mounted, also where a
    driver has no device below the volumes of pods."""
    needed = {name for name in desired.unique_names() if (spec := desired.spec_of_device(name)) and spec.attachable}
    mounted = {name for name, device in actual.devices.items() if device.attachable}
    return needed | mounted | actual.attachable()


def is_mounted(actual: ActualStateOfWorld, unique_name: str) -> bool:
    """Return whether the device is certainly mounted."""
    device = actual.devices.get(unique_name)
    return device is not None and device.state is MountState.MOUNTED


def device_on_disk(device: FoundDevice) -> ActualDevice:
    """Return the state of a device that was found at start."""
    state = MountState.UNCERTAIN
    return ActualDevice(device.plugin, device.volume_name, state, attachable=device.attachable, label=device.label)


def done(operation: DeviceOperation, outcome: Outcome, actual: ActualStateOfWorld, *, shown: str) -> None:
    """Store in the actual state how an operation ended. `shown`: its error as it is shown."""
    match operation:
        case MountDevice(unique_name, spec):
            actual.devices[unique_name] = ActualDevice(
                spec.plugin,
                spec.volume_name,
                MountState.UNCERTAIN if outcome.error else MountState.MOUNTED,
                outcome.host_path,
                shown,
                outcome.step,
                attachable=spec.attachable,
                label=spec.mount_label,
            )
        case UnmountDevice(unique_name) if outcome.error:
            actual.devices[unique_name].state = MountState.UNCERTAIN
        case UnmountDevice(unique_name):
            del actual.devices[unique_name]


def is_needed(desired: DesiredStateOfWorld, unique_name: str, device: ActualDevice) -> bool:
    """Return whether a pod needs the device with the SELinux label that it is mounted with."""
    sharing = desired.sharing(unique_name)
    return any(desired.pods[uid].mounts[name].mount_label == device.label for uid, name in sharing)


def unique_name_of(operation: Operation, actual: ActualStateOfWorld) -> str:
    """Return the unique name of the device of an operation, "" = it has none."""
    match operation:
        case MountDevice(unique_name) | UnmountDevice(unique_name):
            return unique_name
        case MountVolume(spec=spec) | ExpandVolume(spec=spec):
            return spec.unique_name
        case _:
            volume = actual.get(operation.uid, operation.volume)
            return volume.unique_name if volume is not None else ""


def may_start(operation: Operation, actual: ActualStateOfWorld, backoff: OperationBackoff, now: float) -> bool:
    """Return whether a due operation may start. An unmount that has to wait for a mount goes before the next mount."""
    if not backoff.may_start(operation, now):
        return False
    excluded = excludes(operation, actual, backoff)
    if excluded and isinstance(operation, UnmountVolume):
        backoff.wait(operation.uid, unique_name_of(operation, actual))
    return not excluded


def excludes(operation: Operation, actual: ActualStateOfWorld, backoff: OperationBackoff) -> bool:
    """Return whether the operation has to wait for another one on its device: a volume is not mounted for one pod while
    it is unmounted for another (volumes.md 5.1). Mounts that run on one device are performed one by one, and an unmount
    waits for the one that is performed; all that are not performed yet wait for the unmount."""
    device = unique_name_of(operation, actual)
    if not device:
        return False
    users = [("", device), *actual.users(device)]
    if isinstance(operation, UnmountVolume):
        mounts = MountDevice | MountVolume | ExpandVolume
        return any(isinstance(backoff.performed(*user), mounts) for user in users)
    unmounts = (isinstance(backoff.running(*user), UnmountVolume) for user in users)
    return backoff.is_awaited(device) or any(unmounts)


def path_for(spec: VolumeSpec, actual: ActualStateOfWorld, backoff: OperationBackoff) -> str | None:
    """Return where the device of a volume is mounted, "" where the volume has none; None = the volume has to wait."""
    if not spec.unique_name:
        return ""
    if not is_mounted(actual, spec.unique_name) or backoff.running("", spec.unique_name) is not None:
        return None
    device = actual.devices[spec.unique_name]
    return device.path if device.label == spec.mount_label else None


def _waiting(desired: DesiredStateOfWorld, actual: ActualStateOfWorld, unique_name: str) -> VolumeSpec | None:
    """Return the volume that the device is to be mounted for: the first one of which something is mounted, as after a
    restart, else the first one of a pod that starts. A device of which something is there serves only volumes with its
    own SELinux label."""
    device, first = actual.devices.get(unique_name), None
    for uid, name in desired.sharing(unique_name):
        pod = desired.pods[uid]
        spec, volume = pod.mounts[name], actual.get(uid, name)
        if pod.finished or (device is not None and device.label != spec.mount_label):
            continue
        if volume is not None and volume.unique_name:
            return spec
        if first is None and pod.mounting and not spec.elsewhere:
            first = spec
    return first
