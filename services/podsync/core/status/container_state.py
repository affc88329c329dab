"""Computes the API's `state` of a container instance, and of one that is lost (pods.md 9.2, 9.3).
Knows instances and states, but neither the containers of the pod nor calls.
"""

from typing import Any

from shared.model.runtime import Container, ContainerState
from shared.time.timestamps import rfc3339

Json = dict[str, Any]
NANOSECONDS = 1_000_000_000
UNKNOWN_REASON = "ContainerStatusUnknown"
RESTARTING_ALL_REASON = "RestartingAllContainers"
RESTARTING_ALL_MESSAGE = "The container is removed because RestartAllContainers in place"
KILLED = 137  # exit code of an instance whose end is not known
MAX_POD_MESSAGE_BYTES = 12288  # of the termination messages of all containers of a pod together

DELETED = "deleted.  The container used to be Running"
TERMINATED = "terminated"


def api_state(instance: Container, runtime_name: str) -> Json:
    """Return `running`, `terminated`, or `waiting` without a reason."""
    if instance.state is ContainerState.RUNNING:
        return {"running": {"startedAt": rfc3339(instance.started_at / NANOSECONDS)}}
    if instance.state is not ContainerState.EXITED:
        return {"waiting": {}}
    terminated: Json = {"exitCode": instance.exit_code}
    if instance.reason:
        terminated["reason"] = instance.reason
    message = ": ".join(part for part in (instance.message, instance.termination_message) if part)
    if message:
        terminated["message"] = message
    terminated |= {
        "startedAt": rfc3339(instance.started_at / NANOSECONDS),
        "finishedAt": rfc3339(instance.finished_at / NANOSECONDS),
        "containerID": f"{runtime_name}://{instance.id}",
    }
    return {"terminated": terminated}


def lost(how: str) -> Json:
    """Return the `terminated` of a container that the runtime does not have; `how` is the word for the end of its pod
    in the kubelet's message, DELETED or TERMINATED."""
    return _terminated(KILLED, UNKNOWN_REASON, f"The container could not be located when the pod was {how}")


def restarting_all_end() -> Json:
    """Return the `terminated` of a container that was removed so that all containers of the pod start again (pods.md
    5.7)."""
    return _terminated(KILLED, RESTARTING_ALL_REASON, RESTARTING_ALL_MESSAGE)


def assumed_completion() -> Json:
    """Return the `terminated` of an init container that the runtime has lost, while it has containers after it."""
    message = (
        "Unable to get init container status from container runtime and pod has been initialized, "
        "treat it as exited normally"
    )
    return _terminated(0, "Completed", message)


def _terminated(exit_code: int, reason: str, message: str) -> Json:
    return {"exitCode": exit_code, "reason": reason, "message": message, "startedAt": None, "finishedAt": None}


def keep_message(state: Json, earlier: Json) -> None:
    """Keep the termination message that was shown of the same instance: the file is removed with the pod's
    directory."""
    now, then = state.get("terminated"), earlier.get("terminated")
    if now and then and now.get("containerID") == then.get("containerID") and then.get("message"):
        now.setdefault("message", then["message"])


def with_cut_messages(status: Json, limit: int) -> Json:
    """Return the container status with termination messages of at most `limit` bytes."""
    for key in ("state", "lastState"):
        terminated = status[key].get("terminated")
        message = terminated.get("message") if terminated else None
        if isinstance(message, str) and len(message) * 4 > limit and len(message.encode()) > limit:
            cut = message.encode()[:limit].decode(errors="ignore")
            status = status | {key: {"terminated": terminated | {"message": cut}}}
    return status
