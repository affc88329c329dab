"""An outage in which packets are dropped: no request is refused, and all is in step soon after the return."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shared.kube import paths
from shared.kube.interface import ApiUnansweredError
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, noticed_within, pod
from tests.service.sources.packets import DIAL, LimitedClient, LossyClient
from tests.service.sources.shown_secrets import USER, put_secret, showing, version_of

pytestmark = pytest.mark.virtual_time


async def notice(node: ClusterNode) -> None:
    """Another service requests an object; this request notices the outage."""
    assert (await node.ask("Secret", "s", fresh=True)).object is None


@pytest.mark.long
@pytest.mark.parametrize("seconds", [5.5, 7.0, 9.1, 10.9, 13.7, 40.0, 61.3, 600.0])
async def test_watches_that_died_resume_from_their_versions(node: ClusterNode, seconds: float) -> None:
    node.api.bind(showing("goes", "s"), NODE)
    node.api.bind(showing("stays", "s"), NODE)
    put_secret(node, "s")
    client = LossyClient(node.api.client(USER))
    await node.start(client)
    assert (node.asked("GET", "/pods"), node.asked("GET", "/secrets")) == (1, 1)
    client.drop()
    await notice(node)
    node.api.delete(paths.pod("default", "goes"), grace=0)
    node.api.bind(showing("comes", "s"), NODE)
    newest = put_secret(node, "s")
    await node.pass_time(seconds - DIAL)
    assert node.wanted() == ["goes", "stays"]
    client.restore()
    within = 10.0 + noticed_within(seconds)
    await node.until(lambda: node.wanted() == ["comes", "stays"] and version_of(node, "s") == newest, within)
    assert (node.asked("GET", "/pods"), node.asked("GET", "/secrets")) == (1, 1), "no other list"
    assert node.asked("GET", "/nodes") == 2, "one by which the store is compared"
    assert node.troubles() == ()


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.5, 4.9, 6.0, 8.0, 13.0, 33.3, 120.0])
async def test_sources_that_began_in_such_an_outage_knows_its_pods_after_it(node: ClusterNode, seconds: float) -> None:
    node.api.bind(showing("web", "s"), NODE)
    newest = put_secret(node, "s")
    client = LossyClient(node.api.client(USER))
    client.drop()
    await node.start(client)
    await node.pass_time(seconds)
    client.restore()
    within = 10.0 + noticed_within(seconds)
    await node.until(lambda: node.desired.complete and version_of(node, "s") == newest, within)
    assert node.wanted() == ["web"]


async def test_a_request_that_fails_repeats_the_watch_of_the_node_and_no_other(node: ClusterNode) -> None:
    node.api.bind(showing("web", "s"), NODE)
    put_secret(node, "s")
    client = LossyClient(node.api.client(USER))
    await node.start(client)
    watches = node.asked("WATCH", "/pods"), node.asked("WATCH", "/secrets")
    client.drop()
    await notice(node)
    await node.pass_time(60.0)
    assert [line for line in node.troubles() if "API server not reachable" in line]
    client.restore()
    await node.pass_time(10.0 + noticed_within(60.0))
    assert (node.asked("WATCH", "/pods"), node.asked("WATCH", "/secrets")) == (watches[0] + 1, watches[1] + 1)


async def test_a_list_of_pods_that_takes_long_is_read_all_the_same(tmp_path: Path) -> None:
    class Slow:
        def __init__(self, client: Any) -> None:
            self._client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

        async def get(self, path: str, query: Any = None, *, timeout: float | None = None) -> Any:
            if path == paths.PODS:
                try:
                    async with asyncio.timeout(timeout):
                        await asyncio.sleep(18.0)
                except TimeoutError:
                    raise ApiUnansweredError("no answer in time") from None
            return await self._client.get(path, query, timeout=timeout)

    async with cluster_node(tmp_path) as node:
        node.api.bind(pod("web"), NODE)
        client: Any = Slow(node.api.client(USER))
        await node.start(client)
        await node.until(lambda: node.desired.complete, within=60.0)
        assert node.wanted() == ["web"]


@pytest.mark.long
async def test_pods_do_not_wait_behind_the_secrets_that_pods_name(node: ClusterNode) -> None:
    names = [f"s{number}" for number in range(90)]
    for name in names:
        put_secret(node, name)
    node.api.bind(showing("web", *names), NODE)
    slow = LimitedClient(node.api.client(USER), node.clock, qps=1.0, burst=1)
    await node.start(node.api.client(USER), objects_client=slow)
    await node.pass_time(300.0)
    node.api.down()
    await node.pass_time(60.0)
    node.api.bind(pod("comes"), NODE)
    node.api.up()
    await node.until(lambda: node.wanted() == ["comes", "web"], within=noticed_within(60.0) + 2.0)
