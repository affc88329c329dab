"""Has the instructions that podsync's core returns.
The service carries out one batch in the order save, publish, act. At most one `Call` per pod is under way; its outcome
is `CallDone` or `CallFailed`. Every instruction has the cause of the event that it follows from.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bus.messages.event import KubeEvent
from bus.messages.podsync import PodStatus
from services.podsync.core.placement.device_policy import PreferenceQuestion
from services.podsync.core.pod.published_items import Published
from shared.cri.interface import ImageStatus


class Instruction(Struct, frozen=True, kw_only=True):
    """Is the base of all instructions."""

    cause: str = ""


class SavePod(Instruction, frozen=True, kw_only=True):
    """Save the pod's record. `urgent`: before anything else of the batch is published or performed."""

    uid: str
    record: dict[str, Any]
    urgent: bool = True


class ForgetPod(Instruction, frozen=True, kw_only=True):
    """Drop the pod's record from disk and from every stream."""

    uid: str


class PublishAdmitted(Instruction, frozen=True, kw_only=True):
    """Publish the pod on `pods.admitted`, `pods.volumes` and, if it has probes, `pods.probes`."""

    published: Published


class PublishStatus(Instruction, frozen=True, kw_only=True):
    """Publish a status on `pods.status`. `on_the_way`: a newer one follows within moments, and may replace it."""

    status: PodStatus
    on_the_way: bool = False


class RecordEvent(Instruction, frozen=True, kw_only=True):
    """Publish a Kubernetes Event on `events/podsync`."""

    event: KubeEvent


class ReportInternalError(Instruction, frozen=True, kw_only=True):
    """Log that the decision for one pod raised an exception: a bug, after which only this pod is retried."""

    uid: str
    error: Exception


class WakeAt(Instruction, frozen=True, kw_only=True):
    """Send TimePassed at this moment of the steady clock; an earlier WakeAt stays in force."""

    when: float


class Call(Instruction, frozen=True, kw_only=True):
    """Is the base of all calls: requests to the runtime, to services and to the host for one pod."""

    uid: str


class LookAtPod(Call, frozen=True, kw_only=True):
    """List and inspect what the runtime has of this pod. `namesakes`: list also the other pods of its name, which
    another agent may have started. `resources`: read also those of the pod's cgroup."""

    namesakes: bool = False
    resources: bool = False


class FetchNode(Call, frozen=True, kw_only=True):
    """Read our Node from the API server: the pod's admission failed because of the cached labels."""


class AskPreferredDevices(Call, frozen=True, kw_only=True):
    """Ask a device plugin, before devices are chosen for the pod, which ones it prefers. It never fails: a plugin that
    does not answer prefers none."""

    question: PreferenceQuestion


class DevicesOfContainer(Struct, frozen=True, kw_only=True):
    """Has the devices of one resource that are chosen for one container."""

    container: str
    resource: str
    ids: tuple[str, ...]  # ascending


class AllocatePodDevices(Call, frozen=True, kw_only=True):
    """Have the device plugins prepare the devices that are chosen for the pod, which is saved already: one request for
    each of these, in this order, until one fails. A repeated call repeats all of them with the same ids."""

    wanted: tuple[DevicesOfContainer, ...]


class PreparePod(Call, frozen=True, kw_only=True):
    """Make the pod's directories and its cgroup with the QoS cgroups above it. `runs`: containers of the pod run
    outside a missing cgroup, which is then reported and not made (pods.md 5.1.7)."""

    runs: bool = False


class RunPodSandbox(Call, frozen=True, kw_only=True):
    """Create and start the sandbox of this attempt."""

    attempt: int


class InspectImage(Call, frozen=True, kw_only=True):
    """Inspect whether the image is present, and whether this pod may use it without a pull (pods.md 7.6)."""

    container: str  # "" for the image of a volume
    image: str  # as the spec names it, which may be without a tag
    volume: str = ""  # the pod's volume whose image it is, "" for a container's
    policy: str = "IfNotPresent"  # imagePullPolicy
    backed_off: bool = False  # a pull failed and the next one waits: only the presence of the image matters


class PullImage(Call, frozen=True, kw_only=True):
    """Pull the container's image, or a volume's, in the sandbox of this attempt."""

    container: str
    image: str  # as the spec names it, which may be without a tag
    sandbox_attempt: int
    volume: str = ""
    policy: str = "IfNotPresent"


class CreateContainer(Call, frozen=True, kw_only=True):
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


class StartContainer(Call, frozen=True, kw_only=True):
    """Start a created container."""

    container: str
    container_id: str
    attempt: int


class RunPostStartHook(Call, frozen=True, kw_only=True):
    """Run the container's lifecycle.postStart to its end (pods.md 8.4); a failure of the hook is a failed call."""

    container: str
    container_id: str


class ContainerStop(Struct, frozen=True, kw_only=True):
    """Has how one container is to be stopped (pods.md 8.2, 8.3). `grace_seconds` is the time of the preStop hook, the
    wait for other containers and the end of the process together, which gets at least 2 s. `hook_spent`: seconds since
    an earlier stop of this instance began its hook, which is not run again; -1 = none did."""

    container: str
    container_id: str
    grace_seconds: int
    pre_stop: bool = False  # whether its spec has lifecycle.preStop, and there is time for the hook
    hook_spent: int = -1
    after: tuple[str, ...] = ()  # ids of containers that must end before this one, a sidecar, is stopped


class KillContainer(Call, frozen=True, kw_only=True):
    """Stop one container."""

    stop: ContainerStop


class KillPod(Call, frozen=True, kw_only=True):
    """Stop these containers in parallel, each by its own stop, then these sandboxes."""

    containers: tuple[ContainerStop, ...]
    sandboxes: tuple[str, ...]
    grace_seconds: int = 0  # of the pod when this was decided; a shorter one later causes a new decision


class InterruptCall(Instruction, frozen=True, kw_only=True):
    """Cancel the pod's call, which only waits; its outcome is a failure marked `interrupted`. `reads_only`: cancel it
    only while it reads what it needs before its request to the runtime."""

    uid: str
    reads_only: bool = False


class RemoveContainers(Call, frozen=True, kw_only=True):
    """Remove dead containers with their logs: (id, container name, log path)."""

    containers: tuple[tuple[str, str, str], ...]
    keep_logs: bool = False  # after RestartAllContainers, so that kubectl logs still shows them


class RemoveSandboxes(Call, frozen=True, kw_only=True):
    """Stop once more and remove dead sandboxes."""

    sandboxes: tuple[str, ...]


class EndTasks(Call, frozen=True, kw_only=True):
    """Kill and delete the tasks of these containers or sandboxes (ids) through the runtime's task service below CRI:
    the runtime refuses to remove them while they have a task. `left`: describes them in messages; `refusal`: its
    error, "" = none: starts of a pod that ends were interrupted, and may have left a task."""

    ids: tuple[str, ...]
    left: str
    refusal: str


class ContainerUpdate(Struct, frozen=True, kw_only=True):
    """Has a running container whose resources are to become the allocated ones. `given`: `resources` that it has
    now."""

    container: str
    container_id: str
    given: Mapping[str, Any]


class ResizePod(Call, frozen=True, kw_only=True):
    """Write the allocated resources to the pod's cgroup and these containers. `sandbox_id` "" = there is none."""

    sandbox_id: str
    containers: tuple[ContainerUpdate, ...]


class SetContainerCpus(Call, frozen=True, kw_only=True):
    """Give a container this cpuset, such as 0-3,8. It is carried out beside the pod's other call, which may last."""

    container: str
    container_id: str
    cpus: str


class ReleasePod(Call, frozen=True, kw_only=True):
    """Destroy the pod's cgroup."""


class RemovePodLogs(Call, frozen=True, kw_only=True):
    """Remove the pod's log directory and its log symlinks."""

    name: str
    namespace: str
