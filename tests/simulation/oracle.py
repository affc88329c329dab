"""The invariants of a node: what must never happen, whatever fails. Looks on from outside and changes nothing.

The simulated world reports what happens; the first event that must not be is kept as the violation.
"""

from typing import TYPE_CHECKING, Any

import orjson

from bus import frames
from shared.cri.interface import Message
from shared.model.objects import Object
from shared.model.runtime import ContainerState, SandboxState
from tests.fakes.api_store import Change
from tests.simulation.story import Story

if TYPE_CHECKING:
    from tests.simulation.runtime import SimulationRuntime

_TERMINAL = ("Succeeded", "Failed")
_ENDING = ("terminating", "terminated", "finished")
SLACK = 2.1  # seconds: the least anyone gets, whole seconds of grace, and the way of a call


class Oracle:
    """`violation`: the first thing that must never happen, None while all is well."""

    def __init__(self, story: Story) -> None:
        self.violation: str | None = None
        self.closed = False  # the run is over: later reports come from its end
        self.starts: dict[tuple[str, str], int] = {}  # (uid, container) -> starts
        self.runtime: SimulationRuntime
        self._story = story
        self._policy: dict[str, str] = {}
        self._grace: dict[str, float] = {}
        self._deleted: dict[str, tuple[float, float]] = {}  # uid -> (when, grace) of the shortest deletion
        self._gone: set[str] = set()  # forcibly deleted
        self._ending: set[str] = set()  # podsync has published it
        self._terminal: dict[str, str] = {}
        self._stopped: dict[str, float] = {}  # container id -> when it was first asked to stop
        self._attempts: set[tuple[str, str, str, int]] = set()

    def violated(self, what: str) -> None:
        """It happened."""
        if self.violation is None and not self.closed:
            self.violation = what
            self._story.add("ORACLE", what)

    def knows(self, uid: str, policy: str, grace: float) -> None:
        """A pod and the promises made to it."""
        self._policy[uid], self._grace[uid] = policy, grace

    # -- the bus and the API server --------------------------------------------------------------------------------

    def published(self, service: str, published: frames.Frames) -> None:
        """podsync publishes the state of a pod."""
        if published[0] == b"pods.admitted\0" and published[-1]:
            admitted = orjson.loads(published[-1])
            uid, state = admitted["uid"], admitted["state"]
            if state in _ENDING:
                if uid not in self._ending:
                    self._story.add(service, f"pod {uid[-12:]} is {state}")
                self._ending.add(uid)
            elif uid in self._ending and uid not in self._restartable:
                self.violated(f"pod {uid[-12:]} was ending and is {state} again")

    @property
    def _restartable(self) -> set[str]:
        """Static pods come back under their UID when their manifest does."""
        return {uid for uid in self._ending if not _is_of_api(uid)}

    def runtime_is_empty(self) -> None:
        """The runtime has lost what it had, also the names of containers."""
        self._attempts.clear()

    def may_come_back(self, uid: str) -> bool:
        """Return whether the pod may have been admitted anew: it is static, and podsync has ended it."""
        return uid in self._restartable

    def changed(self, change: Change) -> None:
        """The API server wrote a pod."""
        if "/pods/" not in change.key:
            return
        self._add_pod(change)
        pod = change.after
        if pod is None:
            assert change.before is not None
            self._gone.add(change.before["metadata"]["uid"])
            return
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        phase = pod.get("status", {}).get("phase", "")
        if uid in self._terminal and phase != self._terminal[uid]:
            self.violated(f"the phase of pod {metadata['name']} goes from {self._terminal[uid]} to {phase}")
        if phase in _TERMINAL:
            self._terminal[uid] = phase
        if metadata.get("deletionTimestamp"):
            grace = float(metadata.get("deletionGracePeriodSeconds", 0))
            when, before = self._deleted.get(uid, (self._story.seconds, grace))
            self._deleted[uid] = (when, min(grace, before))

    def _add_pod(self, change: Change) -> None:
        name = change.key.rpartition("/")[2]
        before = _summary(change.before)
        after = _summary(change.after)
        if before != after:
            self._story.add("api", f"pod {name}: {after}")

    # -- the runtime -----------------------------------------------------------------------------------------------

    def requested(self, method: str, request: Message, who: str) -> None:
        """A call leaves its caller."""
        if method == "StopContainer":  # one that fails counts, too: a repeated call need not wait again
            self.stopping(request["container_id"])
        if method not in ("RunPodSandbox", "CreateContainer", "StartContainer"):
            return
        uid = self._uid(method, request)
        name = f"{method} of {who} for pod {uid[-12:]}"
        if uid in self._ending and uid not in self._restartable:
            self.violated(f"{name}, which is ending")
        if uid in self._terminal:
            self.violated(f"{name}, which has {self._terminal[uid]}")

    def carried_out(self, method: str, request: Message, result: Any) -> None:
        """A call had its effect."""
        if method == "RunPodSandbox":
            metadata = request["config"]["metadata"]
            uid = metadata["uid"]
            self._unique(uid, "sandbox", "", metadata.get("attempt", 0))
            ready = [
                sandbox.attempt for sandbox in self.runtime.pods()[uid].sandboxes if sandbox.state is SandboxState.READY
            ]
            if len(ready) > 1:
                self.violated(f"pod {metadata['name']} has {len(ready)} sandboxes that are ready")
        elif method == "CreateContainer":
            metadata = request["config"]["metadata"]
            uid = request["sandbox_config"]["metadata"]["uid"]
            self._unique(uid, "container", metadata["name"], metadata.get("attempt", 0))

    def running_namesakes(self, container_id: str) -> list[str]:
        """The running containers of the same pod and name."""
        for pod in self.runtime.pods().values():
            own = next((c for c in pod.containers if c.id == container_id), None)
            if own is not None:
                return [
                    c.id
                    for c in pod.containers
                    if c.name == own.name and c.id != own.id and c.state is ContainerState.RUNNING
                ]
        return []

    def started(self, uid: str, container: str, container_id: str, namesakes: list[str]) -> int:
        """A container begins to run; how often one of its name did before."""
        number = self.starts.get((uid, container), 0)
        self.starts[uid, container] = number + 1
        if namesakes:
            self.violated(f"container {container} of pod {uid[-12:]} is started while {namesakes[0][:8]} runs")
        if number and self._policy.get(uid) == "Never" and container[0] != "s":
            self.violated(f"container {container} of pod {uid[-12:]} runs twice under restartPolicy Never")
        return number

    def begins_beside(self, uid: str, container: str, running: list[str]) -> None:
        """What else of the pod runs as a container starts: an init container runs beside sidecars alone."""
        beside = [name for name in running if name[0] == "i" and container[0] != "s"]
        if beside:
            self.violated(f"container {container} of pod {uid[-12:]} is started while {beside[0]} initializes")

    def one_of_a_name(self, uid: str) -> None:
        """A container of the pod begins to run: no other static pod of its name may run (pods.md 4.5)."""
        pods = self.runtime.pods()
        for other, seen in pods.items():
            if other == uid or _is_of_api(other) or _is_of_api(uid) or seen.name != pods[uid].name:
                continue
            if any(container.state is ContainerState.RUNNING for container in seen.containers):
                self.violated(f"pod {seen.name} runs twice, as {other[-12:]} and as {uid[-12:]}")

    def stopping(self, container_id: str) -> None:
        """A stop of it was requested."""
        self._stopped.setdefault(container_id, self._story.seconds)

    def killed(self, uid: str, container_id: str) -> None:
        """It gets KILL. Has it had its time?"""
        now = self._story.seconds
        if uid in self._gone or uid not in self._grace:
            return
        grace = self._grace[uid]
        if uid in self._deleted:
            when, grace = self._deleted[uid]
            if now - when >= grace - SLACK:
                return
        asked = self._stop_that_counts(uid, container_id)
        if now - asked < grace - SLACK:
            self.violated(
                f"container {container_id[:8]} is killed {now - asked:.1f} s after TERM; its grace is {grace:g} s"
            )

    def _stop_that_counts(self, uid: str, container_id: str) -> float:
        """When the grace period of the container began. A sidecar is stopped last and gets what the other containers
        left of it, so its grace period began with the first stop in the pod (pods.md 8.3)."""
        pod = self.runtime.pods().get(uid)
        names = {container.id: container.name for container in pod.containers} if pod else {}
        is_sidecar = names.get(container_id, "").startswith("s")
        stopped = [self._stopped[one] for one in (names if is_sidecar else [container_id]) if one in self._stopped]
        return min(stopped, default=self._story.seconds)

    def unmounted(self, uid: str, volume: str) -> None:
        """A volume goes: nothing may run in the pod."""
        pod = self.runtime.pods().get(uid)
        running = [c.name for c in pod.containers if c.state is ContainerState.RUNNING] if pod else []
        if running:
            self.violated(f"{volume} of pod {uid[-12:]} is taken away under the running {', '.join(running)}")

    def _unique(self, uid: str, kind: str, name: str, attempt: int) -> None:
        key = (uid, kind, name, attempt)
        if key in self._attempts and uid not in self._restartable:
            self.violated(f"attempt {attempt} of {kind} {name} of pod {uid[-12:]} is made a second time")
        self._attempts.add(key)

    def _uid(self, method: str, request: Message) -> str:
        if method == "RunPodSandbox":
            return str(request["config"]["metadata"]["uid"])
        if method == "CreateContainer":
            return str(request["sandbox_config"]["metadata"]["uid"])
        held = self.runtime._containers.get(request["container_id"])
        return self.runtime._uid_of(held.container.sandbox_id) if held is not None else ""


def _is_of_api(uid: str) -> bool:
    return uid.startswith("ab1e0000")


def _summary(pod: Object | None) -> str:
    if pod is None:
        return "gone"
    metadata, status = pod["metadata"], pod.get("status", {})
    words = [str(status.get("phase", ""))]
    if metadata.get("deletionTimestamp"):
        words.append(f"deleted(grace {metadata.get('deletionGracePeriodSeconds')})")
    for shown in status.get("containerStatuses") or ():
        kind, state = next(iter((shown.get("state") or {"none": {}}).items()))
        detail = state.get("reason", "") if kind != "terminated" else state.get("exitCode")
        words.append(f"{shown['name']}={kind}:{detail} ready={shown['ready']} restarts={shown['restartCount']}")
    return " ".join(words)
