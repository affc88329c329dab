"""More Secrets than are watched: each is read once for all requests, changes show in time, and no queue grows."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.interface import NoAnswerError
from bus.messages.sources import REQUESTED_READ_TIMEOUT_SECONDS, FoundObject, GetObject
from services.sources.controllers import bounded_objects, referenced_objects
from shared.kube import paths
from shared.kube.interface import MAX_RETRY_AFTER_SECONDS
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node
from tests.service.sources.packets import LimitedClient
from tests.service.sources.shown_secrets import SECRETS, USER, put_secret, showing, version_of

pytestmark = pytest.mark.virtual_time

PODS = 110
NAMES = [f"s{number}" for number in range(1500)]
TTL = {"node.alpha.kubernetes.io/ttl": "0"}  # as controllers write it for small clusters


class Volumes:
    """Asks for what volumes show, as the volume service does: again after a failure, or once the object changed."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.mounted: set[str] = set()
        self.asks = 0

    async def mount(self, name: str) -> None:
        """Until it is there."""
        wait, request = 0.5, GetObject(kind="Secret", namespace="default", name=name)
        while name not in self.mounted:
            self.asks += 1
            try:
                found = await self.node._bus.ask("sources", request, FoundObject, REQUESTED_READ_TIMEOUT_SECONDS)
            except NoAnswerError:
                continue
            if found.object is not None:
                self.mounted.add(name)
            else:
                assert "not registered" not in found.error
                await asyncio.sleep(wait)
                wait = min(2 * wait, 122.0)


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClusterNode]:
    """Yield a node that watches no Secret."""
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES", 0)
    async with cluster_node(tmp_path) as node:
        yield node


def reads(node: ClusterNode) -> int:
    return sum(1 for verb, path in node.api.requests if verb == "GET" and path.startswith(f"{SECRETS}/"))


async def loaded(node: ClusterNode) -> None:
    node.api.put(paths.node(NODE), {"metadata": {"name": NODE, "annotations": TTL}})
    for name in NAMES:
        put_secret(node, name)
    for number in range(PODS):
        node.api.bind(showing(f"web{number}", *NAMES[number::PODS]), NODE)
    limited = LimitedClient(node.api.client(USER), node.clock, qps=30.0, burst=60)  # the share of sources
    await node.start(node.api.client(USER), objects_client=limited)


@pytest.mark.long
async def test_1500_secrets_in_110_pods_are_mounted_in_95_seconds_and_kept_in_step(tmp_path: Path) -> None:
    async with cluster_node(tmp_path) as node:
        await loaded(node)
        volumes = Volumes(node)
        mounting = [asyncio.create_task(volumes.mount(name)) for name in NAMES]
        await node.until(lambda: len(volumes.mounted) == len(NAMES), within=95.0)
        assert reads(node) <= 1.1 * len(NAMES), "each was read once, and refreshes have only begun"
        await asyncio.gather(*mounting)
        watched = next(name for name in NAMES if not node.asked("GET", f"/secrets/{name}"))
        unwatched = [name for name in NAMES if node.asked("GET", f"/secrets/{name}")]
        assert len(unwatched) == len(NAMES) - bounded_objects.MAX_WATCHES
        newest = {name: put_secret(node, name) for name in (watched, unwatched[0], unwatched[700], unwatched[-1])}
        await node.until(lambda: version_of(node, watched) == newest[watched], within=2.0)
        await node.until(lambda: all(version_of(node, name) == newest[name] for name in newest), within=90.0)
        before = reads(node)
        node.api.bind(showing("comes", "first"), NODE)
        put_secret(node, "first")
        asking = asyncio.create_task(volumes.mount("first"))
        await node.until(asking.done, within=1.0)
        await node.pass_time(59.0)
        assert reads(node) - before < 0.55 * 30 * 60, "refreshes take half of the rate limit"


async def test_a_pod_of_very_many_absent_secrets_delays_another_by_what_is_being_read_alone(node: ClusterNode) -> None:
    node.api.bind(showing("large", *NAMES[:400]), NODE)
    limited = LimitedClient(node.api.client(USER), node.clock, qps=20.0, burst=20)
    await node.start(node.api.client(USER), objects_client=limited)
    volumes = Volumes(node)
    absent = [asyncio.create_task(volumes.mount(name)) for name in NAMES[:400]]
    await node.pass_time(1.0)
    put_secret(node, "first")
    node.api.bind(showing("comes", "first"), NODE)
    await node.settle()
    asking = asyncio.create_task(volumes.mount("first"))
    await node.until(asking.done, within=1.5)
    for task in absent:
        task.cancel()


async def test_reads_that_no_pod_needs_any_more_are_given_up(node: ClusterNode) -> None:
    for name in NAMES[:200]:
        put_secret(node, name)
    node.api.bind(showing("goes", *NAMES[:200]), NODE)
    limited = LimitedClient(node.api.client(USER), node.clock, qps=1.0, burst=1)
    await node.start(node.api.client(USER), objects_client=limited)
    asking = [asyncio.create_task(node.ask("Secret", name, within=20.0)) for name in NAMES[:200]]
    await node.pass_time(10.0)
    node.api.delete(paths.pod("default", "goes"), grace=0)
    assert any("not registered" in found.error for found in await asyncio.gather(*asking))
    node.api.bind(showing("comes", "new"), NODE)
    put_secret(node, "new")
    await node.settle()
    before = reads(node)
    assert (await node.ask("Secret", "new")).object is not None
    await node.pass_time(20.0)
    assert reads(node) - before == 1


async def test_of_a_pod_that_names_too_many_secrets_no_more_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES", 0)
    monkeypatch.setattr(referenced_objects, "MAX_REFERENCES", 5)
    async with cluster_node(tmp_path) as node:
        node.api.bind(showing("web", *NAMES[:20]), NODE)
        await node.start()
        await node.pass_time(60.0)
        asked = {path.rpartition("/")[2] for _, path in node.api.requests if path.startswith(f"{SECRETS}/")}
        assert asked == set(NAMES[:5])


async def test_a_change_of_a_pods_status_reads_nothing_again(node: ClusterNode) -> None:
    put_secret(node, "s")
    node.api.bind(showing("web", "s"), NODE)
    await node.start()
    await node.ask("Secret", "s")
    before = reads(node)
    for number in range(10):
        node.api.put(
            paths.pod("default", "web"), {**_pod(node), "status": {"phase": "Running", "message": f"{number}"}}
        )
        assert (await node.ask("Secret", "s")).object is not None
    assert reads(node) == before


async def test_a_pod_that_comes_reads_what_is_newest(node: ClusterNode) -> None:
    put_secret(node, "s")
    node.api.bind(showing("web", "s"), NODE)
    await node.start()
    await node.ask("Secret", "s")
    node.api.slow(0.5)
    asking = asyncio.create_task(node.ask("Secret", "s", fresh=True))
    await node.pass_time(0.4)
    newest = put_secret(node, "s")
    node.api.bind(showing("comes", "s"), NODE)
    await node.pass_time(0.05)
    found = await node.ask("Secret", "s")
    assert found.object is not None and found.object["metadata"]["resourceVersion"] == newest
    await asking


async def test_immutable_objects_take_no_watch_and_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES", 2)
    async with cluster_node(tmp_path) as node:
        for name in ("i0", "i1", "i2", "i3"):
            node.api.put(f"{SECRETS}/{name}", {"data": {}, "immutable": True})
        for name in ("a", "b"):
            put_secret(node, name)
        node.api.bind(showing("web", "i0", "i1", "i2", "i3", "a", "b"), NODE)
        await node.start()
        await node.pass_time(1.0)
        newest = put_secret(node, "a"), put_secret(node, "b")
        await node.settle()
        assert (version_of(node, "a"), version_of(node, "b")) == newest, "the watches went to those that can change"
        asked = reads(node)
        await node.pass_time(300.0)
        assert reads(node) == asked
        for name in ("i0", "i3"):
            assert (await node.ask("Secret", name)).object is not None


@pytest.mark.long
async def test_reads_wait_as_long_as_the_api_server_asks_for(node: ClusterNode) -> None:

    for name in NAMES[:100]:
        put_secret(node, name)
    node.api.bind(showing("web", *NAMES[:100]), NODE)
    client: Any = node.api.client(USER)
    client.tries = 1
    await node.start(client)
    await node.pass_time(60.0)
    before = reads(node)
    await node.pass_time(60.0)
    undisturbed = reads(node) - before
    node.api.refuse(0, 429, retry_after=10.0)
    before = reads(node)
    await node.pass_time(120.0)
    assert reads(node) - before <= 2 * undisturbed
    node.api.up()
    newest = put_secret(node, "s5")
    await node.until(lambda: version_of(node, "s5") == newest, within=45.0)


async def test_one_refusal_of_one_secret_stops_the_reads_for_two_minutes_at_most(node: ClusterNode) -> None:
    for name in NAMES[:3]:
        put_secret(node, name)
    node.api.bind(showing("web", *NAMES[:3]), NODE)
    await node.start()
    await node.pass_time(5.0)
    node.api.refuse(1, 429, retry_after=999999.0)
    await node.ask("Secret", "s0", fresh=True)
    newest = put_secret(node, "s1")
    await node.until(lambda: version_of(node, "s1") == newest, within=MAX_RETRY_AFTER_SECONDS + 31.0)


def _pod(node: ClusterNode) -> Any:
    return node.api.get(paths.pod("default", "web"))


@pytest.mark.parametrize("strategy", ["Watch", "Cache", "Get"])
async def test_after_etcd_was_restored_what_is_not_watched_is_what_the_store_has_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES", 0)
    async with cluster_node(tmp_path, change_detection_strategy=strategy) as node:
        put_secret(node, "s")
        node.api.put(f"{SECRETS}/fixed", {"data": {"k": "old"}, "immutable": True})
        node.api.bind(showing("web", "s", "fixed"), NODE)
        await node.start()
        restored, backup = version_of_store(node), node.api.store.backup()
        node.api.delete(f"{SECRETS}/fixed")
        node.api.put(f"{SECRETS}/fixed", {"data": {"k": "new"}, "immutable": True})
        node.api.bind(showing("comes", "fixed"), NODE)  # a pod that comes has it read again
        for _ in range(5):
            put_secret(node, "s")
        await node.pass_time(65.0)
        for name in ("s", "fixed"):
            found = await node.ask("Secret", name)
            assert found.object is not None and found.object["metadata"]["resourceVersion"] != restored[name]
        node.api.bookmark()
        await node.pass_time(1.0)
        node.api.down()
        await node.pass_time(3.0)
        node.api.store.restore(backup)
        node.api.up()
        await node.pass_time(65.0)
        for name in ("s", "fixed"):
            found = await node.ask("Secret", name)
            assert found.object is not None and found.object["metadata"]["resourceVersion"] == restored[name]
            assert version_of(node, name) == restored[name]


def version_of_store(node: ClusterNode) -> dict[str, str]:
    found = {name: node.api.get(f"{SECRETS}/{name}") for name in ("s", "fixed")}
    return {name: secret["metadata"]["resourceVersion"] for name, secret in found.items() if secret is not None}
