"""Makes the kubeconfig that is written once there is a client certificate of our own (config.md 5.4). Pure."""

import posixpath
from collections.abc import Mapping
from typing import Any

_COPIED = ("server", "insecure-skip-tls-verify", "tls-server-name", "proxy-url", "certificate-authority-data")


def written_kubeconfig(cluster: Mapping[str, Any], directory: str, pair_file: str) -> dict[str, Any]:
    """Return the kubeconfig with the cluster of the bootstrap kubeconfig, whose relative paths begin at `directory`,
    and with a user whose certificate and key are both in `pair_file`."""
    kept = {key: cluster[key] for key in _COPIED if key in cluster}
    if "certificate-authority" in cluster and "certificate-authority-data" not in cluster:
        kept["certificate-authority"] = posixpath.normpath(posixpath.join(directory, cluster["certificate-authority"]))
    context = {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": kept}],
        "contexts": [{"name": "default-context", "context": context}],
        "current-context": "default-context",
        "users": [{"name": "default-auth", "user": {"client-certificate": pair_file, "client-key": pair_file}}],
    }
