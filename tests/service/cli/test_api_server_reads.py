"""What `preflight` and `takeover` read from an API server and from a kubelet's port, over real sockets: pages,
refusals, answers that never come."""

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3
import yaml

from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from services.bootstrap.adapters.serving_pair import make_self_signed
from services.cli.preflight.api_server import ApiServer, ReadError, items_of
from services.cli.preflight.cluster import read_cluster
from services.cli.preflight.findings import Severity
from services.cli.takeover import api_server as takeover_api_server
from services.cli.takeover.api_server import node_ready
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.kube.tls_world import Authority

TOKEN = "a-token-that-is-secret"
Answer = Callable[[str, dict[str, list[str]]], tuple[int, Any]]


class Server:
    """An HTTP server whose answers the test gives: status and JSON document; a status of 0 is never answered."""

    def __init__(self) -> None:
        self.answer: Answer = lambda path, query: (404, {"message": f"{path} not found"})
        self.requests: list[tuple[str, str]] = []  # path and Authorization
        self.closes = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                outer.requests.append((url.path, self.headers.get("Authorization", "")))
                status, document = outer.answer(url.path, parse_qs(url.query))
                if not status:
                    outer.closes.wait()
                    return
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def serve_tls(self, pair: Path) -> None:
        """With this private key and certificate, from the next connection on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def stop(self) -> None:
        self.closes.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.stop()


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> str:
    path = tmp_path / "kubelet.conf"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def a_pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": {"containers": []}}


def opened(server: Server, seconds: float = WAIT_SECONDS) -> ApiServer:
    return ApiServer(server.url, ResolvedCredentials(server=server.url, token=TOKEN), time.monotonic() + seconds)


def test_the_pods_of_a_node_are_read_page_by_page(server: Server) -> None:
    def answer(path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        assert (path, query["fieldSelector"]) == ("/api/v1/pods", ["spec.nodeName=n1"])
        number = int(query.get("continue", ["0"])[0])
        more = {"continue": str(number + 1)} if number < 2 else {}
        return 200, {"items": [a_pod(f"p{number}"), "no object"], "metadata": more}

    server.answer = answer
    with opened(server) as api:
        assert [pod["metadata"]["name"] for pod in api.pods("n1")] == ["p0", "p1", "p2"]


def answering_raw(answer: bytes, pause: float = 0.0) -> str:
    """The URL of a server that sends these bytes, and then, with a pause before each, one more byte of a header."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(answer)
            while pause:
                time.sleep(pause)
                connection.sendall(b"x")

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_server_that_sends_a_byte_at_a_time_is_not_waited_for(begun: bytes) -> None:
    url = answering_raw(begun, pause=0.05)
    asked = time.monotonic()
    with (
        pytest.raises(ReadError, match=r"does not answer: (the answer takes too long|Read timed out)"),
        ApiServer(url, ResolvedCredentials(server=url, token=TOKEN), asked + 1.0) as api,
    ):
        api.version()
    assert time.monotonic() - asked < WAIT_SECONDS, "it would go on sending"


@pytest.mark.parametrize("status", [b"200 OK", b"403 Forbidden"])
def test_an_answer_that_nests_without_end_is_refused_in_one_line(status: bytes) -> None:
    url = answering_raw(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\n\r\n" + b"[" * 100_000)
    with (
        pytest.raises(ReadError, match=r"^answers (with something other than JSON|403 Forbidden: \[{100,300})$"),
        ApiServer(url, ResolvedCredentials(server=url, token=TOKEN), time.monotonic() + WAIT_SECONDS) as api,
    ):
        api.version()


@pytest.mark.long
def test_a_ca_that_is_an_intermediate_certificate_alone_is_trusted(server: Server, tmp_path: Path) -> None:
    intermediate = Authority("intermediate", under=Authority())
    pair = intermediate.issue("api")
    (tmp_path / "both.pem").write_bytes(pair.key + pair.certificate)
    server.serve_tls(tmp_path / "both.pem")
    server.answer = lambda path, query: (200, {"gitVersion": "v1.36.2"})
    url = f"https://127.0.0.1:{server.port}"
    for ca, answers in ((intermediate, True), (Authority("another"), False)):
        credentials = ResolvedCredentials(server=url, token=TOKEN, ca=ca.pem.decode())
        with ApiServer(url, credentials, time.monotonic() + WAIT_SECONDS) as api:
            if answers:
                assert api.version() == "v1.36.2"
            else:
                with pytest.raises(ReadError, match="certificate verify failed"):
                    api.version()


def test_a_list_without_an_end_is_left(server: Server) -> None:
    server.answer = lambda path, query: (200, {"items": [], "metadata": {"continue": "again"}})
    with opened(server) as api, pytest.raises(ReadError, match="more than 5000 pods"):
        api.pods("n1")


@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("status", "document", "text"),
    [
        (403, {"message": "pods is forbidden"}, "answers 403 Forbidden: pods is forbidden"),
        (302, {"message": "elsewhere"}, "answers 302"),
        (200, ["a list"], "something other than an object"),
        (0, None, "does not answer"),
    ],
)
def test_what_is_no_answer_is_one_line(server: Server, status: int, document: Any, text: str) -> None:
    server.answer = lambda path, query: (status, document)
    with opened(server, 1.0 if not status else WAIT_SECONDS) as api, pytest.raises(ReadError, match=text) as raised:
        api.get("/api/v1/pods")
    assert "\n" not in str(raised.value) and TOKEN not in str(raised.value)


def test_without_the_right_to_read_pods_those_of_the_kubelets_port_count(server: Server, kubeconfig: str) -> None:
    documents = {"/version": {"gitVersion": "v1.36.1"}, "/pods": {"items": [a_pod("web")]}}

    def answer(path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        return (200, documents[path]) if path in documents else (403, {"message": "forbidden"})

    server.answer = answer
    config = EffectiveConfig(
        node_name="n1", cert_dir="", root_dir="/nowhere", run_dir="/nowhere", log_dir="/nowhere",
        kubeconfig=kubeconfig, address="127.0.0.1", read_only_port=server.port,
    )  # fmt: skip
    found = read_cluster(config, WAIT_SECONDS)
    assert [pod["metadata"]["name"] for pod in found.pods] == ["web"]
    assert found.origin == f"the kubelet ({server.url})"
    problems = [finding for finding in found.findings if finding.severity is Severity.PROBLEM]
    assert [problem.what.partition(":")[0] for problem in problems] == [
        "the Node cannot be read",
        "answers 403 Forbidden",
    ]
    credentials = dict(server.requests)
    assert credentials["/version"] == f"Bearer {TOKEN}"
    assert credentials["/pods"] == "", "the token is for the API server"
    assert TOKEN not in str(found)


@pytest.mark.long
def test_a_kubelets_port_with_a_certificate_of_its_own_is_read_without_a_warning(
    server: Server, tmp_path: Path
) -> None:
    certificate, key = make_self_signed("n1", datetime.now(UTC))
    (tmp_path / "pair.pem").write_bytes(key + certificate)
    server.serve_tls(tmp_path / "pair.pem")
    server.answer = lambda path, query: (200, {"items": [a_pod("web")]})
    url = server.url.replace("http:", "https:")
    credentials = ResolvedCredentials(server=url, insecure_skip_tls_verify=True)
    # A warning is an error in the tests; for an operator it would be two lines about a Python file.
    with warnings.catch_warnings(), ApiServer(url, credentials, time.monotonic() + WAIT_SECONDS) as kubelet:
        assert len(items_of(kubelet.get("/pods"))) == 1


@pytest.mark.long
def test_the_condition_ready_is_read_with_the_kubelets_credentials(server: Server, kubeconfig: str) -> None:
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-23T03:00:00Z"}
    server.answer = lambda path, query: (200, {"status": {"conditions": [condition]}})
    content = Path(kubeconfig).read_bytes()
    assert node_ready(kubeconfig, "n1").ready
    assert server.requests == [("/api/v1/nodes/n1", f"Bearer {TOKEN}")]
    assert Path(kubeconfig).read_bytes() == content


def test_credentials_in_a_kubeconfig_are_in_no_file_that_a_kill_would_leave(
    server: Server, kubeconfig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_self_signed("n1", datetime.now(UTC))
    (tmp_path / "pair.pem").write_bytes(key + certificate)
    server.serve_tls(tmp_path / "pair.pem")
    server.answer = lambda path, query: (200, {})
    document = yaml.safe_load(Path(kubeconfig).read_text())
    document["clusters"][0]["cluster"] = {
        "server": server.url.replace("http:", "https:"), "insecure-skip-tls-verify": True,
    }  # fmt: skip
    pair = {"client-certificate-data": certificate, "client-key-data": key}
    document["users"][0]["user"] = {name: base64.b64encode(text).decode() for name, text in pair.items()}
    Path(kubeconfig).write_text(yaml.safe_dump(document))

    def refused(*_given: object, **_named: object) -> tuple[int, str]:
        raise AssertionError("a file is made")

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    with warnings.catch_warnings():
        assert not node_ready(kubeconfig, "n1").ready


@pytest.mark.long
def test_a_kubeconfig_that_changes_is_read_again(server: Server, kubeconfig: str) -> None:
    server.answer = lambda path, query: (200, {})
    node_ready(kubeconfig, "n1")
    text = Path(kubeconfig).read_text()
    Path(kubeconfig).write_text(text.replace(TOKEN, "another-token"))
    os.utime(kubeconfig, (1.0, 1.0))
    node_ready(kubeconfig, "n1")
    assert [authorization for _, authorization in server.requests] == [f"Bearer {TOKEN}", "Bearer another-token"]


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("status", "text"),
    [(403, "answers 403 .*do the credentials"), (404, "is n1 the name of the Node"), (0, "does not answer")],
)
def test_an_api_server_that_refuses_or_hangs_is_one_line(
    server: Server, kubeconfig: str, monkeypatch: pytest.MonkeyPatch, status: int, text: str
) -> None:
    monkeypatch.setattr(takeover_api_server, "TIMEOUT_SECONDS", WAIT_SECONDS if status else 2.0)
    server.answer = lambda path, query: (status, {"message": "no"})
    with pytest.raises(OperatorError, match=text) as raised:
        node_ready(kubeconfig, "n1")
    assert "\n" not in str(raised.value) and TOKEN not in str(raised.value)
    assert len(server.requests) == 1, "a request that is repeated takes a multiple of the timeout"


def test_the_proxy_of_the_environment_is_used_as_by_the_agent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer = lambda path, query: (200, {"gitVersion": "v1.36.0"})
    monkeypatch.setenv("http_proxy", server.url)
    with ApiServer("http://api.test", ResolvedCredentials(server=""), time.monotonic() + WAIT_SECONDS) as api:
        assert api.version() == "v1.36.0"


def test_a_socks_proxy_of_the_environment_is_refused_as_by_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://joe:hidden@127.0.0.1:1")
    api = ApiServer("https://api.test", ResolvedCredentials(server=""), time.monotonic() + WAIT_SECONDS)
    with pytest.raises(ReadError, match=r"^cannot be reached: HTTPS_PROXY names a proxy of socks5://"):
        api.__enter__()


def test_the_commands_that_read_the_api_server_load_no_client_that_costs_more_than_they_do() -> None:
    code = "import sys, services.cli.preflight.examination, services.cli.takeover.exchange; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not {"aiohttp", "cryptography", "kubernetes", "requests", "supervisor"} & set(loaded)


def test_a_proxy_gets_the_user_and_password_of_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://joe:pass%20word@127.0.0.1:1")
    with ApiServer("http://api.test", ResolvedCredentials(server=""), time.monotonic() + WAIT_SECONDS) as api:
        assert isinstance(api._pools, urllib3.ProxyManager)
        authorization = api._pools.proxy_headers["proxy-authorization"]
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"joe:pass word"


@pytest.mark.long
def test_the_kubelet_of_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    credentials, until = ResolvedCredentials(server=""), time.monotonic() + WAIT_SECONDS
    with ApiServer("http://10.0.0.5:10255", credentials, until) as through_proxy:
        assert through_proxy._pools.proxy is not None
    with ApiServer("http://10.0.0.5:10255", credentials, until, direct=True) as kubelet:
        assert kubelet._pools.proxy is None
