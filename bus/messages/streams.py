"""Every stream of the bus: its name, its one owner, the type of its values. ARCHITECTURE.md has the same table."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bus.messages.bootstrap import CertificateState, NodeConfigStatus
from bus.messages.event import KubeEvent
from bus.messages.pleg import NodeImages, NodeObserved, ProbeResults
from bus.messages.podsync import AdmittedPod, ImagePull, NodePressure, NodeResources, PodProbes, PodStatus, PodVolumes
from bus.messages.services import SERVICES as SERVICES
from bus.messages.sources import ApiPodStatus, ChangedObject, DesiredPod, MirrorPod, NodeObject
from bus.messages.status import VolumesReported
from bus.messages.usage import NodeUsage
from bus.messages.volume import MountedVolumes, RegisteredPlugin, VolumesInUse
from shared.model.runtime import RuntimePod

T = TypeVar("T")


@dataclass(frozen=True)
class Stream(Generic[T]):
    """A named stream with one owner; `value` is the dataclass its values decode to."""

    name: str
    owner: str
    value: type[T]


PODS_DESIRED = Stream("pods.desired", "sources", DesiredPod)
PODS_API_STATUS = Stream("pods.api_status", "sources", ApiPodStatus)
PODS_MIRRORS = Stream("pods.mirrors", "sources", MirrorPod)
NODE_OBJECT = Stream("node.object", "sources", NodeObject)
OBJECTS_CHANGED = Stream("objects.changed", "sources", ChangedObject)
PODS_ADMITTED = Stream("pods.admitted", "podsync", AdmittedPod)
PODS_VOLUMES = Stream("pods.volumes", "podsync", PodVolumes)
PODS_PROBES = Stream("pods.probes", "podsync", PodProbes)
PODS_STATUS = Stream("pods.status", "podsync", PodStatus)
PODS_PULLS = Stream("pods.pulls", "podsync", ImagePull)
NODE_PRESSURE = Stream("node.pressure", "podsync", NodePressure)
NODE_RESOURCES = Stream("node.resources", "podsync", NodeResources)
VOLUMES_MOUNTED = Stream("volumes.mounted", "volume", MountedVolumes)
VOLUMES_IN_USE = Stream("volumes.in_use", "volume", VolumesInUse)
VOLUMES_REPORTED = Stream("volumes.reported", "status", VolumesReported)
PLUGINS_REGISTERED = Stream("plugins.registered", "volume", RegisteredPlugin)
RUNTIME_PODS = Stream("runtime.pods", "pleg", RuntimePod)
NODE_OBSERVED = Stream("node.observed", "pleg", NodeObserved)
NODE_IMAGES = Stream("node.images", "pleg", NodeImages)
PROBES_RESULTS = Stream("probes.results", "pleg", ProbeResults)
NODE_USAGE = Stream("node.usage", "pleg", NodeUsage)
CERTIFICATES = Stream("certificates", "bootstrap", CertificateState)
NODE_CONFIG = Stream("node.config", "bootstrap", NodeConfigStatus)

# Keyed by the UID of a pod, and passed on in the direction of a change: who follows one continues the pod's trace.
CARRY_TRACES = frozenset(
    stream.name for stream in (PODS_DESIRED, PODS_ADMITTED, PODS_VOLUMES, PODS_PROBES, PODS_STATUS)
)


def events_of(service: str) -> Stream[KubeEvent]:
    """The Kubernetes Events that one service publishes: a stream per writer, so that each has one owner."""
    return Stream(f"events/{service}", service, KubeEvent)


STREAMS: tuple[Stream[Any], ...] = (
    PODS_DESIRED,
    PODS_API_STATUS,
    PODS_MIRRORS,
    NODE_OBJECT,
    OBJECTS_CHANGED,
    PODS_ADMITTED,
    PODS_VOLUMES,
    PODS_PROBES,
    PODS_STATUS,
    PODS_PULLS,
    NODE_PRESSURE,
    NODE_RESOURCES,
    VOLUMES_MOUNTED,
    VOLUMES_IN_USE,
    VOLUMES_REPORTED,
    PLUGINS_REGISTERED,
    RUNTIME_PODS,
    NODE_OBSERVED,
    NODE_IMAGES,
    PROBES_RESULTS,
    NODE_USAGE,
    CERTIFICATES,
    NODE_CONFIG,
    *(events_of(service) for service in SERVICES),
)
