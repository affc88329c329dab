"""What to do, in the imperative: everything podsync's core can ask for.

The service performs one batch in the order save, publish, act. At most one `Call` per pod is under way; it comes back
as `CallDone` or `CallFailed`. Every instruction carries the cause of the event it answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bus.messages.event import KubeEvent
from bus.messages.podsync import PodStatus
from services.podsync.core.pod.published import Published
from shared.cri.interface import ImageStatus


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """Base of all instructions."""

    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class SavePod(Instruction):
    """Write the pod's record. `urgent`: before anything else of the batch is published or done."""

    uid: str
    record: dict[str, Any] = field(repr=False)
    urgent: bool = True


@dataclass(frozen=True, kw_only=True)
class ForgetPod(Instruction):
    """Drop the pod's record from disk and from every stream."""

    uid: str


@dataclass(frozen=True, kw_only=True)
class PublishAdmitted(Instruction):
    """Put on `pods.admitted`, `pods.volumes` and, if it has probes, `pods.probes`."""

    published: Published = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class PublishStatus(Instruction):
    """Put on `pods.status`. `on_the_way`: a newer one follows within moments, which may as well go out in its place."""

    status: PodStatus = field(repr=False)
    on_the_way: bool = False


@dataclass(frozen=True, kw_only=True)
class RecordEvent(Instruction):
    """Put a Kubernetes Event on `events/podsync`."""

    event: KubeEvent


@dataclass(frozen=True, kw_only=True)
class ReportInternalError(Instruction):
    """Log that the decision for one pod raised an exception: a bug, after which only this pod is retried."""

    uid: str
    error: Exception = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class WakeAt(Instruction):
    """Send TimePassed at this moment of the steady clock; an earlier WakeAt stays in force."""

    when: float


@dataclass(frozen=True, kw_only=True)
class Call(Instruction):
    """Base of what is done to the outside world for one pod."""

    uid: str


@dataclass(frozen=True, kw_only=True)
class LookAtPod(Call):
    """List and inspect what the runtime has of this pod. `new_to_node`: pleg, whose list is complete and fresh, knows
    nothing of it and neither did we ever, so there is nothing to look at. `namesakes`: also the other pods of its name,
    which another agent may have started. `resources`: also those that the pod's cgroup has."""

    new_to_node: bool = False
    namesakes: bool = False
    resources: bool = False


@dataclass(frozen=True, kw_only=True)
class FetchNode(Call):
    """Read our Node from the API server itself: the pod's admission failed on what is cached of its labels."""


@dataclass(frozen=True, kw_only=True)
class PreparePod(Call):
    """Make the pod's directories and its cgroup with the QoS cgroups above it. `runs`: containers of it run, and a
    cgroup that is missing is not made around what runs outside it, but reported (pods.md 5.1.7)."""

    runs: bool = False


@dataclass(frozen=True, kw_only=True)
class RunPodSandbox(Call):
    """Create and start the sandbox of this attempt."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class InspectImage(Call):
    """Ask whether the container's image is present, and whether this pod may use it as it is (pods.md 7.6)."""

    container: str  # "" for the image of a volume
    image: str  # as the spec names it, which may be without a tag
    volume: str = ""  # the pod's volume whose image it is, "" for a container's
    policy: str = "IfNotPresent"  # imagePullPolicy
    backed_off: bool = False  # a pull failed and the next one waits: only whether the image came otherwise matters


@dataclass(frozen=True, kw_only=True)
class PullImage(Call):
    """Pull the container's image, or a volume's, in the sandbox of this attempt."""

    container: str
    image: str  # as the spec names it, which may be without a tag
    sandbox_attempt: int
    volume: str = ""
    policy: str = "IfNotPresent"


@dataclass(frozen=True, kw_only=True)
class CreateContainer(Call):
    """Create the container of this attempt in the sandbox, unless its spec names another image by then."""

    container: str
    attempt: int
    spec_hash: str  # `container_hash` of the spec that the image was found for
    sandbox_id: str
    sandbox_attempt: int
    image: ImageStatus
    pod_ips: tuple[str, ...]  # as the pod's status shows them
    image_volumes: tuple[tuple[str, str], ...] = ()  # name of a volume -> reference of its image, as pulled
    target_id: str = ""  # of the container whose processes an ephemeral one is to see, "" = none


@dataclass(frozen=True, kw_only=True)
class StartContainer(Call):
    """Start a created container."""

    container: str
    container_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class RunPostStartHook(Call):
    """Run the container's lifecycle.postStart to its end (pods.md 8.4); a failure of the hook is a failed call."""

    container: str
    container_id: str


@dataclass(frozen=True, kw_only=True)
class ContainerStop:
    """How one container is to be stopped (pods.md 8.2, 8.3). `grace_seconds` is for all of it: its preStop hook, the
    wait for others, then the process, which gets what is left and 2 s at least. `hook_spent`: seconds since an
    earlier stop of this instance began its hook, which is not run again; -1 = none did."""

    container: str
    container_id: str
    grace_seconds: int
    pre_stop: bool = False  # its spec has lifecycle.preStop, and there is time for it
    hook_spent: int = -1
    after: tuple[str, ...] = ()  # container ids: a sidecar is not stopped before these have ended


@dataclass(frozen=True, kw_only=True)
class KillContainer(Call):
    """Stop one container."""

    stop: ContainerStop


@dataclass(frozen=True, kw_only=True)
class KillPod(Call):
    """Stop these containers in parallel, each by its own stop, then these sandboxes."""

    containers: tuple[ContainerStop, ...]
    sandboxes: tuple[str, ...]
    grace_seconds: int = 0  # of the pod when this was decided; a shorter one later causes a new decision


@dataclass(frozen=True, kw_only=True)
class InterruptCall(Instruction):
    """Wait no longer for the pod's call, which only waits itself; it comes back as a failure marked `interrupted`.
    `reads_only`: only as long as it reads what it needs before it asks the runtime; what was asked is waited for."""

    uid: str
    reads_only: bool = False


@dataclass(frozen=True, kw_only=True)
class RemoveContainers(Call):
    """Remove dead containers with their logs: (id, container name, log path)."""

    containers: tuple[tuple[str, str, str], ...]
    keep_logs: bool = False  # RestartAllContainers: kubectl logs goes on showing them


@dataclass(frozen=True, kw_only=True)
class RemoveSandboxes(Call):
    """Stop once more and remove dead sandboxes."""

    sandboxes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EndTasks(Call):
    """Kill and delete the tasks of these containers or sandboxes (ids), which the runtime refuses to remove as it has a
    task of them, through its task service below CRI. `left`: what they are, for people; `refusal`: its error."""

    ids: tuple[str, ...]
    left: str
    refusal: str


@dataclass(frozen=True, kw_only=True)
class ContainerUpdate:
    """A running container that is given what is allocated to it. `given`: `resources` that it has until then."""

    container: str
    container_id: str
    given: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResizePod(Call):
    """Give the pod's cgroup and these containers what is allocated to them. `sandbox_id` "" = there is none."""

    sandbox_id: str
    containers: tuple[ContainerUpdate, ...]


@dataclass(frozen=True, kw_only=True)
class ReleasePod(Call):
    """Destroy the pod's cgroup."""


@dataclass(frozen=True, kw_only=True)
class RemovePodLogs(Call):
    """Remove the pod's log directory and its log symlinks."""

    name: str
    namespace: str
