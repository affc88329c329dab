"""Tokens and access reviews on the main listener: what a client sees of the API server's answers."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bus.messages.status import ReviewAccess, Reviewed, ReviewToken
from tests.process.tls_site import Site
from tests.service.server.running import CONTAINER, NAMESPACE, POD, Running
from tests.support.waits.deadline import WAIT_SECONDS

TOKEN = "s3cret-token"
ACCESS_ERROR = "Authorization error (user=jane, verb=get, resource=nodes, subresource=pods)"
FORBIDDEN = "Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"


class Cluster:
    """A server whose status asks an API server that knows one token."""

    def __init__(self, server: Running, site: Site) -> None:
        self.server, self._site = server, site
        self.reviews: list[ReviewAccess] = []
        self.tokens: list[ReviewToken] = []
        self.access = Reviewed(status={"allowed": True})

    def client_context(self) -> Any:
        return self._site.client()["ssl"]

    async def token(self, question: ReviewToken) -> Reviewed:
        self.tokens.append(question)
        good = question.token == TOKEN
        return Reviewed(status={"authenticated": True, "user": {"username": "jane"}} if good else {"error": "invalid"})

    async def may(self, question: ReviewAccess) -> Reviewed:
        self.reviews.append(question)
        return self.access

    async def get(self, path: str = "/pods", **headers: str) -> tuple[int, str]:
        return await self.server.get(self.server.main + path, headers=headers, **self._site.client())


@asynccontextmanager
async def cluster(tmp_path: Path, **more: Any) -> AsyncIterator[Cluster]:
    site = Site(tmp_path)
    settings = {"kubeconfig": "x", "webhook_authentication": True, "authorization_mode": "Webhook", **more}
    async with site.running(**settings) as server:
        made = Cluster(server, site)
        server.node.network.kill("status")
        bus = server.node.network.bus("status")
        bus.answer(ReviewToken, made.token)
        bus.answer(ReviewAccess, made.may)
        await bus.start()
        yield made


async def test_a_good_token_is_let_in_and_its_user_is_the_one_asked_about(tmp_path: Path) -> None:
    async with cluster(tmp_path) as api:
        assert (await api.get(Authorization=f"Bearer {TOKEN}"))[0] == 200
        spec = api.reviews[0].spec
        assert (spec["user"], spec["groups"]) == ("jane", ["system:authenticated"])
        assert spec["resourceAttributes"]["subresource"] == "pods"


async def test_a_bad_token_is_rejected_also_where_anonymous_requests_are_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with cluster(tmp_path, anonymous_auth=True) as api:
        assert (await api.get())[0] == 200
        assert await api.get(Authorization="Bearer no-such-token") == (401, "Unauthorized")
        assert await api.get(Authorization=f"Bearer {TOKEN} x") == (200, (await api.get())[1])
    assert "no-such-token" not in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("token", [b"\xff", b"a\xc3\xa9", b"a" * (20 << 10)])
async def test_a_token_that_cannot_be_one_is_refused_before_it_is_reviewed(
    tmp_path: Path, token: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as api:
        port, context = api.server.config.port, api.client_context()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(
            b"GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
        )
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert answer.endswith(b"\r\n\r\nUnauthorized")
        assert api.tokens == []
    assert "Traceback" not in caplog.text


async def test_a_denial_names_what_was_asked_and_an_error_is_no_denial(tmp_path: Path) -> None:
    async with cluster(tmp_path) as api:
        api.access = Reviewed(status={}, error="the API server is away")
        assert await api.get(Authorization=f"Bearer {TOKEN}") == (500, ACCESS_ERROR)
        api.access = Reviewed(status={"allowed": False})
        assert await api.get(Authorization=f"Bearer {TOKEN}") == (403, FORBIDDEN)


async def test_a_websocket_may_bring_its_token_as_a_protocol(tmp_path: Path) -> None:
    encoded = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    path = f"/exec/{NAMESPACE}/{POD}/{CONTAINER}?output=1"
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    async with cluster(tmp_path) as api:
        protocols = f"base64url.bearer.authorization.k8s.io.{encoded}, v4.channel.k8s.io"
        answer = await api.get(path, **headers, **{"Sec-WebSocket-Protocol": protocols})
        assert answer == (404, "pod does not exist")
        assert [review.spec["resourceAttributes"]["verb"] for review in api.reviews] == ["get"]
        lonely = {"Sec-WebSocket-Protocol": protocols.split(",")[0]}
        assert await api.get(path, **headers, **lonely) == (401, "Unauthorized")
        assert await api.get(path, **{"Sec-WebSocket-Protocol": protocols}) == (401, "Unauthorized")
