"""Decides which pod to look at, which process to watch and what to publish, from lists, looks and hints.

Knows no calls, descriptors or bus. A hint proves nothing: it only causes a look. Of two observations of one pod the one
begun later counts, in whatever order they arrive.
"""

from dataclasses import dataclass
from math import inf

from services.pleg.core.events import (
    Event,
    EventStreamChanged,
    ObservationFailed,
    PodObserved,
    ProcessExited,
    Relisted,
    RuntimeEventReceived,
    StatusContainersChanged,
    TimePassed,
    WatchFailed,
)
from services.pleg.core.instructions import (
    Instruction,
    MarkComplete,
    ObservePod,
    PublishPod,
    Relist,
    WatchProcess,
    WithdrawPod,
)
from services.pleg.core.processes import Processes
from shared.model.frozen_copy import replace
from shared.model.runtime import RuntimePod, SandboxState

RELIST_SECONDS = 5.0  # between full lists while every change has a hint of its own
UNHINTED_RELIST_SECONDS = 1.0  # while some process can end without a hint (the kubelet's period)
CONFIRM_AFTER = 1.0  # seconds, see _publish
LOOKS_BEFORE_RELIST = 8  # more pods than this at once are cheaper as one list than one by one


@dataclass(frozen=True)
class _Published:
    pod: RuntimePod
    confirmed: bool


@dataclass(frozen=True)
class _Named:
    """The containers that the status of a pod names as running; `since`: CLOCK_MONOTONIC seconds, inf once the pod was
    observed and withdrawn."""

    ids: frozenset[str]
    name: str
    namespace: str
    since: float


class Observation:
    """The state of what was observed; changed by `handle` alone."""

    def __init__(self) -> None:
        self.complete = False
        self.event_stream = False
        self._pods: dict[str, RuntimePod] = {}
        self._published: dict[str, _Published] = {}
        self._gone: dict[str, float] = {}  # uid -> begin of the observation that did not find it
        self._processes = Processes()
        self._named: dict[str, _Named] = {}
        self._looking: dict[str, str] = {}  # uid -> why we look again after the look under way; "" = we do not

    @property
    def next_look(self) -> float:
        """When TimePassed is to come, CLOCK_MONOTONIC seconds; inf = not at all."""
        return self._processes.next_look

    @property
    def relist_period(self) -> float:
        """Seconds from the end of one full list to the next."""
        return RELIST_SECONDS if self.event_stream or self._processes.all_watched else UNHINTED_RELIST_SECONDS

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """What is to be done about an event; `now` is CLOCK_MONOTONIC seconds."""
        match event:
            case Relisted():
                return self._relisted(event, now)
            case PodObserved(uid, pod, observed_at):
                return [*self._apply(uid, pod, observed_at, now), *self._look_ended(uid)]
            case ObservationFailed(uid):
                # Whatever we hoped to see is in the next full list, which has the back-off for a runtime in trouble.
                return [Relist("a look failed"), *self._look_ended(uid)]
            case ProcessExited(entry_id) | WatchFailed(entry_id, gone=True):
                exited = self._processes.exited(entry_id, now)
                return self._look(exited, "process exited") if exited else []
            case WatchFailed(entry_id):
                self._processes.refused(entry_id)
                return []
            case RuntimeEventReceived(uid, kind):
                return self._look(uid, f"runtime event {kind}") if uid else [Relist(f"runtime event {kind} of no pod")]
            case EventStreamChanged(connected):
                self.event_stream = connected
                return []
            case StatusContainersChanged():
                return self._containers_named(event, now)
            case TimePassed():
                return [i for uid in self._processes.due(now) for i in self._look(uid, "an exit is unconfirmed")]

    def validate(self) -> None:
        """The invariants; AssertionError names the one that broke."""
        assert self._pods.keys() == self._published.keys(), "known and published differ"
        assert not self._pods.keys() & self._gone.keys(), "known and gone"
        self._processes.validate(self._pods.values())

    # -- observations --------------------------------------------------------------------------------------------

    def _relisted(self, event: Relisted, now: float) -> list[Instruction]:
        self._processes.retry_refused()
        instructions: list[Instruction] = []
        for uid in dict.fromkeys((*event.pods, *self._pods, *self._named)):
            if uid in event.unseen:
                continue
            pod = event.pods.get(uid)
            instructions += self._apply(uid, pod, pod.observed_at if pod else event.observed_at, now)
        # An absence is remembered against observations begun earlier; those under way now began after the last list.
        self._gone = {uid: at for uid, at in self._gone.items() if at > event.observed_at}
        if not self.complete and not event.unseen - self._pods.keys():
            self.complete = True
            instructions.append(MarkComplete())
            for uid, named in self._named.items():
                if named.ids - self._container_ids(uid):
                    instructions += self._look(uid, "status names a container not listed")
        looks = [i for i in instructions if isinstance(i, ObservePod)]
        if len(looks) > LOOKS_BEFORE_RELIST:
            for look in looks:
                del self._looking[look.uid]
            instructions = [i for i in instructions if not isinstance(i, ObservePod)]
            instructions.append(Relist("many processes are watched from now on"))
        return instructions

    def _apply(self, uid: str, pod: RuntimePod | None, observed_at: float, now: float) -> list[Instruction]:
        """Take an observation over, unless a later one was taken already."""
        before = self._pods.get(uid)
        if observed_at < (before.observed_at if before else self._gone.get(uid, -inf)):
            return []
        pod = pod or self._lost(uid, before, observed_at)
        if pod is None:
            self._gone[uid] = observed_at
            if before is None:
                return []
            del self._pods[uid], self._published[uid]
            if uid in self._named:
                self._named[uid] = replace(self._named[uid], since=inf)
            return [*self._processes.withdrawn(uid), WithdrawPod(uid, "the runtime has it no more")]
        pod = _with_last_ips(pod, before)
        self._gone.pop(uid, None)
        self._pods[uid] = pod
        watching = self._processes.shown(pod, observed_at, now)
        # The pid is from before the pidfd: its process may have ended and the number been given to another one in
        # between. Seen running after the pidfd was opened it was the right one, else that look ends the watch.
        opened = any(isinstance(instruction, WatchProcess) for instruction in watching)
        return [*self._publish(pod), *watching, *(self._look(uid, "watched from now on") if opened else ())]

    def _lost(self, uid: str, before: RuntimePod | None, observed_at: float) -> RuntimePod | None:
        """What is published of a pod that the runtime lost before it was ever observed: its status names containers
        as running, so podsync must learn that there is nothing. None = it is withdrawn, or was never there."""
        named = self._named.get(uid)
        is_withdrawn = before is not None and (before.sandboxes or before.containers)
        if named is None or is_withdrawn or observed_at < named.since:
            return None
        return RuntimePod(uid=uid, name=named.name, namespace=named.namespace, observed_at=observed_at)

    def _publish(self, pod: RuntimePod) -> list[Instruction]:
        """Publish what changed, and once more what did not.

        podsync ignores an observation begun before its own last call returned. Such a one may show the call's effect
        already, and with nothing changing afterwards it would be the last: so an unchanged pod is published a second
        time from an observation begun clearly later.
        """
        last = self._published.get(pod.uid)
        if last is None or not pod.same_content(last.pod):
            self._published[pod.uid] = _Published(pod, confirmed=False)
            return [PublishPod(pod, "new to us" if last is None else "changed")]
        if last.confirmed or pod.observed_at < last.pod.observed_at + CONFIRM_AFTER:
            return []
        self._published[pod.uid] = _Published(pod, confirmed=True)
        return [PublishPod(pod, "still so")]

    def _look(self, uid: str, cause: str) -> list[Instruction]:
        """Look at a pod; one look at a time, and one more afterwards however many hints came meanwhile."""
        if uid in self._looking:
            self._looking[uid] = cause
            return []
        self._looking[uid] = ""
        return [ObservePod(uid, cause)]

    def _look_ended(self, uid: str) -> list[Instruction]:
        cause = self._looking.pop(uid, "")
        return self._look(uid, cause) if cause else []

    def _containers_named(self, event: StatusContainersChanged, now: float) -> list[Instruction]:
        # Only an id named for the first time: a status may name containers that were removed long ago.
        uid, ids, before = event.uid, frozenset(event.ids), self._named.get(event.uid)
        new = ids - before.ids if before else ids
        if not ids:
            self._named.pop(uid, None)
        elif before is None or before.ids != ids:
            self._named[uid] = _Named(ids, event.name, event.namespace, now)
        if not self.complete or new <= self._container_ids(uid):
            return []
        return self._look(uid, "status names a container not seen")

    def _container_ids(self, uid: str) -> set[str]:
        pod = self._pods.get(uid)
        return {container.id for container in pod.containers} if pod else set()


def _with_last_ips(pod: RuntimePod, before: RuntimePod | None) -> RuntimePod:
    """A sandbox that was stopped loses its addresses in the runtime; the last known ones stay (pods.md 11.1)."""
    last = {sandbox.id: sandbox.ips for sandbox in before.sandboxes} if before else {}
    sandboxes = tuple(
        replace(sandbox, ips=last[sandbox.id])
        if sandbox.state is SandboxState.NOTREADY and not sandbox.ips and last.get(sandbox.id)
        else sandbox
        for sandbox in pod.sandboxes
    )
    return replace(pod, sandboxes=sandboxes) if sandboxes != pod.sandboxes else pod
