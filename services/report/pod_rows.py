"""Decides what an operator sees of a pod: its state and what it waits for. Pure: JSON values of the streams in, rows
out.

Without podsync, which computes statuses, a row shows what the runtime has."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from shared.model.conditions import VOLUME_UNSUPPORTED, is_of_shutdown
from shared.text.plain_text import plain
from shared.text.pull_text import pull_text

_MAX_REASON_CHARACTERS = 300  # of one reason
_ENDED_WELL = ("Completed", "Succeeded")
_NOT_SEEN, _NO_STATUS = "Pending", "Unknown"


class PodFacts(Struct, frozen=True, kw_only=True):
    """The items of one pod, as JSON; {} = the stream has none. `status_known`: podsync answered."""

    uid: str
    desired: dict[str, Any] = field(default_factory=dict)  # pods.desired
    status: dict[str, Any] = field(default_factory=dict)  # pods.status
    admitted: dict[str, Any] = field(default_factory=dict)  # pods.admitted
    runtime: dict[str, Any] = field(default_factory=dict)  # runtime.pods
    volumes: dict[str, Any] = field(default_factory=dict)  # volumes.mounted
    pull: dict[str, Any] = field(default_factory=dict)  # pods.pulls
    status_known: bool = True


class PodRow(Struct, frozen=True, kw_only=True):
    """One pod for an operator. `state` as kubectl's STATUS; `waits_for` is "" for a pod that waits for nothing."""

    namespace: str
    name: str
    uid: str
    source: (
        str  # file | http | api | record (the API server does not answer) | runtime (only the runtime knows the pod)
    )
    state: str
    ready: int
    containers: int
    restarts: int
    ip: str
    started: str  # RFC3339, "" = not started
    waits_for: str
    container_names: tuple[str, ...] = ()


def is_shown(admitted_state: str | None, desired: bool) -> bool:
    """Return whether a pod has a row: all pods have one, except those that podsync has finished and that are not
    desired."""
    return desired or admitted_state != "finished"


def pod_row(facts: PodFacts) -> PodRow:
    """Return the row of one pod."""
    pod = facts.desired.get("pod") or {}
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    status = facts.status.get("status") or {}
    named = [one for one in (metadata, facts.status, facts.admitted, facts.runtime) if one.get("name")]
    statuses = status.get("containerStatuses") or []
    if facts.status_known:
        state, waits_for = _state(facts, status, metadata), _waits_for(facts, spec, status)
        ready, restarts = sum(bool(one.get("ready")) for one in statuses), _restarts(status)
    else:
        running = _running_in_runtime(facts)
        state, waits_for = ("Running", "") if running else (_NO_STATUS, "podsync, which does not answer")
        ready, restarts = len(running), _restarts_in_runtime(facts)
    return PodRow(
        namespace=str(named[0].get("namespace") or "default") if named else "",
        name=str(named[0]["name"]) if named else facts.uid,
        uid=facts.uid,
        source=_source(facts),
        state=state,
        ready=ready,
        containers=len(spec.get("containers") or statuses),
        restarts=restarts,
        ip=str(status.get("podIP") or ""),
        started=str(status.get("startTime") or ""),
        waits_for=waits_for,
        container_names=tuple(container_names(facts)),
    )


def _source(facts: PodFacts) -> str:
    """Return where the pod is from. One from the record of `offlinePods` is marked: the API server has not confirmed
    it."""
    if facts.desired.get("recorded"):
        return "record"
    return str(facts.desired.get("source") or facts.admitted.get("source") or "runtime")


def one_line(text: Any) -> str:
    """Return the text in one line without control characters, at most 300 characters: a container may have written
    it."""
    line = plain(" ".join(str(text).split()))
    return line if len(line) <= _MAX_REASON_CHARACTERS else line[: _MAX_REASON_CHARACTERS - 1] + "…"


def _restarts(status: dict[str, Any]) -> int:
    kinds = ("initContainerStatuses", "containerStatuses")
    return sum(int(one.get("restartCount") or 0) for kind in kinds for one in status.get(kind) or [])


def _restarts_in_runtime(facts: PodFacts) -> int:
    newest: dict[str, int] = {}
    for one in facts.runtime.get("containers") or []:
        newest[one["name"]] = max(newest.get(one["name"], 0), int(one.get("restart_count") or 0))
    return sum(newest.values())


def _running_in_runtime(facts: PodFacts) -> set[str]:
    return {one["name"] for one in facts.runtime.get("containers") or [] if one.get("state") == "RUNNING"}


def _state(facts: PodFacts, status: dict[str, Any], metadata: dict[str, Any]) -> str:
    if facts.admitted.get("state") in ("terminating", "terminated") and not facts.admitted.get("rejected"):
        phase = str(status.get("phase") or "")
        over = phase in ("Succeeded", "Failed") and not metadata.get("deletionTimestamp")
        return str(status.get("reason") or phase) if over else "Terminating"
    if not status:
        return str(facts.admitted.get("rejected") or _NOT_SEEN)
    if init := _init_state(status):
        return init
    reasons = [_reason(one) for one in status.get("containerStatuses") or []]
    poor = next((reason for reason in reasons if reason not in ("", *_ENDED_WELL)), "")
    if status.get("reason") or poor:
        return str(status.get("reason") or poor)
    if reasons and all(reason in _ENDED_WELL for reason in reasons):
        return "Completed"
    return str(status.get("phase") or _NOT_SEEN)


def _init_state(status: dict[str, Any]) -> str:
    statuses = status.get("initContainerStatuses") or []
    for number, one in enumerate(statuses):
        state = one.get("state") or {}
        if (state.get("terminated") or {}).get("exitCode") == 0 or (state.get("running") and one.get("started")):
            continue
        reason = _reason(one)
        return f"Init:{reason}" if reason not in ("", "PodInitializing") else f"Init:{number}/{len(statuses)}"
    return ""


def _reason(container: dict[str, Any]) -> str:
    """Return why the container does not run; "" = it runs, or nothing is known."""
    state = container.get("state") or {}
    if waiting := state.get("waiting"):
        return str(waiting.get("reason") or "Waiting")
    if ended := state.get("terminated"):
        code = ended.get("exitCode") or 0
        return str(ended.get("reason") or (f"ExitCode:{code}" if code else "Completed"))
    return ""


def _waits_for(facts: PodFacts, spec: dict[str, Any], status: dict[str, Any]) -> str:
    if rejected := facts.admitted.get("rejected"):
        return one_line(f"nothing: it is rejected ({status.get('message') or rejected})")
    if facts.admitted.get("state") in ("terminating", "terminated"):
        return _end_of(facts, status)
    if not status:
        return "its admission" if facts.desired else "podsync"
    if any(map(is_of_shutdown, status.get("conditions") or [])):
        return _stop_of(facts)
    return one_line(next(_waits(facts, spec, status), ""))


def _end_of(facts: PodFacts, status: dict[str, Any]) -> str:
    if running := sorted(_running_in_runtime(facts)):
        grace = facts.admitted.get("grace_seconds")
        limit = f" (grace period {grace} s)" if grace is not None else ""
        return one_line(f"the end of {', '.join(running)}{limit}")
    if mounted := facts.volumes.get("volumes"):
        return one_line(f"the unmounting of {_volumes(mounted)}")
    ended = status.get("phase") in ("Succeeded", "Failed")
    return "" if ended and facts.desired else "its removal"


def _stop_of(facts: PodFacts) -> str:
    """Return what a pod waits for that stops because the machine shuts down. Some volumes stay mounted."""
    if running := sorted(_running_in_runtime(facts)):
        return one_line(f"the end of {', '.join(running)}: the machine shuts down")
    mounted = facts.volumes.get("volumes") or {}
    if unmounting := {name: one for name, one in mounted.items() if one["state"] == "unmounting"}:
        return one_line(f"the unmounting of {_volumes(unmounting)}: the machine shuts down")
    return "the next boot: the machine shuts down"


def _volumes(volumes: dict[str, Any]) -> str:
    errors = [f"{name}: {one['error']}" for name, one in sorted(volumes.items()) if one.get("error")]
    return "; ".join(errors) or ", ".join(sorted(volumes))


def _waits(facts: PodFacts, spec: dict[str, Any], status: dict[str, Any]) -> Iterator[str]:
    """Yield each thing that the pod waits for, the first in time first."""
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    if any((one.get("state") or {}).get("waiting") for one in containers) or not containers:
        mounted = facts.volumes.get("volumes") or {}
        for name, volume in sorted(mounted.items()):
            if volume.get("error"):
                yield f"volume {name}: {volume['error']}"
        waiting = sorted(name for name, volume in mounted.items() if volume.get("state") == "pending")
        if waiting:
            yield f"the mounting of {', '.join(waiting)}"
    if facts.status.get("waits_for"):
        yield str(facts.status["waits_for"])
    for condition in status.get("conditions") or []:
        reason = condition.get("reason")
        if condition.get("type") == "PodReadyToStartContainers" and reason not in (None, "", VOLUME_UNSUPPORTED):
            yield str(condition.get("message") or reason).removeprefix("the pod waits for ")
    sidecars = {one.get("name") for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"}
    for one in status.get("initContainerStatuses") or []:
        state = one.get("state") or {}
        if state.get("running") and one.get("name") not in sidecars:
            yield f"the end of the init container {one.get('name')}"
    if facts.pull:
        yield f"pulling image {facts.pull.get('image')}: {pull_text(facts.pull)}"
    for one in containers:
        state = one.get("state") or {}
        waiting_state = state.get("waiting") or {}
        if waiting_state.get("reason") not in (None, "PodInitializing"):
            message = f" ({waiting_state['message']})" if waiting_state.get("message") else ""
            yield f"{one.get('name')}: {waiting_state['reason']}{message}"
    for one in containers:
        if (one.get("state") or {}).get("running") and not one.get("ready"):
            yield f"the {'readiness' if one.get('started') else 'startup'} of {one.get('name')}"
    if status.get("phase") == "Pending":
        yield "its start"


def container_names(facts: PodFacts) -> list[str]:
    """Return the names of the pod's containers, the regular ones first; where no source has the pod, those that the
    runtime has."""
    spec = (facts.desired.get("pod") or {}).get("spec") or {}
    kinds = ("containers", "initContainers", "ephemeralContainers")
    named = [str(one.get("name")) for kind in kinds for one in spec.get(kind) or []]
    return named or sorted({str(one.get("name")) for one in facts.runtime.get("containers") or []})


def default_container(facts: PodFacts) -> str:
    """Return the container that the pod's annotation names as the default of commands; "" = the pod has no such
    container."""
    metadata = (facts.desired.get("pod") or {}).get("metadata") or {}
    name = str((metadata.get("annotations") or {}).get("kubectl.kubernetes.io/default-container") or "")
    return name if name in container_names(facts) else ""
