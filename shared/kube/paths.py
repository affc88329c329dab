"""Paths of the API server's resources that a node agent touches. Pure."""

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
SERVICES = "/api/v1/services"
PERSISTENT_VOLUMES = "/api/v1/persistentvolumes"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
CSI_DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
VOLUME_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
POD_CERTIFICATE_VERSIONS = ("v1", "v1beta1")  # of the API, in the order of preference; v1 since Kubernetes 1.37
RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
VERSION = "/version"

_PLURALS = {"Secret": "secrets", "ConfigMap": "configmaps"}


def pods(namespace: str) -> str:
    """Return the path of the pods of one namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(namespace: str, name: str) -> str:
    """Return the path of one pod."""
    return f"{pods(namespace)}/{name}"


def pod_status(namespace: str, name: str) -> str:
    """Return the path of the status subresource of one pod."""
    return f"{pod(namespace, name)}/status"


def node(name: str) -> str:
    """Return the path of one node."""
    return f"{NODES}/{name}"


def node_status(name: str) -> str:
    """Return the path of the status subresource of one node."""
    return f"{node(name)}/status"


def lease(name: str) -> str:
    """Return the path of the lease of one node."""
    return f"{LEASES}/{name}"


def csi_node(name: str) -> str:
    """Return the path of the CSINode of one node."""
    return f"{CSI_NODES}/{name}"


def events(namespace: str) -> str:
    """Return the path of the core/v1 Events of one namespace."""
    return f"/api/v1/namespaces/{namespace}/events"


def event(namespace: str, name: str) -> str:
    """Return the path of one core/v1 Event."""
    return f"{events(namespace)}/{name}"


def service_account(namespace: str, name: str) -> str:
    """Return the path of one service account."""
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"


def service_account_token(namespace: str, service_account: str) -> str:
    """Return the path of the token subresource of a service account."""
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"


def referenced(kind: str, namespace: str) -> str:
    """Return the path of the Secrets or ConfigMaps of one namespace; KeyError for another kind."""
    return f"/api/v1/namespaces/{namespace}/{_PLURALS[kind]}"


def persistent_volume_claim(namespace: str, name: str) -> str:
    """Return the path of one claim."""
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def persistent_volume(name: str) -> str:
    """Return the path of one volume."""
    return f"{PERSISTENT_VOLUMES}/{name}"


def resource_claim(namespace: str, name: str) -> str:
    """Return the path of one resource claim."""
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"


def certificate_signing_requests(version: str) -> str:
    """Return the path of the requests for certificates; `version` of their API: v1 or v1beta1."""
    return f"/apis/certificates.k8s.io/{version}/certificatesigningrequests"


def certificate_signing_request(version: str, name: str) -> str:
    """Return the path of one PodCertificateRequest."""
    return f"{certificate_signing_requests(version)}/{name}"


def cluster_trust_bundles(version: str) -> str:
    """Return the path of the ClusterTrustBundles; `version` of their API: v1, v1beta1 or v1alpha1."""
    return f"/apis/certificates.k8s.io/{version}/clustertrustbundles"


def all_pod_certificate_requests(version: str) -> str:
    """Return the path of the PodCertificateRequests of all namespaces; `version`: of POD_CERTIFICATE_VERSIONS."""
    return f"/apis/certificates.k8s.io/{version}/podcertificaterequests"


def pod_certificate_requests(version: str, namespace: str) -> str:
    """Return the path of those of one namespace."""
    return f"/apis/certificates.k8s.io/{version}/namespaces/{namespace}/podcertificaterequests"
