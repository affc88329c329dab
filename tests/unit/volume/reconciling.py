"""A reconciler under test: its clock, and the pods and objects it receives."""

from typing import Any

from bus.messages.podsync import PodState, PodVolumes
from services.volume.core.operations.operations import Operation
from services.volume.core.operations.outcome import Outcome
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import Node
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld
from services.volume.plugins.registry import volume_spec

VOLUMES = [
    {"name": "cache", "emptyDir": {}},
    {"name": "shm", "emptyDir": {"medium": "Memory"}},
    {"name": "host", "hostPath": {"path": "/srv"}},
    {"name": "key", "rbd": {"image": "i"}},
    {"name": "cfg", "configMap": {"name": "x", "defaultMode": 0o644}},
]
CFG = "ConfigMap/default/x"


class World:
    """A reconciler, the time, and the pods it receives."""

    def __init__(self) -> None:
        desired = DesiredStateOfWorld(lambda pod, name: volume_spec(pod, name, Node()))
        self.reconciler = Reconciler(desired, ActualStateOfWorld())
        self.now = 100.0
        self.set_freshness()

    def set_freshness(self, *, complete: bool = True, stale: bool = False) -> None:
        self.reconciler.desired.set_freshness(complete=complete, stale=stale)

    def admit(self, *volumes: str, state: PodState = PodState.SYNC, spec: list[dict[str, Any]] | None = None) -> None:
        metadata = {"name": "web", "namespace": "default", "uid": "u"}
        pod = {"metadata": metadata, "spec": {"volumes": VOLUMES if spec is None else spec}}
        self.reconciler.desired.admit(
            PodVolumes(uid="u", name="web", namespace="default", state=state, pod=pod, volumes=volumes)
        )

    def operations(self) -> list[Operation]:
        pods = self.reconciler.pods()
        return [operation for uid in pods for operation in self.reconciler.operations(uid, self.now)]

    def started(self) -> list[str]:
        """The operations started now, as text."""
        return [f"{type(operation).__name__} {operation.volume}".strip() for operation in self.operations()]

    def finish(self, operation: Operation, error: str = "") -> list[str]:
        outcome = Outcome(host_path="" if error else f"/p/{operation.volume}", error=error)
        done = self.reconciler.done(operation, self.now, outcome)
        return [event.message for event in done.events]

    def finish_all(self) -> None:
        """Perform everything there is to do, successfully."""
        for _ in range(10):
            for operation in self.operations():
                self.finish(operation)

    def view(self) -> dict[str, tuple[str, str]] | None:
        view = self.reconciler.view("u")
        if view is None:
            return None
        return {name: (volume.state.value, volume.host_path or volume.error) for name, volume in view.volumes.items()}
