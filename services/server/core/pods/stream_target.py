"""Finds the container or sandbox of a stream request in the streams of the bus (server.md 12.1, 12.2)."""

from collections.abc import Iterable
from typing import Any

from bus.messages.sources import DesiredPod, MirrorPod
from services.server.core.go_text import quote
from shared.model.objects import Object, full_name
from shared.model.runtime import ContainerState, RuntimePod, SandboxState

_SPECS = ("containers", "initContainers", "ephemeralContainers")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


class TargetNotFoundError(Exception):
    """What was asked for does not run here; `str()` is the kubelet's text, answered with 500."""


def names_pod(uid: str, desired: DesiredPod, mirrors: Iterable[MirrorPod]) -> bool:
    """Return whether a UID in a path means this pod: an empty one, the pod's own, or that of its mirror pod."""
    if uid in ("", desired.uid):
        return True
    return any(mirror.uid == uid and mirror.config_hash == desired.uid for mirror in mirrors)


def running_container(container: str, status: Object, runtime: RuntimePod | None) -> str:
    """Return the bare id of the instance that runs, "" when none does.

    The pod status shows a start before the next observation does, and an observation shows an exit before the next
    status does: an instance counts as running when one of them shows it and the other does not show its end.
    """
    reported = {held.id: held for held in (runtime.containers if runtime is not None else ()) if held.name == container}
    for entry in _entries(status, _STATUSES):
        if entry.get("name") == container and (entry.get("state") or {}).get("running") is not None:
            bare = str(entry.get("containerID") or "").rpartition("://")[2]
            if bare and (bare not in reported or reported[bare].state is not ContainerState.EXITED):
                return bare
    running = (held.id for held in reported.values() if held.state is ContainerState.RUNNING)
    return next(running, "")


def exec_target(container: str, status: Object, runtime: RuntimePod | None, *, is_pod: bool) -> str:
    """Return the container to exec into; `is_pod` = the UID asked for, if any, is the pod's. Raises
    TargetNotFoundError.
    """
    found = running_container(container, status, runtime) if is_pod else ""
    if not found:
        raise TargetNotFoundError(f"container not found ({quote(container)})")
    return found


def attach_target(
    container: str, pod: Object, status: Object, runtime: RuntimePod | None, *, is_pod: bool
) -> tuple[str, bool]:
    """Return the container to attach to, and whether its spec has a tty. Raises TargetNotFoundError."""
    if not is_pod:
        raise TargetNotFoundError(f"pod {full_name(pod)} not found")
    spec = next((entry for entry in _entries(pod.get("spec"), _SPECS) if entry.get("name") == container), None)
    found = running_container(container, status, runtime)
    if spec is None or not found:
        raise TargetNotFoundError(f"container {container} not found in pod {full_name(pod)}")
    return found, spec.get("tty") is True


def forward_target(pod: Object, runtime: RuntimePod | None) -> str:
    """Return the sandbox to forward ports to. Raises TargetNotFoundError."""
    for sandbox in runtime.sandboxes if runtime is not None else ():
        if sandbox.state is SandboxState.READY:
            return sandbox.id
    raise TargetNotFoundError(f"pod not found ({quote(full_name(pod))})")


def _entries(parent: Any, kinds: Iterable[str]) -> list[Object]:
    if not isinstance(parent, dict):
        return []
    return [entry for kind in kinds for entry in parent.get(kind) or () if isinstance(entry, dict)]
