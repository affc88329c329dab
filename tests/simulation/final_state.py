"""What a run comes to: the parts of API, runtime, disk and checkpoint that must not depend on faults."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from services.volume.controllers.resource_claims import RECORD
from services.volume.core.resource_claims.dra_state import FILE_NAME, read_dra_state
from shared.model.objects import Object
from shared.model.runtime import ContainerState, SandboxState
from tests.fakes.api_resources import target_of

if TYPE_CHECKING:
    from tests.simulation.node import Node

State = dict[str, Any]

_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")


def state_of(node: "Node") -> State:
    """The state now, by what it is about; UIDs are left out, for they are counted."""
    names: dict[str, str] = {}
    state: State = {}
    for _, pod in node.api.store.below(target_of("/api/v1/pods")):
        names[pod["metadata"]["uid"]] = pod["metadata"]["name"]
        mirrored = (pod["metadata"].get("annotations") or {}).get("kubernetes.io/config.mirror")
        if mirrored:
            names[mirrored] = pod["metadata"]["name"]
        state[f"api {pod['metadata']['name']}"] = _api(pod)
    seen = node.runtime.pods()
    for uid in sorted(seen):
        ready = [s.attempt for s in seen[uid].sandboxes if s.state is SandboxState.READY]
        running = sorted(c.name for c in seen[uid].containers if c.state is ContainerState.RUNNING)
        made = sorted(c.name for c in seen[uid].containers if c.state is ContainerState.CREATED)
        if "conditions" not in state.get(f"api {names.get(uid)}", {"conditions": ()}):
            continue  # exceeded its deadline
        if uid in names or seen[uid].name.endswith("-node1"):
            state[f"runtime {seen[uid].name}"] = {"sandboxes": len(ready), "running": running, "created": made}
            if (placement := node.runtime.placement) is not None:
                has = {c.name: placement.given(c.id) for c in seen[uid].containers if c.name in running}
                numbers = {name: len(given.devices) for name, given in has.items()}
                state[f"runtime {seen[uid].name}"]["devices"] = numbers
        else:
            state[f"runtime left over {uid}"] = {"sandboxes": len(seen[uid].sandboxes)}
    for uid, mounted in sorted(node.volumes.mounted.items()):
        state[f"volumes {names.get(uid, 'left over ' + uid)}"] = {
            name: {path: base64.b64encode(content).decode() for path, content in shown.items()}
            for name, (_, shown) in sorted(mounted.items())
        }
    for uid, name in sorted(node.volumes.old_files):
        state[f"old files left over {uid} {name}"] = "not removed"
    podsync = node.services.get("podsync")
    if podsync is not None:
        for uid in sorted(podsync.core.tracked):
            state[f"record {names.get(uid, 'left over ' + uid)}"] = str(podsync.core.tracked[uid].saved.state)
    if node.driver is not None:
        state["claims"] = {
            "prepared": sorted(node.driver.prepared.values()),
            "in the record": _recorded_claims(node.root / RECORD),
            "in the checkpoint": _checkpoint_claims(node.root / FILE_NAME),
        }
    shown = node.api.get("/api/v1/nodes/node1") or {}
    for condition in shown.get("status", {}).get("conditions", []):
        state[f"node {condition['type']}"] = condition["status"]
    return state


def _recorded_claims(path: Path) -> list[str]:
    return sorted(claim["name"] for claim in orjson.loads(path.read_bytes())["claims"]) if path.exists() else []


def _checkpoint_claims(path: Path) -> list[str]:
    return sorted(claim.name for claim in read_dra_state(path.read_bytes())) if path.exists() else []


def left_over(state: State) -> bool:
    """Whether something is left of a pod that is not desired, or a pod is still ending."""
    return any("left over" in key or state[key] in ("terminating", "terminated") for key in state)


def _api(pod: Object) -> State:
    status = pod.get("status", {})
    if status.get("reason") == "DeadlineExceeded":  # how far it came until then is a matter of time
        return {"phase": status.get("phase"), "reason": status["reason"]}
    return {
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "deleted": bool(pod["metadata"].get("deletionTimestamp")),
        "conditions": {c["type"]: c["status"] for c in status.get("conditions", []) if c["type"] in _CONDITIONS},
        "has ip": bool(status.get("podIP")),
        "init": [_container(shown) for shown in status.get("initContainerStatuses") or ()],
        "containers": [_container(shown) for shown in status.get("containerStatuses") or ()],
    }


def _container(shown: Object) -> State:
    kind, state = next(iter((shown.get("state") or {"none": {}}).items()))
    last = (shown.get("lastState") or {}).get("terminated") or {}
    return {
        "name": shown["name"],
        "image": shown["image"],
        "ready": shown["ready"],
        "started": shown.get("started"),
        "restarts": shown["restartCount"],
        "state": kind,
        "reason": state.get("reason"),
        "exit": state.get("exitCode"),
        "last exit": last.get("exitCode"),
    }


def difference(expected: State, found: State) -> str:
    """In one line what is not as it should be."""
    parts = []
    for key in sorted({*expected, *found}):
        wanted, there = expected.get(key), found.get(key)
        if wanted == there:
            continue
        if isinstance(wanted, dict) and isinstance(there, dict):
            inside = difference(wanted, there)
            parts.append(f"{key}: {inside}")
        elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
            pairs = [pair for pair in zip(wanted, there, strict=True) if pair[0] != pair[1]]
            inside = "; ".join(difference(w, t) for w, t in pairs if isinstance(w, dict) and isinstance(t, dict))
            parts.append(f"{key}: {inside or there}")
        else:
            parts.append(f"{key} is {there!r} and should be {wanted!r}")
    return ", ".join(parts)
