"""Keeps the desired state of the world: pods as podsync admits them, resources as the node has them."""

import logging
from collections.abc import Callable, Mapping

from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.podsync import AdmittedPod, NodeResources
from services.volume.core.desired_state_of_world import DesiredStateOfWorld
from services.volume.core.volume_spec import Refused, VolumeSpec, node_of
from services.volume.plugins.registry import Plugins, volume_spec
from shared.clock import Clock
from shared.model import objects
from shared.model.objects import Object
from shared.pod_failures import PodFailures

log = logging.getLogger(__name__)


class DesiredStateOfWorldPopulator:
    """`on_change` is called after each event. `machine`: resource -> quantity text, a guess at the node's allocatable
    resources until podsync publishes them; `alone`: there is no API server."""

    def __init__(
        self,
        plugins: Plugins,
        machine: Mapping[str, str],
        clock: Clock,
        failures: PodFailures,
        on_change: Callable[[], None],
        *,
        alone: bool,
    ) -> None:
        self._plugins, self._clock, self._failures, self._on_change = plugins, clock, failures, on_change
        self._alone = alone
        self._node = node_of(machine, provisional=True, alone=alone)
        self.desired = DesiredStateOfWorld(self._spec_of)

    def on_admitted(self, change: Change[AdmittedPod]) -> None:
        """Follow `pods.admitted`."""
        match change:
            case Put(_, admitted):
                self.desired.admit(admitted)
            case Deleted(uid):
                self.desired.withdraw(uid)
            case Freshness(complete, stale):
                self.desired.set_freshness(complete=complete, stale=stale)
        self._on_change()

    def on_resources(self, change: Change[NodeResources]) -> None:
        """Follow `node.resources`."""
        match change:
            case Put(_, resources):
                self._node = node_of(resources.allocatable, alone=self._alone)
                self.desired.read_again()
            case Freshness(complete=True):
                self.desired.hold_until = 0.0  # podsync publishes no more than it has by now
        self._on_change()

    def _spec_of(self, pod: Object, name: str) -> VolumeSpec | Refused:
        """A programming error in a plugin refuses the one volume."""
        uid, what = objects.uid(pod), f"volume {name}"
        try:
            spec = volume_spec(pod, name, self._node, self._plugins)
        except Exception as error:
            if self._failures.failed(uid, what, error, self._clock.monotonic()):
                log.error("%s of pod %s failed unexpectedly", what, uid, exc_info=error)
            return Refused(f"unexpected {type(error).__name__}")
        self._failures.ended(uid, what)
        return spec
