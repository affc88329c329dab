"""Describes what became of the pods of a run once: the content of its record."""

from enum import StrEnum

from msgspec import Struct


class Outcome(StrEnum):
    """What became of a pod so far. Waiting and Running may change; the others are final."""

    WAITING = "Waiting"
    RUNNING = "Running"
    READY = "Ready"  # of a pod with restartPolicy Always: it keeps running
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINAL = frozenset((Outcome.READY, Outcome.SUCCEEDED, Outcome.FAILED))


class PodResult(Struct, frozen=True, kw_only=True):
    """One pod; `message` is the reason of a failure, or what the pod waits for."""

    namespace: str
    name: str
    uid: str
    outcome: Outcome
    message: str = ""


class RunOnceRecord(Struct, frozen=True, kw_only=True):
    """A run. `began` is CLOCK_MONOTONIC seconds, `problems` are manifests from which no pod could be made."""

    generation: str  # of the supervisord
    began: float
    complete: bool = False
    pods: tuple[PodResult, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the run ends with an error."""
        return not self.complete or bool(self.problems) or any(pod.outcome is Outcome.FAILED for pod in self.pods)
