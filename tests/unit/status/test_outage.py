"""What begins an outage for status, and what ends it."""

from typing import Any, cast

import pytest

from services.status.adapters.outage_gate import GatedClient
from services.status.core.outage import Outage
from shared.kube.interface import ApiClient, ApiUnreachableError


class Network:
    """A client whose requests fail as long as `error` is set; `sent` counts."""

    def __init__(self) -> None:
        self.error, self.sent = "", 0

    async def get(self, path: str, query: object = None, *, timeout: float | None = None) -> dict[str, Any]:
        self.sent += 1
        if self.error:
            raise ApiUnreachableError(self.error)
        return {}


@pytest.fixture
def network() -> Network:
    return Network()


def clients_of(network: Network) -> tuple[GatedClient, GatedClient]:
    """That of the heartbeat, and that of reviews."""
    outage, client = Outage(), cast(ApiClient, network)
    return GatedClient(client, outage, is_heartbeat=True), GatedClient(client, outage)


async def test_a_heartbeat_that_fails_holds_the_others_back_until_one_is_answered(network: Network) -> None:
    heartbeat, reviews = clients_of(network)
    network.error = "refused"
    with pytest.raises(ApiUnreachableError):
        await heartbeat.get("/lease")
    with pytest.raises(ApiUnreachableError, match="refused"):
        await reviews.get("/review")
    assert network.sent == 1
    network.error = ""
    await heartbeat.get("/lease")
    await reviews.get("/review")


async def test_lost_connections_of_other_requests_hold_nothing_back(network: Network) -> None:
    """An API server that restarts behind a load balancer loses some requests, and clients go on to need reviews."""
    _, reviews = clients_of(network)
    network.error = "reset"
    for _ in range(3):
        with pytest.raises(ApiUnreachableError):
            await reviews.get("/review")
    network.error = ""
    await reviews.get("/review")
    assert network.sent == 4
