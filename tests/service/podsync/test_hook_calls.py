"""The postStart hook as a call: what is sent where, what is a success, and the words for a failure (pods.md 8.4)."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.bootstrap.adapters.serving_pair import make_self_signed
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import RunPostStartHook
from shared.cri.interface import ExecResult, RuntimeCallError
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.fakes.virtual_time import on_virtual_time, virtual_clock
from tests.service.podsync.performer import UID, Performer, a_container, a_pod, ours
from tests.support.waits.deadline import WAIT_SECONDS

HOST = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WHOSE = f'for Container "c" in Pod "web_shop({UID})" failed - error: '


async def performing(directory: Path, handler: Object, **pod: Any) -> Performer:
    clock = virtual_clock() if hasattr(asyncio.get_running_loop(), "clock") else None
    ports = [{"name": "web", "containerPort": 8080}]
    container = a_container(lifecycle={"postStart": handler}, ports=ports)
    performer = Performer(directory, a_pod(container, **pod), clock)
    await performer.run()
    return performer


def hook(performer: Performer) -> RunPostStartHook:
    return RunPostStartHook(uid=UID, container="c", container_id=performer.ids["c"])


async def run(directory: Path, handler: Object, **pod: Any) -> CallDone | CallFailed:
    performer = await performing(directory, handler, **pod)
    return await asyncio.wait_for(performer.perform(hook(performer)), WAIT_SECONDS)


async def failure(directory: Path, handler: Object, **pod: Any) -> str:
    outcome = await run(directory, handler, **pod)
    assert isinstance(outcome, CallFailed) and not outcome.interrupted
    assert outcome.text.startswith(outcome.description)
    return outcome.text


class Server:
    """Answers in turn; keeps what it was asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.heads, self.port = list(answers), list[str](), 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answers.pop(0))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, IndexError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(*answers)
    listening = await asyncio.start_server(server.connected, HOST, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


def get(server: Server, path: str = "/up", **fields: Any) -> Object:
    return {"httpGet": {"host": HOST, "port": server.port, "path": path, **fields}}


# exec


async def test_a_command_that_succeeds(tmp_path: Path) -> None:
    performer = await performing(tmp_path, {"exec": {"command": ["touch", "/$(HOME)"]}})
    done = await performer.perform(hook(performer))
    assert isinstance(done, CallDone) and done.result is None
    assert performer.runtime.requests("ExecSync") == [
        {"container_id": performer.ids["c"], "cmd": ["touch", "/$(HOME)"]}
    ]


async def test_the_error_of_a_failed_command_contains_its_output(tmp_path: Path) -> None:
    performer = await performing(tmp_path, {"exec": {"command": ["sh", "-c", 'echo "a"; exit 3']}})
    performer.runtime.execute = lambda *_: ExecResult(exit_code=3, stdout=b'print "a"\n', stderr=b"bad\n")
    failed = await performer.perform(hook(performer))
    assert isinstance(failed, CallFailed) and failed.code == ""
    assert failed.text == (
        f'Exec lifecycle hook ([sh -c echo "a"; exit 3]) {WHOSE}'
        'command \'sh -c echo "a"; exit 3\' exited with 3: bad\n, message: "print \\"a\\"\\nbad\\n"'
    )
    assert failed.description == failed.text.partition(": bad")[0]  # for what outlives the status


async def test_a_command_that_the_runtime_cannot_run(tmp_path: Path) -> None:
    performer = await performing(tmp_path, {"exec": {"command": ["nope"]}})

    def refuse(*_: object) -> ExecResult:
        raise RuntimeCallError("ExecSync", "Unknown", 'exec: "nope": executable file not found')

    performer.runtime.execute = refuse
    failed = await performer.perform(hook(performer))
    assert isinstance(failed, CallFailed)
    wanted = f'Exec lifecycle hook ([nope]) {WHOSE}exec: "nope": executable file not found, message: ""'
    assert failed.text == wanted


async def test_what_a_command_wrote_is_kept_within_bounds(tmp_path: Path) -> None:
    performer = await performing(tmp_path, {"exec": {"command": ["x"]}})
    performer.runtime.execute = lambda *_: ExecResult(exit_code=1, stdout=b"\xff" * 1_000_000, stderr=b"e" * 1_000_000)
    failed = await performer.perform(hook(performer))
    assert isinstance(failed, CallFailed) and len(failed.text) < 25_000


# sleep, tcpSocket, nothing


@pytest.mark.parametrize("seconds", [0, 7])
def test_sleep_takes_the_seconds_of_its_spec(tmp_path: Path, seconds: int) -> None:
    @on_virtual_time
    async def sleeping() -> None:
        performer = await performing(tmp_path, {"sleep": {"seconds": seconds}})
        call = performer.begin(hook(performer))
        await performer.pass_time(max(seconds - 0.1, 0))
        assert call.done() is (seconds == 0)
        await performer.pass_time(0.2)
        assert isinstance(await call, CallDone)

    sleeping()


@pytest.mark.parametrize("handler", [{"sleep": {"seconds": 9}}, {"exec": {"command": ["sleep", "9"]}}])
def test_a_hook_given_up_leaves_nothing_of_ours_running(tmp_path: Path, handler: Object) -> None:
    @on_virtual_time
    async def given_up() -> None:
        performer = await performing(tmp_path, handler)
        performer.runtime.hang("ExecSync")
        call = performer.begin(hook(performer))
        await performer.pass_time(1)
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled() and ours() == []

    given_up()


@pytest.mark.parametrize(
    ("handler", "named"), [({"tcpSocket": {"port": 80}}, "tcpSocket"), ({}, "none"), ({"grpc": {}}, "grpc")]
)
async def test_other_handlers_are_invalid(tmp_path: Path, handler: Object, named: str) -> None:
    assert await failure(tmp_path, handler) == f"Cannot run handler: invalid handler: {named}"


async def test_a_container_that_the_pod_has_no_more_is_no_bug(tmp_path: Path) -> None:
    performer = await performing(tmp_path, {"exec": {"command": ["x"]}})
    gone = await performer.perform(RunPostStartHook(uid=UID, container="other", container_id="x"))
    assert isinstance(gone, CallFailed) and gone.text == "the pod has no container other any more"


# httpGet


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "500 Oh", "301 Moved\r\nLocation: http://elsewhere/"])
async def test_any_answer_is_a_success(tmp_path: Path, status: str) -> None:
    async with serving(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()) as server:
        assert isinstance(await run(tmp_path, get(server)), CallDone)
        assert len(server.heads) == 1


async def test_the_request_is_the_kubelets(tmp_path: Path) -> None:
    async with serving(OK) as server:
        headers = [{"name": "x-one", "value": "1"}, {"name": "X-One", "value": "2"}]
        assert isinstance(await run(tmp_path, get(server, "/up?a=b", httpHeaders=headers)), CallDone)
        [head] = server.heads
        assert head.split("\r\n") == [
            "GET /up?a=b HTTP/1.1",
            f"Host: {HOST}:{server.port}",
            "User-Agent: kube-lifecycle/1.37",
            *("Accept: */*", "X-One: 1", "X-One: 2", "Connection: close", "", ""),
        ]


async def test_the_server_is_told_the_release_that_is_emulated(tmp_path: Path) -> None:
    async with serving(OK) as server:
        performer = await performing(tmp_path, get(server))
        performer.calls.facts = replace(performer.calls.facts, release="1.36")
        await asyncio.wait_for(performer.perform(hook(performer)), WAIT_SECONDS)
        assert "User-Agent: kube-lifecycle/1.36\r\n" in server.heads[0]


async def test_headers_of_the_spec_win(tmp_path: Path) -> None:
    async with serving(OK) as server:
        headers = [{"name": "Host", "value": "me"}, {"name": "User-Agent", "value": "mine"}]
        await run(tmp_path, get(server, httpHeaders=headers))
        assert "Host: me\r\n" in server.heads[0] and "User-Agent: mine\r\n" in server.heads[0]
        assert "kube-lifecycle" not in server.heads[0]


async def test_a_broken_body_is_of_no_interest(tmp_path: Path) -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nno") as server:
        assert isinstance(await run(tmp_path, get(server)), CallDone)


async def test_redirects_lead_to_the_same_host_only(tmp_path: Path) -> None:
    there = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"
    away = b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/away\r\nContent-Length: 0\r\n\r\n"
    async with serving(there, away) as server:
        assert isinstance(await run(tmp_path, get(server)), CallDone)
        assert [head.split()[1] for head in server.heads] == ["/up", "/there"]


async def test_a_circle_of_redirects_is_a_failure(tmp_path: Path) -> None:
    again = b"HTTP/1.1 302 Found\r\nLocation: /up\r\nContent-Length: 0\r\n\r\n"
    async with serving(*[again] * 12) as server:
        text = await failure(tmp_path, get(server))
        assert text == (
            f'HTTP lifecycle hook (/up) {WHOSE}Get "http://{HOST}:{server.port}/up": stopped after 10 redirects'
        )


async def test_a_port_without_a_listener_fails_the_hook(tmp_path: Path) -> None:
    async with serving() as server:
        pass
    where = f"{HOST}:{server.port}"
    assert await failure(tmp_path, get(server)) == (
        f'HTTP lifecycle hook (/up) {WHOSE}Get "http://{where}/up": dial tcp {where}: connect: connection refused'
    )


async def test_an_answer_that_is_none(tmp_path: Path) -> None:
    async with serving(b"") as server:
        assert (await failure(tmp_path, get(server))).endswith(f'Get "http://{HOST}:{server.port}/up": EOF')


async def test_tls_is_not_verified(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, content in zip(("crt", "key"), make_self_signed("node1", datetime.now(UTC)), strict=True):
        (tmp_path / name).write_bytes(content)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    async with serving(OK, tls=context) as server:
        assert isinstance(await run(tmp_path, get(server, scheme="HTTPS")), CallDone)
        assert len(server.heads) == 1


async def test_https_falls_back_to_http_without_credentials(tmp_path: Path) -> None:
    refused = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    headers = [{"name": "authorization", "value": "Bearer s3cret"}, {"name": "X-Kept", "value": "yes"}]
    async with serving_both(refused, OK) as server:
        assert isinstance(await run(tmp_path, get(server, scheme="HTTPS", httpHeaders=headers)), CallDone)
        assert len(server.heads) == 1
        assert "X-Kept: yes" in server.heads[0] and "s3cret" not in server.heads[0]


@asynccontextmanager
async def serving_both(refused: bytes, answer: bytes) -> AsyncIterator[Server]:
    """A server without TLS: to a TLS hello it answers in plain text, as HTTP servers do."""
    server = Server()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        if first == b"G":
            server.heads.append("G" + (await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(answer if first == b"G" else refused)
        writer.close()

    listening = await asyncio.start_server(connected, HOST, 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


@pytest.mark.parametrize(
    ("port", "why"),
    [
        ("nope", 'strconv.Atoi: parsing "nope": invalid syntax'),
        (0, "invalid port number: 0"),
        (70000, "invalid port number: 70000"),
        (None, "invalid port number: None"),
    ],
)
async def test_a_port_that_is_none(tmp_path: Path, port: object, why: str) -> None:
    text = await failure(tmp_path, {"httpGet": {"host": HOST, "port": port, "path": "/up"}})
    assert text == f"HTTP lifecycle hook (/up) {WHOSE}{why}"


async def test_a_port_by_name_is_that_of_the_container(tmp_path: Path) -> None:
    text = await failure(tmp_path, {"httpGet": {"host": HOST, "port": "web"}})
    assert f"dial tcp {HOST}:8080: connect" in text


async def test_a_header_that_cannot_be_sent(tmp_path: Path) -> None:
    async with serving(OK) as server:
        text = await failure(tmp_path, get(server, httpHeaders=[{"name": "a b", "value": "x"}]))
        assert text.endswith('net/http: invalid header field name "a b"') and not server.heads


async def test_without_a_host_it_is_the_address_that_the_runtime_gives_the_pod(tmp_path: Path) -> None:
    performer = await performing(tmp_path, {"httpGet": {"port": 1}})
    address = (await performer.seen()).sandboxes[0].ips[0]
    asked: list[str] = []

    async def note(target: Any, *_: object) -> None:
        asked.append(target.host)
        raise OSError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.podsync.adapters.calls.hooks.exchange", note)
        await performer.perform(hook(performer))
    assert asked == [address]
    await performer.runtime.stop_pod_sandbox(performer.sandbox)
    failed = await performer.perform(hook(performer))
    assert isinstance(failed, CallFailed) and "failed to find networking container" in failed.text


async def test_on_the_nodes_network_it_is_the_address_of_the_node(tmp_path: Path) -> None:
    async with serving(OK) as server:
        handler = {"httpGet": {"port": server.port}}
        assert isinstance(await run(tmp_path, handler, hostNetwork=True), CallDone)


@on_virtual_time
async def test_no_request_goes_to_the_address_of_a_sandbox_that_is_not_ready(tmp_path: Path) -> None:
    """The address may be another pod's by now."""
    performer = await performing(tmp_path, {"httpGet": {"path": "/", "port": "web"}})
    performer.runtime.exit_sandbox(performer.sandbox)
    outcome = await performer.perform(hook(performer))
    assert isinstance(outcome, CallFailed)
    assert "failed to find networking container" in outcome.text
