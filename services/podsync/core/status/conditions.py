"""Computes the conditions of a pod's status: the node's own, with those of other writers unchanged (pods.md 9.4).
Pure: `now` is wall seconds; a transition time changes only with the condition's status.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from bus.messages.podsync import PodState
from services.podsync.core.pod.allocation import RESIZE_IN_PROGRESS, RESIZE_PENDING
from services.podsync.core.pod.awaited_claims import CLAIM_NOT_PREPARED, describe_failed, holds_claims
from services.podsync.core.pod.device_need import PLUGIN_NOT_READY, describe_wait
from services.podsync.core.pod.tracked_pod import TERMINAL_PHASES, TrackedPod
from services.podsync.core.pod.unsupported_volumes import describe_unsupported
from services.podsync.core.status.container_status import ContainerStatuses
from services.podsync.core.sync.kills_and_starts import decide_sandbox
from services.podsync.core.sync.restart_rules import may_restart_all
from shared.model.conditions import (
    DISRUPTION_TARGET,
    POD_CONDITIONS,
    SHUTDOWN_MESSAGE,
    SHUTDOWN_REASON,
    VOLUME_UNSUPPORTED,
    is_of_shutdown,
)
from shared.podspec.resources import is_sidecar
from shared.time.timestamps import rfc3339

Json = dict[str, Any]
RESTARTING_ALL = "AllContainersRestarting"


class ConditionValue(NamedTuple):
    """Has status, reason and message of a condition."""

    status: bool
    reason: str = ""
    message: str = ""


def conditions(tracked: TrackedPod, shown: ContainerStatuses, phase: str, *, now: float) -> list[Json]:
    """Return all conditions, the node's own first."""
    containers_ready = _containers_ready(tracked, shown, phase)
    wanted = {
        "PodReadyToStartContainers": _ready_to_start(tracked),
        "Initialized": _initialized(tracked, shown, phase),
        "Ready": _ready(tracked, containers_ready),
        "ContainersReady": containers_ready,
        "PodScheduled": ConditionValue(True),
    }
    resizes = _resizes(tracked) if phase not in TERMINAL_PHASES else {}
    wanted |= {kind: value for kind, (value, _) in resizes.items()}
    if may_restart_all(tracked):
        wanted[RESTARTING_ALL] = _restarting_all(tracked, phase)
    if _is_shown_as_over(tracked) and tracked.saved.ending.get("disruption"):
        wanted[DISRUPTION_TARGET] = ConditionValue(True, "TerminationByKubelet", tracked.saved.ending["disruption"])
    if tracked.saved.shutdown is not None and phase not in TERMINAL_PHASES:
        wanted["Ready"] = ConditionValue(False, SHUTDOWN_REASON, SHUTDOWN_MESSAGE)
        wanted[DISRUPTION_TARGET] = ConditionValue(True, SHUTDOWN_REASON, SHUTDOWN_MESSAGE)
    before = {c["type"]: c for c in tracked.status.get("conditions") or ()}
    generation = (tracked.saved.pod.get("metadata") or {}).get("generation")
    owned = []
    for kind, value in wanted.items():
        condition = _condition(kind, value, before.get(kind) or {}, now)
        if kind in resizes:
            condition["lastProbeTime"] = condition["lastTransitionTime"]
        observed = resizes[kind][1] if kind in resizes else generation
        if observed and kind != RESTARTING_ALL:
            condition["observedGeneration"] = observed
        owned.append(condition)
    of_others = [c for c in _api_conditions(tracked) if c["type"] not in wanted and c["type"] not in POD_CONDITIONS]
    return owned + [c for c in of_others if not is_of_shutdown(c)]


def _is_shown_as_over(tracked: TrackedPod) -> bool:
    """Return whether the terminal phase of the pod may be shown, see `withheld`."""
    state = tracked.saved.state
    return state is PodState.FINISHED or (state is PodState.TERMINATED and not holds_claims(tracked))


def _resizes(tracked: TrackedPod) -> dict[str, tuple[ConditionValue, int]]:
    """Return the conditions of resizes, each with the generation that listed the resources."""
    values: dict[str, tuple[ConditionValue, int]] = {}
    pending, resize = tracked.saved.pending_resize, tracked.saved.resize
    if pending is not None and pending.reason:
        values[RESIZE_PENDING] = ConditionValue(True, pending.reason, pending.message), pending.generation
    if resize is not None:
        reason = "Error" if resize.error else ""
        values[RESIZE_IN_PROGRESS] = ConditionValue(True, reason, resize.error), resize.generation
    return values


def _ready_to_start(tracked: TrackedPod) -> ConditionValue:
    need = tracked.device_need if not tracked.saved.admission_decided else None
    if need is not None and need.awaited:
        text = f"the pod waits for {describe_wait(need.awaited)}"
        return ConditionValue(False, PLUGIN_NOT_READY, text)
    if tracked.observed.is_current:
        has_sandbox = not decide_sandbox(tracked).create
    else:
        has_sandbox = _was_true(tracked, "PodReadyToStartContainers")
    if has_sandbox or tracked.saved.state is not PodState.SYNC:
        return ConditionValue(has_sandbox)
    return _without_sandbox(tracked)


def _without_sandbox(tracked: TrackedPod) -> ConditionValue:
    """Return the condition of a pod that has no sandbox: it may have a volume of a type that is not mounted, or wait
    for a resource claim whose driver is away. Until volume has published volumes or claims, it is what was shown of
    them last."""
    if text := describe_unsupported(tracked):
        return ConditionValue(False, VOLUME_UNSUPPORTED, f"the pod waits for {text}")
    if text := describe_failed(tracked):
        return ConditionValue(False, CLAIM_NOT_PREPARED, f"the pod waits for {text}")
    unknown = [VOLUME_UNSUPPORTED] if tracked.volumes is None else []
    unknown += [CLAIM_NOT_PREPARED] if tracked.claims is None and not tracked.claims_known else []
    before = next((c for c in tracked.status.get("conditions") or () if c.get("reason") in unknown), None)
    if before is not None:
        return ConditionValue(False, before["reason"], str(before.get("message") or ""))
    return ConditionValue(False)


def _initialized(tracked: TrackedPod, shown: ContainerStatuses, phase: str) -> ConditionValue:
    """Compute Initialized, which stays True although init containers may run again: in a new sandbox, or because all
    restart."""
    inits = tracked.init_containers
    completed = ConditionValue(True, "PodCompleted") if phase == "Succeeded" else ConditionValue(True)
    if not inits:
        return completed
    if not shown.init and not shown.regular:
        return ConditionValue(False, "UnknownContainerStatuses")
    statuses = {status["name"]: status for status in shown.init}
    unknown = [spec["name"] for spec in inits if spec["name"] not in statuses]
    done = {spec["name"]: "started" if is_sidecar(spec) else "ready" for spec in inits}
    incomplete = [name for name, mark in done.items() if name in statuses and not statuses[name].get(mark)]
    if phase == "Succeeded" and not unknown:
        return completed
    if any("waiting" not in status["state"] for status in shown.regular):
        return ConditionValue(True)
    if (unknown or incomplete) and not _was_true(tracked, "Initialized"):
        return ConditionValue(False, "ContainersNotInitialized", _listed(unknown, incomplete, "incomplete"))
    return ConditionValue(True)


def _containers_ready(tracked: TrackedPod, shown: ContainerStatuses, phase: str) -> ConditionValue:
    if not shown.init and not shown.regular:
        return ConditionValue(False, "UnknownContainerStatuses")
    statuses = {status["name"]: status for status in (*shown.init, *shown.regular)}
    counted = [spec["name"] for spec in tracked.init_containers if is_sidecar(spec)]
    counted += [spec["name"] for spec in tracked.containers]
    unready = [name for name in counted if not (name in statuses and statuses[name].get("ready"))]
    unknown = [name for name in unready if name not in statuses]
    if phase == "Succeeded" and not unknown:
        return ConditionValue(False, "PodCompleted")
    if phase == "Failed":
        return ConditionValue(False, "PodFailed")
    if unready:
        known = [name for name in unready if name in statuses]
        return ConditionValue(False, "ContainersNotReady", _listed(unknown, known, "unready"))
    return ConditionValue(True)


def _listed(unknown: Iterable[str], others: Iterable[str], word: str) -> str:
    lists = {"unknown": " ".join(unknown), word: " ".join(others)}
    return ", ".join(f"containers with {kind} status: [{names}]" for kind, names in lists.items() if names)


def _ready(tracked: TrackedPod, containers_ready: ConditionValue) -> ConditionValue:
    """Compute Ready from ContainersReady, and then from the conditions that the readiness gates name."""
    gates = tracked.spec.get("readinessGates") or ()
    if not containers_ready.status or not gates:
        return containers_ready
    statuses = {c["type"]: c["status"] for c in _api_conditions(tracked)}
    messages = []
    for gate in gates:
        kind = gate.get("conditionType", "")
        if kind not in statuses:
            messages.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif statuses[kind] != "True":
            messages.append(f'the status of pod readiness gate "{kind}" is not "True", but {statuses[kind]}')
    return ConditionValue(False, "ReadinessGatesNotReady", ", ".join(messages)) if messages else containers_ready


def _restarting_all(tracked: TrackedPod, phase: str) -> ConditionValue:
    if phase in ("Succeeded", "Failed"):
        return ConditionValue(False, "PodCompleted" if phase == "Succeeded" else "PodFailed")
    if tracked.saved.restarting_all:
        return ConditionValue(True, "RestartAllContainersStarted", "container exited with restart policy rule")
    return ConditionValue(False)


def _api_conditions(tracked: TrackedPod) -> list[Json]:
    """Return the conditions that the API server has; without it those that were shown last."""
    known = tracked.api_status or tracked.status
    return [c for c in known.get("conditions") or () if isinstance(c, dict) and c.get("type") and c.get("status")]


def _was_true(tracked: TrackedPod, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in tracked.status.get("conditions") or ())


def _condition(kind: str, value: ConditionValue, before: Json, now: float) -> Json:
    condition: Json = {"type": kind, "status": "True" if value.status else "False", "lastProbeTime": None}
    same = before.get("status") == condition["status"]
    if kind in (RESIZE_PENDING, RESIZE_IN_PROGRESS):
        same = same and before.get("reason", "") == value.reason
    kept = before.get("lastTransitionTime") if same else None
    condition["lastTransitionTime"] = kept or rfc3339(now)
    if value.reason:
        condition["reason"] = value.reason
    if value.message:
        condition["message"] = value.message
    return condition
