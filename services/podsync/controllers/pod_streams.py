"""Publishes pods on the streams that podsync owns, and marks these complete."""

from bus.interface import Bus
from bus.messages.podsync import PodStatus
from bus.messages.streams import PODS_ADMITTED, PODS_PROBES, PODS_STATUS, PODS_VOLUMES
from services.podsync.core.pod.published_items import Published


class PodStreams:
    """Owns `pods.admitted`, `pods.volumes`, `pods.probes` and `pods.status`."""

    def __init__(self, bus: Bus) -> None:
        self.admitted, self.volumes = bus.own(PODS_ADMITTED), bus.own(PODS_VOLUMES)
        self.probes, self.statuses = bus.own(PODS_PROBES), bus.own(PODS_STATUS)

    def put(self, uid: str, published: Published, cause: str) -> None:
        """Publish the pod's admission, volumes, probes and end. Unchanged items are not sent."""
        self.admitted.put(uid, published.admitted, cause)
        self.volumes.put(uid, published.volumes, cause)
        if published.probes is not None:
            self.probes.put(uid, published.probes, cause)
        else:
            self.probes.delete(uid, cause)

    def put_status(self, uid: str, status: PodStatus, cause: str) -> None:
        """Publish the pod's status."""
        self.statuses.put(uid, status, cause)

    def delete(self, uid: str, cause: str) -> None:
        """Delete the pod from every stream."""
        for stream in (self.statuses, self.probes, self.volumes, self.admitted):
            stream.delete(uid, cause)

    def complete_admitted(self) -> None:
        """Mark every stream but the statuses as complete."""
        for stream in (self.admitted, self.volumes, self.probes):
            stream.mark_complete()

    def complete_statuses(self) -> None:
        """Mark the statuses as complete."""
        self.statuses.mark_complete()
