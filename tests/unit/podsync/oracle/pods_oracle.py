"""Computes what a kubelet decides and shows for a drawn pod: written from pods.md 5.2-5.4 and pods.md 9.1-9.2, and from
nothing else. It shares no code with the product but the values that both take.
"""

from dataclasses import dataclass, field
from typing import Any

from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState, Sandbox, SandboxState
from shared.podspec.hashing import container_hash
from tests.unit.podsync.oracle.random_pods import RUNTIME, Drawn

Json = dict[str, Any]


@dataclass
class Actions:
    """What a sync does: names to start in order, ids to kill with the beginning of the message, and the sandbox."""

    kill_pod: bool = False
    create_sandbox: bool = False
    attempt: int = 0
    start: list[str] = field(default_factory=list)
    kill: dict[str, str] = field(default_factory=dict)


def decide_actions(drawn: Drawn) -> Actions:
    """pods.md 5.2 and 5.3."""
    spec, sandboxes = drawn.pod["spec"], drawn.sandboxes
    new, attempt = _needs_sandbox(spec, sandboxes)
    if new:
        return _actions_with_sandbox(drawn, attempt)
    actions = Actions(attempt=attempt)
    for container in spec.get("ephemeralContainers", []):
        newest = _newest(drawn, container["name"])
        if newest is None or newest.state is ContainerState.CREATED:  # a start that a kill cut short is repeated
            actions.start.append(container["name"])
    initialized, kill_pod, init_start = _decide_init(drawn, actions.kill)
    if kill_pod:
        return Actions(kill_pod=True, attempt=attempt)
    if not initialized:
        actions.start += init_start
        return actions
    kept, regular_start, regular_kill = False, list[str](), dict[str, str]()
    for container in spec["containers"]:
        newest = _newest(drawn, container["name"])
        if newest is None or newest.state is not ContainerState.RUNNING:
            if _should_restart(drawn, container, newest):
                regular_start.append(container["name"])
                if newest is not None and newest.state is ContainerState.UNKNOWN:
                    regular_kill[newest.id] = 'Container is in "unknown" state, try killing it before restart'
            continue
        message, restart = "", _policy(drawn, container) != "Never"
        if newest.spec_hash != container_hash(container):
            message, restart = f"Container {container['name']} definition changed", True
        elif _result(drawn, newest, "liveness") is ProbeResult.FAILURE:
            message = f"Container {container['name']} failed liveness probe"
        elif _result(drawn, newest, "startup") is ProbeResult.FAILURE:
            message = f"Container {container['name']} failed startup probe"
        if not message:
            kept = True
            continue
        regular_kill[newest.id] = message + (", will be restarted" if restart else "")
        if restart:
            regular_start.append(container["name"])
    if not kept and not regular_start:
        return Actions(kill_pod=True, attempt=attempt)
    actions.start += init_start + regular_start
    actions.kill |= regular_kill
    return actions


def _needs_sandbox(spec: Json, sandboxes: tuple[Sandbox, ...]) -> tuple[bool, int]:
    if not sandboxes:
        return True, 0
    newest = sandboxes[0]
    if sum(sandbox.state is SandboxState.READY for sandbox in sandboxes) > 1:
        return True, newest.attempt + 1
    if newest.state is not SandboxState.READY or newest.host_network != bool(spec.get("hostNetwork")):
        return True, newest.attempt + 1
    if not spec.get("hostNetwork") and newest.network_reported and not newest.ips:
        return True, newest.attempt + 1
    return False, newest.attempt


def _actions_with_sandbox(drawn: Drawn, attempt: int) -> Actions:
    spec = drawn.pod["spec"]
    actions = Actions(kill_pod=True, create_sandbox=True, attempt=attempt)
    if spec["restartPolicy"] == "Never" and attempt != 0 and drawn.instances:
        return _actions_where_some_go_on(drawn, actions)
    to_start = []
    for container in spec["containers"]:
        newest = _newest(drawn, container["name"])
        succeeded = newest is not None and newest.state is ContainerState.EXITED and newest.exit_code == 0
        by_rule = _should_restart(drawn, container, newest)
        if not (_policy(drawn, container) == "OnFailure" and succeeded) or by_rule:
            to_start.append(container["name"])
    if not to_start and any(_instances(drawn, container["name"]) for container in spec["containers"]):
        actions.create_sandbox = False
        return actions
    inits = spec.get("initContainers", [])
    actions.start = [inits[0]["name"]] if inits else to_start
    return actions


def _actions_where_some_go_on(drawn: Drawn, actions: Actions) -> Actions:
    """pods.md 5.3.2a: the pod restarts no container, but some containers restart themselves."""
    regular, inits = drawn.pod["spec"]["containers"], drawn.pod["spec"].get("initContainers", [])
    created = [container for container in regular if _newest(drawn, container["name"]) is not None]
    candidates = created or [init for init in inits if init.get("restartPolicy") != "Always"]
    alive = (ContainerState.RUNNING, ContainerState.UNKNOWN)
    going_on = []
    for container in candidates:
        newest = _newest(drawn, container["name"])
        if newest is None:
            continue
        succeeded = newest.state is ContainerState.EXITED and newest.exit_code == 0 and newest.reason != "OOMKilled"
        if container in inits and succeeded:
            continue
        by_policy = newest.state in alive and _policy(drawn, container) != "Never"
        if by_policy or (newest.state not in alive and _should_restart(drawn, container, newest)):
            going_on.append(container["name"])
    actions.create_sandbox = bool(going_on)
    if going_on:
        missing = [container["name"] for container in regular if container not in created]
        to_start = [container["name"] for container in regular if container["name"] in (*going_on, *missing)]
        actions.start = [inits[0]["name"]] if inits else to_start
    return actions


def _decide_init(drawn: Drawn, kill: dict[str, str]) -> tuple[bool, bool, list[str]]:
    """pods.md 5.4. Return whether the pod is initialised, whether it is to be killed, and what starts, in order."""
    inits = drawn.pod["spec"].get("initContainers", [])
    if not inits:
        return True, False, []
    initialized = any(
        instance.state in (ContainerState.CREATED, ContainerState.RUNNING)
        for container in drawn.pod["spec"]["containers"]
        for instance in _instances(drawn, container["name"])[:1]
    )
    prev, start, own_kill, last = initialized, list[str](), dict[str, str](), len(inits) - 1
    for index in range(last, -1, -1):
        container, newest = inits[index], _newest(drawn, inits[index]["name"])
        name, sidecar = container["name"], container.get("restartPolicy") == "Always"
        if newest is None:
            if prev and sidecar:
                start.insert(0, name)
            continue
        if prev and not sidecar:
            continue
        was_examined, prev = prev, True
        if newest.state is ContainerState.CREATED:
            start.insert(0, name)
        elif newest.state is ContainerState.RUNNING and not sidecar:
            pass
        elif newest.state is ContainerState.RUNNING:
            outcome = _running_sidecar(drawn, container, newest, own_kill)
            if outcome == "restart":
                start.insert(0, name)
            if outcome == "wait" or outcome == "startup failed":
                if outcome == "startup failed":
                    start.insert(0, name)
                continue
            if index == last:
                initialized = True
            elif not was_examined:
                start.insert(1 if outcome == "restart" else 0, inits[index + 1]["name"])
        elif newest.state is ContainerState.EXITED:
            if sidecar:
                start.insert(0, name)
            elif newest.reason == "OOMKilled" or newest.exit_code != 0:
                if not _restarts_by_rules(drawn, container, newest.exit_code):
                    return False, True, []
                start.insert(0, name)
            elif index == last:
                initialized = True
            else:
                start.insert(0, inits[index + 1]["name"])
        else:
            if not sidecar and _policy(drawn, container) == "Never":
                return False, True, []
            own_kill[newest.id] = ""
            start.insert(0, name)
    if not prev and not any(_newest(drawn, container["name"]) for container in inits):
        start = [inits[0]["name"]]
    kill |= own_kill
    return initialized, False, start


def _running_sidecar(drawn: Drawn, container: Json, newest: Container, kill: dict[str, str]) -> str:
    name, startup = container["name"], _result(drawn, newest, "startup")
    if "startupProbe" in container:
        if startup is ProbeResult.NONE:
            return "wait"
        if startup is ProbeResult.FAILURE:
            kill[newest.id] = f"Init container {name} failed startup probe"
            return "startup failed"
    if newest.spec_hash != container_hash(container):
        kill[newest.id] = f"Init container {name} definition changed"
        return "restart"
    if _result(drawn, newest, "liveness") is ProbeResult.FAILURE:
        kill[newest.id] = f"Init container {name} failed liveness probe"
        return "restart"
    return "kept"


def _should_restart(drawn: Drawn, container: Json, newest: Container | None) -> bool:
    if "deletionTimestamp" in drawn.pod["metadata"]:
        return False
    if newest is None or newest.state in (ContainerState.UNKNOWN, ContainerState.CREATED):
        return True
    return _restarts_by_rules(drawn, container, newest.exit_code)


def _restarts_by_rules(drawn: Drawn, container: Json, code: int) -> bool:
    if "restartPolicy" in container:
        for rule in container.get("restartPolicyRules", []):
            if (code in rule["exitCodes"]["values"]) == (rule["exitCodes"]["operator"] == "In"):
                return True
    policy = _policy(drawn, container)
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _policy(drawn: Drawn, container: Json) -> str:
    return str(container.get("restartPolicy", drawn.pod["spec"]["restartPolicy"]))


def _instances(drawn: Drawn, name: str) -> list[Container]:
    return [instance for instance in drawn.instances if instance.name == name]


def _newest(drawn: Drawn, name: str) -> Container | None:
    return next(iter(_instances(drawn, name)), None)


def _result(drawn: Drawn, instance: Container, kind: str) -> ProbeResult:
    results = drawn.probes.get(instance.id)
    return ProbeResult.NONE if results is None else ProbeResult(getattr(results, kind))


def show_container(drawn: Drawn, container: Json, kind: str) -> Json:
    """pods.md 9.2. Return `state` and `lastState` as (kind, reason, exit code or None), and `restartCount`.

    `kind`: regular, init or sidecar.
    """
    statuses = drawn.before.get("containerStatuses" if kind == "regular" else "initContainerStatuses", [])
    before = next((status for status in statuses if status["name"] == container["name"]), None)
    old = (before or {}).get("state") or {}
    old_last = ((before or {}).get("lastState") or {}).get("terminated")
    count = (before or {}).get("restartCount", 0)
    default = "PodInitializing" if drawn.pod["spec"].get("initContainers") else "ContainerCreating"
    instances = _instances(drawn, container["name"])
    if not instances:
        return _show_vanished(drawn, kind, old, old_last, count, default)
    newest = instances[0]
    state: tuple[str, str, int | None]
    if newest.state is ContainerState.RUNNING:
        state = ("running", "", None)
    elif newest.state is ContainerState.EXITED:
        state = ("terminated", newest.reason, newest.exit_code)
    elif newest.state is ContainerState.CREATED:
        state = ("waiting", (old.get("waiting") or {}).get("reason") or default, None)
    elif "running" in old:
        state = ("terminated", "ContainerStatusUnknown", 137)
    else:
        state = ("waiting", "", None)
    same = (before or {}).get("containerID") == f"{RUNTIME}://{newest.id}"
    shown_count = max(count, newest.restart_count)
    begun = newest.state in (ContainerState.RUNNING, ContainerState.CREATED)
    if begun and "terminated" in old and count >= newest.restart_count:
        shown_count = count + 1
    if newest.state is ContainerState.UNKNOWN and "running" in old:
        shown_count = count + 1
    last = _terminated(old_last)
    if len(instances) > 1 and instances[1].state is ContainerState.EXITED:
        last = (instances[1].reason, instances[1].exit_code)
    elif not same and "terminated" in old:
        last = _terminated(old["terminated"])
    return {"state": state, "lastState": last, "restartCount": shown_count}


def _show_vanished(drawn: Drawn, kind: str, old: Json, old_last: Json | None, count: int, default: str) -> Json:
    state: tuple[str, str, int | None] = ("waiting", default, None)
    last = _terminated(old_last)
    if "terminated" in old:
        state = ("terminated", old["terminated"]["reason"], old["terminated"]["exitCode"])
    elif "running" in old and old_last is None:
        last = ("ContainerStatusUnknown", 137)
        if "deletionTimestamp" not in drawn.pod["metadata"]:
            count += 1
    known = (ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED)
    started = any(
        instance.state in known
        for container in drawn.pod["spec"]["containers"]
        for instance in _instances(drawn, container["name"])[:1]
    )
    if kind == "init" and started and state[0] == "waiting":
        state = ("terminated", "Completed", 0)
    return {"state": state, "lastState": last, "restartCount": count}


def _terminated(end: Json | None) -> tuple[str, int] | None:
    return None if end is None else (end["reason"], end["exitCode"])


def decide_phase(drawn: Drawn, shown: Json) -> str:
    """pods.md 9.1, for a pod that goes on. `shown`: the result of `show_container` by container."""
    spec = drawn.pod["spec"]
    pending_init = failed_init = pending_sidecar = running = stopped = succeeded = restartable = waiting = 0
    for container in spec.get("initContainers", []):
        status = shown[container["name"]]
        state, last = status["state"], status["lastState"]
        if container.get("restartPolicy") == "Always":
            if state[0] == "running":
                running += 1
                pending_sidecar += not status["started"]
            elif state[0] == "waiting" and last is None:
                pending_sidecar += 1
                waiting += 1
            continue
        code = state[2] if state[0] == "terminated" else (last[1] if state[0] == "waiting" and last else None)
        if code is None:
            pending_init += 1
        elif code != 0:
            failed_init += not _restarts_by_rules(drawn, container, code)
    for container in spec["containers"]:
        status = shown[container["name"]]
        state, last = status["state"], status["lastState"]
        if state[0] == "running":
            running += 1
        elif state[0] == "terminated":
            stopped += 1
            succeeded += state[2] == 0
            restartable += _restarts_by_rules(drawn, container, state[2])
        elif last is not None:
            stopped += 1
            restartable += _restarts_by_rules(drawn, container, last[1])
        else:
            waiting += 1
    if failed_init:
        return "Failed"
    regular_exists = any(
        instance.sandbox_id == drawn.sandboxes[0].id
        for container in spec["containers"]
        for instance in _instances(drawn, container["name"])
        if drawn.sandboxes
    )
    if pending_init or (pending_sidecar and not regular_exists) or waiting:
        return "Pending"
    if running:
        return "Running"
    if not stopped:
        return "Pending"
    if restartable:
        return "Running"
    return "Succeeded" if stopped == succeeded else "Failed"
