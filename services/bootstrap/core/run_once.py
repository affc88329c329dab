"""Decides the outcomes of the pods of a run once, and when the run is complete (config.md 5.7). Pure.

A pod with restartPolicy Always is done when it is Ready, and any other one when it has ended. Release 1.20 only waits
for the start, and gives up after the same time.
"""

from collections.abc import Iterable, Mapping

from bus.messages.podsync import PodStatus
from bus.messages.sources import DesiredPod
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.run_once import FINAL, Outcome, PodResult, RunOnceRecord

MAX_START_SECONDS = 1023.0  # of a pod: ten pauses of 1.20, of 1 s, 2 s, 4 s and so on
_MAX_MESSAGE_CHARACTERS = 1024


def advance(
    record: RunOnceRecord,
    desired: Iterable[DesiredPod],
    statuses: Mapping[str, PodStatus],
    problems: tuple[str, ...],
    now: float,
) -> RunOnceRecord:
    """Return the record after a look at complete streams. `now`: CLOCK_MONOTONIC seconds. A final outcome stays."""
    known = {pod.uid: pod for pod in record.pods}
    late = now - record.began >= MAX_START_SECONDS
    results = []
    for pod in sorted(desired, key=lambda each: _names(each.pod)):
        earlier = known.get(pod.uid)
        if earlier is None or earlier.outcome not in FINAL:
            status = statuses.get(pod.uid)
            earlier = _result(pod, status.status if status else {}, late)
        results.append(earlier)
    complete = all(result.outcome in FINAL for result in results)
    return replace(record, pods=tuple(results), problems=problems, complete=complete)


def progress(before: RunOnceRecord, after: RunOnceRecord) -> tuple[str, ...]:
    """Return one line for each pod with another outcome, and one for each new problem."""
    known = {pod.uid: pod.outcome for pod in before.pods}
    done = sum(pod.outcome in FINAL for pod in after.pods)
    lines = []
    for pod in after.pods:
        if known.get(pod.uid) is not pod.outcome:
            why = f" ({pod.message})" if pod.message else ""
            name = f"{pod.namespace}/{pod.name}"
            lines.append(f"run once: {name} is {pod.outcome}{why}; {done} of {len(after.pods)} pods are done")
    return (*lines, *(f"run once: {line}" for line in after.problems if line not in before.problems))


def _result(pod: DesiredPod, status: Object, late: bool) -> PodResult:
    namespace, name = _names(pod.pod)
    outcome, message = _outcome(pod.pod.get("spec") or {}, status, late)
    return PodResult(
        namespace=namespace, name=name, uid=pod.uid, outcome=outcome, message=message[:_MAX_MESSAGE_CHARACTERS]
    )


def _outcome(spec: Object, status: Object, late: bool) -> tuple[Outcome, str]:
    phase = status.get("phase", "Pending")
    why = _reason(status)
    if phase == "Failed":
        return Outcome.FAILED, why or "a container ended with an error"
    if phase == "Succeeded":
        return Outcome.SUCCEEDED, ""
    stays = spec.get("restartPolicy", "Always") == "Always"
    if stays and any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in _list(status, "conditions")
    ):
        return Outcome.READY, ""
    if late and (stays or phase == "Pending"):
        verb = "Ready" if stays else "started"
        return Outcome.FAILED, f"not {verb} within {MAX_START_SECONDS:.0f} s" + (f": {why}" if why else "")
    return (Outcome.RUNNING if phase == "Running" else Outcome.WAITING), why


def _reason(status: Object) -> str:
    """Return why the pod failed, or what its first waiting container waits for; "" = that is not known."""
    if status.get("reason") or status.get("message"):
        return ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    for container in (*_list(status, "initContainerStatuses"), *_list(status, "containerStatuses")):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
        if ended.get("exitCode"):
            return f"container {container.get('name')} ended with exit code {ended['exitCode']}"
        if waiting.get("reason"):
            message = f": {waiting['message']}" if waiting.get("message") else ""
            return f"container {container.get('name')} waits: {waiting['reason']}{message}"
    return ""


def _list(status: Object, key: str) -> list[Object]:
    return status.get(key) or []


def _names(pod: Object) -> tuple[str, str]:
    metadata = pod.get("metadata") or {}
    return metadata.get("namespace", ""), metadata.get("name", "")
