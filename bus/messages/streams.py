"""Has every stream of the bus: its name, its one owner, the type of its values. `make docs` writes the lists of
ARCHITECTURE.md and PROTOCOL.md from it."""

from typing import Any, Generic, TypeVar

from msgspec import Struct

from bus.messages.bootstrap import CertificateState, NodeConfigStatus
from bus.messages.device_plugins import DeviceResource
from bus.messages.event import KubeEvent
from bus.messages.pleg import NodeImages, NodeObserved, ProbeResults
from bus.messages.podsync import (
    AdmittedPod,
    ImagePull,
    NodePressure,
    NodeResources,
    NodeShutdown,
    PodProbes,
    PodStatus,
    PodVolumes,
)
from bus.messages.resource_claims import PodClaims
from bus.messages.services import SERVICES as SERVICES
from bus.messages.sources import ApiPodStatus, ChangedObject, DesiredPod, MirrorPod, NodeObject
from bus.messages.status import ShutdownReported, VolumesReported
from bus.messages.usage import NodeUsage
from bus.messages.volume import MountedVolumes, RegisteredPlugin, VolumesInUse
from shared.model.runtime import RuntimePod

T = TypeVar("T")


class Stream(Struct, Generic[T], frozen=True):
    """A named stream with one owner; `value` is the struct its values decode to. The rest is for readers: what a key
    is, what the stream contains, and where its owner gets that from again after a crash."""

    name: str
    owner: str
    value: type[T]
    key: str = ""
    content: str = ""
    recovery: str = ""


_UID = "pod UID"
_NODE = "`node`"

PODS_DESIRED = Stream(
    "pods.desired",
    "sources",
    DesiredPod,
    key=_UID,
    content="the pods that should run, with defaults",
    recovery="the API server; the manifest files, the applied objects, the URL, and their records; one record of "
    "first-seen times",
)
PODS_API_STATUS = Stream(
    "pods.api_status",
    "sources",
    ApiPodStatus,
    key=_UID,
    content="the newest status the API server has of a desired pod",
    recovery="the API server",
)
PODS_MIRRORS = Stream(
    "pods.mirrors",
    "sources",
    MirrorPod,
    key="`<name>_<namespace>`",
    content="the mirror pods the API server has",
    recovery="the API server",
)
NODE_OBJECT = Stream(
    "node.object",
    "sources",
    NodeObject,
    key=_NODE,
    content="our Node as the API server has it",
    recovery="the API server",
)
OBJECTS_CHANGED = Stream(
    "objects.changed",
    "sources",
    ChangedObject,
    key="`<kind>/<namespace>/<name>`",
    content="versions, never values, of Secrets, ConfigMaps (also that of `spec.configSource`), claims and their "
    "volumes in use, CSIDrivers, ClusterTrustBundles and PodCertificateRequests",
    recovery="the API server; without a cluster the applied files",
)
PODS_ADMITTED = Stream(
    "pods.admitted",
    "podsync",
    AdmittedPod,
    key=_UID,
    content="verdict, lifecycle state, grace period, CPUs, NUMA memory and devices of containers, finished",
    recovery="on disk first: a record per pod",
)
PODS_VOLUMES = Stream(
    "pods.volumes",
    "podsync",
    PodVolumes,
    key=_UID,
    content="volumes that must be mounted now, what they are made from, and what names resource claims; finished",
    recovery="on disk first: the state in a record per pod, from which the rest follows",
)
PODS_PROBES = Stream(
    "pods.probes",
    "podsync",
    PodProbes,
    key=_UID,
    content="probes of the containers that may run",
    recovery="on disk first: a record per pod",
)
PODS_STATUS = Stream(
    "pods.status",
    "podsync",
    PodStatus,
    key=_UID,
    content="the API pod status, with a version (start number, counter)",
    recovery="on disk first: exits and terminal phases in a record per pod; the rest is read from CRI again",
)
PODS_PULLS = Stream(
    "pods.pulls",
    "podsync",
    ImagePull,
    key=_UID,
    content="how far the pull is that a pod waits for",
    recovery="disposable; read again while the pull lasts",
)
NODE_PRESSURE = Stream(
    "node.pressure",
    "podsync",
    NodePressure,
    key=_NODE,
    content="pressure conditions",
    recovery="on disk first: a record of the transition times; the rest is computed again",
)
NODE_SHUTDOWN = Stream(
    "node.shutdown",
    "podsync",
    NodeShutdown,
    key=_NODE,
    content="the shutdown of the machine: whether it is in progress, its groups of pods, what was not finished in time",
    recovery="on disk first: a record of the shutdown; whether it is in progress is read again from logind",
)
NODE_RESOURCES = Stream(
    "node.resources",
    "podsync",
    NodeResources,
    key=_NODE,
    content="capacity and allocatable, also of devices; CPUs that containers can have alone or share",
    recovery="the machine, the configuration, `devices.resources`",
)
VOLUMES_MOUNTED = Stream(
    "volumes.mounted",
    "volume",
    MountedVolumes,
    key=_UID,
    content="per volume: mounted, error, unmounting",
    recovery="directories, markers, the mount table",
)
VOLUMES_IN_USE = Stream(
    "volumes.in_use",
    "volume",
    VolumesInUse,
    key=_NODE,
    content="attachable volumes that are desired or mounted",
    recovery="desired volumes, the mount table",
)
VOLUMES_REPORTED = Stream(
    "volumes.reported",
    "status",
    VolumesReported,
    key=_NODE,
    content="the volumesInUse that the Node has",
    recovery="the API server",
)
SHUTDOWN_REPORTED = Stream(
    "shutdown.reported",
    "status",
    ShutdownReported,
    key=_NODE,
    content="which shutdown of the machine is over, with Node and pods' statuses written to the API server",
    recovery="the API server",
)
PLUGINS_REGISTERED = Stream(
    "plugins.registered",
    "volume",
    RegisteredPlugin,
    key="`<type>/<name>`",
    content="plugins that registered at a socket below `plugins_registry`",
    recovery="the sockets",
)
DEVICES_RESOURCES = Stream(
    "devices.resources",
    "volume",
    DeviceResource,
    key="name of the resource",
    content="the resources of device plugins: devices with their health, and whether the plugin is connected",
    recovery="a record of the plugins' sockets; their lists",
)
CLAIMS_PREPARED = Stream(
    "claims.prepared",
    "volume",
    PodClaims,
    key=_UID,
    content="per resource claim of a pod: prepared, with its devices and their health, error, unpreparing",
    recovery="on disk first: a record of the claims; health is reported again",
)
RUNTIME_PODS = Stream(
    "runtime.pods",
    "pleg",
    RuntimePod,
    key=_UID,
    content="sandboxes, containers, exits; the monotonic time before the request",
    recovery="CRI",
)
NODE_OBSERVED = Stream(
    "node.observed",
    "pleg",
    NodeObserved,
    key=_NODE,
    content="runtime readiness and features, machine facts",
    recovery="read again",
)
NODE_IMAGES = Stream(
    "node.images",
    "pleg",
    NodeImages,
    key=_NODE,
    content="the images the runtime has",
    recovery="listed again",
)
PROBES_RESULTS = Stream(
    "probes.results",
    "pleg",
    ProbeResults,
    key="CRI id of the container",
    content="results of the probes of one container instance",
    recovery="one file per pod in the run directory, else probed again; until then podsync uses the last ones",
)
NODE_USAGE = Stream(
    "node.usage",
    "pleg",
    NodeUsage,
    key=_NODE,
    content="CPU, memory, tasks and filesystems of the node, every 10 s",
    recovery="read again",
)
CERTIFICATES = Stream(
    "certificates",
    "bootstrap",
    CertificateState,
    key="`serving`",
    content="the serving pair in use, without key material",
    recovery="the files",
)
NODE_CONFIG = Stream(
    "node.config",
    "bootstrap",
    NodeConfigStatus,
    key=_NODE,
    content="which ConfigMap is the node's configuration, and why not",
    recovery="records in `<dynamic-config-dir>/store`, config.json",
)

# Keyed by the UID of a pod, and passed on in the direction of a change: who follows one continues the pod's trace.
CARRY_TRACES = frozenset(
    stream.name for stream in (PODS_DESIRED, PODS_ADMITTED, PODS_VOLUMES, PODS_PROBES, PODS_STATUS)
)


def events_of(service: str) -> Stream[KubeEvent]:
    """Return the stream of the Kubernetes Events that one service publishes. Each writer has its own, because a stream
    has one owner."""
    return Stream(
        f"events/{service}",
        service,
        KubeEvent,
        key="a number that grows within the incarnation of the writer",
        content="Kubernetes Events to record, the newest 200",
        recovery="disposable",
    )


STREAMS: tuple[Stream[Any], ...] = (
    *(value for value in tuple(globals().values()) if isinstance(value, Stream)),
    *(events_of(service) for service in SERVICES),
)
