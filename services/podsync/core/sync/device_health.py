"""Decides what follows when the plugin of a device, or the driver of a resource claim, reports it as unhealthy: an
event, and by the node's configuration or the pod's annotation a restart of the container or the end of the pod.

Each change is acted on once: the devices that are reported are saved together with what follows from them. A plugin
that is not connected reports nothing, and one that leaves a device out of its list does not say that it is unhealthy.
"""

from collections.abc import Mapping

from msgspec import Struct

from bus.messages.podsync import PodState
from services.podsync.core.placement.reported_devices import Reported
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.device_need import shortened
from services.podsync.core.pod.saved import with_container
from services.podsync.core.pod.step import Step
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.container_kill import ContainerKill
from services.podsync.core.sync.reported_health import ReportedHealth, describe_reported, reported_health
from services.podsync.core.sync.restart_rules import restart_policy
from services.podsync.core.sync.stopping import kill_one
from shared.model.device_action import DEVICE_ACTION_ANNOTATION, DeviceAction
from shared.model.frozen_copy import replace
from shared.model.objects import annotations
from shared.model.runtime import Container, ContainerState
from shared.podspec.containers import ContainerKind

DEVICE_UNHEALTHY, DEVICE_HEALTHY = (
    "DeviceUnhealthy",
    "DeviceHealthy",
)  # reasons of events, the first also of a pod's end
_MAX_SHOWN_CHARACTERS = 64  # of an annotation that is not understood


class _Health(Struct, frozen=True):
    """Has the unhealthy devices of one container, by their names in `ReportedHealth`, and those that have changed."""

    unhealthy: frozenset[str]
    failed: tuple[str, ...]
    recovered: tuple[str, ...]


def follow_device_health(tracked: TrackedPod, reported: Reported, node_action: DeviceAction, now: float) -> TrackedPod:
    """Return the pod with the health of its devices as it is reported now, and with what follows from a device that has
    become unhealthy. `reported`: by device plugins; `node_action`: what the node does where the pod says nothing. The
    pod stays as it is until this process has listed it in the runtime, because only a container that runs can be
    restarted."""
    given = tracked.saved.placement.containers
    with_devices = dict.fromkeys(name for name, placed in given.items() if placed.devices)
    if tracked.claims is not None:
        with_devices |= dict.fromkeys(tracked.version.containers)
    if not with_devices or not _is_followed(tracked):
        return tracked
    failed: dict[str, tuple[str, ...]] = {}  # container -> devices
    messages: dict[str, str] = {}
    action, doubt = _action(tracked, node_action)
    for name in with_devices:
        if not _may_use_devices(tracked, name):
            continue
        saved, now_reported = tracked.saved.container(name), reported_health(tracked, name, reported)
        health = _compare(saved.unhealthy_devices, now_reported)
        messages |= now_reported.messages
        if health.failed:
            failed[name] = health.failed
            what = describe_reported(health.failed, "unhealthy", messages)
            text = f"{what}{_consequence(tracked, name, action)}{doubt}"
            tracked = tracked.with_event("Warning", DEVICE_UNHEALTHY, text, name)
        if health.recovered:
            text = describe_reported(health.recovered, "healthy again", messages)
            tracked = tracked.with_event("Normal", DEVICE_HEALTHY, text, name)
        if health.failed or health.recovered:
            saved = replace(saved, unhealthy_devices="\n".join(sorted(health.unhealthy)))
            running = _running(tracked, name)
            if health.failed and running is not None and action is DeviceAction.RESTART_CONTAINER:
                saved = replace(saved, device_failed=running.id)
            tracked = replace(tracked, saved=with_container(tracked.saved, name, saved))
    return _fail(tracked, failed, messages, now) if failed and action is DeviceAction.FAIL_POD else tracked


def stop_after_device_failure(tracked: TrackedPod) -> Step:
    """Return the step that stops a container because a device of it became unhealthy; it starts again unless its
    restart policy is Never. The step has no call where there is none to stop."""
    running = {c.id: c for c in tracked.instances if c.state is ContainerState.RUNNING}
    for name, saved in tracked.saved.containers.items():
        if not saved.device_failed:
            continue
        instance, entry = running.get(saved.device_failed), tracked.container(name)
        if instance is None or entry is None:
            tracked = replace(tracked, saved=with_container(tracked.saved, name, replace(saved, device_failed="")))
            continue
        restart = restart_policy(tracked, entry[1]) != "Never"
        message = f"A device of container {name} is unhealthy{', will be restarted' if restart else ''}"
        return kill_one(tracked, ContainerKill(instance=instance, message=message, restart=restart))
    return Step(tracked=tracked)


def _is_followed(tracked: TrackedPod) -> bool:
    saved = tracked.saved
    is_running = saved.state is PodState.SYNC and saved.admission_decided and not saved.rejected
    is_running = is_running and saved.shutdown is None
    return is_running and tracked.observed.since_start and not lifecycle.has_ended(tracked)


def _may_use_devices(tracked: TrackedPod, name: str) -> bool:
    """Return whether the container uses its devices or may do so later. A plain init container that does not run leaves
    them to the others."""
    entry = tracked.container(name)
    if entry is None:
        return False
    return entry[0] is not ContainerKind.INIT or _running(tracked, name) is not None


def _running(tracked: TrackedPod, name: str) -> Container | None:
    newest = next(iter(tracked.instances_of(name)), None)
    return newest if newest is not None and newest.state is ContainerState.RUNNING else None


def _compare(known: str, reported: ReportedHealth) -> _Health:
    before = frozenset(known.splitlines())
    healthy = {device for device, is_healthy in reported.healthy.items() if is_healthy}
    unhealthy = reported.healthy.keys() - healthy
    return _Health(
        unhealthy=(before | unhealthy) - healthy,
        failed=tuple(sorted(unhealthy - before)),
        recovered=tuple(sorted(before & healthy)),
    )


def _action(tracked: TrackedPod, node_action: DeviceAction) -> tuple[DeviceAction, str]:
    """Return the action, and what an event says of an annotation that is not understood. A static pod has no owner that
    replaces it: its container is restarted."""
    action, doubt = node_action, ""
    wanted = annotations(tracked.saved.pod).get(DEVICE_ACTION_ANNOTATION)
    if wanted is not None:
        try:
            action = DeviceAction(wanted)
        except ValueError:
            shown = str(wanted)[:_MAX_SHOWN_CHARACTERS]
            doubt = (
                f" (the annotation {DEVICE_ACTION_ANNOTATION} is {shown!r}, and not one of {', '.join(DeviceAction)}: "
                "the node's action counts)"
            )
    if action is DeviceAction.FAIL_POD and tracked.is_static:
        action = DeviceAction.RESTART_CONTAINER
    return action, doubt


def _consequence(tracked: TrackedPod, name: str, action: DeviceAction) -> str:
    if action is DeviceAction.FAIL_POD:
        return "; the pod is ended as failed"
    if action is DeviceAction.RESTART_CONTAINER and _running(tracked, name) is not None:
        return "; the container is stopped"
    return ""


def _fail(
    tracked: TrackedPod, failed: Mapping[str, tuple[str, ...]], messages: Mapping[str, str], now: float
) -> TrackedPod:
    devices = tuple(dict.fromkeys(device for of_container in failed.values() for device in of_container))
    what = describe_reported(devices, "unhealthy", messages)
    message = f"{what}, which container {shortened(tuple(failed))} has"
    ending = {"reason": DEVICE_UNHEALTHY, "message": message, "disruption": message}
    tracked = replace(tracked, saved=replace(tracked.saved, ending=ending))
    return lifecycle.with_termination(tracked, reason="a device of the pod is unhealthy", now=now)
