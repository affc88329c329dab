"""What calls read of the core at the moment they use it: whether a pod is to run, the active pods, runtime handlers."""

from bus.messages.pleg import RuntimeHandler
from bus.messages.podsync import PodState
from services.podsync.core.machine import PodSync
from shared.model.objects import Object


class CoreReads:
    """Reads only; implements `NodeReads` of the calls."""

    def __init__(self, core: PodSync) -> None:
        self._core = core

    def is_to_run(self, uid: str) -> bool:
        """Whether the pod has a record and does not end."""
        record = self._core.records.get(uid)
        return record is not None and record.saved.state is PodState.SYNC

    def active_pods(self) -> list[Object]:
        """The pods whose requests count; one that terminates counts as long as its containers run."""
        return [record.saved.pod for record in self._core.node_state.admissions.active()]

    def runtime_handlers(self) -> tuple[RuntimeHandler, ...] | None:
        """The runtime's handlers, None = it has not reported them."""
        return self._core.node_state.runtime_handlers
