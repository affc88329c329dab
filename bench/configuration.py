"""Forms what both kubelets get: one KubeletConfiguration and the flags that both know. Only places and ports differ."""

from pathlib import Path
from typing import Any

MAX_PODS = 150
# These defaults differ between releases; on request both agents get the same.
_RATES = {
    "eventRecordQPS": 50,
    "eventBurst": 100,
    "kubeAPIQPS": 50,
    "kubeAPIBurst": 100,
    "serializeImagePulls": False,
}


def kubelet_configuration(
    *, home: Path, client_ca: Path, port: int, healthz_port: int, equal_rates: bool = False
) -> dict[str, Any]:
    """Return the document for an agent with this home. `equal_rates`: use the same rates for both instead of the
    release's defaults."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "port": port,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": healthz_port,
        "authentication": {
            "x509": {"clientCAFile": str(client_ca)},
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{home.name}",
        "clusterDNS": ["10.0.0.10"],
        "clusterDomain": "cluster.local",
        "containerLogMaxSize": "1Gi",  # no log is rotated while it is measured
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,
        "maxPods": MAX_PODS,
        "volumePluginDir": str(home / "plugins"),
        **(_RATES if equal_rates else {}),
    }


def common_flags(*, home: Path, config: Path, kubeconfig: Path, node: str, endpoint: str) -> list[str]:
    """Return the flags both know."""
    return [
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={node}",
        f"--root-dir={home}/kubelet",
        f"--cert-dir={home}/kubelet/pki",
        f"--container-runtime-endpoint={endpoint}",
    ]
