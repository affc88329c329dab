"""Decides which processes to watch, and how often to look again when the kernel reports an end that the runtime does
not show yet. Has ids and pids, not descriptors.
"""

from collections.abc import Iterable, Iterator
from math import inf

from msgspec import Struct

from services.pleg.core.instructions import UnwatchProcess, WatchProcess
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, RuntimePod, SandboxState
from shared.time.backoff import Backoff

# The delays are 5, 7, 10, 14 … 397 ms, together 1.4 s; the next full list comes soon after that. A runtime usually
# shows the end after 40 to 80 ms, and a look is at most 40 % of that too late. Where many processes end at the same
# time the runtime takes longer, and each CROWD of them adds these delays once more.
LOOKS = Backoff(initial=0.005, factor=1.4)
MAX_LOOKS = 14  # for the end of one process
CROWD = 4


class _UnconfirmedExit(Struct, frozen=True):
    """Has a process whose end the kernel reports while the runtime still shows it running."""

    uid: str
    ended_at: float
    looks: int = 0
    due: float = inf


class Processes:
    """Has the first process of every running container and sandbox, by the id of that container or sandbox."""

    def __init__(self) -> None:
        self._watches: dict[str, dict[str, int]] = {}  # pod UID -> id -> pid, because pods are observed singly
        self._watched: dict[str, str] = {}  # the ids in `_watches` -> pod UID
        self._doubts: dict[str, _UnconfirmedExit] = {}
        self._refused: dict[str, str] = {}  # watches that the kernel refused -> pod UID
        self._unwatched: dict[str, str] = {}  # observed running and not watched -> pod UID

    @property
    def next_look(self) -> float:
        """The moment at which `due` returns pods next; inf = never."""
        return min((doubt.due for doubt in self._doubts.values()), default=inf)

    def shown(self, pod: RuntimePod, observed_at: float, now: float) -> list[UnwatchProcess | WatchProcess]:
        """Watch exactly the processes that an observation shows running, and decide about those whose end was reported.
        Return the instructions."""
        running = dict(_running(pod))
        self._unwatched = {i: uid for i, uid in self._unwatched.items() if uid != pod.uid}
        instructions: list[UnwatchProcess | WatchProcess] = []
        for entry_id, pid in list(self._watches.get(pod.uid, {}).items()):
            if running.get(entry_id) != pid:
                self._unwatch(entry_id)
                instructions.append(UnwatchProcess(entry_id))
        self._refused = {i: uid for i, uid in self._refused.items() if uid != pod.uid or i in running}
        self._doubts = {i: doubt for i, doubt in self._doubts.items() if doubt.uid != pod.uid or i in running}
        for entry_id, pid in running.items():
            if entry_id in self._doubts:
                self._still_shown_running(entry_id, observed_at, now)
            elif pid and entry_id not in self._watched and entry_id not in self._refused:
                self._watches.setdefault(pod.uid, {})[entry_id] = pid
                self._watched[entry_id] = pod.uid
                instructions.append(WatchProcess(entry_id, pid))
            if entry_id not in self._watched:
                self._unwatched[entry_id] = pod.uid
        return instructions

    def withdrawn(self, uid: str) -> list[UnwatchProcess]:
        """Unwatch all processes of a pod that the runtime no longer has, and return the instructions."""
        ended = list(self._watches.get(uid, {}))
        for entry_id in ended:
            self._unwatch(entry_id)
        self._doubts = {i: doubt for i, doubt in self._doubts.items() if doubt.uid != uid}
        self._refused = {i: owner for i, owner in self._refused.items() if owner != uid}
        self._unwatched = {i: owner for i, owner in self._unwatched.items() if owner != uid}
        return [UnwatchProcess(entry_id) for entry_id in ended]

    def exited(self, entry_id: str, now: float) -> str:
        """Note that the kernel reports the end of a process. Return the UID of the pod to look at, "" = it was not
        watched (the report is late or repeated)."""
        uid = self._unwatch(entry_id)
        if uid:
            self._unwatched[entry_id] = uid
            self._doubts[entry_id] = _UnconfirmedExit(uid, ended_at=now)
        return uid

    def refused(self, entry_id: str) -> None:
        """Note that the kernel refused the watch."""
        uid = self._unwatch(entry_id)
        if uid:
            self._refused[entry_id] = self._unwatched[entry_id] = uid

    def retry_refused(self) -> None:
        """Forget the refusals, so that a full list tries the watches once more."""
        self._refused.clear()

    def due(self, now: float) -> list[str]:
        """Return the pods to look at again now, because an exit in them is unconfirmed."""
        due = [entry_id for entry_id, doubt in self._doubts.items() if doubt.due <= now]
        for entry_id in due:
            self._doubts[entry_id] = replace(self._doubts[entry_id], due=inf)
        return list(dict.fromkeys(self._doubts[entry_id].uid for entry_id in due))

    @property
    def all_watched(self) -> bool:
        """Whether the kernel will report the end of every process that was observed running."""
        return not self._unwatched

    def validate(self, pods: Iterable[RuntimePod]) -> None:
        """Raise AssertionError, which names the invariant, where one is broken."""
        running = {entry_id for pod in pods for entry_id, _ in _running(pod)}
        of_pods = {entry_id: uid for uid, watches in self._watches.items() for entry_id in watches}
        assert of_pods == self._watched, "the watches of the pods are not the watches"
        assert all(self._watches.values()), "a pod without watches"
        assert not self._watched.keys() & self._doubts.keys(), "watched although its process ended"
        assert not self._watched.keys() & self._refused.keys(), "watched although refused"
        assert {*self._watched, *self._doubts, *self._refused} <= running, "minded but not running"
        assert self._unwatched.keys() == running - self._watched.keys(), "not known as unwatched"

    def _unwatch(self, entry_id: str) -> str:
        """Forget the watch; return the pod's UID, "" = there is no watch."""
        uid = self._watched.pop(entry_id, "")
        if uid:
            watches = self._watches[uid]
            del watches[entry_id]
            if not watches:
                del self._watches[uid]
        return uid

    def _still_shown_running(self, entry_id: str, observed_at: float, now: float) -> None:
        """Plan another look soon, a bounded number of times, because an ended process is still shown running.
        The kernel reports the exit at once; the runtime receives it from its shim, which must first reap the process
        and send an event. So a look without delay is usually some milliseconds too early, and no event reports that
        the runtime shows the exit.
        """
        doubt = self._doubts[entry_id]
        if observed_at < doubt.ended_at:
            return  # the observation was begun before the exit; the look that the exit caused follows
        if doubt.looks < MAX_LOOKS:
            looks = doubt.looks + 1
            others = sum(other.looks < MAX_LOOKS for other in self._doubts.values())
            delay = LOOKS.delay(looks) * (1 + others // CROWD)
            self._doubts[entry_id] = replace(doubt, looks=looks, due=now + delay)
        else:
            # The process is not watched again: the end of an ended process would be reported at once, again and again.
            self._doubts[entry_id] = replace(doubt, due=inf)


def _running(pod: RuntimePod) -> Iterator[tuple[str, int]]:
    """Yield id and pid of everything in the pod that runs; pid 0 = the runtime does not report it."""
    for sandbox in pod.sandboxes:
        if sandbox.state is SandboxState.READY:
            yield sandbox.id, sandbox.pid
    for container in pod.containers:
        if container.state is ContainerState.RUNNING:
            yield container.id, container.pid
