"""Records, instances and statuses as the tests of a pod's API status write them: short, and by hand."""

from typing import Any

from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodState
from services.podsync.core.pod.observed_in_runtime import Observed
from services.podsync.core.pod.progress import InstanceFacts, Progress
from services.podsync.core.pod.saved import Saved
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.status.pod_status import pod_status, withheld
from shared.model.frozen_copy import replace
from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState

Json = dict[str, Any]
NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
NODE_IPS = ("10.88.0.1",)


def spec(name: str, **fields: Any) -> Json:
    """A container of a pod spec."""
    return {"name": name, "image": f"{name}:1", **fields}


def sidecar(name: str, **fields: Any) -> Json:
    """An init container that restarts always."""
    return spec(name, restartPolicy="Always", **fields)


def specs_of(statuses: tuple[Json, ...]) -> tuple[Json, ...]:
    """Return a container of the spec for each status; `s` is a sidecar."""
    return tuple(sidecar("s") if status["name"] == "s" else spec(status["name"]) for status in statuses)


def a_record(
    *regular: Json,
    init: tuple[Json, ...] = (),
    ephemeral: tuple[Json, ...] = (),
    policy: str = "Always",
    source: str = "api",
    state: PodState = PodState.SYNC,
    generation: int = 0,
    more: Json | None = None,
    **fields: Any,
) -> "ChangingRecord":
    """The record of pod `web` that was looked at and of which the runtime has nothing; `more` adds to its spec."""
    body: Json = {"restartPolicy": policy, "containers": list(regular), **(more or {})}
    if init:
        body["initContainers"] = list(init)
    if ephemeral:
        body["ephemeralContainers"] = list(ephemeral)
    metadata: Json = {"name": "web", "namespace": "default", "uid": "u1"}
    if generation:
        metadata["generation"] = generation
    pod = {"metadata": metadata, "spec": body}
    status = fields.pop("status", {})
    saved = Saved(source=source, pod=pod, state=state, **fields)
    observed = Observed(is_current=True, since_start=True)
    return ChangingRecord(
        TrackedPod(uid="u1", name="web", namespace="default", saved=saved, status=status, observed=observed)
    )


class ChangingRecord:
    """A record that a test changes: an assignment to a field of the record replaces the record, which is in `now`."""

    now: TrackedPod

    def __init__(self, now: TrackedPod) -> None:
        object.__setattr__(self, "now", now)

    def __getattr__(self, field: str) -> Any:
        return getattr(self.now, field)

    def __setattr__(self, field: str, value: Any) -> None:
        object.__setattr__(self, "now", replace(self.now, **{field: value}))

    def observe(self, runtime_pod: RuntimePod, at: float) -> None:
        """The runtime has this at that moment of CLOCK_MONOTONIC."""
        object.__setattr__(self, "now", self.now.with_observation(runtime_pod, at))


def instance(name: str, state: str = "RUNNING", *, attempt: int = 0, code: int = 0, **fields: Any) -> Container:
    """`<name>-<attempt>` in sandbox s1; it began at NOW and, where it has ended, did so 5 s later."""
    began = 0 if state == "CREATED" else int(NOW * 1e9)
    given: Json = {
        "id": f"{name}-{attempt}",
        "sandbox_id": "s1",
        "created_at": int(NOW * 1e9) + attempt,
        "started_at": began,
        "finished_at": int((NOW + 5) * 1e9) if state == "EXITED" else 0,
        "reason": ("Completed" if code == 0 else "Error") if state == "EXITED" else "",
        "image": f"docker.io/library/{name}:1",
        "image_id": f"sha256:{name}",
        "restart_count": attempt,
    } | fields
    return Container(name=name, attempt=attempt, state=ContainerState(state), exit_code=code, **given)


def a_sandbox(
    sandbox_id: str = "s1", *, attempt: int = 0, ready: bool = True, ips: tuple[str, ...] = ("10.1.0.9",)
) -> Sandbox:
    """A sandbox with a network."""
    state = SandboxState.READY if ready else SandboxState.NOTREADY
    return Sandbox(id=sandbox_id, attempt=attempt, state=state, created_at=attempt, ips=ips)


def see(
    tracked: ChangingRecord, *instances: Container, sandboxes: tuple[Sandbox, ...] = (a_sandbox(),)
) -> ChangingRecord:
    """The runtime has these now."""
    at = max(tracked.observed.at, 0.0) + 1
    newest_first = tuple(sorted(instances, key=lambda c: -c.created_at))
    tracked.observe(
        RuntimePod(
            uid="u1", name="web", namespace="default", observed_at=at, sandboxes=sandboxes, containers=newest_first
        ),
        at,
    )
    return tracked


def waits(tracked: ChangingRecord, container: str, reason: str, message: str = "") -> None:
    """The container waits for this reason."""
    tracked.starts = {container: Progress(reason=(reason, message))}


def probed(tracked: ChangingRecord, container: str, **results: ProbeResult) -> None:
    """The first instance of the container has these results of its probes, and no others."""
    found = ProbeResults(pod_uid="u1", container=container, **results)
    tracked.instance_facts = {f"{container}-0": InstanceFacts(probes=found)}


def status_now(tracked: ChangingRecord, *, now: float = NOW, node_ips: tuple[str, ...] = NODE_IPS, **node: Any) -> Json:
    """The status as the agent would show it, kept in the record as the agent keeps it."""
    status = pod_status(tracked.now, now=now, runtime_name="containerd", node_ips=node_ips, **node)
    if status["phase"] in ("Succeeded", "Failed"):
        tracked.saved = replace(tracked.saved, outcome=status["phase"])
    tracked.status = withheld(tracked.now, status)
    return status


def shown(status: Json, name: str) -> Json:
    """The status of one container, of whatever kind."""
    lists = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return next(s for field in lists for s in status.get(field) or () if s["name"] == name)


def running(name: str, **fields: Any) -> Json:
    """A container status."""
    begun = {"ready": True, "started": True}
    return _status(name, {"running": {"startedAt": "2023-11-14T22:13:20Z"}}, **(begun | fields))


def ended(name: str, code: int = 0, **fields: Any) -> Json:
    """A container status."""
    return _status(name, {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}, **fields)


def waiting(name: str, last: int | None = None, reason: str = "ContainerCreating", **fields: Any) -> Json:
    """A container status; `last`: the exit code of its last run, None = it has never run."""
    past = {} if last is None else {"terminated": {"exitCode": last, "reason": "Error"}}
    return _status(name, {"waiting": {"reason": reason}}, lastState=past, **fields)


def _status(name: str, state: Json, **fields: Any) -> Json:
    base = {"name": name, "image": f"{name}:1", "imageID": "", "lastState": {}, "ready": False, "started": False}
    return {**base, "restartCount": 0, "state": state, **fields}
