"""Lists that are the beginning of a watch (`sendInitialEvents`), and servers that cannot do that."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.sources.controllers.list_watch import MAX_STALLED_SECONDS
from shared.kube import paths
from shared.kube.interface import ApiClient, ApiUnreachableError, WatchEvent
from shared.model.objects import Object
from tests.fakes.api_resources import V1_18, V1_20, OlderServer
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, pod
from tests.service.sources.shown_secrets import USER, put_secret, showing, version_of

pytestmark = pytest.mark.virtual_time

SECRETS = paths.referenced("Secret", "default")
OFF = OlderServer(lists_by_watch=False)  # 1.27 to 1.33, and those whose operator has switched WatchList off


def plain(node: ClusterNode, path: str = SECRETS) -> int:
    """The lists of the node that are no beginning of a watch."""
    return sum(received.method == "GET" and received.path == path for received in node.api.received)


def by_watch(node: ClusterNode, path: str = SECRETS) -> list[dict[str, str]]:
    """The queries of the watches that were to begin with all objects."""
    return [each.query for each in node.api.received if "sendInitialEvents" in each.query and each.path == path]


async def test_a_secret_is_listed_and_watched_by_one_request(node: ClusterNode) -> None:
    put_secret(node, "s")
    node.api.bind(showing("web", "s"), NODE)
    await node.start()
    first = version_of(node, "s")
    assert first
    put_secret(node, "s")
    await node.settle()
    assert version_of(node, "s") not in (None, first)
    assert by_watch(node) == [
        {
            "allowWatchBookmarks": "true",
            "fieldSelector": "metadata.name=s",
            "resourceVersion": "0",
            "resourceVersionMatch": "NotOlderThan",
            "sendInitialEvents": "true",
        }
    ]
    assert node.asked("WATCH", "/secrets") == 1 and plain(node) == 0


async def test_what_went_and_came_while_the_version_expired_is_in_the_watch_that_begins_again(
    node: ClusterNode,
) -> None:
    for name in ("goes", "stays"):
        put_secret(node, name)
    node.api.bind(showing("web", "goes", "stays"), NODE)
    await node.start()
    assert version_of(node, "goes")
    node.api.down()
    await node.settle()
    node.api.delete(f"{SECRETS}/goes")
    put_secret(node, "stays")
    node.api.compact()
    node.api.received.clear()
    node.api.up()
    await node.until(lambda: version_of(node, "goes") == "", within=10.0)
    await node.pass_time(10.0)
    kept = node.api.get(f"{SECRETS}/stays")
    assert kept is not None and version_of(node, "stays") == kept["metadata"]["resourceVersion"]
    assert len(by_watch(node)) == 2 and plain(node) == 0


@pytest.mark.parametrize("drops", [V1_20, OFF], ids=["1.20", "off"])
async def test_an_api_server_that_refuses_it_is_listed_at_once_and_not_asked_again(
    tmp_path: Path, drops: OlderServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_node(tmp_path, drops=drops) as node:
        for name in ("s", "t"):
            put_secret(node, name)
        node.api.bind(showing("web", "s"), NODE)
        began = node.clock.monotonic()
        await node.start()
        assert version_of(node, "s") and (await node.services_for("default")).synced
        assert node.clock.monotonic() == began, "no time passes"
        assert plain(node) == 1
        node.api.received.clear()
        node.api.bind(showing("other", "t"), NODE)
        await node.settle()
        assert version_of(node, "t") and by_watch(node) == [] and plain(node) == 1
        assert node.troubles() == () and "sendInitialEvents" not in caplog.text
        node.api.down()
        await node.pass_time(10.0)
        put_secret(node, "u")
        node.api.up()
        await node.pass_time(60.0)
        node.api.bind(showing("third", "u"), NODE)
        await node.settle()
        assert version_of(node, "u") and len(by_watch(node)) == 1, "it may be a newer one after an outage"


async def test_an_api_server_that_ignores_it_is_listed_after_seconds_and_then_at_once(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, drops=V1_18) as node:
        for name in ("s", "t"):
            put_secret(node, name)
        node.api.bind(showing("web", "s"), NODE)
        await node.start()
        assert version_of(node, "s") is None, "objects without the bookmark may not be all"
        await node.pass_time(MAX_STALLED_SECONDS + 0.1)
        assert version_of(node, "s") and node.troubles() == ()
        node.api.bind(showing("other", "t"), NODE)
        await node.settle()
        assert version_of(node, "t")


async def test_without_the_feature_gate_no_watch_begins_with_all_objects(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, feature_gates={"WatchListClient": False}) as node:
        put_secret(node, "s")
        node.api.bind(showing("web", "s"), NODE)
        await node.start()
        assert version_of(node, "s") and plain(node) == 1
        assert not [each for each in node.api.received if "sendInitialEvents" in each.query]


class ScriptedWatches:
    """A client whose watches of Secrets have these events, after which the connection breaks."""

    def __init__(self, client: ApiClient, *events: WatchEvent) -> None:
        self._client, self._events = client, events
        self.lists = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, path: str, query: Any = None, *, timeout: float | None = None) -> Object:
        self.lists += path == SECRETS
        return await self._client.get(path, query, timeout=timeout)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, query: Any, **limits: Any) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if path != SECRETS or self.lists:
            async with self._client.watch(path, query, **limits) as stream:
                yield stream
            return
        yield self._played()

    async def _played(self) -> AsyncIterator[WatchEvent]:
        for event in self._events:
            yield event
        raise ApiUnreachableError("the connection was lost")


def event(kind: str, version: str, *, ends: bool = False) -> WatchEvent:
    annotations = {"k8s.io/initial-events-end": "true"} if ends else {}
    named = {} if kind == "BOOKMARK" else {"name": "s", "namespace": "default"}
    return WatchEvent(kind, {"metadata": named | {"resourceVersion": version, "annotations": annotations}})


async def published(tmp_path: Path, *events: WatchEvent) -> tuple[str | None, int]:
    """The version of Secret `s` after these events, and how often Secrets were listed."""
    async with cluster_node(tmp_path) as node:
        put_secret(node, "s")
        node.api.bind(showing("web", "s"), NODE)
        client: Any = ScriptedWatches(node.api.client(USER), *events)
        await node.start(node.api.client(USER), objects_client=client)
        await node.pass_time(0.5)
        before = version_of(node, "s")
        return before, client.lists


async def test_changes_between_the_objects_and_the_bookmark_count(tmp_path: Path) -> None:
    changed = (event("ADDED", "3"), event("MODIFIED", "91"), event("BOOKMARK", "92", ends=True))
    assert await published(tmp_path / "changed", *changed) == ("91", 0)
    gone = (event("ADDED", "3"), event("BOOKMARK", "4"), event("DELETED", "91"), event("BOOKMARK", "92", ends=True))
    assert await published(tmp_path / "gone", *gone) == ("", 0)


async def test_objects_before_a_break_are_not_taken_for_all(tmp_path: Path) -> None:
    assert await published(tmp_path, event("ADDED", "3"), event("BOOKMARK", "4")) == (None, 0)


async def test_a_bookmark_without_a_version_and_more_than_a_list_may_have_are_followed_by_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, lists = await published(tmp_path / "version", event("ADDED", "3"), event("BOOKMARK", "", ends=True))
    assert version not in (None, "3") and lists == 1
    monkeypatch.setattr("services.sources.controllers.list_watch.MAX_INITIAL_BYTES", 0)
    large = WatchEvent("ADDED", event("ADDED", "3").object, size=1)
    version, lists = await published(tmp_path / "large", large, event("BOOKMARK", "92", ends=True))
    assert version not in (None, "3") and lists == 1


async def test_pods_are_listed_by_a_watch_once_there_is_a_version_not_to_go_back_from(node: ClusterNode) -> None:
    node.api.bind(pod("web"), NODE)
    await node.start()
    assert plain(node, paths.PODS) == 1 and by_watch(node, paths.PODS) == []
    await node.kill()
    node.api.received.clear()
    node.api.delete(paths.pod("default", "web"), grace=0)
    node.api.bind(pod("comes"), NODE)
    await node.start()
    assert node.wanted() == ["comes"] and node.desired.complete
    assert plain(node, paths.PODS) == 0 and len(by_watch(node, paths.PODS)) == 1
    assert plain(node, paths.NODES) == 1, "the list by which the store is compared"
