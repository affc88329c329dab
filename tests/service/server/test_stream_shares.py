"""Streams of pods on the main listener: the namespaces share them, and one that has many leaves the others theirs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.server.controllers import request_handler
from shared.model.frozen_copy import replace
from tests.service.server.main_listener import MainListener, main_listener
from tests.service.server.running import CONTAINER, NAMESPACE, POD, UID, Node, configuration, pod_log
from tests.service.server.spdy_backend import streaming_backend
from tests.support.waits.deadline import WAIT_SECONDS

OTHER = "shop"


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MainListener]:
    """A listener with eight places for streams, and a pod in each of two namespaces."""
    monkeypatch.setattr(request_handler, "MAX_STREAMS", 8)
    log = pod_log(tmp_path)
    log.write_text("2030-01-01T00:00:00Z stdout F hello\n")
    async with streaming_backend() as backend, main_listener(configuration(tmp_path)) as server:
        node = server.running.node
        node.cri.streaming_url = f"http://127.0.0.1:{backend.port}"
        await node.run_pod(log)
        await copy_pod(node)
        yield server


async def copy_pod(node: Node) -> None:
    desired, status, runtime = node.desired.get(UID), node.status.get(UID), node.runtime.get(UID)
    assert desired and status and runtime
    metadata = {**desired.pod["metadata"], "namespace": OTHER, "uid": "uid-2"}
    node.desired.put("uid-2", replace(desired, uid="uid-2", pod={**desired.pod, "metadata": metadata}))
    node.status.put("uid-2", replace(status, uid="uid-2", namespace=OTHER))
    node.runtime.put("uid-2", replace(runtime, uid="uid-2", namespace=OTHER))
    await node.network.settle()


async def execute(server: MainListener, namespace: str = NAMESPACE) -> Any:
    path = f"/exec/{namespace}/{POD}/{CONTAINER}?command=cat&input=1&output=1"
    return await server.client.ws_connect(server.url + path, protocols=["v5.channel.k8s.io"])


async def follow(server: MainListener) -> aiohttp.ClientResponse:
    path = f"/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}?follow=true"
    response = await server.client.get(server.url + path)
    assert await response.content.readline() == b"hello\n"
    return response


async def is_refused(server: MainListener, namespace: str) -> bool:
    try:
        socket = await execute(server, namespace)
    except aiohttp.WSServerHandshakeError as error:
        assert error.status == 429
        return True
    await socket.close()
    return False


async def test_a_namespace_leaves_as_many_streams_to_others_as_it_has(server: MainListener) -> None:
    async with AsyncExitStack() as stack:
        sockets = [await execute(server) for _ in range(3)]
        for socket in sockets:
            stack.push_async_callback(socket.close)
        logs = await follow(server)
        stack.callback(logs.close)
        status, text, headers = await server.request("GET", f"/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}")
        assert (status, "Retry-After" in headers) == (429, False)
        assert text == (
            "too many streams: 4 of namespace 'default', 4 of all namespaces, of at most 8; end some exec, attach,"
            " port-forward or logs of its pods on this node\n"
        )
        for _ in range(2):
            stack.push_async_callback((await execute(server, OTHER)).close)
        assert await is_refused(server, OTHER) and await is_refused(server, NAMESPACE)
        assert (await server.request("GET", "/pods"))[0] == 200
        logs.close()
        await sockets.pop().close()
        async with asyncio.timeout(WAIT_SECONDS):
            while await is_refused(server, NAMESPACE):
                await asyncio.sleep(0.02)


@pytest.mark.long
async def test_streams_that_ended_or_failed_take_no_places(server: MainListener) -> None:
    for _ in range(9):
        assert (await server.request("GET", f"/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}"))[0] == 200
        assert (await server.request("GET", f"/containerLogs/{NAMESPACE}/none/{CONTAINER}"))[0] == 404
        assert (await server.request("POST", f"/exec/{NAMESPACE}/{POD}/{CONTAINER}?command=a"))[0] == 400
