"""Decides which mounted volumes are to be expanded, and what follows from the end of an expansion (volumes.md 17);
pure.

A volume that is to be expanded when it is mounted is held: its pod gets it only afterwards. A volume that its pod has
already is expanded while the pod uses it, and stays as it is where that fails.
"""

from services.volume.core.operations.operations import ExpandVolume
from services.volume.core.operations.outcome import Outcome
from services.volume.core.specs.expansion import ExpansionFailure
from services.volume.core.specs.volume_spec import VolumeSpec, spec_name
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld, ActualVolume


def is_due(volume: ActualVolume, spec: VolumeSpec) -> bool:
    """Return whether the mounted volume is smaller than requested and may become larger on this node."""
    return 0 < volume.capacity < spec.capacity != volume.refused_capacity


def mounted(volume: ActualVolume, before: ActualVolume | None, spec: VolumeSpec, actual: ActualStateOfWorld) -> None:
    """Set the capacity of a volume that was set up, for the first time or again, and whether it is held."""
    volume.capacity = spec.capacity
    if spec.expansion is None or spec.read_only:
        return
    others = actual.volumes_on(spec.unique_name) if spec.unique_name else []
    if any(user.capacity >= spec.capacity for user in others):
        return
    if spec.expansion.updated and (before is None or not before.capacity):
        return  # the claim has the size already: only a volume that was mounted before that is expanded
    volume.capacity = spec.expansion.before
    volume.held = True
    if before is not None and before.capacity:
        volume.capacity, volume.held = before.capacity, before.held
        volume.refused_capacity, volume.expansion_failed = before.refused_capacity, before.expansion_failed
    if not is_due(volume, spec):
        volume.held = False


def done(operation: ExpandVolume, outcome: Outcome, actual: ActualStateOfWorld) -> None:
    """Store how an expansion ended: all volumes on the device have the new size, or this one cannot get it, or it is
    tried again."""
    volume, failure = actual.get(operation.uid, operation.volume), outcome.expansion
    if volume is None:
        return
    if not outcome.error:
        shared = actual.volumes_on(volume.unique_name) if volume.unique_name else []
        for grown in (volume, *shared):
            if grown.capacity and (grown is volume or grown.capacity < operation.capacity):
                grown.capacity = operation.capacity
                if grown.held:
                    grown.held, grown.error = False, ""
    elif failure in (ExpansionFailure.IN_USE, ExpansionFailure.INFEASIBLE):
        volume.refused_capacity, volume.held = operation.capacity, False
        volume.error = ""
    else:
        volume.expansion_failed = volume.expansion_failed or failure is ExpansionFailure.FINAL
        if volume.held:
            volume.error = during_mount(operation.volume, outcome.error)


def during_mount(volume: str, error: str) -> str:
    """Return the kubelet's line for a held volume that cannot be expanded."""
    return f'MountVolume.Setup failed while expanding volume for volume "{spec_name(volume)}" : {error}'
