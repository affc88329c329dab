"""Decides which pods must be rejected because a driver attaches no further volume to this node (volumes.md 2.2, 14.2);
pure.

A pod whose wait for its volumes has timed out is a candidate: the VolumeAttachments of its volumes show why.
"""

from dataclasses import dataclass, field

from bus.messages.volume import MountedVolumes
from services.volume.core.events.mount_waits import MountWaits
from services.volume.core.events.pod_events import PodEvents, unattached_volumes
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.specs.volume_spec import VolumeSpec
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.attachments import Attachments
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld


@dataclass
class AttachLimits:
    """The pods that must be rejected. `rejections`: pod UID -> why."""

    desired: DesiredStateOfWorld
    actual: ActualStateOfWorld
    attachments: Attachments
    events: PodEvents
    rejections: dict[str, str] = field(default_factory=dict)

    def candidates(self) -> dict[str, dict[ObjectKey, str]]:
        """Return the pods whose wait has timed out since the last call: pod UID -> VolumeAttachment -> driver. None of
        these volumes was mounted for its pod; their drivers report again how many volumes the node takes."""
        uids, self.events.timed_out = self.events.timed_out, set()
        self.rejections = {uid: text for uid, text in self.rejections.items() if self._waits(uid)}
        found = {uid: self._attachments(uid) for uid in uids}
        return {uid: attachments for uid, attachments in found.items() if attachments}

    def exceeded(self, uid: str, seen: MountedVolumes | None) -> None:
        """Reject a pod because one of its volumes cannot be attached. `seen`: what is published of the pod."""
        pod = self.desired.pods.get(uid)
        if pod is not None and self._attachments(uid):
            missing = MountWaits.missing(pod, seen, unattached_volumes(pod, self.attachments))
            self.rejections[uid] = f"Node has reached its volume attachment limit, rejecting pod. {missing}"

    def _waits(self, uid: str) -> bool:
        pod = self.desired.pods.get(uid)
        return pod is not None and pod.mounting

    def _attachments(self, uid: str) -> dict[ObjectKey, str]:
        pod = self.desired.pods.get(uid)
        found = dict[ObjectKey, str]()
        for name in unattached_volumes(pod, self.attachments) if pod is not None and pod.mounting else ():
            spec = pod.volumes[name] if pod is not None else None
            if isinstance(spec, VolumeSpec) and spec.updates_limit and self.actual.get(uid, spec.key or name) is None:
                found |= {key: spec.served_by for key in spec.objects if key.kind == "VolumeAttachment"}
        return found
