"""Messages of sources: pods from manifests and the API server, versions of objects, and reads for other services."""

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

# Seconds to wait for an object that may have to be read: somewhat longer than sources waits for the API server.
REQUESTED_READ_TIMEOUT_SECONDS = 70.0


class DesiredPod(Struct, frozen=True, kw_only=True):
    """Stream `pods.desired`, key: pod UID. The stream is complete once every configured source has reported.

    A mirror pod is never here: see `MirrorPod`.
    """

    uid: str  # pod UID; of a static pod: the hash of its manifest
    source: str  # `file`, `http` or `api`
    # the raw Pod, defaulted, with its `kubernetes.io/config.*` annotations; from the API with the status that it had
    # when this was put or the snapshot was made (the newest is on `pods.api_status`)
    pod: dict[str, Any]
    # RFC 3339: the pod is from the record of this moment, because the API server has not answered since the start of
    # sources (`offlinePods`); "" = its source has it
    recorded: str = ""


class ApiPodStatus(Struct, frozen=True, kw_only=True):
    """Stream `pods.api_status`, key: pod UID: the newest status that the API server has of a desired pod."""

    resource_version: str  # of the pod with this status
    status: dict[str, Any]  # PodStatus as the API server has it


class MirrorPod(Struct, frozen=True, kw_only=True):
    """Stream `pods.mirrors`, key `<name>_<namespace>`: the mirror pods of this node that the API server has."""

    uid: str  # of the API object; the static pod's UID is `config_hash`
    name: str  # of the pod
    namespace: str  # of the pod
    config_hash: str  # annotation `kubernetes.io/config.mirror`
    pod: dict[str, Any]  # the raw Pod with its status


class NodeObject(Struct, frozen=True, kw_only=True):
    """Stream `node.object`, key `node`: our Node as the API server has it. Complete and absent = there is none."""

    node: dict[str, Any]  # the raw Node


class ChangedObject(Struct, frozen=True, kw_only=True):
    """Stream `objects.changed`, key `<kind>/<namespace>/<name>`: the version of a Secret, ConfigMap or
    PersistentVolumeClaim that a pod of this node refers to, of the PersistentVolume of such a claim, of a CSIDriver, of
    a ClusterTrustBundle, of a PodCertificateRequest of this node or of the ConfigMap that our Node names as its
    configuration (kind NodeConfigMap). Never its content. Deleted once no pod, and not the Node, refers to it; a
    CSIDriver or bundle never."""

    resource_version: str  # "" = the API server has no such object


class GetObject(Struct, frozen=True, kw_only=True):
    """Request to sources: one object of the API server, by the configured change-detection strategy.

    `kind`: CSIDriver, VolumeAttachment, VolumeSecret (a Secret that a PersistentVolume names), Secret, ConfigMap,
    PersistentVolumeClaim (only those a pod of this node refers to), PersistentVolume (only of such a claim),
    RuntimeClass, ServiceAccount, ResourceClaim (read each time), Node (only ours), ClusterTrustBundle,
    ClusterTrustBundleList (`items`: the bundles of the signer `name`, with one version for all), PodCertificateRequest
    (only of this node), NodeConfigMap (the ConfigMap that our Node names as its configuration).
    """

    # `Secret`, `ConfigMap`, `PersistentVolumeClaim`, `PersistentVolume`, `CSIDriver`, `VolumeAttachment`,
    # `VolumeSecret`, `RuntimeClass`, `ServiceAccount`, `ResourceClaim`, `Node`, `NodeConfigMap`,
    # `PodCertificateRequest`, `ClusterTrustBundle`, or `ClusterTrustBundleList`: `items` are the bundles of the signer
    # `name`
    kind: str
    namespace: str  # empty for kinds without one
    name: str  # of the object
    fresh: bool = False  # read from the API server, not from a cache


@dataclass(frozen=True, kw_only=True)
class FoundObject:
    """Answer to GetObject. Never logged: it may be a Secret."""

    object: dict[str, Any] | None = field(repr=False)  # the raw object; never logged, it may be a Secret
    not_found: bool = False  # the API server has no such object
    error: str = ""  # the kubelet's text, such as `configmap "x" not found`; "" with an object


class GetServices(Struct, frozen=True, kw_only=True):
    """Request to sources: the Services whose variables a pod of this namespace may get (pods.md 6.3)."""

    namespace: str  # of the pod whose environment is built


class FoundServices(Struct, frozen=True, kw_only=True):
    """Answer to GetServices: those of the namespace and `default/kubernetes`, with a cluster IP. Of each only name,
    namespace, `clusterIP`, and name, number and protocol of its ports."""

    synced: bool  # the Services were listed at least once
    # those of the namespace, and `default/kubernetes`, that have a cluster IP; of each only the fields of the example
    services: tuple[dict[str, Any], ...] = ()
