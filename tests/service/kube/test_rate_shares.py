"""All processes together spend kubeAPIQPS and kubeAPIBurst once, and in each the more urgent requests go first."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.frame.launch import Context
from services.sources import service as sources
from services.status import service as status
from shared.kube.rate_share import rate_share
from shared.kube.request_queue import Urgency
from shared.metrics.registry import Registry
from tests.service.sources.cluster import ClusterNode

pytestmark = pytest.mark.virtual_time


class RecordedClient:
    """A client that was made with these rates, or behind another one."""

    def __init__(self, rates: list[tuple[float, int]], urgency: Urgency = Urgency.FIRST) -> None:
        self.rates, self.urgency = rates, urgency

    def behind(self, urgency: Urgency = Urgency.SECOND, *, shares_connections: bool = False) -> "RecordedClient":
        return RecordedClient(self.rates, urgency)


async def test_the_rates_of_all_clients_add_up_to_the_configured_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[tuple[float, int]] = []
    given: list[Any] = []

    def client(_: Any, *, qps: float, burst: int, **__: Any) -> RecordedClient:
        rates.append((qps, burst))
        return RecordedClient(rates)

    for service in (sources, status):
        monkeypatch.setattr(service, "kube_client", client)
    monkeypatch.setattr(sources, "Sources", lambda context, clients: given.append(clients))
    node = ClusterNode(tmp_path, kube_api_qps=7, kube_api_burst=9, event_record_qps=3, event_burst=4)
    sources.build(Context("sources", node.config, node.network.bus("sources"), node.clock, asyncio.Event()))
    made = status.clients_of(node.config, lambda _: None, Registry())
    limited = [rate for rate in rates if rate[0] >= 0 and rate != (3, 4)]
    assert sum(qps for qps, _ in limited) == pytest.approx(7) and sum(burst for _, burst in limited) == 9
    urgencies: Any = [given[0].node, given[0].objects, made.kube, made.tokens, made.reviews, made.token_reviews]
    assert [client.urgency for client in urgencies] == [0, 1, 0, 1, 2, 3]


@pytest.mark.parametrize(("release", "qps", "given"), [("1.36", 0, 0), ("1.37", 0, -1), ("1.37", 3, 3)])
async def test_event_record_qps_of_0_is_no_limit_since_kubernetes_1_37(
    release: str, qps: int, given: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the client takes 0 for its own 5 requests a second; a negative rate is no limit."""
    rates: dict[float, float] = {}

    def client(_: Any, *, qps: float, burst: int, **__: Any) -> RecordedClient:
        rates[burst] = qps
        return RecordedClient([])

    monkeypatch.setattr(status, "kube_client", client)
    node = ClusterNode(tmp_path, emulated_version=release, event_record_qps=qps, event_burst=4)
    status.clients_of(node.config, lambda _: None, Registry())
    assert rates[4] == given


@pytest.mark.parametrize(
    ("qps", "burst", "together"), [(50, 100, (50, 100)), (0, 0, (5, 10)), (1, 2, (1, 2)), (1, 1, (1, 2))]
)
def test_the_shares_of_sources_and_status(qps: float, burst: int, together: tuple[float, int]) -> None:
    """With one request at once, each process may still send one."""
    shares = [rate_share(service, qps, burst) for service in ("sources", "status")]
    assert sum(share for share, _ in shares) == pytest.approx(together[0])
    assert sum(share for _, share in shares) == together[1] and min(share for _, share in shares) >= 1
    assert rate_share("status", -1, 0) == (-1, 0)
