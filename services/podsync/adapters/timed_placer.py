"""Places pods, and measures how long that takes."""

import time
from collections.abc import Iterable

from msgspec import Struct

from services.podsync.core.placement.attempt import Attempt
from services.podsync.core.placement.device_policy import NO_PLUGINS, PluginDevices
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings
from services.podsync.core.placement.pod_placement import PodPlacement
from shared.model.machine_topology import MachineTopology
from shared.model.objects import Object, uid

MAX_ATTEMPTS = 1000  # that are kept; those of what-if are never taken


class TimedAttempt(Struct, frozen=True, kw_only=True):
    """Has a placement with its duration in seconds."""

    attempt: Attempt
    seconds: float


class TimedPlacer(NodePlacer):
    """Keeps the last attempt to place each pod until it is taken. Its decisions are those of a `NodePlacer`."""

    def __init__(self, topology: MachineTopology, settings: PlacementSettings) -> None:
        super().__init__(topology, settings)
        self._attempts: dict[str, TimedAttempt] = {}

    def attempt(self, pod: Object, others: Iterable[PodPlacement], plugins: PluginDevices = NO_PLUGINS) -> Attempt:
        """Return the attempt to place the pod, and keep it with the time that it took. Raise PreferenceNeededError;
        nothing is kept then."""
        began = time.monotonic()
        attempt = super().attempt(pod, others, plugins)
        self._attempts.pop(uid(pod), None)
        self._attempts[uid(pod)] = TimedAttempt(attempt=attempt, seconds=time.monotonic() - began)
        if len(self._attempts) > MAX_ATTEMPTS:
            del self._attempts[next(iter(self._attempts))]
        return attempt

    def take_attempt(self, own: str) -> TimedAttempt | None:
        """Return, once, the last attempt to place the pod with this UID; None = it was not placed."""
        return self._attempts.pop(own, None)
