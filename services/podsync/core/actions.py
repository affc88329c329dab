"""What has to be done for a pod that should run: sandbox, containers to kill and to start (reference pods.md 5.2, 5.3).

Compares the spec with what the runtime has; decides nothing about order, back-off or images (that is `steps`).
"""

from dataclasses import dataclass

from services.podsync.core.record import PodRecord
from services.podsync.core.restart import restarts_after, should_restart
from shared.model.runtime import Container, ContainerState, Sandbox, SandboxState
from shared.podspec.hashing import container_hash

FAILURE = "failure"  # a probe result


@dataclass(frozen=True, kw_only=True)
class SandboxDecision:
    """Whether a new sandbox is due, and under which attempt number."""

    create: bool
    attempt: int
    changed: Sandbox | None = None  # the sandbox it takes the place of, where that is worth an event


@dataclass(frozen=True, kw_only=True)
class ContainerKill:
    """A running container that must not go on as it is."""

    instance: Container
    message: str  # of the Killing event
    restart: bool = True  # another instance is to take its place
    grace: int | None = None  # seconds, where its probe has a grace period of its own


@dataclass(frozen=True, kw_only=True)
class PodActions:
    """The difference between a pod's spec and the runtime."""

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_attempt: int = 0
    sandbox_changed: bool = False
    start: tuple[str, ...] = ()  # container names, spec order
    kill: tuple[ContainerKill, ...] = ()


def decide_sandbox(record: PodRecord) -> SandboxDecision:
    """The table of reference pods.md 5.2."""
    if not record.sandboxes:
        return SandboxDecision(create=True, attempt=record.sandbox_attempt + 1)
    newest = record.sandboxes[0]
    ready = [s for s in record.sandboxes if s.state is SandboxState.READY]
    following = max(newest.attempt, record.sandbox_attempt) + 1
    if len(ready) > 1 or newest.state is not SandboxState.READY:
        return SandboxDecision(create=True, attempt=following, changed=newest)
    if newest.host_network != record.host_network:
        return SandboxDecision(create=True, attempt=following)
    if not record.host_network and newest.network_reported and not newest.ips:
        return SandboxDecision(create=True, attempt=following, changed=newest)
    return SandboxDecision(create=False, attempt=newest.attempt)


def compute_pod_actions(record: PodRecord) -> PodActions:
    """What separates the pod from its spec, for regular containers."""
    sandbox = decide_sandbox(record)
    if sandbox.create:
        return _with_new_sandbox(record, sandbox)
    start: list[str] = []
    kill: list[ContainerKill] = []
    for spec in record.containers:
        name = spec["name"]
        instances = record.instances_of(name)
        newest = instances[0] if instances else None
        if newest is None or newest.state is not ContainerState.RUNNING:
            if not should_restart(record, spec, newest):
                continue
            start.append(name)
            if newest is not None and newest.state is ContainerState.UNKNOWN:
                message = f'Container is in "unknown" state, try killing it before restart: {name}'
                kill.append(ContainerKill(instance=newest, message=message))
        elif newest.spec_hash and newest.spec_hash != container_hash(spec):
            start.append(name)
            message = f"Container {name} definition changed, will be restarted"
            kill.append(ContainerKill(instance=newest, message=message))
        elif failed := _failed_probe(record, newest):
            restart = record.spec.get("restartPolicy", "Always") != "Never"  # exit codes do not count here
            message = f"Container {name} failed {failed} probe{', will be restarted' if restart else ''}"
            grace = (spec.get(f"{failed}Probe") or {}).get("terminationGracePeriodSeconds")
            kill.append(ContainerKill(instance=newest, message=message, restart=restart, grace=grace))
            start += [name] if restart else []
    return PodActions(start=tuple(start), kill=tuple(kill), sandbox_attempt=sandbox.attempt)


def _failed_probe(record: PodRecord, instance: Container) -> str:
    """`liveness` or `startup` where that probe says that this instance must go, else ""."""
    results = record.probes.get(instance.id)
    for kind in ("liveness", "startup"):
        if results is not None and getattr(results, kind) == FAILURE:
            return kind
    return ""


def _with_new_sandbox(record: PodRecord, sandbox: SandboxDecision) -> PodActions:
    """Everything of the old sandbox ends; what ran to its end for good is not run again (5.3, step 2)."""
    started_once = {c.name for c in record.instances}
    policy = record.spec.get("restartPolicy", "Always")
    start = []
    for spec in record.containers:
        instances = record.instances_of(spec["name"])
        exited = next((c for c in instances if c.state is ContainerState.EXITED), None)
        if policy == "OnFailure" and exited is not None and not restarts_after(record, spec, exited.exit_code):
            continue
        start.append(spec["name"])
    create = not (policy == "Never" and sandbox.attempt != 0 and started_once)
    if not start and started_once:
        create = False
    return PodActions(
        kill_pod=bool(record.sandboxes or record.alive),
        create_sandbox=create,
        sandbox_attempt=sandbox.attempt,
        sandbox_changed=create and sandbox.changed is not None,
        start=tuple(start) if create else (),
    )
