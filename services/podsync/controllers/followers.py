"""Follows the streams of other services and turns their changes into events for the core. Decides nothing."""

from collections.abc import Callable

from bus.interface import Bus, Change, Deleted, Freshness, Put
from bus.messages.device_plugins import DeviceResource
from bus.messages.pleg import NodeObserved, ProbeResults
from bus.messages.resource_claims import PodClaims
from bus.messages.sources import DesiredPod, NodeObject
from bus.messages.streams import (
    CLAIMS_PREPARED,
    DEVICES_RESOURCES,
    NODE_OBJECT,
    NODE_OBSERVED,
    PODS_DESIRED,
    PROBES_RESULTS,
    RUNTIME_PODS,
    VOLUMES_MOUNTED,
)
from bus.messages.volume import MountedVolumes
from services.podsync.core.pod.events import (
    ClaimsChanged,
    ClaimsFreshness,
    DevicesChanged,
    DevicesFreshness,
    Event,
    NodeChanged,
    PodDesired,
    PodObserved,
    PodUndesired,
    PodVanished,
    ProbesChanged,
    RuntimeChanged,
    RuntimeListed,
    SourcesFreshness,
    VolumesChanged,
    VolumesFreshness,
)
from shared.model.runtime import RuntimePod


class Followers:
    """Follows the streams that are events for the core. `on_complete` is called once, when `pods.desired` and
    `runtime.pods` are complete and the runtime's features, on which admission depends, are known."""

    def __init__(
        self,
        bus: Bus,
        *,
        handle: Callable[[Event], None],
        on_complete: Callable[[], None],
    ) -> None:
        self._handle, self._on_complete = handle, on_complete
        self.desired = bus.follow(PODS_DESIRED, self._on_desired)
        self.observed = bus.follow(RUNTIME_PODS, self._on_observed)
        bus.follow(VOLUMES_MOUNTED, self._on_volumes)
        bus.follow(CLAIMS_PREPARED, self._on_claims)
        bus.follow(DEVICES_RESOURCES, self._on_devices)
        bus.follow(NODE_OBSERVED, self._on_node)
        self._node = bus.follow(NODE_OBJECT, self._on_node_object)
        bus.follow(PROBES_RESULTS, self._on_probes)
        self._probed: dict[str, str] = {}  # container id -> pod UID
        self._runtime_known = False
        self._complete = False

    def _on_desired(self, change: Change[DesiredPod]) -> None:
        match change:
            case Put(key=uid, value=wanted, cause=cause):
                why = cause or f"the pod is desired ({wanted.source})"
                self._handle(
                    PodDesired(uid=uid, source=wanted.source, pod=wanted.pod, recorded=wanted.recorded, cause=why)
                )
            case Deleted(key=uid, cause=cause):
                self._handle(PodUndesired(uid=uid, cause=cause or "no source has the pod"))
            case Freshness(complete=complete, stale=stale):
                listed = frozenset(self.desired.state)
                self._handle(
                    SourcesFreshness(complete=complete, stale=stale, listed=listed, cause="freshness of the pods")
                )
                self._mark_complete()

    def _on_observed(self, change: Change[RuntimePod]) -> None:
        match change:
            case Put(value=observation, cause=cause):
                self._handle(PodObserved(observation=observation, cause=cause or "seen in the runtime"))
            case Deleted(key=uid, cause=cause):
                self._handle(PodVanished(uid=uid, cause=cause or "gone from the runtime"))
            case Freshness(complete=complete, stale=stale):
                self._handle(RuntimeListed(complete=complete, stale=stale, cause="news of the runtime"))
                self._mark_complete()

    def _mark_complete(self) -> None:
        if self.desired.complete and self.observed.complete and self._runtime_known and not self._complete:
            self._complete = True
            self._on_complete()

    def _on_volumes(self, change: Change[MountedVolumes]) -> None:
        match change:
            case Put(key=uid, value=volumes, cause=cause):
                self._handle(VolumesChanged(uid=uid, volumes=volumes, cause=cause or "volumes changed"))
            case Deleted(key=uid, cause=cause):
                self._handle(VolumesChanged(uid=uid, volumes=None, cause=cause or "volumes gone"))
            case Freshness(complete=complete, stale=stale):
                self._handle(VolumesFreshness(complete=complete, stale=stale, cause="freshness of the volumes"))

    def _on_claims(self, change: Change[PodClaims]) -> None:
        match change:
            case Put(key=uid, value=claims, cause=cause):
                self._handle(ClaimsChanged(uid=uid, claims=claims, cause=cause or "resource claims changed"))
            case Deleted(key=uid, cause=cause):
                self._handle(ClaimsChanged(uid=uid, claims=None, cause=cause or "resource claims gone"))
            case Freshness(complete=complete, stale=stale):
                self._handle(ClaimsFreshness(complete=complete, stale=stale, cause="freshness of the resource claims"))

    def _on_devices(self, change: Change[DeviceResource]) -> None:
        match change:
            case Put(key=name, value=resource, cause=cause):
                self._handle(DevicesChanged(name=name, resource=resource, cause=cause or f"devices of {name} changed"))
            case Deleted(key=name, cause=cause):
                self._handle(DevicesChanged(name=name, resource=None, cause=cause or f"{name} has no device plugin"))
            case Freshness(complete=complete, stale=stale):
                self._handle(DevicesFreshness(complete=complete, stale=stale, cause="freshness of the devices"))

    def _on_node_object(self, change: Change[NodeObject]) -> None:
        match change:
            case Put(value=published):
                self._handle(NodeChanged(node=published.node, cause="our Node changed"))
            case Deleted():
                self._handle(NodeChanged(node=None, cause="our Node was deleted"))
            case Freshness(complete=True, stale=False) if not self._node.state:
                self._handle(NodeChanged(node=None, cause="the API server has no Node of ours"))
            case _:
                pass

    def _on_probes(self, change: Change[ProbeResults]) -> None:
        match change:
            case Put(key=instance, value=results, cause=cause):
                self._probed[instance] = results.pod_uid
                why = cause or "a probe had a result"
                self._handle(ProbesChanged(container_id=instance, pod_uid=results.pod_uid, results=results, cause=why))
            case Deleted(key=instance, cause=cause):
                uid = self._probed.pop(instance, "")
                self._handle(ProbesChanged(container_id=instance, pod_uid=uid, results=None, cause=cause))
            case Freshness():
                pass

    def _on_node(self, change: Change[NodeObserved]) -> None:
        if not isinstance(change, Put):
            return
        observed = change.value
        self._handle(
            RuntimeChanged(
                reachable=observed.runtime_reachable,
                network_ready=observed.network_ready,
                network_message=observed.network_message,
                runtime_name=observed.runtime_name,
                supplemental_groups_policy=bool(observed.supplemental_groups_policy),
                mount_options=observed.mount_options,
                handlers=observed.runtime_handlers,
                cause="the runtime changed",
            )
        )
        self._runtime_known = self._runtime_known or observed.runtime_reachable
        self._mark_complete()
