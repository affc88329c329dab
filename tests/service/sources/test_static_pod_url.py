"""The static pod URL on a real HTTP server: what the other processes receive of what it answers."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED
from services.frame.launch import Context
from services.sources.adapters.manifest_url import ManifestUrl, ManifestUrlError
from services.sources.controllers import url_pods
from services.sources.controllers.troubles import Troubles
from services.sources.core.yaml_document import MAX_BYTES
from services.sources.service import build
from shared.config.effective import EffectiveConfig
from shared.files.checkpoint import Checkpoint
from shared.model import objects
from shared.podspec.static_pod import MAX_POD_BYTES
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.running_service import running_service
from tests.support.waits.deadline import WAIT_SECONDS

Answer = Callable[[asyncio.StreamWriter, str], Awaitable[None]]


def pod(name: str, image: str = "busybox") -> dict[str, object]:
    spec = {"containers": [{"name": "main", "image": image}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def pod_list(*items: dict[str, object]) -> bytes:
    return orjson.dumps({"apiVersion": "v1", "kind": "PodList", "items": list(items)})


def answer(body: bytes, status: str = "200 OK", *headers: str, length: int | None = None) -> Answer:
    """An answer with this body; `length`: the announced one."""

    async def write(writer: asyncio.StreamWriter, _request: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
        writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
        await writer.drain()

    return write


@dataclass
class WebServer:
    """An HTTP server that gives the present answer to each request, and keeps the heads of the requests."""

    answer: Answer
    heads: list[str] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", self.port) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield
        while self._open:
            await asyncio.gather(*self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            await self.answer(writer, head)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self._open.discard(task)
        self.answered.set()

    async def next_answers(self, number: int = 2) -> None:
        """Wait for the end of so many answers: the one under way may be an earlier one."""
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(number):
                self.answered.clear()
                await self.answered.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/pods.json"


class Node:
    """sources with a static pod URL, on the in-memory bus."""

    def __init__(self, tmp_path: Path) -> None:
        self.network, self._tmp_path = MemoryNetwork(), tmp_path
        self._follower = self.network.bus("podsync")
        self.desired = FollowedStream(self._follower, PODS_DESIRED)

    @contextlib.asynccontextmanager
    async def sources(
        self, url: str, headers: dict[str, tuple[str, ...]] | None = None, *, run_once: bool = False
    ) -> AsyncIterator[None]:
        config = EffectiveConfig(
            node_name="n1",
            root_dir=str(self._tmp_path / "root"),
            run_dir=str(self._tmp_path / "run"),
            log_dir="",
            cert_dir="",
            static_pod_url=url,
            static_pod_url_header=headers or {},
            http_check_frequency=0.02,
            run_once=run_once,
        )
        bus = self.network.bus("sources")
        service = build(Context("sources", config, bus, self.network.clock, asyncio.Event()))
        async with running_service(self.network, bus, service):
            yield

    async def start(self) -> None:
        await self._follower.start()


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    await node.start()
    return node


def names(state: dict[str, DesiredPod]) -> list[str]:
    return sorted(objects.name(desired.pod) for desired in state.values())


def running(*expected: str) -> Callable[[dict[str, DesiredPod]], bool]:
    return lambda state: names(state) == [f"{name}-n1" for name in expected]


async def test_pods_of_a_list_are_added_changed_and_removed_as_the_document_is(node: Node) -> None:
    server = WebServer(answer(pod_list(pod("a"), pod("b"))))
    async with server.listening(), node.sources(server.url):
        state = await node.desired.until(running("a", "b"))
        desired = next(iter(state.values()))
        assert desired.source == "http"
        assert objects.annotations(desired.pod)["kubernetes.io/config.source"] == "http"
        assert "tolerations" not in desired.pod["spec"]
        server.answer = answer(orjson.dumps(pod("b", "other")))
        state = await node.desired.until(running("b"))
        assert next(iter(state.values())).pod["spec"]["containers"][0]["image"] == "other"
        server.answer = answer(b"")
        assert await node.desired.until(lambda state: not state) == {}


BAD = {
    "404": answer(b"", "404 Not Found"),
    "500 with pods": answer(pod_list(pod("x")), "500 Internal Server Error"),
    "half a body": answer(pod_list(pod("x"))[:40], length=400),
    "no YAML": answer(b"{[a: b: c"),
    "another kind": answer(b'{"apiVersion": "v1", "kind": "Service"}'),
    "items of another type": answer(b'{"apiVersion": "v1", "kind": "PodList", "items": {}}'),
    "one bad pod among good ones": answer(pod_list(pod("x"), pod("UPPER"))),
    "a pod that no message can have": answer(
        pod_list({**pod("x"), "spec": {"containers": [{"name": "a", "image": "b", "args": ["x" * MAX_POD_BYTES]}]}})
    ),
    "a hundred thousand mistakes": answer(
        pod_list({**pod("x"), "spec": {"containers": [{"name": "a", "image": "b", "env": [{"name": "="}] * 100_000}]}})
    ),
    "too many pods": answer(pod_list(*(pod(f"p{number}") for number in range(1001)))),
    "a redirect in a circle": answer(b"", "302 Found", "Location: /pods.json"),
    "a redirect to a file": answer(b"", "302 Found", "Location: file:///etc/passwd"),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("bad", sorted(BAD))
async def test_a_bad_answer_leaves_the_pods_and_a_good_one_counts_again(node: Node, bad: str) -> None:
    server = WebServer(answer(pod_list(pod("a"))))
    async with server.listening(), node.sources(server.url):
        await node.desired.until(running("a"))
        server.answer = BAD[bad]
        await server.next_answers()
        assert running("a")(node.desired.state)
        server.answer = answer(pod_list(pod("a"), pod("b")))
        await node.desired.until(running("a", "b"))


async def test_a_server_that_is_gone_leaves_the_pods_also_over_a_restart(node: Node) -> None:
    server = WebServer(answer(pod_list(pod("a"))))
    async with server.listening(), node.sources(server.url):
        [before] = (await node.desired.until(running("a"))).values()
    async with node.sources(server.url):
        [after] = (await node.desired.until_complete()).values()
        assert after == before  # with the same first-seen time, so that no sandbox changes


async def test_a_kill_between_record_and_publication_loses_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    server, killed = WebServer(answer(pod_list(pod("a")))), asyncio.Event()

    def end_there(_name: str) -> None:
        killed.set()
        raise asyncio.CancelledError

    async with server.listening():
        with monkeypatch.context() as patched:
            patched.setattr(url_pods, "crash_point", end_there)
            async with node.sources(server.url), asyncio.timeout(WAIT_SECONDS):
                await killed.wait()
                assert not node.desired.state
    async with node.sources(server.url):  # which answers no more
        assert names(await node.desired.until_complete()) == ["a-n1"]


async def test_a_record_that_cannot_be_saved_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, save = asyncio.Event(), Checkpoint.save
    loop = asyncio.get_running_loop()

    def no_space(_records: Checkpoint, _key: str, _data: dict[str, object]) -> None:
        loop.call_soon_threadsafe(failed.set)
        raise OSError(28, "No space left on device")

    server = WebServer(answer(pod_list(pod("a"))))
    async with server.listening(), node.sources(server.url):
        monkeypatch.setattr(Checkpoint, "save", no_space)
        async with asyncio.timeout(WAIT_SECONDS):
            await failed.wait()
        await node.desired.until(running("a"))
        monkeypatch.setattr(Checkpoint, "save", save)
        await server.next_answers(3)
    async with node.sources(server.url):  # which answers no more
        assert names(await node.desired.until_complete()) == ["a-n1"]


async def test_a_record_in_the_run_directory_is_reported_until_the_root_directory_takes_it(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, report = list[str | None](), Troubles.set

    def noted(troubles: Troubles, name: str, line: str | None, **rest: bool) -> None:
        if name == "record of staticPodURL":
            reported.append(line)
        report(troubles, name, line, **rest)

    monkeypatch.setattr(Troubles, "set", noted)
    records = tmp_path / "root" / "sources"
    records.parent.mkdir()
    records.write_text("in the place of the directory")
    server = WebServer(answer(pod_list(pod("a"))))
    async with server.listening(), node.sources(server.url), asyncio.timeout(WAIT_SECONDS):
        await node.desired.until(running("a"))
        while not any(line and "cannot be written" in line for line in reported):
            await asyncio.sleep(0.01)
        records.unlink()
        while reported[-1] is not None:
            await asyncio.sleep(0.01)
    assert list((records / "url").iterdir())


async def test_without_an_answer_the_set_is_not_complete(node: Node) -> None:
    server = WebServer(answer(b"", "503 Service Unavailable"))
    async with server.listening(), node.sources(server.url):
        await server.next_answers()
        assert not node.desired.complete
        server.answer = answer(pod_list(pod("a")))
        await node.desired.until(running("a"))
        await node.desired.until_complete()


async def test_a_run_once_does_not_wait_for_a_url_without_an_answer(node: Node) -> None:
    server = WebServer(answer(b"", "503 Service Unavailable"))
    async with server.listening(), node.sources(server.url, run_once=True):
        assert await node.desired.until_complete() == {}


async def test_the_record_of_another_url_does_not_count(node: Node) -> None:
    server, other = WebServer(answer(pod_list(pod("a")))), WebServer(answer(b"", "404 Not Found"))
    async with server.listening(), node.sources(server.url):
        await node.desired.until(running("a"))
    async with other.listening(), node.sources(other.url):
        await other.next_answers()
        assert not node.desired.complete


async def test_headers_and_the_password_of_the_url_are_sent_and_not_logged(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    token = base64.b64encode(b"agent:hunter2").decode()
    server = WebServer(answer(b"", "401 Unauthorized"))
    async with server.listening():
        headers = {"X-Node": ("n1", "n2"), "Authorization": (f"Basic {token}",)}
        async with node.sources(f"{server.url}?token=hunter3", headers):
            await server.next_answers()
        async with node.sources(server.url.replace("//", "//agent:hunter2@")):
            await server.next_answers(3)
    assert all(f"Authorization: Basic {token}" in head for head in server.heads)
    assert "X-Node: n1\r\nX-Node: n2" in server.heads[0]
    assert f"staticPodURL {server.url}: the server answers with 401 Unauthorized" in caplog.text
    assert not any(secret in caplog.text for secret in ("hunter", token))


async def test_a_redirect_is_followed_and_another_host_gets_no_authorization(node: Node) -> None:
    target = WebServer(answer(pod_list(pod("a"))))
    async with target.listening():
        server = WebServer(answer(b"", "302 Found", f"Location: {target.url}"))
        async with server.listening(), node.sources(server.url, {"Authorization": ("Bearer x",)}):
            await node.desired.until(running("a"))
    assert "Authorization" in server.heads[0]
    assert "Authorization" not in target.heads[0]


async def test_a_slow_server_costs_a_bounded_time() -> None:
    async def slow(writer: asyncio.StreamWriter, _request: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    server = WebServer(slow)
    async with server.listening():
        with pytest.raises(ManifestUrlError, match="no complete answer within"):
            await ManifestUrl(server.url, {}, timeout=0.3).read()


async def test_a_body_without_end_is_read_up_to_10_mib() -> None:
    async def endless(writer: asyncio.StreamWriter, _request: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b" " * (1 << 20))
            await writer.drain()

    server = WebServer(endless)
    async with server.listening():
        with pytest.raises(ManifestUrlError, match="the body is larger than 10 MiB"):
            await ManifestUrl(server.url, {}, timeout=60).read()
        server.answer = answer(b" " * MAX_BYTES)
        assert len(await ManifestUrl(server.url, {}, timeout=60).read()) == MAX_BYTES


async def test_the_text_of_a_status_is_one_short_line() -> None:
    server = WebServer(answer(b"", "404 Not\x1b Found" + "!" * 5000))
    async with server.listening():
        with pytest.raises(ManifestUrlError, match=r"^the server answers with 404 Not Found!{80,100}$"):
            await ManifestUrl(server.url, {}, timeout=60).read()


@pytest.mark.parametrize("url", ["x", "file:///etc/passwd", "http://[", "http://a b/"])
async def test_what_is_no_url_of_http_is_one_error(url: str) -> None:
    with pytest.raises(ManifestUrlError):
        await ManifestUrl(url, {}).read()


async def test_a_header_that_is_two_lines_is_one_error() -> None:
    with pytest.raises(ManifestUrlError):
        await ManifestUrl("http://127.0.0.1:1/", {"A": ("b\r\nC: d",)}).read()
