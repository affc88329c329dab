"""Which changes of a pod's status may be shown, and what is shown of a pod that is over (pods.md 9.5, 9.6).

Compares statuses; what they are made from is none of its business.
"""

from collections.abc import Mapping
from typing import Any

from bus.messages.podsync import PodState
from services.podsync.core.pod.record import TERMINAL_PHASES, PodRecord
from services.podsync.core.status.container_state import TERMINATED, lost
from services.podsync.core.status.container_status import ContainerStatuses
from services.podsync.core.sync.restart_rules import may_restart_all, restarts_after
from shared.podspec.resources import is_sidecar

Json = dict[str, Any]
_GUARDED = ("containerStatuses", "initContainerStatuses")


def withheld(record: PodRecord, status: Json) -> Json:
    """What of the status may be shown: a terminal phase not before nothing of the pod can be running, and nothing at
    all while a container would come back from an end that it may not leave, or a finished pod runs or is ended again.
    """
    if record.saved.rejected:
        return status
    runs_again = record.saved.state is PodState.FINISHED and bool(record.alive)
    ends_again = record.saved.state is PodState.TERMINATING and record.saved.finished_at > 0
    if runs_again or ends_again or illegally_restarted(record, status):
        return record.status
    if status["phase"] not in TERMINAL_PHASES or record.saved.state not in (PodState.SYNC, PodState.TERMINATING):
        return status
    if record.api_status.get("phase") == status["phase"]:
        return status
    kept = {key: record.status[key] for key in ("reason", "message") if record.status.get(key)}
    shown = {key: value for key, value in status.items() if key not in ("reason", "message")}
    return shown | {"phase": record.status.get("phase") or "Pending"} | kept


def illegally_restarted(record: PodRecord, status: Json) -> str:
    """The first container that was shown as terminated, is not any more, and may not run again; "" = none."""
    if record.spec.get("restartPolicy", "Always") == "Always" or may_restart_all(record):
        return ""
    for field in _GUARDED:
        now = {shown["name"]: shown["state"] for shown in status.get(field) or ()}
        for before in record.status.get(field) or ():
            end = before["state"].get("terminated")
            if end is None or "terminated" in now.get(before["name"], {"terminated": end}):
                continue
            if not _may_run_again(record, before["name"], end):
                return str(before["name"])
    return ""


def _may_run_again(record: PodRecord, name: str, end: Mapping[str, Any]) -> bool:
    found = record.container(name)
    if found is None:
        return True
    return is_sidecar(found[1]) or restarts_after(record, found[1], int(end.get("exitCode", 0)))


def with_ends(record: PodRecord, shown: ContainerStatuses) -> ContainerStatuses:
    """The containers of a pod that is over (TerminatePod): what has no end gets one, where it can have been started.
    Of the init containers those count up to the last one that was, and the first in any case."""
    inits = shown.init
    last = max((i for i, status in enumerate(inits) if _was_started(status)), default=0)
    return ContainerStatuses(
        init=tuple(_with_end(status) if i <= last else status for i, status in enumerate(inits)),
        regular=tuple(map(_with_end, shown.regular)) if _had_initialized(record, shown) else shown.regular,
        ephemeral=shown.ephemeral,
    )


def _had_initialized(record: PodRecord, shown: ContainerStatuses) -> bool:
    if not shown.init or any(map(_was_started, shown.regular)):
        return True
    last = shown.init[-1]
    if is_sidecar(record.init_containers[-1]):
        return "running" in last["state"] and bool(last.get("started"))
    return int((last["state"].get("terminated") or {"exitCode": 1})["exitCode"]) == 0


def _was_started(status: Json) -> bool:
    return "waiting" not in status["state"] or "terminated" in (status.get("lastState") or {})


def _with_end(status: Json) -> Json:
    if "terminated" in status["state"]:
        return status
    return status | {"state": {"terminated": lost(TERMINATED)}, "ready": False, "started": False}
