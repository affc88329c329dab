"""Decides which container instance a log request means, and whether it still runs (server.md 10.3, pods.md 6.11).

Decides from the pod status and what the runtime reported; opens nothing.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from services.server.core.go_text import quote
from shared.model.objects import Object
from shared.model.runtime import Container, ContainerState, RuntimePod

_PACKED = (".gz", ".tmp")  # the ends of the names of rotated files that are packed, and that are being packed
_PULL_FAILURES = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class LogsUnavailableError(Exception):
    """There is no instance to read logs of; `str()` is the kubelet's text (answered with 400)."""


class LogSource(Struct, frozen=True):
    """One container instance: its id as in the status (`containerd://...`), and the attempt in its log's name."""

    container_id: str
    attempt: int

    @property
    def bare_id(self) -> str:
        """Return the id of the container as the runtime knows it."""
        return self.container_id.rpartition("://")[2]

    @property
    def by_docker(self) -> bool:
        """Whether the runtime is docker, which keeps logs in its own directory and makes links to them."""
        return self.container_id.startswith("docker://")


def unpacked_rotated(log: str, names: Iterable[str]) -> list[str]:
    """Return the files among `names` that were rotated from the log and are not packed, oldest first, because podsync
    names them by their time."""
    return sorted(name for name in names if name.startswith(f"{log}.") and not name.endswith(_PACKED))


def has_container(pod: Object, container: str) -> bool:
    """Return whether the pod's spec names that container: regular, init or ephemeral."""
    spec = pod.get("spec") or {}
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return any(entry.get("name") == container for kind in kinds for entry in spec.get(kind) or ())


def choose_instance(pod_name: str, container: str, status: Object, *, previous: bool) -> LogSource:
    """Return the instance whose log answers the request. Raises LogsUnavailableError."""
    label = f"container {quote(container)} in pod {quote(pod_name)}"
    found = _status_of(status, container)
    if found is None:
        raise LogsUnavailableError(f"{label} is not available")
    state = found.get("state") or {}
    last = (found.get("lastState") or {}).get("terminated")
    last_id = str((last or {}).get("containerID") or "")
    if previous:
        if not last_id:
            raise LogsUnavailableError(f"previous terminated {label} not found")
        chosen = last_id
    elif state.get("running") is not None:
        chosen = str(found.get("containerID") or "")
    elif state.get("terminated") is not None:
        chosen = str(state["terminated"].get("containerID") or "") or last_id
        if not chosen:
            raise LogsUnavailableError(f"{label} is terminated")
    elif last is not None:
        if not last_id:
            raise LogsUnavailableError(f"{label} is terminated")
        chosen = last_id
    elif state.get("waiting") is not None:
        reason = str(state["waiting"].get("reason") or "")
        raise LogsUnavailableError(f"{label} is waiting to start: {_PULL_FAILURES.get(reason, reason)}")
    else:
        raise LogsUnavailableError(f"{label} is waiting to start - no logs yet")
    restarts = int(found.get("restartCount") or 0)
    newest = chosen == found.get("containerID")
    return LogSource(chosen, restarts if newest else max(restarts - 1, 0))


def find_container(runtime_pod: RuntimePod | None, bare_id: str) -> Container | None:
    """Return the instance as the runtime last reported it."""
    containers = runtime_pod.containers if runtime_pod is not None else ()
    return next((container for container in containers if container.id == bare_id), None)


def still_running(source: LogSource, reported: Container | None, status: Object, *, stale: bool) -> bool:
    """Return whether a follower must wait for more of this instance's log.

    A stale observation does not count (the kubelet, too, counts an unreachable runtime as running); for an instance
    that was not observed yet, or not since its start, the pod status decides.
    """
    if reported is not None and reported.state is ContainerState.RUNNING:
        return True
    if stale:
        return True
    if reported is not None and reported.state is ContainerState.EXITED:
        return False
    return any(
        entry.get("containerID") == source.container_id and (entry.get("state") or {}).get("running") is not None
        for entry in _statuses(status)
    )


def _status_of(status: Object, container: str) -> Object | None:
    return next((entry for entry in _statuses(status) if entry.get("name") == container), None)


def _statuses(status: Object) -> list[Any]:
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return [entry for kind in kinds for entry in status.get(kind) or ()]
