"""Computes the API statuses of a pod's containers from the runtime's instances and the earlier statuses (pods.md 9.2).
Every container of the spec has one, from the first status on. Knows nothing of phases and conditions.
"""

from typing import Any

from msgspec import Struct

from bus.messages.podsync import PodState
from services.podsync.core.placement.reported_devices import Reported
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.status.claim_health import with_claim_health
from services.podsync.core.status.container_facts import ContainerFacts, container_facts, shown_resources
from services.podsync.core.status.container_state import (
    DELETED,
    MAX_POD_MESSAGE_BYTES,
    RESTARTING_ALL_MESSAGE,
    RESTARTING_ALL_REASON,
    TERMINATED,
    UNKNOWN_REASON,
    api_state,
    assumed_completion,
    keep_message,
    lost,
    restarting_all_end,
    with_cut_messages,
)
from services.podsync.core.status.device_status import with_device_status
from services.podsync.core.sync.post_start import start_under_way
from services.podsync.core.sync.restart import should_restart
from services.podsync.core.sync.restart_rules import restarts_after
from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState
from shared.podspec.containers import ContainerKind, init_kind

Json = dict[str, Any]


class ContainerStatuses(Struct, frozen=True, kw_only=True):
    """Has the statuses: init containers and sidecars in the order of the spec; regular and ephemeral ones by name."""

    init: tuple[Json, ...] = ()
    regular: tuple[Json, ...] = ()
    ephemeral: tuple[Json, ...] = ()

    def written(self) -> Json:
        """Return the fields of the pod's status; there is no list for a kind without containers."""
        lists = {
            "containerStatuses": self.regular,
            "initContainerStatuses": self.init,
            "ephemeralContainerStatuses": self.ephemeral,
        }
        return {name: list(statuses) for name, statuses in lists.items() if statuses}


def container_statuses(
    tracked: TrackedPod,
    runtime_name: str,
    *,
    recursive: bool = False,
    devices: Reported | None = None,
    messages: bool = True,
) -> ContainerStatuses:
    """Return one status for each container of the spec. `recursive`: the runtime makes read-only mounts recursive.
    `devices`: what device plugins report, None = statuses do not show the health of devices; `messages`: they show
    what drivers of resource claims say about it."""
    inits, regulars, ephemerals = tracked.init_containers, tracked.containers, tracked.ephemeral_containers
    waiting = "PodInitializing" if inits else "ContainerCreating"
    limit = MAX_POD_MESSAGE_BYTES // (len(inits) + len(regulars) + len(ephemerals) or 1)
    facts = container_facts(tracked)

    def build(spec: Json, kind: ContainerKind, before: dict[str, Json]) -> Json:
        name = spec["name"]
        builder = _StatusBuilder(
            tracked=tracked,
            spec=spec,
            kind=kind,
            facts=facts[name],
            before=before.get(name),
            waiting=waiting,
            runtime_name=runtime_name,
            recursive=recursive,
            devices=devices,
            messages=messages,
        )
        return with_cut_messages(builder.status(), limit)

    before = _before(tracked, "containerStatuses")
    regular = sorted((build(spec, ContainerKind.REGULAR, before) for spec in regulars), key=_name)
    if not inits and not ephemerals:
        return ContainerStatuses(regular=tuple(regular))
    before = _before(tracked, "initContainerStatuses")
    init = [build(spec, init_kind(spec), before) for spec in inits]
    before = _before(tracked, "ephemeralContainerStatuses")
    ephemeral = sorted((build(spec, ContainerKind.EPHEMERAL, before) for spec in ephemerals), key=_name)
    return ContainerStatuses(init=tuple(init), regular=tuple(regular), ephemeral=tuple(ephemeral))


def has_regular_instance(tracked: TrackedPod) -> bool:
    """Return whether the current sandbox has an instance of a regular container, in any state."""
    if not tracked.sandboxes:
        return False
    names, newest = {spec["name"] for spec in tracked.containers}, tracked.sandboxes[0].id
    return any(c.sandbox_id == newest and c.name in names for c in tracked.instances)


def _has_known_regular_instance(tracked: TrackedPod) -> bool:
    """Return whether the newest instance of a regular container is in the current sandbox, with a known state."""
    newest = [next(iter(tracked.instances_of(str(spec["name"]))), None) for spec in tracked.containers]
    sandbox = tracked.sandboxes[0].id if tracked.sandboxes else ""
    return any(c is not None and c.sandbox_id == sandbox and c.state is not ContainerState.UNKNOWN for c in newest)


def _before(tracked: TrackedPod, field: str) -> dict[str, Json]:
    return {status["name"]: status for status in tracked.status.get(field) or ()}


def _name(status: Json) -> str:
    return str(status["name"])


class _StatusBuilder(Struct, frozen=True):
    """Computes the status of one container."""

    tracked: TrackedPod
    spec: Json
    kind: ContainerKind
    facts: ContainerFacts
    before: Json | None
    waiting: str  # the reason while it has not been started
    runtime_name: str
    recursive: bool  # whether read-only mounts are recursive where possible
    devices: Reported | None  # by device plugins; None = no health of devices is shown
    messages: bool  # of drivers of resource claims about the health, are shown

    def status(self) -> Json:
        """Return the status as it is to be shown now."""
        if self.devices is None or self.kind is not ContainerKind.REGULAR:
            return self._without_devices()
        status, before = self._without_devices(), self.before or {}
        # A pod that has ended keeps what was shown: its devices may be those of another pod now.
        is_over = self.tracked.saved.state in (PodState.TERMINATED, PodState.FINISHED)
        given = self.tracked.saved.placement.containers.get(str(self.spec["name"]))
        if given is not None and given.devices:
            status = with_device_status(status, before, given.devices, {} if is_over else self.devices)
        claims = None if is_over else self.tracked.claims
        return with_claim_health(status, before, self.spec, claims, messages=self.messages)

    def _without_devices(self) -> Json:
        instances = self.tracked.instances_of(self.spec["name"])
        newest = instances[0] if instances else None
        if newest is not None and start_under_way(self.tracked, newest):
            return self._with_waiting_reason(newest, self._before_start(newest, instances[1:]))
        return self._with_waiting_reason(newest, self._of_instances(instances))

    def _of_instances(self, instances: list[Container]) -> Json:
        return self._seen(instances[0], instances) if instances else self._vanished()

    def _before_start(self, starting: Container, earlier: list[Container]) -> Json:
        """Return the status from before this instance was created, until its start is over. Where that shows an earlier
        instance as running, which has ended since, compute it again."""
        before = self.before or {}
        shown_running = "running" in (before.get("state") or {})
        if before and (not shown_running or before.get("containerID") == f"{self.runtime_name}://{starting.id}"):
            return dict(before)
        return self._of_instances(earlier)

    def _base(self) -> Json:
        """Return the status of a container that waits for its start, with its earlier state."""
        before = self.before or {}
        status: Json = {
            "name": self.spec["name"],
            "image": self.spec.get("image", ""),
            "imageID": "",
            "state": {"waiting": {"reason": self.waiting}},
            "lastState": before.get("lastState") or {},
            "ready": False,
            "restartCount": before.get("restartCount", 0),
        }
        if self.kind is not ContainerKind.EPHEMERAL:
            status["started"] = False
        if self.facts.mounts:
            status["volumeMounts"] = self.facts.recursive_mounts if self.recursive else self.facts.mounts
        return status

    def _vanished(self) -> Json:
        """Return the status of a container without an instance: it never started, or its instances were removed."""
        tracked, before = self.tracked, self.before
        state = (before or {}).get("state") or {}
        if before is not None and not tracked.observed.is_current:
            return dict(before)  # after a restart nothing new is known before the first list
        if before is not None and tracked.saved.restarting_all and before.get("containerID"):
            return self._purged(before)
        if before is not None and "terminated" in state:
            return before | {"ready": self._ready_by_end(state)}
        status = self._base()
        if "running" in state and "terminated" not in status["lastState"]:
            status["lastState"] = {"terminated": lost(DELETED)}
            if not tracked.saved.deleted:
                status["restartCount"] += 1
        elif tracked.saved.restarting_all and (state.get("waiting") or {}).get("reason") == RESTARTING_ALL_REASON:
            status["state"] = state
        if (
            self.kind is ContainerKind.INIT
            and not tracked.saved.restarting_all
            and _has_known_regular_instance(tracked)
        ):
            status["state"] = {"terminated": assumed_completion()}
            status["ready"] = True
        return status

    def _purged(self, before: Json) -> Json:
        """Return the status of a container that RestartAllContainers removed (pods.md 5.7), and count its restart."""
        waiting = {"reason": RESTARTING_ALL_REASON, "message": RESTARTING_ALL_MESSAGE}
        return self._base() | {
            "state": {"waiting": waiting},
            "lastState": {"terminated": restarting_all_end()},
            "restartCount": before.get("restartCount", 0) + 1,
        }

    def _seen(self, newest: Container, instances: list[Container]) -> Json:
        before = self.before or {}
        earlier = before.get("state") or {}
        container_id = f"{self.runtime_name}://{newest.id}"
        same_instance = before.get("containerID") == container_id
        state = api_state(newest, self.runtime_name)
        count = max(newest.restart_count, before.get("restartCount", 0))
        if newest.state in (ContainerState.CREATED, ContainerState.RUNNING) and "terminated" in earlier:
            # Even where the runtime has no earlier attempt.
            count = max(newest.restart_count, before.get("restartCount", 0) + 1)
        if newest.state is ContainerState.CREATED:
            state = self._waiting_to_run(earlier)
        if newest.state is ContainerState.UNKNOWN:
            if "running" in earlier:
                state, count = {"terminated": lost(TERMINATED)}, before.get("restartCount", 0) + 1
            elif same_instance and (earlier.get("terminated") or {}).get("reason") == UNKNOWN_REASON:
                state = earlier  # the end was shown already, and no more is known now
        last = before.get("lastState") or {}
        keep_message(state, earlier)
        keep_message(state, last)  # of the last end, while the container waits for a restart
        status = self._base() | {
            "state": state,
            "image": newest.image or self.spec.get("image", ""),
            "imageID": newest.image_id,
            "containerID": container_id,
            "restartCount": count,
            "resources": self._resources(newest),
        }
        if self.facts.allocated:
            status["allocatedResources"] = self.facts.allocated
        if newest.user is not None:
            uid, gid, groups = newest.user
            status["user"] = {"linux": {"uid": uid, "gid": gid, "supplementalGroups": list(groups)}}
        self._show_last(status, instances, same_instance=same_instance)
        if self.kind is ContainerKind.EPHEMERAL:
            return status
        started, ready = self._probed(newest, before if same_instance else {})
        return status | {"ready": ready or self._ready_by_end(status["state"]), "started": started}

    def _waiting_to_run(self, earlier: Json) -> Json:
        """Return the state of an instance that is created and not started, with the reason that it had before."""
        waiting = earlier.get("waiting") or {}
        return {"waiting": waiting if waiting.get("reason") else {"reason": self.waiting}}

    def _resources(self, newest: Container) -> Json:
        """Return the actuated resources of a running instance, and the allocated ones of any other."""
        actuated = self.tracked.saved.actuated.get(newest.name)
        if actuated is None or newest.state is not ContainerState.RUNNING:
            return self.facts.resources
        return shown_resources({"resources": actuated})

    def _show_last(self, status: Json, instances: list[Container], *, same_instance: bool) -> None:
        before = self.before or {}
        earlier = before.get("state") or {}
        if len(instances) > 1 and instances[1].state is ContainerState.EXITED:
            status["lastState"] = api_state(instances[1], self.runtime_name)
            keep_message(status["lastState"], earlier)
            keep_message(status["lastState"], before.get("lastState") or {})
        elif not same_instance and "terminated" in earlier:
            status["lastState"] = {"terminated": earlier["terminated"]}
        if self._leaves_an_end(status["state"], instances[0]):
            status |= {"lastState": status["state"], "state": {"waiting": {"reason": self.waiting}}}

    def _leaves_an_end(self, state: Json, newest: Container) -> bool:
        """Return whether we ended the instance so that another one starts, although the policy allows no restart: the
        end must not be shown, because such a container may never leave it (pods.md 9.5)."""
        if "terminated" not in state or self.tracked.saved.container(self.spec["name"]).replacing != newest.id:
            return False
        return not restarts_after(self.tracked, self.spec, newest.exit_code)

    def _ready_by_end(self, state: Json) -> bool:
        """Return whether the container is a plain init container that has succeeded, and is ready therefore."""
        ended: Json = state.get("terminated") or {"exitCode": 1}
        return self.kind is ContainerKind.INIT and ended["exitCode"] == 0

    def _probed(self, instance: Container, before: Json) -> tuple[bool, bool]:
        """Return (started, ready) of the instance (pods.md 9.2, 10.2). Without a probe result, the last
        published values of the same instance stay valid, so that a restart of podsync or pleg changes no status."""
        if instance.state is not ContainerState.RUNNING:
            return False, False
        if self.kind is ContainerKind.INIT:
            return True, False
        results = self.tracked.probes_of(instance.id)
        started = not self.spec.get("startupProbe")
        if not started:
            result = results.startup if results is not None else ProbeResult.NONE
            started = result == ProbeResult.SUCCESS or (result == ProbeResult.NONE and bool(before.get("started")))
        if not self.spec.get("readinessProbe") or not started:
            return started, started
        result = results.readiness if results is not None else ProbeResult.NONE
        return started, result == ProbeResult.SUCCESS or (result == ProbeResult.NONE and bool(before.get("ready")))

    def _with_waiting_reason(self, newest: Container | None, status: Json) -> Json:
        """Show why a container that should run is not started; its state moves to lastState (pods.md 7.1)."""
        reason = self.tracked.progress(self.spec["name"]).reason
        if reason is None or "running" in status["state"] or not self._should_start(newest):
            return status
        waiting = {"reason": reason[0]}
        if reason[1]:
            waiting["message"] = reason[1]
        last = status["state"] if "terminated" in status["state"] else status["lastState"]
        shown = status | {"state": {"waiting": waiting}, "lastState": last, "ready": False}
        return shown if self.kind is ContainerKind.EPHEMERAL else shown | {"started": False}

    def _should_start(self, newest: Container | None) -> bool:
        if self.kind is ContainerKind.EPHEMERAL:
            return newest is None or newest.started_at == 0  # an ephemeral container has one start
        return should_restart(self.tracked, self.spec, newest)
