"""An API server that throttles or stalls gets few requests meanwhile, and every status within a second afterwards."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.api_server import FakeApiServer
from tests.fakes.virtual_time import until
from tests.service.status.cluster import Cluster

pytestmark = pytest.mark.virtual_time

PODS = 30


async def running(tmp_path: Path) -> tuple[Cluster, dict[str, str]]:
    """A node with many pods; name -> UID."""
    cluster = Cluster(tmp_path)
    await cluster.begin()
    uids = {name: cluster.create(name) for name in (f"p{number}" for number in range(PODS))}
    for name, uid in uids.items():
        cluster.admit(uid, name=name)
        cluster.publish_status(uid, name=name)
    await cluster.live(2)
    return cluster, uids


async def churn(cluster: Cluster, uids: dict[str, str], seconds: int, message: str) -> int:
    """Each second the status of one pod changes; how many requests reached the API server."""
    before = len(cluster.server.received)
    for second in range(seconds):
        name = f"p{second % PODS}"
        cluster.publish_status(uids[name], name=name, message=f"{message} {second}")
        await cluster.live(1)
    return len(cluster.server.received) - before


FAULTS: list[tuple[str, Callable[[FakeApiServer], None], int]] = [
    ("429 with Retry-After 1", lambda server: server.refuse(0, 429, retry_after=1.0), 120),
    ("429 with Retry-After 10", lambda server: server.refuse(0, 429, retry_after=10.0), 120),
    ("503 with Retry-After 1", lambda server: server.refuse(0, 503, retry_after=1.0), 120),
    ("a stall", lambda server: server.pause(), 20),
]
CASES = [
    pytest.param(*fault, id=fault[0], marks=[pytest.mark.long] if number else []) for number, fault in enumerate(FAULTS)
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("what", "strike", "seconds"), CASES)
async def test_a_busy_server_is_not_asked_more_and_gets_every_status_in_time(
    tmp_path: Path, what: str, strike: Callable[[FakeApiServer], None], seconds: int
) -> None:
    cluster, uids = await running(tmp_path)
    undisturbed = await churn(cluster, uids, 60, "undisturbed")
    strike(cluster.server)
    asked = await churn(cluster, uids, seconds, what)
    assert asked <= 2 * undisturbed * seconds / 60
    cluster.server.up()
    written = await until(cluster.network, lambda: all(map(cluster.is_written, uids.values())), 12)
    assert written <= (10.0 if "10" in what else 1.0), "as soon as the server asked to be asked again"
    await cluster.stop()
