"""The node page's machine: its sections over HTTP, and when pleg is requested to read what pods use."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import NodeShutdown, ShutdownGroup
from bus.messages.sources import NodeObject
from services.server.controllers import node_page
from services.server.controllers.node_machine import USAGE_SECONDS
from tests.service.server.main_listener import MainListener
from tests.support.node_page.page_node import PageNode
from tests.support.waits.deadline import WAIT_SECONDS

PODS = 10
SHORT = 0.5  # seconds, in place of USAGE_SECONDS


@pytest.fixture
def node(tmp_path: Path) -> PageNode:
    return PageNode(tmp_path)


@pytest.fixture
async def server(tmp_path: Path, node: PageNode, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MainListener]:
    monkeypatch.setattr(node_page, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(node_page, "USAGE_SECONDS", SHORT)
    async with node.listener(tmp_path, PODS) as server:
        yield server


async def state(server: MainListener) -> Any:
    return json.loads((await server.request("GET", "/bulkhead/state"))[1])


async def changed(server: MainListener, *names: str) -> Any:
    """The first value at this path of keys that an open page gets and that is not empty."""
    async with asyncio.timeout(WAIT_SECONDS), server.client.get(f"{server.url}/bulkhead/events") as response:
        while line := await response.content.readline():
            found = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            for name in names:
                found = found.get(name) if found else None
            if found:
                return found
    raise AssertionError("the stream has ended")


@pytest.mark.long
async def test_a_node_without_a_cluster_shows_pressure_resources_and_filesystems(server: MainListener) -> None:
    found = await state(server)
    assert [one["type"] for one in found["conditions"]] == ["MemoryPressure", "DiskPressure", "PIDPressure"]
    rows = {one["name"]: one for one in found["machine"]["resources"]}
    requested = 0.02 * (PODS + 2)  # pods 2 and 6 have two containers
    cpu = {"name": "cpu", "used": 0.42, "requested": pytest.approx(requested), "allocatable": 3.8, "capacity": 4}
    assert rows["cpu"] == cpu and rows["pods"]["requested"] == PODS
    assert rows["ephemeral-storage"]["used"] == 28 << 30
    assert [one["name"] for one in found["machine"]["filesystems"]] == ["nodefs", "imagefs"]


@pytest.mark.long
async def test_a_shutdown_of_the_machine_shows_the_pods_that_it_waits_for(server: MainListener, node: PageNode) -> None:
    groups = (ShutdownGroup(priority=0, seconds=30.0, pods=2), ShutdownGroup(priority=1000, seconds=10.0, pods=1))
    node.shutdown.put("node", NodeShutdown(in_progress=True, groups=groups, group=0))
    await node.network.settle()
    await asyncio.sleep(node_page.TICK_SECONDS)
    [line] = [line for line in (await state(server))["node"]["problems"] if "shuts down" in line]
    assert line.endswith(": 2 from 0 on, 1 from 1000 on")


async def test_a_node_of_a_cluster_shows_the_conditions_and_resources_that_its_node_has(
    server: MainListener, node: PageNode
) -> None:
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network\nplugin"}
    capacity = {"cpu": "1", "example.com/gpu": "2"}  # an old number of cores, and a resource of another writer
    status = {"conditions": [ready], "capacity": capacity, "allocatable": capacity}
    node.object.put("node", NodeObject(node={"status": status}))
    await node.network.settle()
    await asyncio.sleep(node_page.TICK_SECONDS)
    found = await state(server)
    (shown,) = found["conditions"]
    assert (shown["status"], shown["reason"], shown["message"]) == ("False", "KubeletNotReady", "no network plugin")
    rows = {one["name"]: one["capacity"] for one in found["machine"]["resources"]}
    assert rows["cpu"] == 4 and rows["example.com/gpu"] == 2


@pytest.mark.long
async def test_the_rates_of_the_network_are_those_between_two_samples(server: MainListener, node: PageNode) -> None:
    page, clock = server.running.service.page.state, node.network.clock
    node.use_node()
    read_at = clock.monotonic()
    await node.network.settle()
    await page.sample()
    clock.advance(10.0)
    node.use_node(10)
    rate = 10 * 2_400_000 / (clock.monotonic() - read_at)  # a busy machine lets time pass beside the ten seconds
    await node.network.settle()
    await page.sample()
    card = (await changed(server, "machine", "network"))[0]
    assert card["name"] == "eth0" and card["received"] == pytest.approx(rate, rel=0.01)
    assert page.history.data()["values"]["network.received"][-1] == pytest.approx(rate, rel=0.01)
    assert page.history.data()["values"]["nodefs.used"][-1] == pytest.approx(28 << 30, rel=1e-3)


@pytest.mark.long
async def test_what_pods_use_is_requested_only_while_a_page_is_open_and_once_for_all_pods(
    server: MainListener, node: PageNode
) -> None:
    assert (await state(server))["usage"] == {} and node.asked == []
    usage = await changed(server, "usage")
    assert len(usage) == PODS - 3 and usage["uid-1"] == [0.01, 31 << 20, 2 << 20]
    assert 1 <= len(node.asked) <= 2 and all(one.pods for one in node.asked) and USAGE_SECONDS >= 10
    async with asyncio.timeout(WAIT_SECONDS):
        while (await state(server))["usage"]:  # the figures become old
            await asyncio.sleep(0.02)
    asked = len(node.asked)
    for _ in range(3):
        await state(server)
        await asyncio.sleep(SHORT)
    assert len(node.asked) == asked


async def test_a_pleg_that_refuses_leaves_the_rest_of_the_page(server: MainListener, node: PageNode) -> None:
    node.refuses = True
    async with server.client.get(f"{server.url}/bulkhead/events") as response, asyncio.timeout(WAIT_SECONDS):
        await response.content.readuntil(b'"uid-1"')
        while not node.asked:
            await asyncio.sleep(0.02)
    found = await state(server)
    assert found["usage"] == {} and found["machine"]["resources"] and len(found["pods"]) == PODS
