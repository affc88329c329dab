"""Tokens of service accounts for pods that run from the record, because the API server does not answer."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.sources import DesiredPod
from bus.messages.status import IssuedToken, RequestToken
from bus.messages.streams import PODS_DESIRED
from services.frame.launch import Context
from services.status.adapters.clients import Clients
from services.status.controllers import offline_tokens
from services.status.controllers.lease import Lease
from services.status.controllers.offline_tokens import LIFETIME_SECONDS, OfflineTokens
from services.status.controllers.reviews import Reviews
from services.volume.core.files.token_cache import TokenCache, TokenKey
from shared.config.effective import EffectiveConfig, OfflinePods
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from shared.time.timestamps import rfc3339
from tests.fakes.api_server import FakeApiServer
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import AtOnce, ended, pass_time, virtual_clock

pytestmark = pytest.mark.virtual_time

SAVED_WITHIN = 6.0
LEASE_SECONDS = 20.0  # two renewals


async def run_both(tokens: OfflineTokens, lease: Lease) -> None:
    """Two tasks of status."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tokens.run())
        tasks.create_task(lease.run())


class Node:
    """status of a node, as far as it answers for tokens; sources and volume are played."""

    def __init__(self, tmp_path: Path, settings: OfflinePods | None = OfflinePods()) -> None:  # noqa: B008 (frozen)
        asyncio.get_running_loop().set_default_executor(AtOnce())
        self.network = MemoryNetwork(virtual_clock())
        self.server = FakeApiServer(self.network.clock)
        self.config = EffectiveConfig(
            node_name="n1",
            root_dir=str(tmp_path / "root"),
            run_dir=str(tmp_path / "run"),
            log_dir="",
            cert_dir="",
            offline_pods=settings,
        )
        path = credentials_path(self.config.run_dir)
        path.parent.mkdir(parents=True)
        path.write_bytes(encode_credentials(Credentials(version=1, server="https://10.0.0.1:6443")))
        self.running: asyncio.Task[None] | None = None
        self.volume = self.network.bus("volume")

    async def begin(self) -> None:
        """The neighbours start, and status."""
        await self.volume.start()
        await self.start_sources()
        await self.start()

    async def start_sources(self) -> None:
        """sources starts; it has listed no pod yet."""
        bus = self.network.bus("sources")
        self.desired = bus.own(PODS_DESIRED)
        await bus.start()

    async def start(self) -> None:
        """status starts."""
        bus = self.network.bus("status")
        clients = Clients(*(self.server.client("system:node:n1") for _ in range(6)))
        context = Context("status", self.config, bus, self.network.clock, asyncio.Event())
        reviews, lease = Reviews(context, clients), Lease(context, clients)
        await bus.start()
        if reviews.offline is not None:
            reviews.offline.is_refused = lambda: lease.is_refused
            self.running = asyncio.ensure_future(run_both(reviews.offline, lease))
        await pass_time(self.network, 0.1)

    async def reboot(self) -> None:
        """Both processes are killed and start again, without API server."""
        self.server.down()
        for name in ("status", "sources"):
            self.network.kill(name)
        if self.running is not None:
            await ended(self.running)
        await self.start_sources()
        await self.start()

    def bind(self, name: str = "web") -> RequestToken:
        """A pod with a token in a volume, which sources publishes; the request for its token."""
        token = {"serviceAccountToken": {"path": "t", "audience": "api"}}
        containers, volumes = [{"name": "c", "image": "i"}], [{"name": "t", "projected": {"sources": [token]}}]
        pod = self.server.bind(
            {"metadata": {"name": name}, "spec": {"containers": containers, "volumes": volumes}}, "n1"
        )
        self.show(pod)
        self.pod = pod
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod["metadata"]["uid"]}
        spec = {"audiences": ["api"], "expirationSeconds": 3607, "boundObjectRef": bound}
        return RequestToken(namespace="default", service_account="default", spec=spec)

    def show(self, pod: dict[str, Any], recorded: str = "") -> None:
        """sources publishes the pod."""
        uid = pod["metadata"]["uid"]
        self.desired.put(uid, DesiredPod(uid=uid, source="api", pod=dict(pod), recorded=recorded))

    async def ask(self, request: RequestToken, seconds: float = 1.0) -> IssuedToken:
        """What volume gets, within these seconds."""
        asking = asyncio.create_task(self.volume.ask("status", request, IssuedToken, timeout=60))
        await pass_time(self.network, seconds)
        assert asking.done()
        return asking.result()

    async def keep_token(self) -> tuple[RequestToken, IssuedToken]:
        """Start, and let the token of a pod be requested and saved."""
        await self.begin()
        request = self.bind()
        issued = await self.ask(request)
        await pass_time(self.network, SAVED_WITHIN)
        return request, issued

    async def stop(self) -> None:
        """The end of the test."""
        if self.running is not None:
            await ended(self.running)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    yield node
    await node.stop()


MOMENT = "2026-11-29T08:00:00Z"


async def test_a_pod_from_the_record_gets_its_last_token_and_soon_asks_again(node: Node) -> None:
    request, before = await node.keep_token()
    await node.reboot()
    asking = asyncio.create_task(node.volume.ask("status", request, IssuedToken, timeout=60))
    await pass_time(node.network, 4.0)
    assert not asking.done()  # as long as sources waits for the API server
    node.show(node.pod, MOMENT)
    await pass_time(node.network, 0.5)
    after = asking.result()
    assert (after.token, after.expiration, after.lifetime) == (before.token, before.expiration, LIFETIME_SECONDS)
    key = TokenKey("default", "default", ("api",), 3607, "web", node.pod["metadata"]["uid"])
    cached = TokenCache().issued(key, after.token, after.expiration, after.lifetime, now=100.0)
    assert cached.refresh_at(jitter=9.0) <= 130.0
    node.server.up()
    node.show(node.pod)
    renewed = await node.ask(request)
    assert renewed.token != before.token and renewed.lifetime > LIFETIME_SECONDS


async def test_a_pod_that_sources_does_not_publish_gets_the_error(node: Node) -> None:
    request, _ = await node.keep_token()
    await node.reboot()
    assert "connection refused" in (await node.ask(request, seconds=7.0)).error


@pytest.mark.long
async def test_an_expired_token_is_given_too_so_that_its_pod_starts(node: Node) -> None:
    request, before = await node.keep_token()
    node.network.clock.advance(4000.0)
    await node.reboot()
    node.show(node.pod, MOMENT)
    after = await node.ask(request)
    assert after.token == before.token and not after.error and after.lifetime == LIFETIME_SECONDS


@pytest.mark.parametrize("why", ["age", "refusal"])
async def test_no_token_of_the_record_is_given_once_it_is_too_old_or_the_node_is_refused(
    tmp_path: Path, why: str
) -> None:
    node = Node(tmp_path, OfflinePods(max_age=4000.0))
    await node.begin()
    request = node.bind()
    before = await node.ask(request)
    await pass_time(node.network, SAVED_WITHIN)
    await node.reboot()
    node.show(node.pod, rfc3339(node.network.clock.wall()))
    assert (await node.ask(request)).token == before.token
    if why == "age":
        await pass_time(node.network, 4000.0)
        assert "connection refused" in (await node.ask(request)).error
    else:
        node.server.up()
        node.server.refuse(0, 401)
        await pass_time(node.network, LEASE_SECONDS)
        assert "refused with 401" in (await node.ask(request)).error
    await node.stop()


async def test_a_request_that_hangs_is_answered_once_the_pod_runs_from_the_record(node: Node) -> None:
    request, before = await node.keep_token()
    await node.reboot()
    node.server.up()
    node.server.pause()
    asking = asyncio.create_task(node.volume.ask("status", request, IssuedToken, timeout=60))
    await pass_time(node.network, 4.0)
    assert not asking.done()
    node.show(node.pod, MOMENT)
    await pass_time(node.network, 0.5)
    assert asking.done() and asking.result().token == before.token


async def test_tokens_of_other_pods_and_other_requests_are_not_given(node: Node) -> None:
    request, _ = await node.keep_token()
    await node.reboot()
    node.show(node.pod, MOMENT)
    other = RequestToken(namespace="default", service_account="default", spec={**request.spec, "audiences": ["vault"]})
    assert "connection refused" in (await node.ask(other)).error


async def test_the_token_of_a_pod_that_is_gone_leaves_the_record_and_none_is_in_clear(
    node: Node, tmp_path: Path
) -> None:
    await node.begin()
    stays = node.bind("stays")
    kept, pod = (await node.ask(stays)).token, node.pod
    goes = node.bind("goes")
    await node.ask(goes)
    node.desired.mark_complete()
    await pass_time(node.network, SAVED_WITHIN)
    [path] = Path(node.config.root_dir).rglob("tokens.json")
    size = path.stat().st_size
    for content in (one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()):
        assert kept.encode() not in content and base64.b64encode(kept.encode()) not in content
    node.desired.delete(node.pod["metadata"]["uid"], "object gone")
    await pass_time(node.network, SAVED_WITHIN)
    assert path.stat().st_size < size
    gone = node.pod
    await node.reboot()
    node.show(gone, MOMENT)
    node.show(pod, MOMENT)
    assert (await node.ask(goes)).error
    assert (await node.ask(stays)).token == kept


async def test_without_the_setting_no_token_is_kept(tmp_path: Path) -> None:
    node = Node(tmp_path, None)
    request, _ = await node.keep_token()
    assert not Path(node.config.root_dir).exists() and node.running is None
    node.server.down()
    node.show(node.pod, MOMENT)
    assert "connection refused" in (await node.ask(request)).error
    await node.stop()


async def test_a_damaged_record_is_one_trouble_and_the_next_save_replaces_it(node: Node) -> None:
    request, _ = await node.keep_token()
    (Path(node.config.root_dir) / "bulkhead" / "offline" / "key").write_bytes(bytes(32))
    await node.reboot()
    node.show(node.pod, MOMENT)
    assert "connection refused" in (await node.ask(request)).error
    troubles = node.network._buses["status"]._present_beat().troubles
    assert [line for line in troubles if "the record of tokens is not used: it is damaged, or was sealed" in line]
    node.server.up()
    node.show(node.pod)
    token = (await node.ask(request)).token
    await pass_time(node.network, SAVED_WITHIN)
    await node.reboot()
    node.show(node.pod, MOMENT)
    assert token and (await node.ask(request)).token == token


async def test_a_kill_after_a_save_leaves_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, reached = Node(tmp_path), []
    await node.begin()
    request = node.bind()

    def end_there(name: str) -> None:
        assert name == "status.offline.saved"
        reached.append(name)
        raise asyncio.CancelledError

    with monkeypatch.context() as killed:
        killed.setattr(offline_tokens, "crash_point", end_there)
        token = (await node.ask(request)).token
        await pass_time(node.network, SAVED_WITHIN)
        assert reached
    await node.reboot()
    node.show(node.pod, MOMENT)
    assert (await node.ask(request)).token == token
    await node.stop()
