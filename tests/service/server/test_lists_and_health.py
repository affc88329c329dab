"""/pods, /runningpods, /configz and /healthz over real HTTP, from the streams of other services."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from services.server.service import ServerService
from shared.errors import OperatorError
from shared.model.runtime import ContainerState
from tests.service.server.running import POD, Running, configuration, running
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(configuration(tmp_path)) as server:
        yield server


async def names(server: Running, path: str = "/pods") -> list[str] | None:
    status, body = await server.get(server.read_only + path)
    assert status == 200
    items = json.loads(body)["items"]
    return None if items is None else [item["metadata"]["name"] for item in items]


async def test_pods_are_null_until_there_are_some(server: Running) -> None:
    assert await names(server) is None


async def test_pods_show_desired_pods_with_the_computed_status(server: Running) -> None:
    await server.node.run_pod()
    _, body = await server.get(server.read_only + "/pods")
    pod = json.loads(body)["items"][0]
    assert (pod["metadata"]["name"], pod["status"]["phase"]) == (POD, "Running")


async def test_restarting_services_do_not_blank_the_answer(server: Running) -> None:
    await server.node.run_pod()
    for service in ("sources", "podsync", "pleg"):
        server.node.network.kill(service)
    await server.node.network.advance(10)
    assert await names(server) == [POD]
    server.node.complete = False
    await server.node.start("sources", "podsync", "pleg")
    await server.node.network.advance(2)
    assert await names(server) == [POD]  # a new sources that has not listed everything yet proves nothing
    server.node.desired.mark_complete()
    await server.node.network.advance(2)
    assert await names(server) is None


async def test_configz_is_the_effective_configuration_as_it_was_decided(tmp_path: Path) -> None:
    document = {"maxPods": 5, "cgroupRoot": "", "staticPodURLHeader": {"A": ["b"]}}
    async with running(configuration(tmp_path, document=document)) as server:
        response = await server.service.endpoints.configz(make_mocked_request("GET", "/configz"), ())
        assert isinstance(response, web.Response) and isinstance(response.body, bytes)
        kind = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
        assert json.loads(response.body) == {"kubeletconfig": {**kind, **document}}


async def test_health_names_a_service_that_fell_silent(server: Running) -> None:
    await server.node.network.advance(40)
    assert (await server.get(server.read_only + "/healthz"))[0] == 200
    server.node.network.kill("volume")
    await server.node.network.advance(29)
    assert (await server.get(server.read_only + "/healthz"))[0] == 200
    await server.node.network.advance(3)
    status, body = await server.get(server.read_only + "/healthz")
    assert status == 500
    assert "[-]bulkhead-volume failed: reason withheld\n" in body
    assert "[+]bulkhead-podsync ok\n" in body
    assert (await server.get(server.read_only + "/healthz?exclude=bulkhead-volume"))[0] == 200
    status, body = await server.get(server.read_only + "/healthz/bulkhead-volume")
    assert status == 500
    assert body.startswith("internal server error: volume has sent no beat")
    await server.node.start("volume")
    await server.node.network.advance(1)
    assert (await server.get(server.read_only + "/healthz"))[0] == 200


@pytest.mark.long
async def test_health_fails_when_the_sync_loop_stands_though_beats_go_on(server: Running) -> None:
    server.node.buses["podsync"].progress("sync")
    await server.node.network.advance(100)
    assert (await server.get(server.read_only + "/healthz/syncloop")) == (200, "ok")
    await server.node.network.advance(202)
    status, body = await server.get(server.read_only + "/healthz/syncloop")
    assert (status, body) == (500, "internal server error: sync Loop took longer than expected\n")


async def test_running_pods_come_from_the_runtime(server: Running) -> None:
    await server.node.run_pod()
    response = await server.service.endpoints.running_pods(None, ())  # type: ignore[arg-type]
    assert json.loads(response.body)["items"][0]["spec"]["containers"][0]["name"] == "main"  # type: ignore[attr-defined]
    server.node.observe("", ContainerState.EXITED)
    await server.node.network.settle()
    response = await server.service.endpoints.running_pods(None, ())  # type: ignore[arg-type]
    assert json.loads(response.body)["items"][0]["spec"]["containers"] is None  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize(
    "line",
    [
        b"GET /%2e%2e//pods HTTP/1.1",
        b"GET /%0d%0aX:%20y//z HTTP/1.1",
        b"GET /" + b"a" * 2_000_000 + b" HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET * HTTP/1.1",
        b"CONNECT x:1 HTTP/1.1",
        b"BREW /pods HTTP/1.1",
        b"\x16\x03\x01\x02",
    ],
    ids=["dots", "newline", "long", "not-ascii", "star", "connect", "method", "tls"],
)
async def test_bad_requests_get_an_answer_or_a_closed_connection_and_no_traceback(
    server: Running, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.read_only_port)
    writer.write(line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = b""
    async with asyncio.timeout(WAIT_SECONDS):
        with suppress(ConnectionResetError):
            answer = await reader.read()
    writer.close()
    assert not answer or int(answer.split()[1]) in (301, 400, 404, 405, 431)
    assert "Traceback" not in caplog.text
    assert await names(server) is None


async def test_the_health_listener_waits_for_its_port_and_the_rest_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_sleep = asyncio.sleep
    retried = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds == 5.0:
            taken.close()
            await taken.wait_closed()
            retried.set()
            seconds = 0
        await real_sleep(seconds)

    monkeypatch.setattr("services.server.adapters.listener.asyncio.sleep", sleep)
    config = configuration(tmp_path)
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", config.healthz_port)
    async with running(config) as server, asyncio.timeout(WAIT_SECONDS):
        assert await names(server) is None
        await retried.wait()
        while "healthz" not in server.service.listeners:
            await real_sleep(0)
        assert await server.get(server.healthz + "/healthz") == (200, "ok")


async def test_a_port_in_use_ends_the_service_with_one_line(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", config.read_only_port):
        with pytest.raises(OperatorError) as failed:
            async with running(config):
                pass
    assert str(failed.value) == (
        f"readOnlyPort: cannot listen on 127.0.0.1 port {config.read_only_port}: Address already in use "
        "(free the port, or set another address or readOnlyPort in the configuration)"
    )


async def test_a_missing_serving_pair_ends_the_service_with_one_line(tmp_path: Path) -> None:
    config = configuration(tmp_path, enable_server=True, tls_cert_file="/none.crt", tls_private_key_file="/none.key")
    with pytest.raises(OperatorError, match=r"cannot use the serving pair /none.crt, /none.key") as failed:
        async with running(config):
            pass
    assert "\n" not in str(failed.value)


async def test_nothing_listens_where_nothing_is_configured(tmp_path: Path) -> None:
    config = configuration(tmp_path, read_only_port=0, healthz_port=0)
    async with running(config) as server:
        assert isinstance(server.service, ServerService)
        assert server.service.listeners.keys() <= {"local"}, "a socket, which has no port"


async def test_an_error_of_ours_is_a_plain_500_and_the_listener_continues(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("services.server.controllers.endpoints.pod_list", lambda *_: 1 / 0)
    assert await server.get(server.read_only + "/pods?token=%0A") == (500, "internal server error\n")
    assert "GET /pods failed" in caplog.text
    assert "token" not in caplog.text
    assert (await server.get(server.read_only + "/healthz"))[0] == 200


async def test_answers_do_not_show_the_versions_of_the_server(server: Running) -> None:
    async with server.client.get(server.read_only + "/healthz") as response:
        assert response.headers["Server"] == "bulkhead"
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_an_ipv6_wildcard_listens_for_ipv4_too(tmp_path: Path) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("IPv6 is off in this kernel")
    async with running(configuration(tmp_path, address="::")) as server:
        assert await names(server) is None
        port = server.config.read_only_port
        assert (await server.get(f"http://[::1]:{port}/pods"))[0] == 200
