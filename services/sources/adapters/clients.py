"""Defines the two clients through which sources reads from the API server, so that pods never wait for other
objects."""

from msgspec import Struct

from shared.kube.interface import ApiClient


class Clients(Struct, frozen=True):
    """Two clients with the same connections and one rate limit, the share of sources in kubeAPIQPS and kubeAPIBurst
    (`shared.kube.rate_share`). `node` passes it first, because after an outage hundreds of Secrets and ConfigMaps may
    be requested at once."""

    node: ApiClient  # our Node and its pods
    objects: ApiClient  # everything that pods name or need: Secrets, ConfigMaps, Services, RuntimeClasses

    async def close(self) -> None:
        """Close all connections, also those with requests under way."""
        for client in (self.node, self.objects):
            await client.close()
