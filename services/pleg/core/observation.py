"""Decides which pod to look at, which process to watch and what to publish, from lists, looks and hints.
Has no calls, descriptors or bus. A hint proves nothing: it only causes a look. Of two observations of one pod the one
begun later counts, in any order of their arrival.
"""

from math import inf

from msgspec import Struct

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

RELIST_SECONDS = 5.0  # between full lists while each change causes a hint
UNHINTED_RELIST_SECONDS = 1.0  # between full lists while some process can end without a hint (the kubelet's period)
CONFIRM_SECONDS = 1.0  # see _publish
MAX_LOOKS = 8  # pods that are looked at singly; for more at the same time one list is cheaper


class _Published(Struct, frozen=True):
    pod: RuntimePod
    confirmed: bool


class _Named(Struct, frozen=True):
    """Has the containers that the status of a pod names as running; `since`: CLOCK_MONOTONIC seconds, inf once the pod
    was observed and withdrawn."""

    ids: frozenset[str]
    name: str
    namespace: str
    since: float


class Observation:
    """Has what was observed; only `handle` changes it."""

    def __init__(self) -> None:
        self.complete = False
        self.event_stream = False
        self._pods: dict[str, RuntimePod] = {}
        self._published: dict[str, _Published] = {}
        self._gone: dict[str, float] = {}  # uid -> begin of the observation in which the pod was absent
        self._processes = Processes()
        self._named: dict[str, _Named] = {}
        self._looking: dict[str, str] = {}  # uid with a look under way -> cause of a further look after it, "" = none

    @property
    def next_look(self) -> float:
        """The CLOCK_MONOTONIC seconds at which TimePassed must come; inf = not at all."""
        return self._processes.next_look

    @property
    def relist_period(self) -> float:
        """The seconds from the end of one full list to the next."""
        return RELIST_SECONDS if self.event_stream or self._processes.all_watched else UNHINTED_RELIST_SECONDS

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take an event and return the instructions that follow; `now` is CLOCK_MONOTONIC seconds."""
        match event:
            case Relisted():
                return self._relisted(event, now)
            case PodObserved(uid, pod, observed_at):
                return [*self._apply(uid, pod, observed_at, now), *self._look_ended(uid)]
            case ObservationFailed(uid):
                # The next full list shows what the look would have shown; lists have a back-off while the runtime
                # fails.
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
        """Raise AssertionError, which names the invariant, where one is broken."""
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
        # An absence counts against observations begun earlier; those under way now began after the last list.
        self._gone = {uid: at for uid, at in self._gone.items() if at > event.observed_at}
        if not self.complete and not event.unseen - self._pods.keys():
            self.complete = True
            instructions.append(MarkComplete())
            for uid, named in self._named.items():
                if named.ids - self._container_ids(uid):
                    instructions += self._look(uid, "status names a container not listed")
        looks = [i for i in instructions if isinstance(i, ObservePod)]
        if len(looks) > MAX_LOOKS:
            for look in looks:
                del self._looking[look.uid]
            instructions = [i for i in instructions if not isinstance(i, ObservePod)]
            instructions.append(Relist("many processes are watched from now on"))
        return instructions

    def _apply(self, uid: str, pod: RuntimePod | None, observed_at: float, now: float) -> list[Instruction]:
        """Take an observation, unless a later one was taken already."""
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
        # The pid is from before the pidfd: its process may have ended, and another one may have got the number. A look
        # after the pidfd was opened shows whether the process still ran; otherwise it ends the watch.
        opened = any(isinstance(instruction, WatchProcess) for instruction in watching)
        return [*self._publish(pod), *watching, *(self._look(uid, "watched from now on") if opened else ())]

    def _lost(self, uid: str, before: RuntimePod | None, observed_at: float) -> RuntimePod | None:
        """Return what is published of a pod that the runtime lost before it was ever observed: its status names running
        containers, so that podsync needs an observation without them. None = it is withdrawn, or never existed."""
        named = self._named.get(uid)
        is_withdrawn = before is not None and (before.sandboxes or before.containers)
        if named is None or is_withdrawn or observed_at < named.since:
            return None
        return RuntimePod(uid=uid, name=named.name, namespace=named.namespace, observed_at=observed_at)

    def _publish(self, pod: RuntimePod) -> list[Instruction]:
        """Publish a changed pod, and an unchanged one once more.
        podsync ignores an observation begun before its own last call returned. Such an observation may show the call's
        effect already, and without further changes it would be the last one: so an unchanged pod is published a second
        time from an observation begun at least a second later.
        """
        last = self._published.get(pod.uid)
        if last is None or not pod.same_content(last.pod):
            self._published[pod.uid] = _Published(pod, confirmed=False)
            return [PublishPod(pod, "new to us" if last is None else "changed")]
        if last.confirmed or pod.observed_at < last.pod.observed_at + CONFIRM_SECONDS:
            return []
        self._published[pod.uid] = _Published(pod, confirmed=True)
        return [PublishPod(pod, "still so")]

    def _look(self, uid: str, cause: str) -> list[Instruction]:
        """Look at a pod, unless a look is under way: then one more follows it, after any number of hints."""
        if uid in self._looking:
            self._looking[uid] = cause
            return []
        self._looking[uid] = ""
        return [ObservePod(uid, cause)]

    def _look_ended(self, uid: str) -> list[Instruction]:
        cause = self._looking.pop(uid, "")
        return self._look(uid, cause) if cause else []

    def _containers_named(self, event: StatusContainersChanged, now: float) -> list[Instruction]:
        # Only an id that is new in the status causes a look: a status may name containers that were removed long ago.
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
    """Return the pod with the last known addresses of stopped sandboxes, which lose them in the runtime (pods.md
    11.1)."""
    last = {sandbox.id: sandbox.ips for sandbox in before.sandboxes} if before else {}
    sandboxes = tuple(
        replace(sandbox, ips=last[sandbox.id])
        if sandbox.state is SandboxState.NOTREADY and not sandbox.ips and last.get(sandbox.id)
        else sandbox
        for sandbox in pod.sandboxes
    )
    return replace(pod, sandboxes=sandboxes) if sandboxes != pod.sandboxes else pod
