"""Watches that become free: who waits for the object that takes one is answered, and a deletion opens none in vain."""

import asyncio
from pathlib import Path

import pytest

from bus.messages.sources import FoundObject, GetObject
from services.sources.controllers import bounded_objects
from services.sources.controllers.watched_objects import WatchedObjects
from shared.kube import paths
from shared.podspec.references import Reference
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node
from tests.service.sources.packets import LimitedClient
from tests.service.sources.shown_secrets import SECRETS, USER, put_secret, showing

pytestmark = pytest.mark.virtual_time

NAMES = [f"s{number}" for number in range(60)]
IMMUTABLE, CHANGING = NAMES[:10], NAMES[10:]


async def starting(node: ClusterNode) -> None:
    """The ten watches there are become free while reads wait, for what is watched first cannot change."""
    for name in IMMUTABLE:
        node.api.put(f"{SECRETS}/{name}", {"data": {}, "immutable": True})
    for name in CHANGING:
        put_secret(node, name)
    node.api.bind(showing("web", *NAMES), NODE)
    limited = LimitedClient(node.api.client(USER), node.clock, qps=10.0, burst=5)
    await node.start(node.api.client(USER), objects_client=limited)


async def ask(node: ClusterNode, name: str) -> FoundObject:
    """As another service; time is passed by the test."""
    return await node._bus.ask("sources", GetObject(kind="Secret", namespace="default", name=name), FoundObject, 30.0)


@pytest.fixture(autouse=True)
def ten_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES", 10)


async def test_who_waits_for_a_read_gets_its_answer_when_a_watch_becomes_free(node: ClusterNode) -> None:
    await starting(node)
    asking = [asyncio.create_task(ask(node, name)) for name in NAMES]
    await node.pass_time(20.0)
    errors = {found.error for found in await asyncio.gather(*asking) if found.object is None}
    assert errors <= {"failed to sync secret cache: timed out waiting for the condition"}
    watching = {received.query["fieldSelector"] for received in node.api.received if received.method == "WATCH"}
    assert len(watching & {f"metadata.name={name}" for name in CHANGING}) == 10, "every watch is in use again"


async def test_without_http2_fewer_objects_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES_WITHOUT_HTTP2", 4)
    async with cluster_node(tmp_path) as node:
        node.api.speaks_http2 = False
        for name in NAMES[:11]:
            put_secret(node, name)
        node.api.bind(showing("web", *NAMES[:11]), NODE)
        await node.start()
        await node.pass_time(10.0)
        assert len(secrets_watched(node)) == 4
        node.api.speaks_http2 = True
        await node.pass_time(60.0)
        assert len(secrets_watched(node)) == 10, "those that were read are watched after their next read"
        assert open_watches(node) == 10
        node.api.speaks_http2 = False
        await node.pass_time(60.0)
        assert open_watches(node) == 4, "the surplus is read"


def open_watches(node: ClusterNode) -> int:
    return sum(stream.resource == "secrets" for stream in node.api.store.streams)


def secrets_watched(node: ClusterNode) -> set[str]:
    watches = [received for received in node.api.received if received.method == "WATCH"]
    return {one.query["fieldSelector"] for one in watches if one.path.endswith("/secrets")}


async def test_while_a_watch_begins_what_was_read_is_the_answer_but_not_for_a_pod_that_comes(node: ClusterNode) -> None:
    for name in NAMES[:11]:
        put_secret(node, name)
    node.api.bind(showing("goes", *NAMES[:10]), NODE)
    await node.start()
    node.api.bind(showing("web", NAMES[10]), NODE)
    await node.pass_time(1.0)
    assert (await node.ask("Secret", NAMES[10])).object is not None
    node.api.slow(0.5)
    node.api.delete(paths.pod("default", "goes"), grace=0)
    await node.pass_time(0.1)
    newest = put_secret(node, NAMES[10])
    asking = asyncio.create_task(ask(node, NAMES[10]))
    await node.settle()
    assert asking.done() and asking.result().object is not None, "it is watched from now on, and known"
    node.api.bind(showing("comes", NAMES[10]), NODE)
    await node.settle()
    found = await node.ask("Secret", NAMES[10])
    assert found.object is not None and found.object["metadata"]["resourceVersion"] == newest


async def test_the_watches_of_a_deleted_pod_go_to_objects_of_pods_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    register = WatchedObjects.register

    def registered(watched: WatchedObjects, reference: Reference, *more: object) -> None:
        begun.append(reference.name)
        register(watched, reference, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(WatchedObjects, "register", registered)
    async with cluster_node(tmp_path) as node:
        for name in NAMES[:43]:
            put_secret(node, name)
        node.api.bind(showing("goes", *NAMES[:40]), NODE)
        await node.start()
        node.api.bind(showing("stays", *NAMES[40:43]), NODE)
        await node.pass_time(5.0)
        assert begun == NAMES[:10]
        node.api.delete(paths.pod("default", "goes"), grace=0)
        await node.settle()
        assert begun[10:] == NAMES[40:43]
