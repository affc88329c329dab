"""The clients through which sources reads from the API server: two, so that pods never wait behind what they name."""

from dataclasses import dataclass

from shared.kube.interface import ApiClient


@dataclass(frozen=True)
class Clients:
    """Both with the same connections and one rate limit, the share of sources in kubeAPIQPS and kubeAPIBurst
    (`shared.kube.rate_share`). `node` passes it first: after an outage hundreds of Secrets and ConfigMaps may be asked
    for at once."""

    node: ApiClient  # our Node and its pods
    objects: ApiClient  # everything that pods name or need: Secrets, ConfigMaps, Services, RuntimeClasses

    async def close(self) -> None:
        """Close everything, also requests under way."""
        for client in (self.node, self.objects):
            await client.close()
