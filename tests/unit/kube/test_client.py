"""The API client against a server on this machine: what is sent, what answers become, what is tried again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shared.kube.client import KubeClient, kube_client
from shared.kube.interface import ApiStatusError, ApiUnreachableError, PatchType
from shared.metrics.registry import Registry
from tests.unit.kube.stand_in import StandIn, client_of, put_credentials, serving, status


async def test_a_request_is_escaped_and_names_the_client(server: StandIn, client: KubeClient, tmp_path: Path) -> None:
    put_credentials(tmp_path, 1, f"{server.url}/prefix", token_file=b"s3cret\n")

    server.always(lambda: web.json_response({"kind": "PodList", "items": []}))
    found = await client.get("/api/v1/namespaces/a b?/pods", {"fieldSelector": "spec.nodeName=n&1,x!=ä"})
    [request] = server.requests
    assert found == {"kind": "PodList", "items": []}
    assert request.raw_path.startswith("/prefix/api/v1/namespaces/a%20b%3F/pods?")
    assert request.query["fieldSelector"] == "spec.nodeName=n&1,x!=ä"
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert request.headers["User-Agent"].startswith("kubelet/v1.37.0 (linux/")
    assert request.headers["Accept"] == "application/json"


async def test_the_server_is_told_the_release_that_is_emulated(server: StandIn, tmp_path: Path) -> None:
    server.always(lambda: web.json_response({"kind": "Node"}))
    client = kube_client(tmp_path, qps=-1, burst=0, timeout=20, release="1.36")
    other = client.behind()
    try:
        await client.get("/x")
        await other.get("/x")
    finally:
        await client.close()
        await other.close()
    assert [request.headers["User-Agent"][:16] for request in server.requests] == ["kubelet/v1.36.0 "] * 2


async def test_verbs_and_content_types(server: StandIn, client: KubeClient) -> None:
    server.always(lambda: web.json_response({"kind": "Node"}))
    await client.create("/n", {"a": 1})
    await client.update("/n/x", {"a": 2})
    await client.patch("/n/x", {"a": 3})
    await client.patch("/n/x", [{"op": "add"}], PatchType.JSON)
    await client.delete("/n/x", {"gracePeriodSeconds": 0})
    await client.delete("/n/x")
    assert [request.method for request in server.requests] == ["POST", "PUT", "PATCH", "PATCH", "DELETE", "DELETE"]
    assert [request.headers.get("Content-Type") for request in server.requests[:5]] == [
        "application/json",
        "application/json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/json",
    ]
    assert [json.loads(body or b"null") for body in server.bodies] == [
        {"a": 1}, {"a": 2}, {"a": 3}, [{"op": "add"}], {"gracePeriodSeconds": 0}, None,
    ]  # fmt: skip


async def test_one_connection_carries_many_requests(server: StandIn, client: KubeClient) -> None:
    ports = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return status(404) if len(server.requests) % 2 else web.json_response({})

    server.handler = answer
    for _ in range(3):
        with pytest.raises(ApiStatusError):
            await client.get("/missing")
        await client.get("/there")
    assert len(ports) == 1
    await client.drop_connections()
    with pytest.raises(ApiStatusError):
        await client.get("/missing")
    assert len(ports) == 2


async def test_a_status_body_becomes_the_error(server: StandIn, client: KubeClient) -> None:
    server.always(lambda: status(409, "AlreadyExists", 'nodes "a" already exists', name="a", retryAfterSeconds=2))
    with pytest.raises(ApiStatusError) as caught:
        await client.create("/api/v1/nodes", {})
    error = caught.value
    assert (str(error), error.already_exists, error.conflict) == ('nodes "a" already exists', True, False)
    assert (error.details["name"], error.retry_after) == ("a", 2.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "body", "message", "reason"),
    [
        (502, b"<b>Bad \n  Gateway</b>\n", "the server answered with 502 Unknown: <b>Bad Gateway</b>", "Unknown"),
        (403, b"", "the server answered with 403 Forbidden", "Forbidden"),
        (404, b'["odd"]', 'the server answered with 404 NotFound: ["odd"]', "NotFound"),
        (503, b'{"kind":"Status","details":7,"code":true,"reason":"Odd"}', "the server answered with 503 Odd", "Odd"),
        (302, b"", "the server answered with 302 Unknown", "Unknown"),
    ],
)
async def test_a_body_that_is_no_status_becomes_one_line(
    server: StandIn, client: KubeClient, code: int, body: bytes, message: str, reason: str
) -> None:
    server.always(lambda: web.Response(status=code, body=body))
    with pytest.raises(ApiStatusError) as caught:
        await client.get("/x")
    assert (caught.value.code, str(caught.value), caught.value.reason) == (code, message, reason)


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_what_the_server_puts_off_is_asked_again(server: StandIn, client: KubeClient, code: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        if len(server.requests) < 3:
            return web.Response(status=code, headers={"Retry-After": "0"})
        return web.json_response({"done": True})

    server.handler = answer
    assert await client.create("/x", {"a": 1}) == {"done": True}
    assert server.bodies == [b'{"a":1}'] * 3


async def test_a_version_that_the_server_does_not_reach_is_not_asked_for_again(
    server: StandIn, client: KubeClient
) -> None:
    async def answer(_: web.Request) -> web.Response:
        response = status(504, "Timeout", "Timeout: Too large resource version: 7, current: 3")
        response.headers["Retry-After"] = "0"
        return response

    server.handler = answer
    with pytest.raises(ApiStatusError) as caught:
        await client.get("/x", {"resourceVersion": "7"})
    assert (len(server.requests), caught.value.too_large_version) == (1, True)


async def test_ten_retries_are_the_end(server: StandIn, client: KubeClient) -> None:
    server.always(lambda: web.Response(status=503, headers={"Retry-After": "0"}))
    with pytest.raises(ApiStatusError) as caught:
        await client.get("/x")
    assert (len(server.requests), caught.value.retry_after) == (11, 0.0)


@pytest.mark.parametrize(("code", "header"), [(503, None), (500, "Wed, 21 Oct 2015 07:28:00 GMT"), (429, "3600")])
async def test_without_a_time_or_with_too_long_a_one_it_is_not(
    server: StandIn, client: KubeClient, code: int, header: str | None
) -> None:
    server.always(lambda: web.Response(status=code, headers={"Retry-After": header} if header else {}))
    with pytest.raises(ApiStatusError):
        await client.get("/x")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [("999999", {}, 120.0), (None, {"retryAfterSeconds": 1e300}, 120.0), ("119", {"retryAfterSeconds": 5}, 119.0)],
)
async def test_the_time_that_an_answer_asks_for_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str | None, details: dict[str, Any], seconds: float
) -> None:
    monkeypatch.setattr("shared.kube.client._PUT_OFF_SECONDS", 3600.0)  # too long for a second try
    async with serving() as server, client_of(tmp_path) as client:
        put_credentials(tmp_path, 1, server.url)

        async def answer(_: web.Request) -> web.Response:
            response = status(429, "TooManyRequests", "slow", **details)
            response.headers.update({"Retry-After": header} if header else {})
            return response

        server.handler = answer
        with pytest.raises(ApiStatusError) as caught:
            await client.get("/x")
    assert caught.value.retry_after == seconds


async def test_our_own_rate_limit_is_no_outage(server: StandIn, tmp_path: Path) -> None:
    server.always(lambda: web.Response(status=429, headers={"Retry-After": "0"}))
    client = kube_client(tmp_path, qps=0.01, burst=1, timeout=2)
    try:
        with pytest.raises(ApiStatusError) as caught:
            await client.get("/x")
    finally:
        await client.close()
    assert (len(server.requests), caught.value.code) == (1, 429)


async def test_a_silent_server_is_unreachable_after_the_time_limit(server: StandIn, client: KubeClient) -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    server.handler = answer
    with pytest.raises(ApiUnreachableError, match=r"^127\.0\.0\.1:\d+: no answer in time$"):
        await client.get("/x", timeout=0.05)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
async def test_a_success_that_is_no_object_is_an_error(server: StandIn, client: KubeClient, body: bytes) -> None:
    server.always(lambda: web.Response(body=body))
    with pytest.raises(ApiUnreachableError, match="the answer is not"):
        await client.get("/x")


async def test_a_refused_connection_and_missing_credentials_are_one_line(client: KubeClient, tmp_path: Path) -> None:
    with pytest.raises(ApiUnreachableError, match="is not there yet"):
        await client.get("/x")
    put_credentials(tmp_path, 1, "http://127.0.0.1:1")
    with pytest.raises(ApiUnreachableError, match=r"^127\.0\.0\.1:1: no connection: .*[Cc]onnect"):
        await client.get("/x")
    put_credentials(tmp_path, 2, "http://nowhere.invalid:81")
    with pytest.raises(ApiUnreachableError, match=r"^nowhere\.invalid:81: the name cannot be resolved"):
        await client.get("/x")
    await client.close()
    with pytest.raises(ApiUnreachableError, match="closed"):
        await client.get("/x")


async def test_a_token_that_cannot_stand_in_a_header_is_not_shown(tmp_path: Path) -> None:
    put_credentials(tmp_path, 1, "http://127.0.0.1:1", token_file=b"top\nsecret")
    async with client_of(tmp_path) as client:
        with pytest.raises(ApiUnreachableError, match="cannot be used: not a token") as caught:
            await client.get("/x")
    assert "secret" not in str(caught.value)


async def test_after_a_401_newer_credentials_are_tried_once(
    server: StandIn, client: KubeClient, tmp_path: Path
) -> None:
    put_credentials(tmp_path, 1, server.url, token_file=b"old")

    async def answer(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer new":
            return web.json_response({"ok": True})
        if len(server.requests) == 2:
            put_credentials(tmp_path, 2, server.url, token_file=b"new")
        return status(401, "Unauthorized", "Unauthorized")

    server.handler = answer
    with pytest.raises(ApiStatusError):
        await client.get("/x")
    assert len(server.requests) == 1  # there are no newer ones yet
    assert await client.get("/x") == {"ok": True}
    assert len(server.requests) == 3


async def test_credentials_that_are_refused_while_there_are_no_others_are_reported(tmp_path: Path) -> None:
    reported: list[int] = []
    async with serving() as server, client_of(tmp_path) as client:
        client.refused = reported.append
        put_credentials(tmp_path, 7, server.url, token_file=b"old")

        async def answer(request: web.Request) -> web.Response:
            if request.headers["Authorization"] == "Bearer old":
                return status(401, "Unauthorized", "Unauthorized")
            return status(403, "Forbidden", "no")

        server.handler = answer
        for asking in (client, client.behind()):
            with pytest.raises(ApiStatusError):
                await asking.get("/x")
            await asking.drop_connections()
        put_credentials(tmp_path, 8, server.url, token_file=b"new")
        with pytest.raises(ApiStatusError):
            await client.get("/x")
    assert reported == [7, 7]


async def test_a_proxy_is_asked_and_its_password_never_shown(client: KubeClient, tmp_path: Path) -> None:
    put_credentials(tmp_path, 1, "https://api.test:6443", proxy_url="http://joe:hidden@127.0.0.1:1")
    with pytest.raises(ApiUnreachableError, match=r"^api\.test:6443: the proxy cannot be reached") as caught:
        await client.get("/x")
    assert "hidden" not in str(caught.value)


async def test_a_socks_proxy_of_the_environment_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://joe:hidden@127.0.0.1:1")
    async with client_of(tmp_path) as client:
        put_credentials(tmp_path, 1, "https://api.test:6443")
        with pytest.raises(ApiUnreachableError, match=r"^api\.test:6443: HTTPS_PROXY names a proxy of socks5://"):
            await client.get("/x")


async def test_requests_of_the_client_behind_wait_for_those_of_the_one_before(tmp_path: Path) -> None:
    """They share one rate limit and no connection."""
    put, came = "/api/v1/namespaces/n/pods/p/status", asyncio.Event()
    async with serving() as server, client_of(tmp_path, qps=20, burst=1) as client:
        put_credentials(tmp_path, 1, server.url)
        behind = client.behind()

        async def answer(_: web.Request) -> web.Response:
            came.set()
            return web.json_response({"kind": "Pod"})

        server.handler = answer
        tokens = [asyncio.create_task(behind.create(f"/tokens/{number}", {})) for number in range(100)]
        await came.wait()
        await client.patch(put, {})
        before = [request.path for request in server.requests].index(put)
        for task in tokens:
            task.cancel()
        await asyncio.gather(*tokens, return_exceptions=True)
        await behind.close()
    assert before <= 20  # of 100; a slow machine lets more of them pass before the patch is requested


@pytest.mark.long
async def test_requests_are_counted_by_code_and_timed(tmp_path: Path) -> None:
    metrics = Registry()
    async with serving() as server, client_of(tmp_path, metrics=metrics) as client:
        put_credentials(tmp_path, 1, server.url)
        codes = iter((429, 200, 404))

        async def answer(_: web.Request) -> web.Response:
            code = next(codes)
            return web.Response(status=code, body=b"{}", headers={"Retry-After": "0"} if code == 429 else {})

        server.handler = answer
        await client.get("/x")
        with pytest.raises(ApiStatusError):
            await client.behind(shares_connections=True).delete("/x")
        host = server.url.partition("//")[2]
        put_credentials(tmp_path, 2, "https://127.0.0.1:1")
        with pytest.raises(ApiUnreachableError):
            await client.get("/x")
    counted = {family.name: series for family, series in metrics.collect()}
    assert counted["rest_client_requests_total"] == {
        ("429", "GET", host): [1.0],
        ("200", "GET", host): [1.0],
        ("404", "DELETE", host): [1.0],
        ("<error>", "GET", "127.0.0.1:1"): [1.0],
    }
    assert counted["rest_client_request_retries_total"] == {("429", "GET", host): [1.0]}
    durations = counted["rest_client_request_duration_seconds"]
    assert sum(durations["GET", host][:-1]) == 2
    assert not counted["rest_client_rate_limiter_duration_seconds"], "a client without a limit waits for none"


async def test_the_time_for_which_requests_wait_for_the_rate_limit_is_measured(tmp_path: Path) -> None:
    metrics = Registry()
    async with serving() as server, client_of(tmp_path, qps=2, burst=1, metrics=metrics) as client:
        put_credentials(tmp_path, 1, server.url)
        server.always(lambda: web.json_response({}))
        await asyncio.gather(*(client.get("/x") for _ in range(3)))
        [(labels, series)] = next(
            found.items()
            for family, found in metrics.collect()
            if family.name.endswith("rate_limiter_duration_seconds")
        )
    assert labels == ("GET", server.url.partition("//")[2])
    assert sum(series[:-1]) == 3 and series[-1] >= 0.9, "0, 0.5 and 1 s, of which a busy machine may spend a part first"
