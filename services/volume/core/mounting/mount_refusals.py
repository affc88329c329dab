"""Decides whether a volume whose claim is resolved may be mounted for a pod now, and why not (volumes.md 3.2, 5.5);
pure."""

import json

from services.volume.core.mounting import devices
from services.volume.core.specs.volume_spec import ATTACH, Refused, VolumeSpec, spec_name
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.attachments import Attachments
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld


def refusal_of(
    uid: str,
    key: str,
    spec: VolumeSpec,
    desired: DesiredStateOfWorld,
    actual: ActualStateOfWorld,
    attachments: Attachments,
) -> Refused | None:
    """Return why the volume may not be mounted, with the kubelet's reason; None = it may be. A volume of which
    something is mounted already is not refused."""
    volume = actual.get(uid, key)
    if volume is not None and (volume.to_tear_down or volume.unique_name):
        return None
    if spec.attachable and not attachments.by_controller:
        return Refused("attaching volumes from the kubelet is not supported", ATTACH)
    if spec.elsewhere:
        step = "MapVolume" if spec.block else "MountVolume"
        return Refused("no matching NodeSelectorTerms", f"{step}.NodeAffinity check")
    if spec.one_pod and actual.is_used_by_others(spec.unique_name, uid):
        return Refused("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
    if spec.one_pod and (others := _possible_users(uid, key, desired, actual)):
        where = ", ".join(f"pods/{other}" for other in others[:3])
        return Refused(
            f"volume uses the ReadWriteOncePod access mode and may be in use by another pod; {where} cannot be read"
        )
    device = actual.devices.get(spec.unique_name)
    if device is not None and device.label != spec.mount_label:
        used = actual.is_used_by_others(spec.unique_name, uid) or devices.is_needed(desired, spec.unique_name, device)
        labels = f"{json.dumps(device.label)} and {json.dumps(spec.mount_label)}"
        return Refused(f"conflicting SELinux labels of volume {spec_name(key)}: {labels}") if used else None
    return None


def _possible_users(uid: str, key: str, desired: DesiredStateOfWorld, actual: ActualStateOfWorld) -> list[str]:
    """Return the other pods that may have the volume, because their directory or the record of this volume cannot be
    read."""
    users = {user for user, name in actual.on_unknown_devices if name == key}
    for other in actual.unread:
        pod = desired.pods.get(other)
        if pod is None or not pod.volumes or pod.has_refused or key in pod.mounts:
            users.add(other)
    return sorted(users - {uid})
