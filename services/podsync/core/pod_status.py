"""The API status of a pod: phase, conditions, addresses (reference pods.md 9.1, 9.4, 9.6).

Pure: `now` is wall seconds; the newest status of the record is the baseline, so that transition times stay.
"""

from typing import Any

from bus.messages.podsync import PodState
from services.podsync.core.actions import decide_sandbox
from services.podsync.core.container_status import container_statuses, lost_at_termination
from services.podsync.core.lifecycle import TERMINAL_PHASES
from services.podsync.core.record import PodRecord
from services.podsync.core.restart import restarts_after
from shared.model.runtime import ContainerState
from shared.podspec.qos import qos_class
from shared.podspec.resources import status_resources
from shared.timestamps import rfc3339

Json = dict[str, Any]
DISRUPTION = "DisruptionTarget"


def pod_status(record: PodRecord, *, now: float, runtime_name: str, node_ips: tuple[str, ...]) -> Json:
    """The whole status as it should be shown now. A rejected pod shows its rejection and nothing else (3.3)."""
    generation = (record.pod.get("metadata") or {}).get("generation")
    base: Json = {"observedGeneration": generation} if generation else {}
    base |= {"startTime": record.start_time, "qosClass": str(qos_class(record.pod))}
    if record.rejected:
        message = f"Pod was rejected: {record.rejected_message}"
        return base | {"phase": "Failed", "reason": record.rejected, "message": message}
    over = record.state in (PodState.TERMINATED, PodState.FINISHED)
    containers = container_statuses(record, runtime_name)
    if over and record.deleted:
        containers = [lost_at_termination(status) for status in containers]
    phase = _phase(record, containers, over=over)
    status: Json = base | {
        "phase": phase,
        "conditions": _conditions(record, containers, phase, generation=generation, now=now),
        "containerStatuses": containers,
        **status_resources(record.pod),
    }
    if node_ips:
        status |= {"hostIP": node_ips[0], "hostIPs": [{"ip": ip} for ip in node_ips]}
    ips = _pod_ips(record, node_ips)
    if ips:
        status |= {"podIP": ips[0], "podIPs": [{"ip": ip} for ip in ips]}
    if record.ending and phase == "Failed":
        status |= {"reason": record.ending["reason"], "message": record.ending["message"]}
        return status
    for key in ("reason", "message"):
        if record.status.get(key) and record.status.get("phase") == phase:
            status[key] = record.status[key]
    return status


def withheld(record: PodRecord, status: Json) -> Json:
    """What of the status may be shown: a terminal phase not before nothing of the pod can be running (9.5)."""
    if record.rejected or status["phase"] not in TERMINAL_PHASES:
        return status
    if record.state not in (PodState.SYNC, PodState.TERMINATING):
        return status
    if record.api_status.get("phase") == status["phase"]:
        return status
    kept = {key: record.status[key] for key in ("reason", "message") if record.status.get(key)}
    shown = {key: value for key, value in status.items() if key not in ("reason", "message")}
    return shown | {"phase": record.status.get("phase") or "Pending"} | kept


def _phase(record: PodRecord, containers: list[Json], *, over: bool) -> str:
    before = record.outcome or record.api_status.get("phase")
    if before in TERMINAL_PHASES:
        return str(before)
    if record.ending:
        return "Failed"
    specs = {spec["name"]: spec for spec in record.containers}
    running = stopped = succeeded = waiting = restartable = 0
    for status in containers:
        state, last = status["state"], (status.get("lastState") or {}).get("terminated")
        if "running" in state:
            running += 1
        elif "terminated" in state or last is not None:
            code = int((state.get("terminated") or last or {})["exitCode"])
            stopped += 1
            succeeded += "terminated" in state and code == 0
            restartable += _being_replaced(record, status["name"]) or restarts_after(
                record, specs[status["name"]], code
            )
        else:
            waiting += 1
    if waiting:
        return "Failed" if over and record.deleted and not record.is_static else "Pending"
    if running:
        return "Running"
    if stopped:
        if over and not record.is_static:
            return "Succeeded" if stopped == succeeded else "Failed"
        if restartable:
            return "Running"
        return "Succeeded" if stopped == succeeded else "Failed"
    return "Pending"


def _being_replaced(record: PodRecord, container: str) -> bool:
    """We ended the newest instance to start another one, or that other one is made and not started yet."""
    instances = record.instances_of(container)
    if not instances:
        return False
    return instances[0].state is ContainerState.CREATED or record.replacing.get(container) == instances[0].id


def _pod_ips(record: PodRecord, node_ips: tuple[str, ...]) -> list[str]:
    if record.host_network:
        return list(node_ips)
    for sandbox in record.ready_sandboxes:
        if sandbox.ips:
            return list(sandbox.ips)
    return [entry["ip"] for entry in record.status.get("podIPs") or []]  # the last known stay after the stop


def _conditions(record: PodRecord, containers: list[Json], phase: str, *, generation: Any, now: float) -> list[Json]:
    unready = [s["name"] for s in containers if not s["ready"]]
    completed = "PodCompleted" if phase == "Succeeded" else ""
    if phase == "Succeeded":
        ready = (False, "PodCompleted", "")
    elif phase == "Failed":
        ready = (False, "PodFailed", "")
    elif unready:
        ready = (False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        ready = (True, "", "")
    sandbox = not decide_sandbox(record).create if record.looked else _was_true(record, "PodReadyToStartContainers")
    wanted = {
        "PodReadyToStartContainers": (sandbox, "", ""),
        "Initialized": (True, completed, ""),
        "Ready": _readiness_gates(record, ready),
        "ContainersReady": ready,
        "PodScheduled": (True, "", ""),
    }
    owned = [_condition(record, kind, *value, generation=generation, now=now) for kind, value in wanted.items()]
    if record.state in (PodState.TERMINATED, PodState.FINISHED) and record.ending.get("disruption"):
        value = (True, "TerminationByKubelet", record.ending["disruption"])
        owned.append(_condition(record, DISRUPTION, *value, generation=generation, now=now))
        wanted[DISRUPTION] = value
    return owned + [c for c in _given_conditions(record) if c.get("type") not in wanted]


def _given_conditions(record: PodRecord) -> list[Json]:
    """Conditions of others: as the API server has them; without it as it had them last."""
    given = record.api_status.get("conditions") if record.api_status else record.status.get("conditions")
    return [c for c in given or () if isinstance(c, dict) and c.get("type") and c.get("status")]


def _readiness_gates(record: PodRecord, ready: tuple[bool, str, str]) -> tuple[bool, str, str]:
    if not ready[0]:
        return ready
    given = {c["type"]: c["status"] for c in _given_conditions(record)}
    messages = []
    for gate in record.spec.get("readinessGates") or []:
        kind = gate.get("conditionType", "")
        if kind not in given:
            messages.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif given[kind] != "True":
            messages.append(f'the status of pod readiness gate "{kind}" is not "True", but {given[kind]}')
    return (False, "ReadinessGatesNotReady", ", ".join(messages)) if messages else ready


def _was_true(record: PodRecord, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in record.status.get("conditions") or [])


def _condition(
    record: PodRecord, kind: str, value: bool, reason: str, message: str, *, generation: Any, now: float
) -> Json:
    condition: Json = {"type": kind, "status": "True" if value else "False", "lastProbeTime": None}
    before: Json = next((c for c in record.status.get("conditions") or [] if c["type"] == kind), {})
    kept = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
    condition["lastTransitionTime"] = kept or rfc3339(now)
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    if generation:
        condition["observedGeneration"] = generation
    return condition


def container_ids(record: PodRecord) -> tuple[str, ...]:
    """Bare ids of the running instances: what pleg should be watching. One that is only created has no process yet,
    and naming it then would make pleg look too early and not again."""
    return tuple(c.id for c in record.instances if c.state is ContainerState.RUNNING)
