"""Secrets and ConfigMaps that pods name: how many are watched, and when all of their versions are published."""

from pathlib import Path
from typing import Any

import pytest

from services.sources.controllers import bounded_objects
from shared.kube import paths
from shared.kube.interface import ApiStatusError
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node
from tests.service.sources.packets import LimitedClient
from tests.service.sources.shown_secrets import USER, put_secret, showing, version_of

pytestmark = pytest.mark.virtual_time


async def test_what_is_too_much_to_watch_is_read_again_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES", 3)
    async with cluster_node(tmp_path) as node:
        for number in range(5):
            put_secret(node, f"s{number}")
            node.api.bind(showing(f"web{number}", f"s{number}"), NODE)
            node.clock.advance(1.0)
        await node.start()
        assert node.asked("WATCH", "/secrets") == 3
        assert caplog.text.count("more than 3 Secrets and ConfigMaps") == 1
        await node.pass_time(1.0)
        assert sorted(node.changed.state) == [f"Secret/default/s{number}" for number in range(5)]
        found = await node.ask("Secret", "s4")
        assert found.object is not None and version_of(node, "s4") == found.object["metadata"]["resourceVersion"]
        assert node.asked("GET", "/secrets/s4") == 1
        newest = put_secret(node, "s4")
        await node.until(lambda: version_of(node, "s4") == newest, within=61.0)
        found = await node.ask("Secret", "s4")
        assert found.object is not None and found.object["metadata"]["resourceVersion"] == newest
        assert node.asked("GET", "/secrets/s4") == 2


async def test_a_watch_that_becomes_free_goes_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_objects, "MAX_WATCHES", 1)
    async with cluster_node(tmp_path) as node:
        for number in range(3):
            put_secret(node, f"s{number}")
            node.api.bind(showing(f"web{number}", f"s{number}"), NODE)
            node.clock.advance(1.0)
        await node.start()
        assert node.asked("WATCH", "/secrets") == 1
        node.api.delete(paths.pod("default", "web0"), grace=0)
        await node.settle()
        assert "Secret/default/s0" not in node.changed.state and node.asked("WATCH", "/secrets") == 2
        newest = put_secret(node, "s1")
        await node.settle()
        assert version_of(node, "s1") == newest
        assert (await node.ask("Secret", "s1")).object is not None
        assert (await node.ask("Secret", "s2")).object is not None


async def test_a_restart_never_deletes_a_known_object(node: ClusterNode) -> None:
    put_secret(node, "s")
    put_secret(node, "old")
    node.api.bind(showing("web", "s"), NODE)
    node.api.bind(showing("goes", "old"), NODE)
    await node.start()
    assert node.changed.complete
    await node.kill()
    node.api.delete(paths.pod("default", "goes"), grace=0)
    newest = put_secret(node, "s")
    before = len(node.changed.history)
    slow = LimitedClient(node.api.client(USER), node.clock, qps=0.5, burst=1)
    await node.start(objects_client=slow)
    assert node.desired.complete
    assert await node.until(lambda: node.changed.complete, within=10.0) > 0.0
    assert version_of(node, "s") == newest
    assert "delete Secret/default/s" not in node.changed.history
    assert "delete Secret/default/old" in node.changed.history[before:]


async def test_first_versions_are_not_waited_for_without_end(node: ClusterNode) -> None:
    node.api.bind(showing("web", "s", "t"), NODE)
    slow = LimitedClient(node.api.client(USER), node.clock, qps=0.001, burst=1)
    await node.start(objects_client=slow)
    assert node.desired.complete
    assert await node.until(lambda: node.changed.complete, within=10.2) > 9.0


async def test_an_object_that_cannot_be_read_is_waited_for_once(node: ClusterNode) -> None:
    put_secret(node, "s")
    node.api.bind(showing("web", "s"), NODE)

    class Refused:
        shares_watches = True

        async def get(self, path: str, query: Any = None, *, timeout: float) -> Any:
            raise ApiStatusError(403, "Forbidden", "no relationship found")

        def watch(self, path: str, query: Any, **limits: Any) -> Any:
            raise ApiStatusError(403, "Forbidden", "no relationship found")

        async def close(self) -> None: ...

    refused: Any = Refused()
    await node.start(node.api.client(USER), objects_client=refused)
    assert node.changed.complete and version_of(node, "s") is None
