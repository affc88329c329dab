"""What podsync has of one pod: `saved` and `attempts` are on disk with the status (`saved_record`), everything else is
observed again after a restart.

Moments are "steady seconds": the wall clock's as podsync first began since the machine started, not moved by anybody
who sets it since.
Decides nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolumes
from services.podsync.core.pod.allocation import as_last_shown, resize_event, with_allocated_resources
from services.podsync.core.pod.api_baseline import sound_status
from services.podsync.core.pod.instructions import Call
from services.podsync.core.pod.observed import Observed, observe
from services.podsync.core.pod.published import Published
from services.podsync.core.pod.retry import Retry, container_now
from services.podsync.core.pod.saved import Attempts, Pod, Saved
from shared.cri.interface import ImageStatus
from shared.model import objects
from shared.model.conditions import POD_CONDITIONS
from shared.model.runtime import Container, RuntimePod, Sandbox, SandboxState
from shared.podspec.containers import (
    ContainerKind,
    ephemeral_containers,
    every_container,
    init_containers,
)

Status = dict[str, Any]

NEVER = float("inf")
TERMINAL_PHASES = ("Succeeded", "Failed")


@dataclass(kw_only=True)
class PodRecord:
    """One pod on this node, by UID."""

    uid: str
    name: str
    namespace: str
    saved: Saved = field(default_factory=Saved)
    attempts: Attempts = field(default_factory=Attempts)
    status: Status = field(default_factory=dict)

    # learnt again after a restart
    unheard_of: bool = False  # when it was taken on, nobody had ever known anything of it
    restored: bool = False  # from the checkpoint: what it shows may be older than what was published last
    asks_for_node: bool = False  # admission wants to see the Node itself before it refuses
    api_status: Status = field(default_factory=dict)  # what the API server has, {} for a static pod
    resource_version: str = ""  # of the API object
    probes: dict[str, ProbeResults] = field(default_factory=dict)  # container id -> results
    version: int = 0  # number of the newest published status within this boot
    observed: Observed = field(default_factory=Observed)
    retry: Retry = field(default_factory=Retry)
    call: Call | None = None  # under way
    given_up: bool = False  # and nobody waits for it any longer
    prepared: bool = False  # directories and cgroup were made sure of in this process's life
    cgroup_missing: bool = False  # while containers run: they go before it is made
    released: bool = False  # the cgroup was destroyed
    logs_removed: bool = False
    stopped_sandboxes: set[str] = field(default_factory=set)  # StopPodSandbox succeeded in this process's life
    volumes: MountedVolumes | None = None
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # container -> waiting reason and message
    images: dict[str, ImageStatus] = field(default_factory=dict)  # container -> image found for its next start; and
    # `images.volume_key` -> image found for a volume
    pulls: set[str] = field(default_factory=set)  # keys likewise, whose image was found absent and is to be pulled
    volume_reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # volume -> why its image is not there
    warned: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # kind of call -> its newest warnings
    resync_at: float = 0.0  # steady seconds; then the pod is looked at again, whatever happened or did not
    ended: dict[str, float] = field(default_factory=dict)  # container id -> when it ended, on our steady clock
    waits_for: str = ""  # what the newest step waited for
    wake_at: float = NEVER  # steady seconds; when the newest step wants to be looked at again, whatever happens
    noted: list[tuple[str, str, str, str]] = field(default_factory=list)  # events not yet recorded
    shown_of_pod: tuple[Pod, Status] | None = None  # what the status shows of the spec alone, and of which pod it was
    _by_name: tuple[Pod, dict[str, tuple[ContainerKind, dict[str, Any]]]] | None = None  # of this version of the pod
    last_saved: tuple[Saved, Attempts] | None = None  # what the newest SavePod holds
    published_status: Status = field(default_factory=dict)
    published_ids: tuple[str, ...] = ()  # of the running instances, published with it: one may not be shown yet
    published: Published | None = None  # newest values on the streams of admitted pods
    published_from: Saved | None = None  # the value that was compared with it last

    @property
    def full_name(self) -> str:
        """`<name>_<namespace>`."""
        return f"{self.name}_{self.namespace}"

    @property
    def description(self) -> str:
        """`<name>_<namespace>(<uid>)`, as in kubelet messages."""
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
        """Kind and spec of the container of this name; None = the pod has none (any more)."""
        if self._by_name is None or self._by_name[0] is not self.saved.pod:
            named: dict[str, tuple[ContainerKind, dict[str, Any]]] = {}
            for kind, spec in every_container(self.saved.pod):
                named.setdefault(str(spec.get("name")), (kind, spec))
            self._by_name = (self.saved.pod, named)
        return self._by_name[1].get(name)

    @property
    def is_static(self) -> bool:
        """From any source but the API (pods.md 1.1)."""
        return self.saved.source not in ("", "api")

    @property
    def host_network(self) -> bool:
        """spec.hostNetwork."""
        return bool(self.spec.get("hostNetwork"))

    @property
    def sandboxes(self) -> tuple[Sandbox, ...]:
        """What the runtime has, newest first."""
        seen = self.observed.runtime_pod
        return seen.sandboxes if seen else ()

    @property
    def instances(self) -> tuple[Container, ...]:
        """What the runtime has, newest first."""
        seen = self.observed.runtime_pod
        return seen.containers if seen else ()

    def instances_of(self, container: str) -> list[Container]:
        """The instances of one spec container, newest first."""
        return list(self.observed.by_name.get(container, ()))

    @property
    def alive(self) -> list[Container]:
        """Instances that may be running a process."""
        return self.observed.alive

    @property
    def ready_sandboxes(self) -> list[Sandbox]:
        """Sandboxes that hold a network and a pause process."""
        return [s for s in self.sandboxes if s.state is SandboxState.READY]

    def wanted_as(self, source: str, pod: Pod) -> bool:
        """Take over what the source says of the pod; whether that says anything new. What changes with every write of
        its status stands apart, so that our own writes coming back are no news."""
        before = (self.saved.source, self.saved.pod, self.saved.refused_resize, self._said_by_others())
        metadata = dict(pod.get("metadata") or {})
        metadata.pop("managedFields", None)
        self.resource_version = str(metadata.pop("resourceVersion", "") or "")
        self.api_status = sound_status(pod.get("status")) if source == "api" else {}
        wanted = {key: value for key, value in pod.items() if key != "status"} | {"metadata": metadata}
        wanted, refused_resize = self._as_allocated(wanted)
        if wanted != self.saved.pod:
            added = (wanted.get("spec") or {}).get("ephemeralContainers") != self.spec.get("ephemeralContainers")
            self.prepared = self.prepared and not added  # a container needs its log directory
            self._forget_images(wanted)
        else:
            wanted = self.saved.pod
        if (source, wanted, refused_resize) != (self.saved.source, self.saved.pod, self.saved.refused_resize):
            self.saved = replace(self.saved, source=source, pod=wanted, refused_resize=refused_resize)
        return (self.saved.source, self.saved.pod, self.saved.refused_resize, self._said_by_others()) != before

    def _as_allocated(self, wanted: Pod) -> tuple[Pod, Mapping[str, int]]:
        """`wanted` with the resources the pod was admitted with, and the resize refused with that. That the source
        lists others is shown in the status, and is an Event once for each generation."""
        if not self.saved.pod or self.saved.rejected or not (self.saved.admission_decided or self.saved.refused_resize):
            return wanted, self.saved.refused_resize
        allocated = with_allocated_resources(wanted, self.saved.pod)
        generation = (wanted.get("metadata") or {}).get("generation")
        generation = generation if isinstance(generation, int) else 0
        refused = {} if allocated is wanted else {"generation": generation}
        if refused and refused != self.saved.refused_resize and self.saved.state is PodState.SYNC:
            self.note(*resize_event(wanted, generation))
        return allocated, refused

    def _forget_images(self, wanted: Pod) -> None:
        """What was found out about an image says nothing about the one that its container names now."""
        named = {spec.get("name"): spec.get("image") for _, spec in every_container(wanted)}
        for _, spec in every_container(self.saved.pod):
            name = str(spec.get("name"))
            if spec.get("image") != named.get(name):
                self.images.pop(name, None)
                self.pulls.discard(name)
                self.retry = container_now(self.retry, name)

    def _said_by_others(self) -> tuple[Any, list[Status]]:
        """What of the API server's status counts whoever wrote it: that the pod has ended, and foreign conditions."""
        phase, conditions = self.api_status.get("phase"), self.api_status.get("conditions") or ()
        foreign = [c for c in conditions if c.get("type") not in POD_CONDITIONS]
        return phase if phase in TERMINAL_PHASES else "", foreign

    @property
    def deletion_requested(self) -> bool:
        """metadata.deletionTimestamp is set."""
        return bool((self.saved.pod.get("metadata") or {}).get("deletionTimestamp"))

    def observe(self, runtime_pod: RuntimePod | None, at: float) -> None:
        """Apply what the runtime had at that moment of CLOCK_MONOTONIC; None = nothing."""
        self.observed, self.attempts = observe(self.observed, self.attempts, self.saved.starting, runtime_pod, at)

    def note(self, kind: str, reason: str, message: str, container: str) -> None:
        """Remember a Kubernetes Event to record: Normal or Warning, reason, message, container or ""."""
        self.noted.append((kind, reason, message, container))

    def take_events(self) -> list[tuple[str, str, str, str]]:
        """The events noted since the last time."""
        noted, self.noted = self.noted, []
        return noted

    @property
    def may_be_shown(self) -> bool:
        """The status rests on this life's own look, or on what nothing can change any more."""
        over = self.saved.state in (PodState.TERMINATED, PodState.FINISHED)
        return self.saved.admission_decided and (
            self.observed.since_start or over or bool(self.saved.rejected) or not self.restored
        )

    def newest_creation(self) -> int:
        """When the newest known instance was created, in the runtime's nanoseconds."""
        return max((c.created_at for c in self.instances), default=0)


def from_runtime(observation: RuntimePod) -> PodRecord:
    """A record for a pod that nobody wants and that has no record: it is only ever killed."""
    return PodRecord(uid=observation.uid, name=observation.name, namespace=observation.namespace)


def from_desired(uid: str, source: str, pod: Pod) -> PodRecord:
    """A record for a pod seen for the first time; of one the API server has a status of, that is where we go on."""
    record = PodRecord(uid=uid, name=objects.name(pod), namespace=objects.namespace(pod))
    record.wanted_as(source, pod)
    record.status = dict(record.api_status)
    allocated = as_last_shown(record.saved.pod, record.status)
    if allocated is not record.saved.pod:
        record.saved = replace(record.saved, pod=allocated)
        record.wanted_as(source, pod)
    record.saved = replace(record.saved, start_time=str(record.status.get("startTime") or ""))
    return record
