"""Reads from the core what calls need when they need it: whether a pod is to run, the active pods, runtime handlers."""

from bus.messages.pleg import RuntimeHandler
from bus.messages.podsync import PodState
from services.podsync.core.machine import PodSync
from shared.model.objects import Object


class CoreReads:
    """Reads the core's state for calls, as `NodeReads`; changes nothing."""

    def __init__(self, core: PodSync) -> None:
        self._core = core

    def is_to_run(self, uid: str) -> bool:
        """Return whether the pod has a record and is not to end."""
        record = self._core.records.get(uid)
        return record is not None and record.saved.state is PodState.SYNC

    def active_pods(self) -> list[Object]:
        """Return the pods whose requests count; a terminating pod counts as long as its containers run."""
        return [record.saved.pod for record in self._core.node_state.admissions.active()]

    def runtime_handlers(self) -> tuple[RuntimeHandler, ...] | None:
        """Return the runtime's handlers, None = it has not reported them."""
        return self._core.node_state.runtime_handlers
