"""Decides for a pod that should run its sandbox, the containers to kill and those to start (pods.md 5.2, 5.3).
Compares the spec with what the runtime has, and returns the containers in the order in which they start.
`crash_backoff` decides the back-off, `image_steps` the images; `steps` calls them.
"""

from dataclasses import dataclass
from typing import Any

from services.podsync.core.pod.record import PodRecord
from services.podsync.core.sync.container_kill import ContainerKill, failed_probe, probe_grace
from services.podsync.core.sync.init_actions import compute_init_actions
from services.podsync.core.sync.resizing import restarts_for_resize
from services.podsync.core.sync.restart import should_restart
from services.podsync.core.sync.restart_rules import restart_policy
from shared.model.runtime import Container, ContainerState, Sandbox, SandboxState
from shared.podspec.earlier_hash import is_hash_of
from shared.podspec.resources import is_sidecar


@dataclass(frozen=True, kw_only=True)
class SandboxDecision:
    """Has whether a new sandbox is needed, and its attempt number."""

    create: bool
    attempt: int
    changed: Sandbox | None = None  # the sandbox that it replaces, where that has an event


@dataclass(frozen=True, kw_only=True)
class PodActions:
    """Has the difference between a pod's spec and the runtime."""

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_attempt: int = 0
    sandbox_changed: bool = False
    start: tuple[str, ...] = ()  # container names in the order they start: ephemeral, init, regular; spec order each
    kill: tuple[ContainerKill, ...] = ()


def decide_sandbox(record: PodRecord) -> SandboxDecision:
    """Decide whether the pod needs a new sandbox (the table of pods.md 5.2)."""
    if not record.sandboxes:
        return SandboxDecision(create=True, attempt=record.attempts.sandbox + 1)
    newest = record.sandboxes[0]
    ready = [s for s in record.sandboxes if s.state is SandboxState.READY]
    following = max(newest.attempt, record.attempts.sandbox) + 1
    if len(ready) > 1 or newest.state is not SandboxState.READY:
        return SandboxDecision(create=True, attempt=following, changed=newest)
    if newest.host_network != record.host_network:
        return SandboxDecision(create=True, attempt=following)
    if not record.host_network and newest.network_reported and not newest.ips:
        return SandboxDecision(create=True, attempt=following, changed=newest)
    return SandboxDecision(create=False, attempt=newest.attempt)


def compute_pod_actions(record: PodRecord) -> PodActions:
    """Return what to kill and start so that the pod has its spec: ephemeral containers, then init containers, then
    regular ones. Where no regular container stays and none is to start, the rest of the pod is killed."""
    sandbox = decide_sandbox(record)
    if sandbox.create:
        return _with_new_sandbox(record, sandbox)
    ephemeral = [str(spec["name"]) for spec in record.ephemeral_containers if _starts(record, spec)]
    init = compute_init_actions(record)
    if init.failed:
        return PodActions(kill_pod=True, sandbox_attempt=sandbox.attempt)
    if not init.initialized:
        return PodActions(start=(*ephemeral, *init.start), kill=init.kill, sandbox_attempt=sandbox.attempt)
    start: list[str] = []
    kill: list[ContainerKill] = []
    kept = False
    for spec in record.containers:
        newest = _newest(record, spec)
        running = newest is not None and newest.state is ContainerState.RUNNING
        to_kill = _regular_kill(record, spec)
        if to_kill is not None:
            kill.append(to_kill)
            starts = to_kill.restart
        else:
            kept = kept or running
            starts = not running and should_restart(record, spec, newest)
        if starts:
            start.append(str(spec["name"]))
    if not kept and not start:
        return PodActions(kill_pod=True, sandbox_attempt=sandbox.attempt)
    return PodActions(
        start=(*ephemeral, *init.start, *start), kill=(*init.kill, *kill), sandbox_attempt=sandbox.attempt
    )


def _newest(record: PodRecord, spec: dict[str, Any]) -> Container | None:
    return next(iter(record.instances_of(str(spec["name"]))), None)


def _starts(record: PodRecord, spec: dict[str, Any]) -> bool:
    newest = _newest(record, spec)
    return (newest is None or newest.state is ContainerState.CREATED) and should_restart(record, spec, newest)


def _regular_kill(record: PodRecord, spec: dict[str, Any]) -> ContainerKill | None:
    """Return the kill of a regular container's newest instance; None = the instance stays, or does not run."""
    name, newest = str(spec["name"]), _newest(record, spec)
    if newest is None or newest.state not in (ContainerState.RUNNING, ContainerState.UNKNOWN):
        return None
    if newest.state is ContainerState.UNKNOWN:
        if not should_restart(record, spec, newest):
            return None
        message = 'Container is in "unknown" state, try killing it before restart'
        return ContainerKill(instance=newest, message=message)
    if not is_hash_of(spec, newest.spec_hash):
        return ContainerKill(instance=newest, message=f"Container {name} definition changed, will be restarted")
    if failed := failed_probe(record, newest):
        restart = restart_policy(record, spec) != "Never"  # rules on exit codes do not count after this kill
        message = f"Container {name} failed {failed} probe{', will be restarted' if restart else ''}"
        grace = probe_grace(spec, failed)
        return ContainerKill(instance=newest, message=message, restart=restart, grace=grace)
    if restarts_for_resize(record, spec, newest):
        return ContainerKill(instance=newest, message=f"Container {name} resize requires restart")
    return None


def _with_new_sandbox(record: PodRecord, sandbox: SandboxDecision) -> PodActions:
    """Kill everything of the old sandbox, and start in a new one what has not ended for good (pods.md 5.3.2)."""
    started_once = {c.name for c in record.instances}
    if record.spec.get("restartPolicy") == "Never" and sandbox.attempt != 0 and started_once:
        return _with_new_sandbox_for_some(record, sandbox)
    start = []
    for spec in record.containers:
        newest = _newest(record, spec)
        done = newest is not None and newest.state is ContainerState.EXITED and newest.exit_code == 0
        if done and restart_policy(record, spec) == "OnFailure" and not should_restart(record, spec, newest):
            continue
        start.append(spec["name"])
    ended = any(spec["name"] in started_once for spec in record.containers) or not record.containers
    return _in_new_sandbox(record, sandbox, start, create=bool(start) or not ended)


def _with_new_sandbox_for_some(record: PodRecord, sandbox: SandboxDecision) -> PodActions:
    """Decide for a pod that never restarts: containers whose own restart policy or rules restart them continue, with
    those that have not run yet; where there are none the pod ends (pods.md 5.3.2a)."""
    initializing = [spec for spec in record.init_containers if not is_sidecar(spec)]
    if any(_newest(record, spec) for spec in record.containers):
        initializing = []
    create = any(goes_on(record, spec) for spec in initializing or record.containers)
    start = [spec["name"] for spec in record.containers if _newest(record, spec) is None or goes_on(record, spec)]
    return _in_new_sandbox(record, sandbox, start, create=create)


def goes_on(record: PodRecord, spec: dict[str, Any]) -> bool:
    """Return whether the container's newest instance is followed by another one when its sandbox has ended. Of one that
    still runs the exit code is not known, so rules on it do not count yet."""
    newest = _newest(record, spec)
    if newest is not None and newest.state in (ContainerState.RUNNING, ContainerState.UNKNOWN):
        return restart_policy(record, spec) != "Never"
    return newest is not None and should_restart(record, spec, newest)


def _in_new_sandbox(record: PodRecord, sandbox: SandboxDecision, start: list[str], *, create: bool) -> PodActions:
    """Return the actions for a new sandbox, in which the pod initializes again: its first init container starts
    first."""
    if record.init_containers:
        start = [record.init_containers[0]["name"]]
    return PodActions(
        kill_pod=bool(record.sandboxes or record.alive),
        create_sandbox=create,
        sandbox_attempt=sandbox.attempt,
        sandbox_changed=create and sandbox.changed is not None,
        start=tuple(start) if create else (),
    )
