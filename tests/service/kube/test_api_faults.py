"""The faults that tests order from the API server's double do what they are called."""

import asyncio

import pytest

from shared.kube import paths
from shared.kube.interface import ApiStatusError, ApiUnreachableError
from shared.model.objects import Object
from tests.fakes.api_resources import V1_20
from tests.fakes.api_server import FakeApiServer
from tests.fakes.virtual_time import virtual_clock

pytestmark = pytest.mark.virtual_time

_POD: Object = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}


def _server() -> FakeApiServer:
    server = FakeApiServer(virtual_clock())
    server.put(paths.node("n1"), {})
    return server


async def _let(seconds: float) -> None:
    """Time passes once everything that could happen at once has happened."""
    for _ in range(20):
        await asyncio.sleep(0)
    virtual_clock().advance(seconds)


async def test_a_server_that_is_down_breaks_watches_and_refuses_until_it_is_up() -> None:
    server = _server()
    node = server.client("system:node:n1")
    async with node.watch(paths.NODES, {"resourceVersion": "0"}, timeout=60) as events:
        await anext(events)
        server.down()
        with pytest.raises(ApiUnreachableError):
            await anext(events)
    with pytest.raises(ApiUnreachableError):
        await node.get(paths.node("n1"))
    server.up()
    assert (await node.get(paths.node("n1")))["metadata"]["name"] == "n1"
    assert server.requests == [("WATCH", paths.NODES), ("GET", paths.node("n1"))]


async def test_a_slow_request_takes_effect_at_its_end_or_not_at_all() -> None:
    server = _server()
    server.slow(5)
    node = server.client("system:node:n1")
    patching = asyncio.create_task(node.patch(paths.node_status("n1"), {"metadata": {"annotations": {"a": "b"}}}))
    await _let(4)
    assert server.get(paths.node("n1"))["metadata"].get("annotations") is None  # type: ignore[index]
    await _let(1)
    assert (await patching)["metadata"]["annotations"] == {"a": "b"}
    patching = asyncio.create_task(node.patch(paths.node_status("n1"), {"status": {"phase": "x"}}, timeout=3))
    await _let(3)
    with pytest.raises(ApiUnreachableError):
        await patching


async def test_too_many_requests_are_tried_again_after_the_time_that_is_named() -> None:
    server = _server()
    server.refuse(2, retry_after=3)
    getting = asyncio.create_task(server.client("system:node:n1").get(paths.node("n1")))
    for _ in range(2):
        await _let(2.9)
        assert not getting.done()
        await _let(0.1)
    assert (await getting)["metadata"]["name"] == "n1"
    assert len(server.requests) == 3
    server.refuse(1, 403)
    with pytest.raises(ApiStatusError, match="403"):
        await server.client().get(paths.node("n1"))


async def test_a_lost_answer_leaves_the_effect() -> None:
    server = _server()
    server.lose_answers(1)
    body = {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {}}
    with pytest.raises(ApiUnreachableError):
        await server.client("system:node:n1").create(paths.events("default"), body)
    assert server.get(paths.event("default", "e")) is not None


async def test_a_paused_server_sends_nothing_until_it_resumes() -> None:
    server = _server()
    node = server.client("system:node:n1")
    async with node.watch(paths.PODS, {"resourceVersion": "0"}, timeout=600) as events:
        server.pause()
        server.bind(_POD, "n1")
        event = asyncio.ensure_future(anext(events))
        asking = asyncio.create_task(node.get(paths.node("n1"), timeout=10))
        await _let(11)
        with pytest.raises(ApiUnreachableError):
            await asking
        assert not event.done()
        server.resume()
        assert (await event).type == "ADDED"


async def test_an_older_server_drops_what_it_does_not_know() -> None:
    server = FakeApiServer(virtual_clock(), drops=V1_20)
    pod = server.bind(_POD, "n1")
    assert "generation" not in pod["metadata"]
    condition = {"type": "Ready", "status": "True", "observedGeneration": 1}
    status = {"observedGeneration": 1, "hostIPs": [{"ip": "10.0.0.1"}], "hostIP": "10.0.0.1", "conditions": [condition]}
    node = server.client("system:node:n1")
    after = (await node.patch(paths.pod_status("default", "web"), {"status": status}))["status"]
    assert "observedGeneration" not in after and "hostIPs" not in after and after["hostIP"] == "10.0.0.1"
    assert after["conditions"] == [{"type": "Ready", "status": "True"}]
