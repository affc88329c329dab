"""Keeps the desired state of the world up to date: pods as podsync admits them, claims as the API server has them, and
the node's resources and labels."""

import logging
from collections.abc import Iterable
from functools import partial

from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.podsync import NodeResources, PodVolumes
from bus.messages.sources import NodeObject
from services.frame.launch import Context
from services.volume.adapters import host_resources
from services.volume.controllers.changes import Changes
from services.volume.controllers.claim_reads import ClaimReads
from services.volume.controllers.flex_capabilities import FlexCapabilities
from services.volume.core.specs import gates
from services.volume.core.specs.csi_translation import translated_inline
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_claims import Found, claim_key, csi_driver, resolve
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec, node_of
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld
from services.volume.plugins.registry import Plugins, persistent_volume_spec, volume_of, volume_spec
from shared.model import objects
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.pods.failures import PodFailures

log = logging.getLogger(__name__)


class DesiredStateOfWorldPopulator:
    """Fills `desired` from the streams of other processes. `changed` receives the pods of each event. Until podsync
    publishes the node's allocatable resources, those of the machine stand for them."""

    def __init__(
        self,
        context: Context,
        plugins: Plugins,
        failures: PodFailures,
        claims: ClaimReads,
        flex: FlexCapabilities,
        changed: Changes,
    ) -> None:
        config, self._clock = context.config, context.clock
        self._plugins, self._failures, self._claims, self._changed = plugins, failures, claims, changed
        self._flex = flex
        self._node = replace(
            node_of(host_resources.read(), provisional=True, alone=not config.joins_cluster),
            name=config.node_name,
            gates=gates.enabled(config.feature_gates),
            health_capability=gates.health_capability(config.feature_gates, config.emulated_version),
            file_label=host_resources.file_label(),
            attaches=not (config.joins_cluster and config.controller_attach_detach),
        )
        self.desired = DesiredStateOfWorld(self._spec_of)
        claims.on_read = flex.on_answer = self._on_read

    def on_volumes(self, change: Change[PodVolumes]) -> None:
        """Follow `pods.volumes`."""
        match change:
            case Put(_, admitted):
                if not admitted.volumes:
                    self._forget(admitted.uid)
                self.desired.admit(admitted)
                self._changed.add_pods((admitted.uid,))
            case Deleted(uid):
                self.desired.withdraw(uid)
                self._forget(uid)
                self._changed.add_pods((uid,))
            case Freshness(complete, stale):
                self.desired.set_freshness(complete=complete, stale=stale)
                self._changed.set()

    def node_memory(self) -> int:
        """Return the bytes of memory that pods may have, 0 = not known."""
        return self._node.memory

    def on_resources(self, change: Change[NodeResources]) -> None:
        """Follow `node.resources`."""
        match change:
            case Put(_, resources):
                now = node_of(resources.allocatable)
                self._node = replace(self._node, memory=now.memory, allocatable=now.allocatable, provisional=False)
                self.desired.read_again()
            case Freshness(complete=True):
                self.desired.hold_until = 0.0  # podsync publishes no more than it has by now
        self._changed.set()

    def on_node(self, change: Change[NodeObject]) -> None:
        """Follow `node.object`."""
        if isinstance(change, Put):
            labels = {key: str(value) for key, value in objects.labels(change.value.node).items()}
            if labels != self._node.labels:
                self._node = replace(self._node, labels=labels)
                self.desired.read_again()
                self._changed.set()

    def _forget(self, uid: str) -> None:
        self._claims.forget(uid)
        self._flex.forget(uid)

    def _on_read(self, uids: Iterable[str]) -> None:
        """Read the volumes of these pods again: an object that they depend on was read, or a driver has answered."""
        self.desired.read_again(uids)
        self._changed.add_pods(uids)

    def _spec_of(self, pod: Object, name: str) -> VolumeSpec | Refused:
        """Return the pod's volume of this name. A programming error in a plugin refuses this one volume."""
        uid, what = objects.uid(pod), f"volume {name}"
        try:
            spec = self._read(pod, name)
        except Exception as error:
            if self._failures.failed(uid, what, error, self._clock.monotonic()):
                log.error("%s of pod %s failed unexpectedly", what, uid, exc_info=error)
            return Refused(f"unexpected {type(error).__name__}")
        self._failures.ended(uid, what)
        return spec

    def _read(self, pod: Object, name: str) -> VolumeSpec | Refused:
        volume = volume_of(pod, name)
        found = partial(self._claims.find, objects.uid(pod))
        persistent: PersistentVolume | Refused | None
        if volume is not None and claim_key(pod, volume) is not None:
            persistent = resolve(pod, volume, found)
        else:
            persistent = translated_inline(pod, volume or {}, alone=self._node.alone)
        if persistent is None:
            node = self._with_driver(objects.uid(pod), volume or {}, found)
            return node if isinstance(node, Refused) else volume_spec(pod, name, node, self._plugins)
        if isinstance(persistent, Refused):
            return persistent
        node = self._with_driver(objects.uid(pod), persistent.spec, found)
        return node if isinstance(node, Refused) else persistent_volume_spec(pod, persistent, node, self._plugins)

    def _with_driver(self, uid: str, source: Object, found: Found) -> Node | Refused:
        """Return the node, with the CSIDriver where the source is that of a CSI volume, and with what is to be known of
        the driver of a flexVolume."""
        driver = None if self._node.alone else csi_driver(source, found)
        if isinstance(driver, Refused):
            return driver
        attaches = self._flex.find(uid, source)
        if isinstance(attaches, Refused):
            return attaches
        return replace(self._node, csi_driver=driver, flex_attaches=attaches)
