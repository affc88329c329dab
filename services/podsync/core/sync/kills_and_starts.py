"""Decides for a pod that should run its sandbox, the containers to kill and those to start (pods.md 5.2, 5.3).
Compares the spec with what the runtime has, and returns the containers in the order in which they start.
`crash_backoff` decides the back-off, `image_steps` the images; `steps` calls them.
"""

from typing import Any

from msgspec import Struct

from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.container_kill import ContainerKill, failed_probe, probe_grace
from services.podsync.core.sync.init_containers import compute_init_actions
from services.podsync.core.sync.resizing import restarts_for_resize
from services.podsync.core.sync.restart import should_restart
from services.podsync.core.sync.restart_rules import restart_policy
from shared.model.runtime import Container, ContainerState, Sandbox, SandboxState
from shared.podspec.earlier_hash import is_hash_of
from shared.podspec.resources import is_sidecar


class SandboxDecision(Struct, frozen=True, kw_only=True):
    """Has whether a new sandbox is needed, and its attempt number."""

    create: bool
    attempt: int
    changed: Sandbox | None = None  # the sandbox that it replaces, where that has an event


class PodActions(Struct, frozen=True, kw_only=True):
    """Has the difference between a pod's spec and the runtime."""

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_attempt: int = 0
    sandbox_changed: bool = False
    start: tuple[str, ...] = ()  # container names in the order they start: ephemeral, init, regular; spec order each
    kill: tuple[ContainerKill, ...] = ()


def decide_sandbox(tracked: TrackedPod) -> SandboxDecision:
    """Decide whether the pod needs a new sandbox (the table of pods.md 5.2)."""
    if not tracked.sandboxes:
        return SandboxDecision(create=True, attempt=tracked.attempts.sandbox + 1)
    newest = tracked.sandboxes[0]
    ready = [s for s in tracked.sandboxes if s.state is SandboxState.READY]
    following = max(newest.attempt, tracked.attempts.sandbox) + 1
    if len(ready) > 1 or newest.state is not SandboxState.READY:
        return SandboxDecision(create=True, attempt=following, changed=newest)
    if newest.host_network != tracked.host_network:
        return SandboxDecision(create=True, attempt=following)
    if not tracked.host_network and newest.network_reported and not newest.ips:
        return SandboxDecision(create=True, attempt=following, changed=newest)
    return SandboxDecision(create=False, attempt=newest.attempt)


def compute_pod_actions(tracked: TrackedPod) -> PodActions:
    """Return what to kill and start so that the pod has its spec: ephemeral containers, then init containers, then
    regular ones. Where no regular container stays and none is to start, the rest of the pod is killed."""
    sandbox = decide_sandbox(tracked)
    if sandbox.create:
        return _with_new_sandbox(tracked, sandbox)
    ephemeral = [str(spec["name"]) for spec in tracked.ephemeral_containers if _starts(tracked, spec)]
    init = compute_init_actions(tracked)
    if init.failed:
        return PodActions(kill_pod=True, sandbox_attempt=sandbox.attempt)
    if not init.initialized:
        return PodActions(start=(*ephemeral, *init.start), kill=init.kill, sandbox_attempt=sandbox.attempt)
    start: list[str] = []
    kill: list[ContainerKill] = []
    kept = False
    for spec in tracked.containers:
        newest = _newest(tracked, spec)
        running = newest is not None and newest.state is ContainerState.RUNNING
        to_kill = _regular_kill(tracked, spec)
        if to_kill is not None:
            kill.append(to_kill)
            starts = to_kill.restart
        else:
            kept = kept or running
            starts = not running and should_restart(tracked, spec, newest)
        if starts:
            start.append(str(spec["name"]))
    if not kept and not start:
        return PodActions(kill_pod=True, sandbox_attempt=sandbox.attempt)
    return PodActions(
        start=(*ephemeral, *init.start, *start), kill=(*init.kill, *kill), sandbox_attempt=sandbox.attempt
    )


def _newest(tracked: TrackedPod, spec: dict[str, Any]) -> Container | None:
    return next(iter(tracked.instances_of(str(spec["name"]))), None)


def _starts(tracked: TrackedPod, spec: dict[str, Any]) -> bool:
    newest = _newest(tracked, spec)
    return (newest is None or newest.state is ContainerState.CREATED) and should_restart(tracked, spec, newest)


def _regular_kill(tracked: TrackedPod, spec: dict[str, Any]) -> ContainerKill | None:
    """Return the kill of a regular container's newest instance; None = the instance stays, or does not run."""
    name, newest = str(spec["name"]), _newest(tracked, spec)
    if newest is None or newest.state not in (ContainerState.RUNNING, ContainerState.UNKNOWN):
        return None
    if newest.state is ContainerState.UNKNOWN:
        if not should_restart(tracked, spec, newest):
            return None
        message = 'Container is in "unknown" state, try killing it before restart'
        return ContainerKill(instance=newest, message=message)
    if not is_hash_of(spec, newest.spec_hash):
        return ContainerKill(instance=newest, message=f"Container {name} definition changed, will be restarted")
    if failed := failed_probe(tracked, newest):
        restart = restart_policy(tracked, spec) != "Never"  # rules on exit codes do not count after this kill
        message = f"Container {name} failed {failed} probe{', will be restarted' if restart else ''}"
        grace = probe_grace(spec, failed)
        return ContainerKill(instance=newest, message=message, restart=restart, grace=grace)
    if restarts_for_resize(tracked, spec, newest):
        return ContainerKill(instance=newest, message=f"Container {name} resize requires restart")
    return None


def _with_new_sandbox(tracked: TrackedPod, sandbox: SandboxDecision) -> PodActions:
    """Kill everything of the old sandbox, and start in a new one what has not ended for good (pods.md 5.3.2)."""
    started_once = {c.name for c in tracked.instances}
    if tracked.spec.get("restartPolicy") == "Never" and sandbox.attempt != 0 and started_once:
        return _with_new_sandbox_for_some(tracked, sandbox)
    start = []
    for spec in tracked.containers:
        newest = _newest(tracked, spec)
        done = newest is not None and newest.state is ContainerState.EXITED and newest.exit_code == 0
        if done and restart_policy(tracked, spec) == "OnFailure" and not should_restart(tracked, spec, newest):
            continue
        start.append(spec["name"])
    ended = any(spec["name"] in started_once for spec in tracked.containers) or not tracked.containers
    return _in_new_sandbox(tracked, sandbox, start, create=bool(start) or not ended)


def _with_new_sandbox_for_some(tracked: TrackedPod, sandbox: SandboxDecision) -> PodActions:
    """Decide for a pod that never restarts: containers whose own restart policy or rules restart them continue, with
    those that have not run yet; where there are none the pod ends (pods.md 5.3.2a)."""
    initializing = [spec for spec in tracked.init_containers if not is_sidecar(spec)]
    if any(_newest(tracked, spec) for spec in tracked.containers):
        initializing = []
    create = any(goes_on(tracked, spec) for spec in initializing or tracked.containers)
    start = [spec["name"] for spec in tracked.containers if _newest(tracked, spec) is None or goes_on(tracked, spec)]
    return _in_new_sandbox(tracked, sandbox, start, create=create)


def goes_on(tracked: TrackedPod, spec: dict[str, Any]) -> bool:
    """Return whether the container's newest instance is followed by another one when its sandbox has ended. Of one that
    still runs the exit code is not known, so rules on it do not count yet."""
    newest = _newest(tracked, spec)
    if newest is not None and newest.state in (ContainerState.RUNNING, ContainerState.UNKNOWN):
        return restart_policy(tracked, spec) != "Never"
    return newest is not None and should_restart(tracked, spec, newest)


def _in_new_sandbox(tracked: TrackedPod, sandbox: SandboxDecision, start: list[str], *, create: bool) -> PodActions:
    """Return the actions for a new sandbox, in which the pod initializes again: its first init container starts
    first."""
    if tracked.init_containers:
        start = [tracked.init_containers[0]["name"]]
    return PodActions(
        kill_pod=bool(tracked.sandboxes or tracked.alive),
        create_sandbox=create,
        sandbox_attempt=sandbox.attempt,
        sandbox_changed=create and sandbox.changed is not None,
        start=tuple(start) if create else (),
    )
