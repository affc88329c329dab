"""Decides which changes of a pod's status may be shown, and what is shown of a pod that is over (pods.md 9.5, 9.6).
Compares statuses, and does not know what they are computed from.
"""

from collections.abc import Mapping
from typing import Any

from bus.messages.podsync import PodState
from services.podsync.core.pod.awaited_claims import holds_claims
from services.podsync.core.pod.tracked_pod import TERMINAL_PHASES, TrackedPod
from services.podsync.core.status.container_state import TERMINATED, lost
from services.podsync.core.status.container_status import ContainerStatuses
from services.podsync.core.sync.restart_rules import may_restart_all, restarts_after
from shared.podspec.resources import is_sidecar

Json = dict[str, Any]
_GUARDED = ("containerStatuses", "initContainerStatuses")


def withheld(tracked: TrackedPod, status: Json) -> Json:
    """Return what may be shown of the status. A terminal phase is shown once nothing of the pod can run, and its
    resource claims are unprepared. The earlier status stays while a container would leave an end that it may not leave,
    or a finished pod runs or is ended again.
    """
    if tracked.saved.rejected:
        return status
    runs_again = tracked.saved.state is PodState.FINISHED and bool(tracked.alive)
    ends_again = tracked.saved.state is PodState.TERMINATING and tracked.saved.finished_at > 0
    if runs_again or ends_again or illegally_restarted(tracked, status):
        return tracked.status
    may_run = tracked.saved.state in (PodState.SYNC, PodState.TERMINATING)
    is_held = tracked.saved.state is PodState.TERMINATED and holds_claims(tracked)
    if status["phase"] not in TERMINAL_PHASES or not (may_run or is_held):
        return status
    if tracked.api_status.get("phase") == status["phase"]:
        return status
    kept = {key: tracked.status[key] for key in ("reason", "message") if tracked.status.get(key)}
    shown = {key: value for key, value in status.items() if key not in ("reason", "message")}
    return shown | {"phase": tracked.status.get("phase") or "Pending"} | kept


def illegally_restarted(tracked: TrackedPod, status: Json) -> str:
    """Return the first container that was shown as terminated, is not any more, and may not run again; "" = none."""
    if tracked.spec.get("restartPolicy", "Always") == "Always" or may_restart_all(tracked):
        return ""
    for field in _GUARDED:
        now = {shown["name"]: shown["state"] for shown in status.get(field) or ()}
        for before in tracked.status.get(field) or ():
            end = before["state"].get("terminated")
            if end is None or "terminated" in now.get(before["name"], {"terminated": end}):
                continue
            if not _may_run_again(tracked, before["name"], end):
                return str(before["name"])
    return ""


def _may_run_again(tracked: TrackedPod, name: str, end: Mapping[str, Any]) -> bool:
    entry = tracked.container(name)
    if entry is None:
        return True
    return is_sidecar(entry[1]) or restarts_after(tracked, entry[1], int(end.get("exitCode", 0)))


def with_ends(tracked: TrackedPod, shown: ContainerStatuses) -> ContainerStatuses:
    """Return the containers of a pod that is over (TerminatePod): each that can have been started has an end. Of the
    init containers these are the first one, and all up to the last one that was started."""
    inits = shown.init
    last = max((i for i, status in enumerate(inits) if _was_started(status)), default=0)
    return ContainerStatuses(
        init=tuple(_with_end(status) if i <= last else status for i, status in enumerate(inits)),
        regular=tuple(map(_with_end, shown.regular)) if _had_initialized(tracked, shown) else shown.regular,
        ephemeral=shown.ephemeral,
    )


def _had_initialized(tracked: TrackedPod, shown: ContainerStatuses) -> bool:
    if not shown.init or any(map(_was_started, shown.regular)):
        return True
    last = shown.init[-1]
    if is_sidecar(tracked.init_containers[-1]):
        return "running" in last["state"] and bool(last.get("started"))
    return int((last["state"].get("terminated") or {"exitCode": 1})["exitCode"]) == 0


def _was_started(status: Json) -> bool:
    return "waiting" not in status["state"] or "terminated" in (status.get("lastState") or {})


def _with_end(status: Json) -> Json:
    if "terminated" in status["state"]:
        return status
    return status | {"state": {"terminated": lost(TERMINATED)}, "ready": False, "started": False}
