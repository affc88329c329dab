"""The API status of one regular container, from the runtime's instances and the status before (reference pods.md 9.2).

Knows nothing of phases and conditions (`pod_status`).
"""

from typing import Any

from services.podsync.core.record import PodRecord
from services.podsync.core.restart import should_restart
from shared.model.runtime import Container, ContainerState
from shared.timestamps import rfc3339

Json = dict[str, Any]
NANOSECONDS = 1_000_000_000


def container_statuses(record: PodRecord, runtime_name: str) -> list[Json]:
    """One status per regular spec container, sorted by name."""
    before = {s["name"]: s for s in record.status.get("containerStatuses") or []}
    return sorted(
        (_status(record, spec, before.get(spec["name"]), runtime_name) for spec in record.containers),
        key=lambda status: str(status["name"]),
    )


def _status(record: PodRecord, spec: Json, before: Json | None, runtime_name: str) -> Json:
    instances = record.instances_of(spec["name"])
    newest = instances[0] if instances else None
    status = (
        _vanished(record, spec, before)
        if newest is None
        else _from_instances(record, spec, instances, before, runtime_name)
    )
    return _with_waiting_reason(record, spec, newest, status)


def _base(spec: Json, before: Json | None) -> Json:
    status: Json = {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "",
        "state": {"waiting": {"reason": "ContainerCreating"}},
        "lastState": {},
        "ready": False,
        "started": False,
        "restartCount": 0,
    }
    mounts = _volume_mounts(spec)
    if mounts:
        status["volumeMounts"] = mounts
    if before is not None:
        status["restartCount"] = before.get("restartCount", 0)
        status["lastState"] = before.get("lastState") or {}
    return status


def _volume_mounts(spec: Json) -> list[Json]:
    mounts = []
    for mount in spec.get("volumeMounts") or []:
        entry: Json = {"name": mount["name"], "mountPath": mount["mountPath"]}
        if mount.get("readOnly"):
            entry |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
        mounts.append(entry)
    return mounts


def _vanished(record: PodRecord, spec: Json, before: Json | None) -> Json:
    """The runtime has no instance: never started, or taken away behind our back."""
    state = (before or {}).get("state") or {}
    if before is not None and ("terminated" in state or not record.looked):
        return dict(before)  # after a restart, before the first look, nothing new is known
    status = _base(spec, before)
    if "running" in state:
        status["lastState"] = {"terminated": _lost("deleted.  The container used to be Running")}
        if not record.deleted:
            status["restartCount"] += 1
    return status


def _lost(how: str) -> Json:
    return {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": f"The container could not be located when the pod was {how}",
        "startedAt": None,
        "finishedAt": None,
    }


def _from_instances(
    record: PodRecord, spec: Json, instances: list[Container], before: Json | None, runtime_name: str
) -> Json:
    newest = instances[0]
    status = _base(spec, before)
    container_id = f"{runtime_name}://{newest.id}"
    status |= {
        "state": _state(newest, runtime_name, before),
        "image": newest.image or spec.get("image", ""),
        "imageID": newest.image_id,
        "containerID": container_id,
        "restartCount": max(newest.restart_count, (before or {}).get("restartCount", 0)),
        "resources": spec.get("resources") or {},
    }
    same_instance = (before or {}).get("containerID") == container_id
    started, ready = _probed(record, spec, newest, (before or {}) if same_instance else {})
    status |= {"ready": ready, "started": started}
    requests = (spec.get("resources") or {}).get("requests")
    if requests:
        status["allocatedResources"] = requests
    if newest.user is not None:
        uid, gid, groups = newest.user
        status["user"] = {"linux": {"uid": uid, "gid": gid, "supplementalGroups": list(groups)}}
    earlier = (before or {}).get("state") or {}
    _keep_message(status["state"], earlier)
    if len(instances) > 1 and instances[1].state is ContainerState.EXITED:
        status["lastState"] = _state(instances[1], runtime_name, None)
    elif before is not None and before.get("containerID") != container_id and "terminated" in earlier:
        status["lastState"] = {"terminated": earlier["terminated"]}
    return status


def _probed(record: PodRecord, spec: Json, instance: Container, before: Json) -> tuple[bool, bool]:
    """Whether the instance has started, and is ready (9.2, 10.2). Where a probe has no result yet, what was shown of
    this very instance before holds: neither a restart of ours nor one of the prober makes a pod flap."""
    if instance.state is not ContainerState.RUNNING:
        return False, False
    results = record.probes.get(instance.id)
    started = not spec.get("startupProbe")
    if not started:
        found = results.startup if results is not None else ""
        started = found == "success" or (found == "" and bool(before.get("started")))
    if not spec.get("readinessProbe") or not started:
        return started, started
    found = results.readiness if results is not None else ""
    return started, found == "success" or (found == "" and bool(before.get("ready")))


def _keep_message(state: Json, earlier: Json) -> None:
    """The termination message file goes with the pod's directory; what was read from it once stays."""
    now, then = state.get("terminated"), earlier.get("terminated")
    if now and then and now.get("containerID") == then.get("containerID") and then.get("message"):
        now.setdefault("message", then["message"])


def _state(instance: Container, runtime_name: str, before: Json | None) -> Json:
    if instance.state is ContainerState.RUNNING:
        return {"running": {"startedAt": rfc3339(instance.started_at / NANOSECONDS)}}
    if instance.state is ContainerState.EXITED:
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
    if instance.state is ContainerState.UNKNOWN and "running" in ((before or {}).get("state") or {}):
        return {"terminated": _lost("terminated")}
    return {"waiting": {}}


def _with_waiting_reason(record: PodRecord, spec: Json, newest: Container | None, status: Json) -> Json:
    """Show why the container is not started, where it should be: the state it had moves to lastState."""
    reason = record.reasons.get(spec["name"])
    if reason is None or "running" in status["state"] or not should_restart(record, spec, newest):
        return status
    waiting = {"reason": reason[0]}
    if reason[1]:
        waiting["message"] = reason[1]
    last = status["state"] if "terminated" in status["state"] else status["lastState"]
    return status | {"state": {"waiting": waiting}, "lastState": last, "ready": False, "started": False}


def lost_at_termination(status: Json) -> Json:
    """The container's status once the pod is over: what has no terminated state gets one (TerminatePod, 9.6)."""
    if "terminated" in (status.get("state") or {}):
        return status
    return status | {"state": {"terminated": _lost("terminated")}, "ready": False, "started": False}
