"""The next step of one pod: the single call that brings the world nearer to what is wanted, or what it waits for.

Called after every event that touches the pod, on what is known then; nothing is planned further ahead, so a crash
between two steps loses no plan (reference pods.md 5.1, 5.5, 8.1, 8.5, 11.4).
"""

from dataclasses import dataclass, field
from typing import Any

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.podsync.core.actions import PodActions, compute_pod_actions
from services.podsync.core.images import InvalidImageNameError, pull_policy, pull_waits_until, with_default_tag
from services.podsync.core.instructions import (
    Call,
    CreateContainer,
    FetchNode,
    InspectImage,
    KillContainer,
    KillPod,
    LookAtPod,
    PreparePod,
    PullImage,
    ReleasePod,
    RemoveContainers,
    RemovePodLogs,
    RemoveSandboxes,
    RunPodSandbox,
    StartContainer,
)
from services.podsync.core.lifecycle import MINIMUM_STOP_SECONDS, stop_seconds
from services.podsync.core.record import SANDBOX, PodRecord
from services.podsync.core.restart import backoff_until, count_start, newest_exited
from shared.model.runtime import Container, ContainerState, SandboxState
from shared.podspec.hashing import container_hash
from shared.timestamps import go_duration

GARBAGE_AFTER_SECONDS = 60.0  # the kubelet collects dead sandboxes and log directories once a minute


@dataclass(frozen=True, kw_only=True)
class World:
    """What a step depends on besides the pod's own record."""

    now: float  # seconds of the steady clock
    name_taken: bool = False  # another pod of the same full name has not finished
    network_ready: bool = True
    network_message: str = ""
    volumes_known: bool = True  # the mounted world is complete and fresh
    maximum_backoff: float = 300.0  # seconds
    still_listed: bool = False  # a source lists the pod (API: its object is still there)
    victims_until: float = 0.0  # how long to wait at most for the pods preempted for this one, 0 = they have stopped
    skew: float = 0.0  # seconds by which the wall clock has been set away from `now`


@dataclass(kw_only=True)
class Step:
    """Do this call, or look again at that moment; `done` = this state of the pod has nothing left to do."""

    call: Call | None = None
    wake_at: float = 0.0
    done: bool = False
    waits_for: str = ""  # for the pod's story
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # waiting reasons found on the way
    events: list[tuple[str, str, str, str]] = field(default_factory=list)  # type, reason, message, container

    def wake_earlier(self, when: float) -> None:
        """Look again at the earliest of all moments named."""
        self.wake_at = when if self.wake_at == 0.0 else min(self.wake_at, when)


def next_step(record: PodRecord, world: World) -> Step:
    """The next step of a pod with no call under way."""
    if record.retry_at > world.now:
        return Step(wake_at=record.retry_at, waits_for="retry of a failed call")
    if record.state is PodState.FINISHED and (record.rejected or not record.deleted):
        return Step(done=record.deleted and not world.still_listed)  # nothing was ever made of a rejected pod
    if not record.judged:
        if record.asks_for_node:
            return Step(call=FetchNode(uid=record.uid))
        return Step(waits_for="news of the node, to be judged by")
    if not record.looked:
        return Step(call=LookAtPod(uid=record.uid))
    match record.state:
        case PodState.SYNC:
            return _sync(record, world)
        case PodState.TERMINATING:
            return _terminating(record, world)
        case PodState.TERMINATED:
            return _terminated(record, world)
        case PodState.FINISHED:
            return _collect(record, world)


def _sync(record: PodRecord, world: World) -> Step:
    uid = record.uid
    if world.victims_until > world.now:
        return Step(wake_at=world.victims_until, waits_for="the pods preempted for this one to stop")
    if world.name_taken:
        return Step(waits_for="another pod of the same name to finish")
    if not world.network_ready and not record.host_network:
        message = f"network is not ready: {world.network_message}"
        return Step(waits_for=message, events=[("Warning", "NetworkNotReady", message, "")])
    if not record.prepared:
        return Step(call=PreparePod(uid=uid))
    missing = unmounted_volumes(record)
    if missing:
        return Step(waits_for=f"volumes {', '.join(missing)}")
    if record.interrupted:
        step = Step()
        _remove_when_due(record, _dead_instances(record, keep=1), step, world)
        return step
    actions = compute_pod_actions(record)
    if actions.kill_pod:
        step = Step(call=kill_everything(record, record.grace_seconds or _spec_grace(record)))
        if step.call is not None:
            if actions.sandbox_changed:
                message = "Pod sandbox changed, it will be killed and re-created."
                step.events.append(("Normal", "SandboxChanged", message, ""))
            return step
    if actions.create_sandbox:
        record.planned[SANDBOX] = actions.sandbox_attempt
        return Step(call=RunPodSandbox(uid=uid, attempt=actions.sandbox_attempt))
    for kill in actions.kill:
        if kill.restart:
            record.replacing[kill.instance.name] = kill.instance.id
        return Step(
            call=KillContainer(
                uid=uid,
                container=kill.instance.name,
                container_id=kill.instance.id,
                grace_seconds=max(_spec_grace(record) if kill.grace is None else kill.grace, MINIMUM_STOP_SECONDS),
            ),
            events=[("Normal", "Killing", kill.message, kill.instance.name)],
        )
    step = _start_containers(record, actions, world)
    if step.call is None:
        dead = _dead_instances(record, keep=1) or _dead_sandboxes(record, keep_newest=True)
        _remove_when_due(record, dead, step, world)
    return step


def _remove_when_due(record: PodRecord, dead: Call | None, step: Step, world: World) -> None:
    """Removing what is dead waits for itself after a failure, and holds nothing else up."""
    if dead is not None and record.removal_retry_at > world.now:
        step.wake_earlier(record.removal_retry_at)
    else:
        step.call = dead


def _start_containers(record: PodRecord, actions: PodActions, world: World) -> Step:
    """The first container that can go on does; one that must wait does not hold the others up."""
    step = Step()
    specs = {spec["name"]: spec for spec in record.containers}
    for name in actions.start:
        spec = specs[name]
        instances = record.instances_of(name)
        newest = instances[0] if instances else None
        adopted = newest if newest is not None and _can_be_started(record, spec, newest) else None
        retry_at = record.container_retry_at.get(name, 0.0)
        if adopted is not None:
            retry_at = record.start_retry_at.get(adopted.id, 0.0)
        if retry_at > world.now:
            step.wake_earlier(retry_at)
            continue
        if adopted is not None:
            record.starting[name] = adopted.id
            step.call = StartContainer(uid=record.uid, container=name, container_id=adopted.id, attempt=adopted.attempt)
            return step
        exited = newest_exited(instances)
        until = backoff_until(record, spec, exited, now=world.now, skew=world.skew)
        if until > world.now:
            _wait_for_crash_backoff(record, name, until, step)
            continue
        count_start(record, spec, exited, now=world.now, maximum=world.maximum_backoff, skew=world.skew)
        step.call = _image_or_create(record, spec, newest, step, world)
        if step.call is not None:
            return step
    return step


def _can_be_started(record: PodRecord, spec: dict[str, Any], newest: Container) -> bool:
    """Created by us, of this very spec, in the sandbox that stands: a crash came between create and start."""
    return (
        newest.state is ContainerState.CREATED
        and newest.sandbox_id == record.sandboxes[0].id
        and newest.spec_hash == container_hash(spec)
    )


def _wait_for_crash_backoff(record: PodRecord, name: str, until: float, step: Step) -> None:
    seconds = record.crash_backoff[name].seconds
    message = f"back-off {go_duration(seconds)} restarting failed container={name} pod={record.description}"
    step.reasons[name] = ("CrashLoopBackOff", message)
    event = f"Back-off restarting failed container {name} in pod {record.description}"
    step.events.append(("Warning", "BackOff", event, name))
    step.wake_earlier(until)


def _image_or_create(
    record: PodRecord, spec: dict[str, Any], newest: Container | None, step: Step, world: World
) -> Call | None:
    name, uid = spec["name"], record.uid
    try:
        image = with_default_tag(str(spec.get("image", "")))
    except InvalidImageNameError as error:
        step.reasons[name] = ("InvalidImageName", str(error))
        step.events += [("Warning", "InspectFailed", str(error), name), _error_event(name, "InvalidImageName")]
        return None
    found = record.images.get(name)
    sandbox = record.sandboxes[0]
    if found is not None:
        attempt = max(
            newest.restart_count + 1 if newest is not None else 0,
            record.attempts[name] + 1 if name in record.attempts else 0,
        )
        record.planned[name] = attempt
        return CreateContainer(
            uid=uid,
            container=name,
            attempt=attempt,
            sandbox_id=sandbox.id,
            sandbox_attempt=sandbox.attempt,
            image=found,
            pod_ips=sandbox.ips,
        )
    policy = pull_policy(spec)
    if policy != "Always" and name not in record.pulls:
        return InspectImage(uid=uid, container=name, image=image)
    if policy == "Never":
        message = f'Container image "{image}" is not present with pull policy of Never'
        step.reasons[name] = ("ErrImageNeverPull", message)
        step.events += [("Warning", "ErrImageNeverPull", message, name), _error_event(name, "ErrImageNeverPull")]
        record.pulls.discard(name)
        record.container_retry_at[name] = world.now + 10.0  # the image may be imported meanwhile; no event tells
        step.wake_earlier(record.container_retry_at[name])
        return None
    until = pull_waits_until(record, image)
    if until > world.now:
        shown_until = until - record.image_backoff[image].seconds / 2
        if world.now < shown_until and record.reasons.get(name, ("", ""))[0] == "ErrImagePull":
            step.wake_earlier(shown_until)  # like the kubelet: why it failed first, that it waits afterwards
            return None
        message = f'Back-off pulling image "{image}": {record.image_backoff[image].message}'
        step.reasons[name] = ("ImagePullBackOff", message)
        back_off = ("Normal", "BackOff", f'Back-off pulling image "{image}"', name)
        step.events += [back_off, _error_event(name, "ImagePullBackOff")]
        step.wake_earlier(until)
        return None
    step.events.append(("Normal", "Pulling", f'Pulling image "{image}"', name))
    return PullImage(uid=uid, container=name, image=image, sandbox_attempt=sandbox.attempt)


def _error_event(container: str, text: str) -> tuple[str, str, str, str]:
    return ("Warning", "Failed", f"Error: {text}", container)


def unmounted_volumes(record: PodRecord) -> tuple[str, ...]:
    """Wanted volumes that are not mounted (yet)."""
    mounted = record.volumes.volumes if record.volumes else {}
    return tuple(
        name
        for name in record.wanted_volumes()
        if name not in mounted or mounted[name].state is not VolumeState.MOUNTED
    )


def _spec_grace(record: PodRecord) -> int:
    return int(record.spec.get("terminationGracePeriodSeconds") or 0)


def kill_everything(record: PodRecord, grace: int) -> KillPod | None:
    """Stop what lives, then every sandbox we have not stopped ourselves: one whose pause process died still holds its
    network. None when nothing is left to stop."""
    alive = tuple((c.id, max(grace, MINIMUM_STOP_SECONDS)) for c in record.alive)
    standing = tuple(
        s.id for s in record.sandboxes if s.state is SandboxState.READY or s.id not in record.stopped_sandboxes
    )
    if not alive and not standing:
        return None
    return KillPod(uid=record.uid, containers=alive, sandboxes=standing)


def _terminating(record: PodRecord, world: World) -> Step:
    call = kill_everything(record, stop_seconds(record, world.now))
    if call is None:
        return Step(done=True)
    events = [
        ("Normal", "Killing", f"Stopping container {c.name}", c.name)
        for c in record.alive
        if any(spec["name"] == c.name for spec in record.containers)
    ]
    return Step(call=call, events=events)


def _terminated(record: PodRecord, world: World) -> Step:
    """Volumes are gone, then the cgroup: then the pod is finished."""
    if record.volumes is not None and record.volumes.volumes:
        return Step(waits_for="volumes to be unmounted")
    if not world.volumes_known and record.spec.get("volumes"):
        return Step(waits_for="news of the pod's volumes")
    if not record.released:
        return Step(call=ReleasePod(uid=record.uid))
    return Step(done=True)


def _collect(record: PodRecord, world: World) -> Step:
    """A finished pod nobody wants: its dead containers go at once, sandbox and logs within the kubelet's minute."""
    dead = _dead_instances(record, keep=0)
    if dead is not None:
        step = Step()
        _remove_when_due(record, dead, step, world)
        return step
    due = record.finished_at + GARBAGE_AFTER_SECONDS
    if due > world.now and not record.restart_requested and record.sandboxes:
        return Step(wake_at=due, waits_for="garbage collection")
    sandboxes = _dead_sandboxes(record, keep_newest=False)
    if sandboxes is not None:
        step = Step()
        _remove_when_due(record, sandboxes, step, world)
        return step
    if not record.logs_removed:
        return Step(call=RemovePodLogs(uid=record.uid, name=record.name, namespace=record.namespace))
    if world.still_listed and not record.restart_requested:
        return Step(waits_for="the API object to be deleted")
    return Step(done=True)


def _dead_instances(record: PodRecord, *, keep: int) -> RemoveContainers | None:
    """Exited instances beyond the `keep` newest of each container, and created ones that were overtaken."""
    dead = [(c.id, c.name, c.log_path) for c in record.interrupted]
    for name in dict.fromkeys(c.name for c in record.instances):
        instances = record.instances_of(name)
        exited = [c for c in instances if c.state is ContainerState.EXITED]
        overtaken = [c for c in instances[(1 if keep else 0) :] if c.state is ContainerState.CREATED]
        dead += [(c.id, c.name, c.log_path) for c in [*exited[keep:], *overtaken]]
    return RemoveContainers(uid=record.uid, containers=tuple(dead)) if dead else None


def _dead_sandboxes(record: PodRecord, *, keep_newest: bool) -> RemoveSandboxes | None:
    """Sandboxes that are stopped and hold no container."""
    used = {c.sandbox_id for c in record.instances}
    candidates = record.sandboxes[1:] if keep_newest else record.sandboxes
    dead = tuple(s.id for s in candidates if s.state is SandboxState.NOTREADY and s.id not in used)
    return RemoveSandboxes(uid=record.uid, sandboxes=dead) if dead else None
