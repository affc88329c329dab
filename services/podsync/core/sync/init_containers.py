"""Decides which init container or sidecar starts next, runs again, or is killed (pods.md 5.4).
Examines them from the last to the first: a container that has started shows that all before it have completed once.
Decides nothing about back-off or images.
"""

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.container_kill import ContainerKill, failed_probe, probe_grace
from services.podsync.core.sync.resizing import restarts_for_resize
from services.podsync.core.sync.restart import has_initialized, init_failed
from services.podsync.core.sync.restart_rules import restart_policy, restarts_failed
from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState
from shared.podspec.containers import ContainerKind, init_kind
from shared.podspec.earlier_hash import is_hash_of


class InitActions(Struct, frozen=True, kw_only=True):
    """Has what to do. `initialized`: the regular containers may run; `failed`: they never will."""

    initialized: bool = True
    failed: bool = False
    start: tuple[str, ...] = ()  # container names, spec order
    kill: tuple[ContainerKill, ...] = ()


@dataclass(kw_only=True)
class _Scan:
    """Has the results of the containers examined so far, from the last init container to the first."""

    initialized: bool
    begun: bool  # whether a later container has an instance, so that the next one examined has completed once
    failed: bool = False
    start: list[int] = field(default_factory=list)
    kill: list[ContainerKill] = field(default_factory=list)


def compute_init_actions(tracked: TrackedPod) -> InitActions:
    """Return what to kill and start so that the init containers have their spec, in the current sandbox."""
    specs = tracked.init_containers
    initialized = has_initialized(tracked)
    scan = _Scan(initialized=initialized, begun=initialized)
    for index in range(len(specs) - 1, -1, -1):
        spec = specs[index]
        sidecar = init_kind(spec) is ContainerKind.SIDECAR
        newest = next(iter(tracked.instances_of(str(spec["name"]))), None)
        if newest is None:
            if scan.begun and sidecar:
                scan.start.append(index)
            continue
        if sidecar:
            _examine_sidecar(tracked, scan, index, newest)
        elif not scan.begun:
            _examine_plain(tracked, scan, index, newest)
            if scan.failed:
                return InitActions(initialized=False, failed=True)
        scan.begun = True
    if specs and not scan.begun:
        scan.start.append(0)
    names = [str(specs[index]["name"]) for index in sorted(set(scan.start))]
    return InitActions(initialized=scan.initialized, start=tuple(names), kill=tuple(reversed(scan.kill)))


def _start_after(tracked: TrackedPod, scan: _Scan, index: int) -> None:
    """Start the container after this one, which has completed, or note that all have."""
    if index == len(tracked.init_containers) - 1:
        scan.initialized = True
    elif not scan.begun:
        scan.start.append(index + 1)


def _examine_plain(tracked: TrackedPod, scan: _Scan, index: int, newest: Container) -> None:
    spec = tracked.init_containers[index]
    match newest.state:
        case ContainerState.CREATED:
            scan.start.append(index)
        case ContainerState.EXITED if tracked.saved.container(newest.name).replacing == newest.id:
            scan.start.append(index)
        case ContainerState.EXITED if not init_failed(newest):
            _start_after(tracked, scan, index)
        case ContainerState.EXITED if restarts_failed(tracked, spec, newest.exit_code):
            scan.start.append(index)
        case ContainerState.EXITED:
            scan.failed = True
        case ContainerState.UNKNOWN if restart_policy(tracked, spec) == "Never":
            scan.failed = True
        case ContainerState.UNKNOWN:
            _replace(scan, index, newest, 'Init container is in "unknown" state, try killing it before restart')
        case ContainerState.RUNNING:
            _replace_for_resize(tracked, scan, index, newest)


def _examine_sidecar(tracked: TrackedPod, scan: _Scan, index: int, newest: Container) -> None:
    spec = tracked.init_containers[index]
    name = str(spec["name"])
    match newest.state:
        case ContainerState.CREATED | ContainerState.EXITED:
            scan.start.append(index)
        case ContainerState.UNKNOWN:
            _replace(scan, index, newest, 'Init container is in "unknown" state, try killing it before restart')
        case ContainerState.RUNNING if not _has_started(tracked, spec, newest):
            results = tracked.probes_of(newest.id)
            if results is not None and results.startup == ProbeResult.FAILURE:
                message = f"Init container {name} failed startup probe"
                _replace(scan, index, newest, message, probe_grace(spec, "startup"))
        case ContainerState.RUNNING:
            _start_after(tracked, scan, index)
            if not is_hash_of(spec, newest.spec_hash):
                _replace(scan, index, newest, f"Init container {name} definition changed")
            elif failed_probe(tracked, newest, ("liveness",)):
                message = f"Init container {name} failed liveness probe"
                _replace(scan, index, newest, message, probe_grace(spec, "liveness"))
            else:
                _replace_for_resize(tracked, scan, index, newest)


def _replace_for_resize(tracked: TrackedPod, scan: _Scan, index: int, instance: Container) -> None:
    if restarts_for_resize(tracked, tracked.init_containers[index], instance):
        _replace(scan, index, instance, f"Container {instance.name} resize requires restart")


def _replace(scan: _Scan, index: int, instance: Container, message: str, grace: int | None = None) -> None:
    scan.kill.append(ContainerKill(instance=instance, message=message, grace=grace))
    scan.start.append(index)


def _has_started(tracked: TrackedPod, spec: dict[str, Any], instance: Container) -> bool:
    """Return whether the startup probe succeeded. Without a result, after a restart of pleg or podsync, the published
    status of this instance counts."""
    if not spec.get("startupProbe"):
        return True
    results = tracked.probes_of(instance.id)
    if results is not None and results.startup:
        return results.startup == ProbeResult.SUCCESS
    shown = (s for s in tracked.status.get("initContainerStatuses") or () if s.get("name") == instance.name)
    return any(s.get("started") and str(s.get("containerID", "")).endswith(f"//{instance.id}") for s in shown)
