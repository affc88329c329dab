"""The clients through which status writes to the API server: three, so that none of them can hold up another."""

from dataclasses import dataclass

from shared.kube.interface import ApiClient


@dataclass(frozen=True)
class Clients:
    """The kubelet's three clients (reference config.md 6.1), each with its own connections and its own rate limit."""

    kube: ApiClient  # pods, mirror pods, reviews, tokens: kubeAPIQPS and kubeAPIBurst
    heartbeat: ApiClient  # node status and lease: no rate limit, a short time limit
    events: ApiClient  # Events: eventRecordQPS and eventBurst
