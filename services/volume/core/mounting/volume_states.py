"""Decides what the actual state has of a volume: as found on disk, while its mount runs, and after that; pure."""

from services.volume.core.mounting.view import message, mount_step
from services.volume.core.operations.operations import MountVolume
from services.volume.core.operations.outcome import FoundVolume, Outcome
from services.volume.core.world.actual_state_of_world import ActualVolume, MountState


def volume_on_disk(volume: FoundVolume) -> ActualVolume:
    """Return the state of a volume that was found at start."""
    key = volume.key or volume.name
    return ActualVolume(
        state=MountState.MOUNTED if volume.complete else MountState.UNCERTAIN,
        on_disk=volume.on_disk,
        host_path=volume.host_path,
        plugin=volume.plugin,
        requires_remount=volume.complete,
        subpaths=volume.subpaths,
        unique_name=volume.unique_name,
        is_persistent="/" in key or not volume.plugin,
        device_unknown=volume.device_unknown,
        attachable=volume.attachable,
    )


def volume_being_mounted(operation: MountVolume) -> ActualVolume:
    """Return the state of a volume that may be mounted on its device from now on."""
    spec = operation.spec
    return ActualVolume(
        MountState.UNCERTAIN,
        spec.has_directory,
        plugin=spec.plugin,
        unique_name=spec.unique_name,
        is_persistent="/" in operation.volume,
        attachable=spec.attachable,
    )


def volume_after_mount(
    operation: MountVolume, outcome: Outcome, before: ActualVolume | None, shown: str
) -> ActualVolume:
    """Return the state of a volume whose mount has ended. `shown`: its error as it is shown, "" = none, or not yet."""
    spec = operation.spec
    return ActualVolume(
        state=MountState.UNCERTAIN if outcome.error else MountState.MOUNTED,
        on_disk=spec.has_directory,
        host_path=outcome.host_path,
        takes_labels=outcome.takes_labels,
        spec=None if outcome.error and not shown else spec,
        error=message(operation.volume, shown, step=mount_step(spec)) if shown else "",
        plugin=spec.plugin,
        requires_remount=spec.requires_remount,
        subpaths=before is not None and before.subpaths,
        health=before.health if before is not None else None,
        unique_name=spec.unique_name,
        is_persistent="/" in operation.volume,
        attachable=spec.attachable,
    )
