"""Computes the phase of a pod from its containers' statuses (pods.md 9.1).
A sidecar is an init container that always restarts. `restart_rules` decides whether a container starts again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.podsync.core.pod.tracked_pod import TERMINAL_PHASES, TrackedPod
from services.podsync.core.status.container_state import RESTARTING_ALL_REASON
from services.podsync.core.status.container_status import ContainerStatuses, has_regular_instance
from services.podsync.core.sync.post_start import start_under_way
from services.podsync.core.sync.restart_rules import restarts_after
from shared.model.runtime import ContainerState
from shared.podspec.resources import is_sidecar

Json = dict[str, Any]


@dataclass
class _Counts:
    pending_init: int = 0
    failed_init: int = 0  # without another start
    pending_sidecars: int = 0
    unknown: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    succeeded: int = 0
    restartable: int = 0  # of the stopped ones


def pod_phase(tracked: TrackedPod, shown: ContainerStatuses, *, over: bool) -> str:
    """Return the phase. `over`: nothing of the pod runs any more, or will. A terminal phase stays."""
    for before in (tracked.api_status.get("phase"), tracked.saved.outcome):
        if before in TERMINAL_PHASES:
            return str(before)
    if tracked.saved.ending:
        return "Failed"
    phase = _from_containers(tracked, shown, over=over)
    if over and not tracked.is_static and phase not in TERMINAL_PHASES:
        return "Failed"  # the pod was ended before it ended by itself (pods.md 9.6)
    return phase


def _from_containers(tracked: TrackedPod, shown: ContainerStatuses, *, over: bool) -> str:
    counts = _Counts()
    if tracked.init_containers:
        _count_init(tracked, {status["name"]: status for status in shown.init}, counts)
    _count_regular(tracked, {status["name"]: status for status in shown.regular}, counts)
    if counts.failed_init:
        return "Failed"
    if counts.pending_init or counts.waiting:
        return "Pending"
    if counts.pending_sidecars and not has_regular_instance(tracked):
        return "Pending"
    if counts.unknown:
        return "Pending"
    if counts.running:
        return "Running"
    if not counts.stopped:
        return "Pending"
    if counts.restartable and not (over and not tracked.is_static):
        return "Running"
    return "Succeeded" if counts.stopped == counts.succeeded else "Failed"


def _count_init(tracked: TrackedPod, statuses: Mapping[str, Json], counts: _Counts) -> None:
    for spec in tracked.init_containers:
        status = statuses.get(spec["name"])
        if is_sidecar(spec):
            _count_sidecar(status, counts)
        elif status is None or "running" in status["state"] or _end(status) is None:
            counts.pending_init += 1
        elif not _succeeded(status) and not _restarts(tracked, spec, status):
            counts.failed_init += 1


def _count_sidecar(status: Json | None, counts: _Counts) -> None:
    if status is None:
        counts.unknown += 1
    elif "running" in status["state"]:
        counts.running += 1
        counts.pending_sidecars += not status.get("started")
    elif _end(status) is None:
        counts.waiting += 1
        counts.pending_sidecars += 1


def _count_regular(tracked: TrackedPod, statuses: Mapping[str, Json], counts: _Counts) -> None:
    for spec in tracked.containers:
        status = statuses.get(spec["name"])
        if status is None:
            counts.unknown += 1
        elif "running" in status["state"]:
            counts.running += 1
        elif _end(status) is None:
            counts.waiting += 1
        else:
            counts.stopped += 1
            counts.succeeded += "terminated" in status["state"] and _succeeded(status)
            counts.restartable += _restarts(tracked, spec, status)


def _end(status: Json) -> Json | None:
    """Return the end of the newest instance, or of the one before it; None = neither has ended."""
    end: Json | None = status["state"].get("terminated") or (status.get("lastState") or {}).get("terminated")
    return end


def _succeeded(status: Json) -> bool:
    return int((_end(status) or {"exitCode": 1})["exitCode"]) == 0


def _restarts(tracked: TrackedPod, spec: Json, status: Json) -> bool:
    """Return whether another instance is to start: by the rules, or because this one was ended for that, alone or with
    all others."""
    end = _end(status) or {}
    if (
        tracked.saved.restarting_all
        or end.get("reason") == RESTARTING_ALL_REASON
        or _being_replaced(tracked, spec["name"])
    ):
        return True
    return restarts_after(tracked, spec, int(end.get("exitCode", 1)))


def _being_replaced(tracked: TrackedPod, container: str) -> bool:
    """Return whether we ended the newest instance, which may be gone, to start another one whose start is not over."""
    instances = tracked.instances_of(container)
    if not instances:
        return bool(tracked.saved.container(container).replacing)
    newest = instances[0]
    under_way = newest.state is ContainerState.CREATED or start_under_way(tracked, newest)
    return under_way or tracked.saved.container(container).replacing == newest.id
