"""The node page over HTTP: its files, its state, its events for many pages, and who may read them."""

import asyncio
import json
import re
import socket
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bus.messages.podsync import ImagePull
from services.server.adapters.node_history_file import NodeHistoryFile
from services.server.controllers import node_page
from services.server.controllers.node_page import MAX_PAGES
from services.server.core.access.authorization import Attributes
from services.server.service import ServerService
from tests.service.server.main_listener import TOKEN, MainListener, allow, main_listener
from tests.service.server.running import configuration
from tests.support.node_page.page_node import HOSTILE, PageNode, add_hour
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
def node(tmp_path: Path) -> PageNode:
    return PageNode(tmp_path)


@pytest.fixture
async def server(tmp_path: Path, node: PageNode, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MainListener]:
    monkeypatch.setattr(node_page, "TICK_SECONDS", 0.2)
    async with node.listener(tmp_path, 10, pace=20) as server:
        yield server


class Events:
    """An open event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, Any]:
        """The name and the data of the next event."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (line := await self.response.content.readline()).startswith(b"event: "):
                assert line, "the stream has ended"
            data = await self.response.content.readuntil(b"\n\n")
        return line.decode().removeprefix("event: ").strip(), json.loads(data.decode().removeprefix("data: "))

    async def pod(self, uid: str) -> Any:
        """What the next change of this pod shows."""
        while uid not in (found := (await self.next())[1].get("pods", {})):
            pass
        return found[uid]


Open = Callable[..., Awaitable[Events]]


@pytest.fixture
async def opened(server: MainListener) -> AsyncIterator[Open]:
    """Opens event streams, and closes them at the end."""
    responses: list[aiohttp.ClientResponse] = []

    async def open_one(**headers: str) -> Events:
        response = await server.client.get(f"{server.url}/bulkhead/events", read_bufsize=1 << 25, headers=headers)
        responses.append(response)
        assert (response.status, response.content_type) == (200, "text/event-stream")
        return Events(response)

    yield open_one
    for response in responses:
        response.close()


async def until_pages(service: ServerService, count: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while service.page.pages != count:
            await asyncio.sleep(0.02)


async def test_the_page_loads_nothing_from_outside(server: MainListener) -> None:
    _, html, headers = await server.request("GET", "/bulkhead/")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"
    named = re.findall(r'(?:src|href)="([^"#]*)"', html)
    scripts = ["charts.js", "machine.js", "page.js", "story.js", "texts.js"]
    assert sorted(named) == sorted([*scripts, "data:,", "explain", "page.css", "state"])
    for name in ("page.css", *scripts):
        kind = "text/css" if name.endswith("css") else "text/javascript"
        status, content, headers = await server.request("GET", f"/bulkhead/{name}")
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert "//" not in re.sub(r"http://www\.w3\.org/2000/svg|//[ ].*|/\*.*?\*/", "", content)
        assert "innerHTML" not in content and "eval(" not in content
        for known in (headers["ETag"], f'"other", W/{headers["ETag"]}'):
            again = await server.request("GET", f"/bulkhead/{name}", b"", **{"If-None-Match": known})
            assert again[:2] == (304, "")
    assert (await server.request("GET", "/bulkhead"))[0] == 301


@pytest.mark.long
async def test_the_state_has_verdict_processes_and_what_pods_wait_for(server: MainListener, opened: Open) -> None:
    await (await opened()).next()
    status, body, headers = await server.request("GET", "/bulkhead/state")
    state = json.loads(body)
    assert (status, headers["Content-Type"], headers["Cache-Control"]) == (200, "application/json", "no-store")
    assert state["node"] == {
        "name": "node-1", "ready": True, "problems": [],
        "facts": ["containerd 1.7.24: ready", "alone, without an API server"],
    }  # fmt: skip
    assert {one["service"]: one["state"] for one in state["processes"]}["pleg"] == "running"
    assert len(state["processes"]) == 7 and len(state["pods"]) == 10
    assert state["pods"]["uid-2"]["name"] == HOSTILE
    assert state["pods"]["uid-3"]["waits_for"].startswith("main: ImagePullBackOff (Back-off pulling image")
    assert state["pods"]["uid-5"]["waits_for"] == 'volume password: secret "shop/mail-password" not found'
    assert state["pods"]["uid-0"]["waits_for"] == ""


@pytest.mark.long
async def test_a_page_gets_the_state_and_then_what_changes(server: MainListener, node: PageNode, opened: Open) -> None:
    events = await opened()
    name, state = await events.next()
    assert name == "state" and len(state["pods"]) == 10
    uid = node.put_pod(11)
    assert (await events.pod(uid))["state"] == "Running"
    node.delete_pod(uid)
    assert await events.pod(uid) is None
    node.network.kill("pleg")
    while "processes" not in (change := (await events.next())[1]) or "late" not in str(change["processes"]):
        pass


@pytest.mark.long
async def test_a_page_shows_how_far_a_pull_is(server: MainListener, node: PageNode, opened: Open) -> None:
    events = await opened()
    await events.next()
    pull = ImagePull(image="web:1", seconds=4.0, arrived=5, total=10, layers=2, rate=3, idle=0.0)
    node.pulls.put("uid-3", pull)
    assert (await events.pod("uid-3"))["waits_for"] == "pulling image web:1: 5 B of 10 B, 2 layers, 3 B/s"
    node.pulls.delete("uid-3")
    assert (await events.pod("uid-3"))["waits_for"].startswith("main: ImagePullBackOff")


@pytest.mark.long
async def test_the_history_has_samples_of_all_series(server: MainListener, node: PageNode, opened: Open) -> None:
    events = await opened()
    assert (await events.next())[1]["history"]["at"] == []
    intervals: list[float] = []  # 0 in a sample that follows another one before any beat
    while not any(intervals):
        await server.running.service.page.state.sample()
        while not (history := (await events.next())[1].get("history")):
            pass
        intervals += [value for value in history["values"]["beats.interval"] if value is not None]
    values = {name: series[-1] for name, series in history["values"].items()}
    assert values["node.cpu"] == 0.42 and values["node.memory"] == pytest.approx(3 << 30, rel=1e-3)
    assert values["agent.memory"] > 1 << 20 and 0.9 < max(intervals) < 2.1
    node.put_pod(12)
    await node.network.settle()
    await server.running.service.page.state.sample()
    assert server.running.service.page.state.history.data()["values"]["pods.start"][-1] is not None


async def test_a_state_that_cannot_be_read_ends_no_process(
    server: MainListener, node: PageNode, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    state, failed = server.running.service.page.state, asyncio.Event()

    def fail() -> None:
        failed.set()
        raise KeyError("containers")

    with monkeypatch.context() as patched:
        events = await opened()
        await events.next()
        patched.setattr(state, "pods", fail)
        async with asyncio.timeout(WAIT_SECONDS):
            await failed.wait()
    uid = node.put_pod(13)
    assert (await events.pod(uid))["state"] == "Running"


async def test_an_open_page_of_110_pods_costs_less_than_a_hundredth_of_a_core(tmp_path: Path, node: PageNode) -> None:
    (tmp_path / "root" / "pod-resources").mkdir(parents=True)
    async with main_listener(configuration(tmp_path), node=node) as server:
        node.publish(110)
        await node.network.settle()
        add_hour(server.running.service.page.state, node.network.clock.wall())
        async with server.client.get(f"{server.url}/bulkhead/events") as response:
            events = Events(response)
            await events.next()
            costs: list[float] = []  # CPU seconds of a reading with a change, those of this client included
            for number in range(20):
                uid = node.put_pod(number, restarts=number + 1)
                await node.network.advance(node_page.TICK_SECONDS)
                begin = time.process_time()
                assert (await server.request("GET", "/bulkhead/state"))[0] == 200
                assert (await events.pod(uid))["restarts"] == number + 1
                costs.append(time.process_time() - begin)
    assert statistics.median(costs) <= node_page.TICK_SECONDS / 100, costs


@pytest.mark.long
async def test_thirty_pages_get_each_change_and_leave_nothing_behind(
    server: MainListener, node: PageNode, opened: Open
) -> None:
    service = server.running.service
    pages = [await opened() for _ in range(30)]
    assert {name for name, _ in await asyncio.gather(*(page.next() for page in pages))} == {"state"}
    uid = node.put_pod(20)
    rows = await asyncio.gather(*(page.pod(uid) for page in pages))
    assert all(row == rows[0] for row in rows) and service.page.pages == 30
    for page in pages:
        page.response.close()
    await until_pages(service, 0)


async def test_one_page_too_many_of_a_client_is_refused_until_another_leaves(
    server: MainListener, opened: Open
) -> None:
    jane = {"Authorization": f"Bearer {TOKEN}"}
    pages = [await opened() for _ in range(MAX_PAGES // 2)]
    status, body, headers = await server.request("GET", "/bulkhead/events")
    assert (status, headers["Retry-After"]) == (503, "30")
    assert body == "32 node pages of 127.0.0.1 are open already, 32 in all\n"
    assert (await server.request("GET", "/bulkhead/state"))[0] == 200
    assert [(await (await opened(**jane)).next())[0] for _ in range(MAX_PAGES // 4)] == ["state"] * 16
    status, body, _ = await server.request("GET", "/bulkhead/events", **jane)
    assert (status, body) == (503, "16 node pages of jane are open already, 48 in all\n")
    for _ in range(MAX_PAGES // 4):
        pages.pop().response.close()
    await until_pages(server.running.service, MAX_PAGES // 2)
    assert (await (await opened()).next())[0] == "state"


@pytest.mark.long
async def test_a_page_that_does_not_read_is_dropped_and_delays_no_other(
    server: MainListener, node: PageNode, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    monkeypatch.setattr(node_page, "MAX_WRITE_SECONDS", 3.0)  # the page that reads takes a second on a busy machine
    service = server.running.service
    with unread_page(server, node):
        await until_pages(service, 1)
        reading = await opened()
        assert len((await reading.next())[1]["pods"]) == 400
        await until_pages(service, 1)
        node.put_pod(400)
        assert (await reading.pod("uid-400"))["state"] == "Running"


async def test_a_page_that_does_not_read_is_dropped_at_the_end_of_its_stream(
    server: MainListener, node: PageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_page, "MAX_STREAM_SECONDS", 1.0)
    monkeypatch.setattr(node_page, "MAX_WRITE_SECONDS", 2.0)  # the stream ends while an event waits
    with unread_page(server, node):
        await until_pages(server.running.service, 1)
        await until_pages(server.running.service, 0)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(server.connections):  # which would keep what was not sent
                await asyncio.sleep(0.01)


@contextmanager
def unread_page(server: MainListener, node: PageNode) -> Iterator[None]:
    """A client that requests the events and reads nothing."""
    for number in range(400):  # more than the buffers of a connection hold
        node.put_pod(number, "x" * 30_000)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        slow.sendall(b"GET /bulkhead/events HTTP/1.1\r\nHost: x\r\n\r\n")
        yield


async def test_the_streams_end_when_the_ports_are_handed_over(server: MainListener, opened: Open) -> None:
    events = await opened()
    await events.next()
    server.running.service.page.close()
    async with asyncio.timeout(WAIT_SECONDS):
        await events.response.content.read()
    assert (await server.request("GET", "/bulkhead/events"))[0] == 503


@pytest.mark.long
async def test_an_event_without_a_change_shows_that_the_connection_works(
    server: MainListener, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    monkeypatch.setattr(node_page, "HEARTBEAT_SECONDS", 0.05)
    events = await opened()
    assert (await events.response.content.readline(), (await events.next())[0]) == (b"retry: 1000\n", "state")
    while (found := await events.next())[0] != "unchanged":
        pass
    assert found[1] == {}


@pytest.mark.long
async def test_a_stream_ends_after_a_while_so_that_the_right_is_reviewed_again(
    server: MainListener, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    monkeypatch.setattr(node_page, "MAX_STREAM_SECONDS", 0.5)
    events = await opened()
    async with asyncio.timeout(WAIT_SECONDS):
        content = await events.response.content.read()
    assert content.endswith(b"\n\n") and events.response.closed


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("site", "mode", "target", "status"),
    [
        ("cross-site", "cors", "empty", 403),
        ("same-site", "no-cors", "script", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
async def test_a_page_of_another_site_gets_nothing(
    server: MainListener, site: str, mode: str, target: str, status: int
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": target}
    for path in ("", "page.js", "state"):
        assert (await server.request("GET", f"/bulkhead/{path}", b"", **headers))[0] == status
    if status == 403:
        assert (await server.request("GET", "/bulkhead/events", b"", **headers))[0] == status


async def test_the_charts_continue_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_page, "SAMPLES_PER_SAVE", 1)
    monkeypatch.setattr(node_page, "until_next", lambda _now: 0.05)
    (tmp_path / "root" / "pod-resources").mkdir(parents=True)
    file = tmp_path / "run" / "node-history.json"
    node = PageNode(tmp_path)
    async with main_listener(configuration(tmp_path), node=node) as server:
        node.publish(1)
        async with asyncio.timeout(WAIT_SECONDS):
            while not file.exists():
                await asyncio.sleep(0.05)
    saved = json.loads(file.read_bytes())
    async with main_listener(configuration(tmp_path), node=PageNode(tmp_path)) as server:
        history = server.running.service.page.state.history.data()
        assert history["at"][: len(saved["at"])] == saved["at"] and saved["values"].keys() <= history["values"].keys()
    file.write_bytes(b"{" * 2000)
    async with main_listener(configuration(tmp_path), node=PageNode(tmp_path)) as server:
        assert (await server.request("GET", "/bulkhead/state"))[0] == 200


async def test_samples_that_cannot_be_saved_end_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[object] = []

    def fail(_file: NodeHistoryFile, data: object) -> None:
        saved.append(data)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(NodeHistoryFile, "write", fail)
    monkeypatch.setattr(node_page, "SAMPLES_PER_SAVE", 1)
    monkeypatch.setattr(node_page, "until_next", lambda _now: 0.05)
    (tmp_path / "root" / "pod-resources").mkdir(parents=True)
    async with main_listener(configuration(tmp_path), node=PageNode(tmp_path)) as server:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(saved) < 2:
                await asyncio.sleep(0.05)
        assert (await server.request("GET", "/bulkhead/state"))[0] == 200


@pytest.mark.long
@pytest.mark.parametrize("path", ["", "page.css", "charts.js", "state", "events"])
async def test_all_of_it_needs_the_right_to_proxy(tmp_path: Path, path: str) -> None:
    asked: list[Attributes] = []

    async def deny(question: Attributes, _address: str) -> bool:
        asked.append(question)
        return False

    async with main_listener(configuration(tmp_path), deny) as server:
        status, body, _ = await server.request("GET", f"/bulkhead/{path}", Authorization=f"Bearer {TOKEN}")
        assert (status, [(one.verb, one.subresource) for one in asked]) == (403, [("get", "proxy")])
        assert body.startswith("Forbidden (user=jane, verb=get, resource=nodes")
    async with main_listener(configuration(tmp_path), allow, anonymous=False) as server:
        assert (await server.request("GET", f"/bulkhead/{path}"))[0] == 401
