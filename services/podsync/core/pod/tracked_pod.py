"""Has one pod in memory, as podsync tracks it: `saved` and `attempts` are on disk, too (with the status, in the form of
`saved_format`); `observed` comes from the runtime, `api_status` and `volumes` from other processes; the rest is what
this process has done. After a restart only what is on disk is known at once. A `TrackedPod` is frozen: a decision
returns another one, and `machine`, `node_state` and others put it into `TrackedPods`. Moments are "steady seconds":
those of the wall clock at the first start of podsync since the boot, and monotonic from then. Decides nothing.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodState
from bus.messages.resource_claims import PodClaims
from bus.messages.volume import MountedVolumes
from services.podsync.core.pod.device_need import DeviceNeed
from services.podsync.core.pod.instructions import Call
from services.podsync.core.pod.observed_in_runtime import Observed, observe
from services.podsync.core.pod.progress import InstanceFacts, LastWritten, PodSetup, Progress
from services.podsync.core.pod.retry import Retry
from services.podsync.core.pod.saved import Attempts, Pod, Saved, without
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, RuntimePod, Sandbox, SandboxState
from shared.podspec.containers import (
    ContainerKind,
    ephemeral_containers,
    every_container,
    init_containers,
)
from shared.podspec.resources import ResourceList, pod_requests

Status = dict[str, Any]
PodEvent = tuple[str, str, str, str]  # a Kubernetes Event: Normal or Warning, reason, message, container or ""

NO_PROGRESS = Progress()
NEVER = float("inf")
TERMINAL_PHASES = ("Succeeded", "Failed")


class PodVersion(Struct, frozen=True, eq=False, dict=True):
    """Has one version of the pod's object, and values that depend on it alone, computed when they are first read."""

    pod: Pod
    # What the status shows of this version; the room `status` fills it.
    shown: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def containers(self) -> dict[str, tuple[ContainerKind, dict[str, Any]]]:
        """The kind and spec of each container by name; the first of a name counts."""
        named: dict[str, tuple[ContainerKind, dict[str, Any]]] = {}
        for kind, spec in every_container(self.pod):
            named.setdefault(str(spec.get("name")), (kind, spec))
        return named

    @cached_property
    def requests(self) -> ResourceList:
        """The total requests of the pod, which must not be changed in place."""
        return pod_requests(self.pod)


class TrackedPod(Struct, frozen=True, kw_only=True, eq=False):
    """Has what podsync tracks of one pod. The mappings are never changed in place."""

    uid: str
    name: str
    namespace: str
    saved: Saved = field(default_factory=Saved)
    attempts: Attempts = field(default_factory=Attempts)
    status: Status = field(default_factory=dict)

    # The following fields are only in memory.
    new_to_node: bool = False  # whether neither the runtime nor a record on disk had the pod when it was added
    restored: bool = False  # whether it is from the checkpoint, so that its status may be older than the published one
    asks_for_node: bool = False  # whether admission reads the Node from the API server before it rejects the pod
    device_need: DeviceNeed | None = None  # what a pod without a verdict needs of device plugins
    api_status: Status = field(default_factory=dict)  # as the API server has it, {} for a static pod
    resource_version: str = ""  # of the API object
    volumes: MountedVolumes | None = None
    claims: PodClaims | None = None  # its resource claims as volume has published them
    claims_known: bool = True  # whether volume has published those of all pods, and is not stale
    observed: Observed = field(default_factory=Observed)
    retry: Retry = field(default_factory=Retry)
    setup: PodSetup = field(default_factory=PodSetup)
    last_written: LastWritten = field(default_factory=LastWritten)
    call: Call | None = None  # under way
    given_up: bool = False  # whether the call was interrupted
    starts: Mapping[str, Progress] = field(default_factory=dict)  # by container, towards its next start
    volume_images: Mapping[str, Progress] = field(default_factory=dict)  # by volume, towards its image
    instance_facts: Mapping[str, InstanceFacts] = field(default_factory=dict)  # by container id
    warned: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # type of call -> newest warnings
    waits_for: str = ""  # what the newest step waited for
    resync_at: float = 0.0  # steady seconds at which the pod is listed again, in case an event was missed
    wake_at: float = NEVER  # steady seconds of the next step if no event comes before
    garbage: frozenset[str] = frozenset()  # ids of dead containers to remove, whatever the pod keeps
    noted: tuple[PodEvent, ...] = ()  # events to record
    version: PodVersion = field(default_factory=lambda: PodVersion({}))  # of `saved.pod`

    def __post_init__(self) -> None:
        if self.version.pod is not self.saved.pod:
            force_setattr(self, "version", PodVersion(self.saved.pod))

    @property
    def full_name(self) -> str:
        """The text `<name>_<namespace>`."""
        return f"{self.name}_{self.namespace}"

    @property
    def description(self) -> str:
        """The text `<name>_<namespace>(<uid>)`, as in kubelet messages."""
        return f"{self.full_name}({self.uid})"

    @property
    def spec(self) -> dict[str, Any]:
        """The pod's spec, {} for a pod known only from the runtime."""
        spec: dict[str, Any] = self.saved.pod.get("spec") or {}
        return spec

    @property
    def containers(self) -> list[dict[str, Any]]:
        """The spec's regular containers."""
        containers: list[dict[str, Any]] = self.spec.get("containers") or []
        return containers

    @property
    def init_containers(self) -> list[dict[str, Any]]:
        """Plain init containers and sidecars, in spec order."""
        return init_containers(self.saved.pod)

    @property
    def ephemeral_containers(self) -> list[dict[str, Any]]:
        """The spec's ephemeral containers."""
        return ephemeral_containers(self.saved.pod)

    def container(self, name: str) -> tuple[ContainerKind, dict[str, Any]] | None:
        """Return kind and spec of the container of this name; None = the pod has none (any more)."""
        return self.version.containers.get(name)

    @property
    def is_static(self) -> bool:
        """Whether the pod is from a source other than the API server (pods.md 1.1)."""
        return self.saved.source not in ("", "api")

    @property
    def host_network(self) -> bool:
        """Whether spec.hostNetwork is set."""
        return bool(self.spec.get("hostNetwork"))

    @property
    def deletion_requested(self) -> bool:
        """Whether metadata.deletionTimestamp is set."""
        return bool((self.saved.pod.get("metadata") or {}).get("deletionTimestamp"))

    @property
    def sandboxes(self) -> tuple[Sandbox, ...]:
        """The sandboxes that the runtime has, newest first."""
        seen = self.observed.runtime_pod
        return seen.sandboxes if seen else ()

    @property
    def instances(self) -> tuple[Container, ...]:
        """The instances that the runtime has, newest first."""
        return self.observed.instances

    def instances_of(self, container: str) -> list[Container]:
        """Return the instances of one container of the spec, newest first."""
        return list(self.observed.by_name.get(container, ()))

    @property
    def alive(self) -> list[Container]:
        """The instances that may have a running process."""
        return self.observed.alive

    @property
    def ready_sandboxes(self) -> list[Sandbox]:
        """The sandboxes that have a network and a pause process."""
        return [s for s in self.sandboxes if s.state is SandboxState.READY]

    @property
    def runs_after_end(self) -> bool:
        """Whether the pod has finished here and something of it runs, because another agent of the node started it."""
        return self.saved.state is PodState.FINISHED and bool(self.alive or self.ready_sandboxes)

    @property
    def may_run_after_end(self) -> bool:
        """Whether `runs_after_end` is or may be true: it may where an earlier process finished the pod and this one has
        not listed it in the runtime yet. A pod of the API server that is still listed, and a rejected one, never run
        again."""
        unseen = self.restored and not self.observed.since_start and (self.saved.deleted or self.is_static)
        return self.runs_after_end or (self.saved.state is PodState.FINISHED and unseen and not self.saved.rejected)

    @property
    def is_gone_but_listed(self) -> bool:
        """Whether the pod was deleted and has finished, so that nothing in its object changes anything any more."""
        return self.saved.deleted and self.saved.state is PodState.FINISHED and not self.runs_after_end

    @property
    def evicted(self) -> bool:
        """Whether the pod is to end, or has ended, because of an eviction."""
        return self.saved.ending.get("reason") == "Evicted"

    def newest_creation(self) -> int:
        """Return when the newest known instance was created, in the runtime's nanoseconds."""
        return max((c.created_at for c in self.instances), default=0)

    @property
    def may_be_shown(self) -> bool:
        """Whether the status may be published: it depends on an observation of this process, or does not change any
        more. Without a verdict a pod has one only where it needs something of device plugins."""
        if not self.saved.admission_decided:
            return self.device_need is not None and (self.observed.since_start or self.new_to_node)
        over = self.saved.state in (PodState.TERMINATED, PodState.FINISHED)
        return self.observed.since_start or over or bool(self.saved.rejected) or not self.restored

    def with_observation(self, runtime_pod: RuntimePod | None, at: float) -> "TrackedPod":
        """Return the pod with what the runtime showed of it at that moment of CLOCK_MONOTONIC; None = nothing."""
        observed, attempts = observe(self.observed, self.attempts, self.saved, runtime_pod, at)
        return replace(self, observed=observed, attempts=attempts)

    def progress(self, container: str, volume: str = "") -> Progress:
        """Return the progress towards the next start of the container, or towards the image of the volume."""
        return (self.volume_images.get(volume) if volume else self.starts.get(container)) or NO_PROGRESS

    def with_progress(self, progress: Progress, container: str, volume: str = "") -> "TrackedPod":
        """Return the pod with this progress of the container, or of the volume."""
        if progress == self.progress(container, volume):
            return self
        if volume:
            return replace(self, volume_images={**self.volume_images, volume: progress})
        return replace(self, starts={**self.starts, container: progress})

    def probes_of(self, container_id: str) -> ProbeResults | None:
        """Return the newest results of the probes of this instance, None = there are none."""
        facts = self.instance_facts.get(container_id)
        return None if facts is None else facts.probes

    def with_probes(self, container_id: str, results: ProbeResults | None) -> "TrackedPod":
        """Return the pod with these results of the probes of an instance, None = it has no probes any more."""
        facts = replace(self.instance_facts.get(container_id, InstanceFacts()), probes=results)
        others = without(self.instance_facts, container_id)
        return replace(self, instance_facts=others if facts == InstanceFacts() else {**others, container_id: facts})

    def with_event(self, kind: str, reason: str, message: str, container: str) -> "TrackedPod":
        """Return the pod with one more Kubernetes Event to record, see `PodEvent`."""
        return replace(self, noted=(*self.noted, (kind, reason, message, container)))
