"""Sets up what kubeadm does for nodes that join: a bootstrap token, and who may ask for certificates, approved at
once."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.support.clusters.control_plane import ControlPlane

TOKEN = "abcdef.0123456789abcdef"
_RIGHTS = (
    ("create", "system:node-bootstrapper", "system:bootstrappers"),
    ("approve-first", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"),
    ("approve-later", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
)


def let_nodes_bootstrap(plane: ControlPlane, *, approve: bool = True) -> Path:
    """Make the token and the bindings; return a kubeconfig with the token. Without `approve` no request is approved."""
    identifier, _, secret = TOKEN.partition(".")
    data = {"token-id": identifier, "token-secret": secret, "usage-bootstrap-authentication": "true"}
    metadata = {"name": f"bootstrap-token-{identifier}", "namespace": "kube-system"}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token"}
    objects: list[dict[str, Any]] = [{**kind, "metadata": metadata, "stringData": data}]
    for name, role, group in _RIGHTS:
        if approve or name == "create":
            objects.append(_binding(name, role, group))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return plane.kubeconfig_with_token(TOKEN, "bootstrap")


def requests(plane: ControlPlane) -> list[dict[str, Any]]:
    """Return the CertificateSigningRequests, the oldest first."""
    found = json.loads(plane.kubectl("get", "csr", "-o", "json").stdout)["items"]
    return sorted(found, key=lambda csr: (csr["metadata"]["creationTimestamp"], csr["metadata"]["resourceVersion"]))


def user_of(kubeconfig: Path) -> dict[str, str]:
    """Return the only user of a kubeconfig."""
    [user] = yaml.safe_load(kubeconfig.read_text())["users"]
    return dict(user["user"])


def _binding(name: str, role: str, group: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"test-{name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }
