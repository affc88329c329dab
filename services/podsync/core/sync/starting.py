"""Decides which container of a pod starts next, and the next call for it: hook, back-off, image, create, start
(pods.md 5.5, 7.2, 8.4).
`kills_and_starts` decides which containers start, and their order.
"""

from typing import Any

from services.podsync.core.images.image_steps import error_event, find_image, need_of_container, next_volume_image
from services.podsync.core.pod.instructions import Call, CreateContainer, RunPostStartHook, StartContainer
from services.podsync.core.pod.observed_in_runtime import start_mark
from services.podsync.core.pod.pod_addresses import pod_ips
from services.podsync.core.pod.saved import with_container, without
from services.podsync.core.pod.step import WAITS_FOR_CPUS, Step, StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.cpu_sets import waits_for_cpus
from services.podsync.core.sync.crash_backoff import backoff_until, count_start
from services.podsync.core.sync.kills_and_starts import PodActions
from services.podsync.core.sync.post_start import with_start_over
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState
from shared.podspec.containers import ContainerKind
from shared.podspec.hashing import container_hash
from shared.time.timestamps import go_duration


def run_owed_hook(tracked: TrackedPod) -> Step:
    """Return the step that runs the postStart hook of a running container, which ends its start: nothing else starts
    before. A step without a call = no hook is owed."""
    alive = {c.id: c for c in tracked.instances if c.state in (ContainerState.RUNNING, ContainerState.CREATED)}
    for name, container in tracked.saved.containers.items():
        owed = container.hook_owed
        if owed and owed not in alive:
            tracked = with_start_over(tracked, name)
        elif owed and alive[owed].state is ContainerState.RUNNING:
            return Step(tracked=tracked, call=RunPostStartHook(uid=tracked.uid, container=name, container_id=owed))
    return Step(tracked=tracked)


def start_containers(tracked: TrackedPod, actions: PodActions, inputs: StepInputs) -> Step:
    """Return the step with the first container that does not wait. One that waits delays no others, except an init
    container, which delays all after it."""
    step = Step(tracked=tracked)
    if actions.start:
        step.call = next_volume_image(step, inputs)
    for name in actions.start:
        if step.call is not None:
            break
        entry = tracked.container(name)
        if entry is None:
            continue
        kind, spec = entry
        step.call = _start(step, kind, spec, inputs)
        if kind is ContainerKind.INIT:
            break
    if step.call is not None:
        step.waits_for = ""
    return step


def _start(step: Step, kind: ContainerKind, spec: dict[str, Any], inputs: StepInputs) -> Call | None:
    """Return the next call to start this container; None = it waits. Changes of the pod, events and waits are put
    into the step."""
    tracked, name = step.tracked, str(spec["name"])
    instances = tracked.instances_of(name)
    newest = instances[0] if instances else None
    adopted = newest if newest is not None and _can_be_started(tracked, spec, newest) else None
    progress = tracked.progress(name)
    retry_at = progress.retry_at
    if adopted is not None:
        retry_at = tracked.retry.starts.get(adopted.id, 0.0)
    if retry_at > inputs.now:
        step.wake_earlier(retry_at)
        return None
    if adopted is not None:
        if waits_for_cpus(tracked, adopted, inputs):
            step.waits_for = WAITS_FOR_CPUS
            return None
        return _start_created(step, spec, adopted)
    step.tracked, until = backoff_until(tracked, spec, instances, now=inputs.now, skew=inputs.skew)
    if until > inputs.now:
        _wait_for_crash_backoff(step, name, until)
        return None
    step.tracked = count_start(step.tracked, spec, instances, now=inputs.now, maximum=inputs.maximum_backoff)
    if progress.image is None:
        return find_image(step, need_of_container(spec), inputs)
    return _create(step, kind, spec, newest, progress.image, inputs)


def _can_be_started(tracked: TrackedPod, spec: dict[str, Any], newest: Container) -> bool:
    """Return whether the instance was created from this spec in the current sandbox and is not started, as after a kill
    between create and start."""
    return (
        newest.state is ContainerState.CREATED
        and newest.sandbox_id == tracked.sandboxes[0].id
        and newest.spec_hash == container_hash(spec)
    )


def _start_created(step: Step, spec: dict[str, Any], created: Container) -> StartContainer:
    """Return the start of a created container. The pod has the start and its hook, so that a later process that
    finds the container running runs the hook."""
    name, tracked = created.name, step.tracked
    container = tracked.saved.container(name)
    if container.starting != start_mark(created.restart_count):
        container = replace(container, starting=created.id)
    if (spec.get("lifecycle") or {}).get("postStart"):
        container = replace(container, hook_owed=created.id)
    step.tracked = replace(tracked, saved=with_container(tracked.saved, name, container))
    return StartContainer(uid=tracked.uid, container=name, container_id=created.id, attempt=created.attempt)


def _wait_for_crash_backoff(step: Step, name: str, until: float) -> None:
    tracked = step.tracked
    back_off = tracked.saved.container(name).crash_backoff
    seconds = back_off.seconds if back_off else 0.0
    message = f"back-off {go_duration(seconds)} restarting failed container={name} pod={tracked.description}"
    step.reasons[name] = ("CrashLoopBackOff", message)
    event = f"Back-off restarting failed container {name} in pod {tracked.description}"
    step.events.append(("Warning", "BackOff", event, name))
    step.wake_earlier(until)


def _create(
    step: Step,
    kind: ContainerKind,
    spec: dict[str, Any],
    newest: Container | None,
    image: ImageStatus,
    inputs: StepInputs,
) -> Call | None:
    tracked, name = step.tracked, str(spec["name"])
    sandbox = tracked.sandboxes[0]
    mounted = dict.fromkeys(str(m.get("name")) for m in spec.get("volumeMounts") or ())
    for volume in mounted:
        progress = tracked.progress("", volume)
        if progress.image is None and progress.reason is not None:
            step.reasons[name] = progress.reason
            step.events.append(error_event(name, progress.reason[0]))
            return None
    attempt = max(
        newest.restart_count + 1 if newest is not None else 0,
        tracked.attempts.containers[name] + 1 if name in tracked.attempts.containers else 0,
    )
    container = replace(tracked.saved.container(name), starting=start_mark(attempt))
    saved = with_container(tracked.saved, name, container)
    if name in saved.actuated:  # the new instance gets what is allocated
        saved = replace(saved, actuated=without(saved.actuated, name))
    step.tracked = replace(tracked, saved=saved)
    images = ((volume, tracked.progress("", volume).image) for volume in mounted)
    return CreateContainer(
        uid=tracked.uid,
        container=name,
        attempt=attempt,
        spec_hash=container_hash(spec),
        sandbox_id=sandbox.id,
        sandbox_attempt=sandbox.attempt,
        image=image,
        pod_ips=tuple(pod_ips(tracked, inputs.node_ips)),
        image_volumes=tuple((volume, status.id) for volume, status in images if status is not None),
        target_id=_target(tracked, spec) if kind is ContainerKind.EPHEMERAL else "",
    )


def _target(tracked: TrackedPod, spec: dict[str, Any]) -> str:
    """Return the id of the newest instance of the container that an ephemeral one targets; "" = it has no target, or
    the target has no instance."""
    name = str(spec.get("targetContainerName") or "")
    newest = next(iter(tracked.instances_of(name)), None) if name else None
    return newest.id if newest is not None else ""
