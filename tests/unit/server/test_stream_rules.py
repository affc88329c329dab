"""What a stream request asks for, which container it means, and how its end is reported."""

import json
from typing import Any

import pytest

from services.server.core.pods.stream_target import running_container
from services.server.core.streams.completion import SUCCESS, completion
from services.server.core.streams.stream_parameters import (
    RequestedStreams,
    StreamRequestError,
    Upgrade,
    command,
    forwarded_ports,
    requested_streams,
    run_command,
    upgrade_of,
)
from services.server.core.streams.upgrade import (
    UpgradeError,
    decode_chunked,
    parse_streaming_url,
    proxied_request,
    spdy_request,
)
from shared.model.runtime import Container, ContainerState, RuntimePod

V4, V5, TUNNEL = "v4.channel.k8s.io", "v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"


@pytest.mark.parametrize(
    ("query", "streams"),
    [
        ("output=1", RequestedStreams(stdout=True)),
        ("input=1&output=1&error=1", RequestedStreams(True, True, True)),
        ("input=1&output=1&error=1&tty=1", RequestedStreams(True, True, False, True)),
        ("input=true&error=1", RequestedStreams(stderr=True)),
        ("output=1&output=0", RequestedStreams(stdout=True)),
    ],
)
def test_streams(query: str, streams: RequestedStreams) -> None:
    assert requested_streams(query) == streams


def test_no_stream_is_no_request() -> None:
    for query in ("", "tty=1", "tty=1&error=1", "output=yes"):
        with pytest.raises(StreamRequestError):
            requested_streams(query)


def test_words() -> None:
    assert command("command=sh&command=-c&command=echo%20a+b&command=") == ("sh", "-c", "echo a b", "")
    assert run_command("cmd=echo%20'a%20b'") == ("echo", "'a", "b'")


def test_ports() -> None:
    assert forwarded_ports("port=80,443&port=65535") == (80, 443, 65535)


@pytest.mark.parametrize(
    ("connection", "upgrade", "protocols", "forward", "expected"),
    [
        ("Upgrade", "SPDY/3.1", (), False, Upgrade.PROXY),
        ("keep-alive, Upgrade", "websocket", (V4,), False, Upgrade.PROXY),
        ("upgrade", "WebSocket", (V4, V5), False, Upgrade.TRANSLATE),
        ("Upgrade", "websocket", (V5,), True, Upgrade.PROXY),
        ("Upgrade", "websocket", (TUNNEL,), True, Upgrade.TUNNEL),
        ("Upgrade", "websocket", (TUNNEL,), False, Upgrade.PROXY),
        ("", "websocket", (V5,), False, Upgrade.NONE),
        ("Upgrade", "", (), False, Upgrade.NONE),
    ],
)
def test_how_a_client_goes_on(
    connection: str, upgrade: str, protocols: tuple[str, ...], forward: bool, expected: Upgrade
) -> None:
    assert upgrade_of((connection,), upgrade, protocols, forward=forward) is expected


def container(identity: str, state: ContainerState) -> Container:
    return Container(id=identity, name="main", attempt=0, sandbox_id="s", state=state, created_at=1)


RUNNING, EXITED = ContainerState.RUNNING, ContainerState.EXITED


@pytest.mark.parametrize(
    ("status", "observed", "expected"),
    [
        ("c2", [("c1", EXITED)], "c2"),  # started, not observed yet
        ("c1", [("c1", EXITED)], ""),  # ended, status not computed yet
        ("c1", [("c2", RUNNING), ("c1", EXITED)], "c2"),
        ("", [("c1", RUNNING)], "c1"),
        ("", [], ""),
    ],
)
def test_which_instance_runs(status: str, observed: list[tuple[str, ContainerState]], expected: str) -> None:
    entry = {"name": "main", "state": {"running": {}}, "containerID": f"containerd://{status}"}
    containers = tuple(container(*each) for each in observed)
    runtime = RuntimePod(uid="u", name="p", namespace="n", observed_at=1.0, containers=containers)
    assert running_container("main", {"containerStatuses": [entry] if status else None}, runtime) == expected


def failed(**more: Any) -> bytes:
    return json.dumps({"status": "Failure", **more}).encode()


@pytest.mark.parametrize(
    ("protocol", "error_stream", "expected"),
    [
        (V4, b"", "Success"),
        (V4, b'{"metadata":{},"status":"Success"}', "Success"),
        (V4, failed(message="no such file", reason="InternalError"), "Internal error occurred: no such file"),
        (V4, b"[]", "Internal error occurred: error stream protocol error: status None"),
        (
            V4,
            failed(reason="NonZeroExitCode", details={"causes": [{"reason": "ExitCode", "message": "x"}]}),
            "Internal error occurred: error stream protocol error: no ExitCode cause given",
        ),
        ("v2.channel.k8s.io", b"oh", "Internal error occurred: error executing remote command: oh"),
        (V4, b"\xff", "Internal error occurred: error stream protocol error: "),
    ],
)
def test_how_an_end_is_reported(protocol: str, error_stream: bytes, expected: str) -> None:
    status = json.loads(completion(protocol, error_stream))
    assert (status.get("message") or status["status"]).startswith(expected)


def test_an_exit_code_is_a_cause() -> None:
    causes = [{"reason": "ExitCode", "message": "7"}]
    status = json.loads(completion(V4, failed(reason="NonZeroExitCode", details={"causes": causes})))
    assert status == {
        "metadata": {},
        "status": "Failure",
        "message": "command terminated with non-zero exit code: command terminated with exit code 7",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }
    assert completion(V4, b'{"status":"Success"}') == SUCCESS


def test_the_request_for_the_runtime() -> None:
    server = parse_streaming_url("http://[::1]:99/exec/abc?x=1")
    assert (server.host, server.port, server.target) == ("::1", 99, "/exec/abc?x=1")
    headers = [(b"Host", b"node"), (b"authorization", b"Bearer x"), (b"x-forwarded-for", b"a"), (b"X-A", b"\xff")]
    assert proxied_request("GET", server, headers, "b") == (
        b"GET /exec/abc?x=1 HTTP/1.1\r\nHost: node\r\nX-A: \xff\r\nX-Forwarded-For: a, b\r\n\r\n"
    )
    assert spdy_request(server, (V4,)).startswith(b"POST /exec/abc?x=1 HTTP/1.1\r\nHost: [::1]:99\r\n")


@pytest.mark.parametrize("url", ["", "unix:///x", "http://", "http://h:99999/", "ftp://h/"])
def test_a_url_that_leads_nowhere(url: str) -> None:
    with pytest.raises(UpgradeError):
        parse_streaming_url(url)


def test_chunks() -> None:
    assert decode_chunked(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n") == b"abcde"
    assert decode_chunked(b"zz\r\nabc") == b""
