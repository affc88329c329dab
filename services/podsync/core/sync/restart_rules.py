"""Decides by the restart policies of pod and container and by rules on exit codes whether a container restarts (pods.md
5.3, 5.7).
Uses specs and exit codes alone; must not know what runs, nor back-off and order.
"""

from collections.abc import Mapping
from typing import Any

from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.podspec.containers import ContainerKind

RESTART = "Restart"
RESTART_ALL = "RestartAllContainers"


def kind_of(tracked: TrackedPod, spec: Mapping[str, Any]) -> ContainerKind:
    """Return the kind of the container; regular where the pod's spec does not have it any more."""
    entry = tracked.container(str(spec.get("name", "")))
    return entry[0] if entry is not None else ContainerKind.REGULAR


def restart_policy(tracked: TrackedPod, spec: Mapping[str, Any]) -> str:
    """Return Always, OnFailure or Never: the container's own policy, else the pod's."""
    return str(spec.get("restartPolicy") or tracked.spec.get("restartPolicy") or "Always")


def matched_action(spec: Mapping[str, Any], exit_code: int) -> str:
    """Return the action of the first rule that names the exit code: Restart, RestartAllContainers or "" for none. Rules
    count only where the container has a restartPolicy of its own."""
    if not spec.get("restartPolicy"):
        return ""
    for rule in spec.get("restartPolicyRules") or ():
        condition = rule.get("exitCodes") or {}
        among = exit_code in (condition.get("values") or ())
        if condition and among == (condition.get("operator") != "NotIn"):
            return str(rule.get("action") or "")
    return ""


def restarts_after(tracked: TrackedPod, spec: Mapping[str, Any], exit_code: int) -> bool:
    """Return whether the container, of any kind, is started again after this exit code. A plain init container that
    succeeded and an ephemeral container never are."""
    kind = kind_of(tracked, spec)
    if kind is ContainerKind.EPHEMERAL:
        return False
    if kind is ContainerKind.SIDECAR or matched_action(spec, exit_code) == RESTART_ALL:
        return True
    return (kind is not ContainerKind.INIT or exit_code != 0) and restarts_failed(tracked, spec, exit_code)


def restarts_failed(tracked: TrackedPod, spec: Mapping[str, Any], exit_code: int) -> bool:
    """Return whether a container that failed runs again, by its rules and policy alone. With OnFailure the exit code
    decides: an init container that ran out of memory and ended with 0 has failed, but does not restart."""
    policy = restart_policy(tracked, spec)
    return bool(matched_action(spec, exit_code)) or policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def restarts_all(tracked: TrackedPod, spec: Mapping[str, Any], exit_code: int) -> bool:
    """Return whether this exit restarts every container of the pod."""
    return kind_of(tracked, spec) is not ContainerKind.EPHEMERAL and matched_action(spec, exit_code) == RESTART_ALL


def may_restart_all(tracked: TrackedPod) -> bool:
    """Return whether any container of the pod has a rule with that action. Only such pods have the condition for it."""
    for spec in (*tracked.init_containers, *tracked.containers):
        for rule in spec.get("restartPolicyRules") or ():
            if rule.get("action") == RESTART_ALL:
                return True
    return False
