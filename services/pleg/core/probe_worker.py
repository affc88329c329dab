"""Decides for one probe of one container when to try next, and what its results amount to (pods.md 10.2).
Times are CLOCK_MONOTONIC seconds and arguments, so that a change of the wall clock has no effect.
"""

from enum import StrEnum
from math import inf

from msgspec import Struct

from services.pleg.core.probe_memory import ProbeMemory, fingerprint_of
from services.pleg.core.probe_spec import ProbeKind, ProbeSpec
from shared.model.probes import ProbeResult


class Verdict(StrEnum):
    """Names how one try ended. WARNING counts as a success; ERROR = there was no result, and the try does not count."""

    SUCCESS = "success"
    FAILURE = "failure"
    WARNING = "warning"
    ERROR = "error"


class Instance(Struct, frozen=True, kw_only=True):
    """Has the container instance that the pod's status names, as the runtime shows it.
    `found_running`: it ran already at the first list of this process; `first_delay`: a share from 0 to 1 of the period.
    """

    id: str
    running: bool
    exited: bool = False
    started: bool = True  # the container's `started` of the status
    started_at: float = 0.0
    found_running: bool = False
    first_delay: float = 0.0


class ProbeWorker:
    """Has the state of one probe. `container_id` "" = no instance seen yet; `result` is published for that instance.
    `handed_over`: what an earlier process has counted, which may be of another instance.
    """

    def __init__(
        self, spec: ProbeSpec, *, deletion_requested: bool = False, handed_over: ProbeMemory | None = None
    ) -> None:
        self.spec = spec
        self._handed_over = handed_over
        self._fingerprint = fingerprint_of(spec)
        self.container_id = ""
        self.result = ProbeResult.NONE
        self.probing = False
        self.has_answered = False  # whether a try of this instance has ended
        self._deletion_requested = deletion_requested
        self._held = False
        # Whether the instance was seen exited: if it is seen running again, its failure must not count.
        self._exited = False
        self._eligible = False
        self._due = inf
        self._last, self._in_a_row = ProbeResult.NONE, 0

    @property
    def due(self) -> float:
        """The moment of the next try; inf = not before something changes."""
        return self._due if self._eligible and not self._held and not self.probing else inf

    @property
    def memory(self) -> ProbeMemory | None:
        """The counts that the next process needs; None = nothing yet."""
        if not self.container_id:
            return self._handed_over
        return ProbeMemory(
            container=self.spec.container,
            kind=self.spec.kind.value,
            container_id=self.container_id,
            fingerprint=self._fingerprint,
            result=self.result,
            last=self._last,
            in_a_row=self._in_a_row,
            held=self._held,
            phase=round(self._due % self.spec.period, 2),
        )

    def observed(self, instance: Instance | None, now: float) -> bool:
        """Take the instance as status and runtime show it. Return whether the try in progress does not count any more:
        the caller cancels it and calls `abandoned`."""
        if instance is None:  # pods.md 10.2.1
            self._eligible = False
            return self.probing
        before = (self.container_id, self._eligible)
        if instance.id != self.container_id or (instance.running and self._exited):
            self._new_instance(instance, now)
        if self._held:  # pods.md 10.2.3
            return self.probing
        if self._deletion_requested and self.spec.kind is not ProbeKind.READINESS:  # pods.md 10.2.5
            self.result = ProbeResult.SUCCESS
            self._held = True
            return self.probing
        if not instance.running:
            # pods.md 10.2.4: an instance that is created, or that the runtime does not list, may still run later.
            self._eligible = False
            if instance.exited:
                self._exited = True
                self.result = ProbeResult.FAILURE
            return self.probing
        self._eligible = instance.started is not (self.spec.kind is ProbeKind.STARTUP)  # pods.md 10.2.7
        if self._eligible and not before[1] and instance.id == before[0] and self.spec.kind is ProbeKind.READINESS:
            self._due = min(self._due, max(now, instance.started_at + self.spec.initial_delay))
        return self.probing and (instance.id != before[0] or not self._eligible)

    def begin(self, now: float) -> None:
        """Note that a try begins, at `due` or later. The next one is a period later, however long this one takes."""
        assert now >= self.due
        self.probing = True
        late = now - self._due
        self._due = (self._due if late < self.spec.period else now) + self.spec.period

    def resumed(self, seconds: float) -> None:
        """Note that the machine was suspended for these seconds: the next try comes as much earlier."""
        self._due -= seconds

    def abandoned(self) -> None:
        """Note that the try under way was cancelled."""
        self.probing = False

    def finished(self, container_id: str, verdict: Verdict) -> None:
        """Take the verdict of the try under way, which was begun for the instance `container_id`."""
        self.probing = False
        if container_id != self.container_id or not self._eligible or self._held:
            return
        self.has_answered = True
        if verdict is Verdict.ERROR:  # pods.md 10.2.8
            return
        result = ProbeResult.FAILURE if verdict is Verdict.FAILURE else ProbeResult.SUCCESS
        needed = self.spec.failure_threshold if result is ProbeResult.FAILURE else self.spec.success_threshold
        self._in_a_row = min(self._in_a_row + 1, needed) if result == self._last else 1
        self._last = result
        if self._in_a_row < needed:  # pods.md 10.2.9
            return
        self.result = result
        if self.spec.kind is ProbeKind.STARTUP or (
            self.spec.kind is ProbeKind.LIVENESS and result is ProbeResult.FAILURE
        ):
            self._held = True  # pods.md 10.2.10
            self._in_a_row = 0

    def _new_instance(self, instance: Instance, now: float) -> None:
        """Set the initial result (pods.md 10.2.2) and the time of the first try (pods.md 10.1). Counts from before a
        restart of this process stay valid."""
        memory, self._handed_over = self._handed_over, None
        if memory is not None and not memory.is_of(self.spec, instance.id):
            memory = None
        self.container_id = instance.id
        self._held = False
        self._exited = False
        self._eligible = False
        self.has_answered = False
        self._last, self._in_a_row = ProbeResult.NONE, 0
        self.result = ProbeResult.NONE if instance.found_running else _INITIAL[self.spec.kind]
        if memory is not None:
            self.result, self._held = ProbeResult(memory.result), memory.held
            self._last, self._in_a_row = ProbeResult(memory.last), memory.in_a_row
            self.has_answered = self.result is not ProbeResult.NONE
            first = memory.next_due(self.spec.period, now)
        elif instance.found_running:
            # An earlier process probed it: publish no result before there is one, and do not try all at the same time.
            if self.spec.kind is ProbeKind.STARTUP and self.spec.sidecar and instance.started:
                self.result = ProbeResult.SUCCESS
            first = now + self.spec.period * instance.first_delay
        else:
            first = now + self._grace()
        self._due = max(first, instance.started_at + self.spec.initial_delay)

    def _grace(self) -> float:
        """Return the seconds from the start of an instance to the first try where the spec has no delay. The kubelet's
        first try comes within a period; where one failure may end the container, the first try must not be too
        early."""
        if self.spec.initial_delay > 0 or self.spec.kind is ProbeKind.READINESS:
            return 0.0
        may_end = self.spec.kind is ProbeKind.LIVENESS or self.spec.failure_threshold == 1
        return self.spec.period if may_end else 0.0


_INITIAL = {
    ProbeKind.LIVENESS: ProbeResult.SUCCESS,
    ProbeKind.READINESS: ProbeResult.FAILURE,
    ProbeKind.STARTUP: ProbeResult.NONE,
}
