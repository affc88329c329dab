"""Defines the clients through which status writes to the API server, so that none can delay a more urgent one.

In order of urgency they are: the lease and the node's status, pod statuses, tokens, reviews, and events.
"""

from msgspec import Struct

from shared.kube.interface import ApiClient


class Clients(Struct, frozen=True):
    """The kubelet's three clients (config.md 6.1), and those for requests of other processes.

    Each has its own connections. `kube`, `tokens`, `reviews` and `token_reviews` share one rate limit, the share of
    status in kubeAPIQPS and kubeAPIBurst (`shared.kube.rate_share`), and pass it in this order.
    """

    heartbeat: ApiClient  # node status and lease: no rate limit, a short time limit
    kube: ApiClient  # pods and mirror pods
    tokens: ApiClient  # tokens of service accounts
    reviews: ApiClient  # what a user may do
    token_reviews: ApiClient  # whose a bearer token is: every client of the server's port can cause one
    events: ApiClient  # Events: eventRecordQPS and eventBurst

    async def drop_connections(self) -> None:
        """Use new connections from now on."""
        for client in (self.heartbeat, self.kube, self.tokens, self.reviews, self.token_reviews, self.events):
            await client.drop_connections()

    async def close(self) -> None:
        """Close all connections."""
        for client in (self.heartbeat, self.kube, self.tokens, self.reviews, self.token_reviews, self.events):
            await client.close()
