"""What a container's end means for it: restart policies of pod and container, rules on exit codes (pods.md 5.3, 5.7).

Works on specs and exit codes alone; what is running, back-off and order are none of its business.
"""

from collections.abc import Mapping
from typing import Any

from services.podsync.core.pod.record import PodRecord
from shared.podspec.containers import ContainerKind

RESTART = "Restart"
RESTART_ALL = "RestartAllContainers"


def kind_of(record: PodRecord, spec: Mapping[str, Any]) -> ContainerKind:
    """The list of the pod's spec that has the container; regular where none has it any more."""
    found = record.container(str(spec.get("name", "")))
    return found[0] if found is not None else ContainerKind.REGULAR


def restart_policy(record: PodRecord, spec: Mapping[str, Any]) -> str:
    """Always, OnFailure or Never: the container's own policy, else the pod's."""
    return str(spec.get("restartPolicy") or record.spec.get("restartPolicy") or "Always")


def matched_action(spec: Mapping[str, Any], exit_code: int) -> str:
    """The action of the first rule that names the exit code: Restart, RestartAllContainers or "" for none. Rules count
    only beside a restartPolicy of the container itself."""
    if not spec.get("restartPolicy"):
        return ""
    for rule in spec.get("restartPolicyRules") or ():
        condition = rule.get("exitCodes") or {}
        among = exit_code in (condition.get("values") or ())
        if condition and among == (condition.get("operator") != "NotIn"):
            return str(rule.get("action") or "")
    return ""


def restarts_after(record: PodRecord, spec: Mapping[str, Any], exit_code: int) -> bool:
    """Is the container, of whatever kind, started again after this exit code? A plain init container that succeeded
    and an ephemeral container never are."""
    kind = kind_of(record, spec)
    if kind is ContainerKind.EPHEMERAL:
        return False
    action = matched_action(spec, exit_code)
    if action == RESTART_ALL:
        return True
    if kind is ContainerKind.SIDECAR:
        return True
    return (kind is not ContainerKind.INIT or exit_code != 0) and restarts_failed(record, spec, exit_code)


def restarts_failed(record: PodRecord, spec: Mapping[str, Any], exit_code: int) -> bool:
    """Is a container that failed run again, by its rules and policy alone? The exit code decides: OnFailure does not
    restart an init container that ran out of memory and ended with 0, and that has failed all the same."""
    policy = restart_policy(record, spec)
    return bool(matched_action(spec, exit_code)) or policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def restarts_all(record: PodRecord, spec: Mapping[str, Any], exit_code: int) -> bool:
    """Does this exit restart every container of the pod?"""
    return kind_of(record, spec) is not ContainerKind.EPHEMERAL and matched_action(spec, exit_code) == RESTART_ALL


def may_restart_all(record: PodRecord) -> bool:
    """Has any container of the pod a rule with that action? Only such pods show the condition for it."""
    every = [*record.init_containers, *record.containers]
    return any(rule.get("action") == RESTART_ALL for spec in every for rule in spec.get("restartPolicyRules") or ())
