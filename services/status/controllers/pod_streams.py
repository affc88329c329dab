"""Combines the streams from which pod statuses and mirror pods are written."""

from msgspec import Struct

from bus.interface import FollowedStream
from bus.messages.podsync import AdmittedPod, PodStatus
from bus.messages.sources import ApiPodStatus, DesiredPod, MirrorPod, NodeObject
from services.status.core.mirror_pod import STATIC_SOURCES
from services.status.core.pod_status_baseline import metadata
from shared.model.objects import Object

NODE = "node"


class PodStreams(Struct, frozen=True):
    """Our copies of the streams, and what follows from several of them together."""

    statuses: FollowedStream[PodStatus]
    admitted: FollowedStream[AdmittedPod]
    desired: FollowedStream[DesiredPod]
    api_statuses: FollowedStream[ApiPodStatus]
    mirrors: FollowedStream[MirrorPod]
    node: FollowedStream[NodeObject]

    @property
    def desired_is_all(self) -> bool:
        """Return whether a pod that is not desired is certainly gone, and the API server's status of the others is
        known."""
        return all(stream.complete and not stream.stale for stream in (self.desired, self.api_statuses))

    @property
    def admitted_is_all(self) -> bool:
        """Return whether a pod that is not admitted is certainly unknown to podsync."""
        return self.admitted.complete and not self.admitted.stale

    @property
    def mirrors_are_all(self) -> bool:
        """Return whether a mirror pod that is not listed certainly does not exist."""
        return self.mirrors.complete and not self.mirrors.stale

    def source(self, uid: str) -> str:
        """Return the source of a pod: file, http or api; "" when neither sources nor podsync has the pod."""
        pod = self.desired.state.get(uid) or self.admitted.state.get(uid)
        return pod.source if pod is not None else ""

    def is_static(self, uid: str) -> bool:
        """Return whether the pod comes from a manifest of this node."""
        return self.source(uid) in STATIC_SOURCES

    def api_pod(self, uid: str) -> Object | None:
        """Return the desired pod with the newest status that the API server showed; None when it is not desired."""
        desired, newest = self.desired.state.get(uid), self.api_statuses.state.get(uid)
        if desired is None or newest is None:
            return desired.pod if desired is not None else None
        versioned = {**metadata(desired.pod), "resourceVersion": newest.resource_version}
        return {**desired.pod, "metadata": versioned, "status": newest.status}

    def mirror_of(self, status: PodStatus) -> MirrorPod | None:
        """Return the mirror pod that shows this very static pod; None = there is none."""
        mirror = self.mirrors.state.get(f"{status.name}_{status.namespace}")
        return mirror if mirror is not None and mirror.config_hash == status.uid else None

    def node_object(self) -> Object | None:
        """Return our Node as the API server has it; None = it is not known."""
        found = self.node.state.get(NODE)
        return found.node if found is not None else None
