"""Decides the content of `node.observed`, and which changes are published at once. Reads no runtime and no /proc."""

from msgspec import Struct

from bus.messages.pleg import NodeObserved, RuntimeHandler
from shared.cri.interface import RuntimeCondition, RuntimeFeatures, RuntimeVersion
from shared.model.frozen_copy import replace

REPUBLISH_SECONDS = 10.0  # between two publications where only times changed
_NO_FEATURES = RuntimeFeatures()


class MachineReading(Struct, frozen=True, kw_only=True):
    """Has one reading of the machine: bytes and counts as in NodeObserved, -1 = could not be read."""

    memory_capacity: int = -1
    nodefs_capacity: int = -1
    cpus: int = -1


class NodeObservation:
    """Has what is known of runtime and machine; `to_publish` returns what of it to publish now."""

    def __init__(self) -> None:
        self._now = NodeObserved(observed_at=0.0, runtime_reachable=False)
        self._sent: NodeObserved | None = None
        self._runtime_asked = False
        self._machine_read = False

    def runtime_answered(
        self,
        version: RuntimeVersion,
        conditions: tuple[RuntimeCondition, ...],
        now: float,
        features: RuntimeFeatures = _NO_FEATURES,
    ) -> None:
        """Take the answers to Version and Status. A condition that the runtime does not have counts as false."""
        by_type = {condition.type: condition for condition in conditions}
        ready, network = by_type.get("RuntimeReady"), by_type.get("NetworkReady")
        self._runtime_asked = True
        self._now = replace(
            self._now,
            observed_at=now,
            runtime_reachable=True,
            runtime_name=version.name,
            runtime_version=version.version,
            runtime_ready=ready is not None and ready.status,
            runtime_message=_why_not(ready),
            network_ready=network is not None and network.status,
            network_message=_why_not(network),
            runtime_handlers=_handlers(features),
            supplemental_groups_policy=features.supplemental_groups_policy,
            mount_options=features.mount_options,
        )

    def runtime_silent(self, now: float) -> None:
        """Note that the runtime did not answer. Its last answer stays; followers decide how long they use it."""
        self._runtime_asked = True
        self._now = replace(self._now, observed_at=now, runtime_reachable=False)

    def machine_read(self, reading: MachineReading, now: float) -> None:
        """Take a reading of the machine."""
        self._machine_read = True
        self._now = replace(
            self._now,
            observed_at=now,
            memory_capacity=reading.memory_capacity,
            nodefs_capacity=reading.nodefs_capacity,
            cpus=reading.cpus,
        )

    def relisted(self, now: float) -> None:
        """Note that a full list succeeded. It is no reason to publish: the progress in the beat shows it."""
        self._now = replace(self._now, last_relist_at=now)

    def event_stream_turned(self, connected: bool) -> None:
        """Note that GetContainerEvents connected or broke."""
        self._now = replace(self._now, event_stream=connected)

    def to_publish(self, now: float) -> NodeObserved | None:
        """Return what to publish, None = nothing now. Nothing is published before runtime and machine were both read
        once."""
        if not (self._runtime_asked and self._machine_read) or self._now == self._sent:
            return None
        old = self._sent
        late = old is not None and now - old.observed_at >= REPUBLISH_SECONDS
        if old is None or late or is_material(old, self._now):
            self._sent = self._now = replace(self._now, observed_at=now)
            return self._sent
        return None


def is_material(old: NodeObserved, new: NodeObserved) -> bool:
    """Return whether the change is published at once: a fact has changed, not only the time of an observation."""
    return _facts(old) != _facts(new)


def _facts(node: NodeObserved) -> tuple[object, ...]:
    return (
        node.runtime_reachable,
        node.runtime_name,
        node.runtime_version,
        node.runtime_ready,
        node.runtime_message,
        node.network_ready,
        node.network_message,
        node.event_stream,
        node.memory_capacity,
        node.nodefs_capacity,
        node.cpus,
        node.runtime_handlers,
        node.supplemental_groups_policy,
        node.mount_options,
    )


def _handlers(features: RuntimeFeatures) -> tuple[RuntimeHandler, ...] | None:
    if features.handlers is None:
        return None
    return tuple(
        RuntimeHandler(
            name=handler.name,
            recursive_read_only_mounts=handler.recursive_read_only_mounts,
            user_namespaces=handler.user_namespaces,
        )
        for handler in features.handlers
    )


def _why_not(condition: RuntimeCondition | None) -> str:
    """Return the kubelet's text for a condition that is false, "" for one that is true."""
    if condition is None:
        return "reason: message:the runtime does not report this condition"
    return "" if condition.status else f"reason:{condition.reason} message:{condition.message}"
