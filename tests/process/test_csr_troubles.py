"""Bad bootstrap kubeconfigs and stores under a real supervisord: one clear line, refused or tried again."""

import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from shared.kube.credentials import load_credentials
from tests.fakes.api_http import HttpApiServer
from tests.process.supervised import Agent, eventually, troubles
from tests.unit.bootstrap.kubeconfigs import encoded, exec_output, inline, kubeconfig, plugin, write
from tests.unit.kube.tls_world import Authority, write_pair

CA = Authority()
NODE, OTHER = CA.issue("system:node:a"), CA.issue("system:node:a")
TOKEN = "system:bootstrap:abcdef"


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("c"))
    agent.configure("rotateCertificates: true\n")
    agent.args += ["--kubeconfig", str(agent.home / "kubelet.conf"), "--cert-dir", str(agent.home / "pki")]
    agent.args += ["--bootstrap-kubeconfig", str(agent.home / "bootstrap.conf")]
    yield agent
    agent.clean_up()


def half(agent: Agent) -> None:
    write(agent.home / "bootstrap.conf", kubeconfig(inline(NODE)))
    content = (agent.home / "bootstrap.conf").read_text()
    (agent.home / "bootstrap.conf").write_text(content[: len(content) // 2])


def other_key(agent: Agent) -> None:
    user = {**inline(NODE), "client-key-data": encoded(OTHER.key)}
    write(agent.home / "bootstrap.conf", kubeconfig(user))


def a_directory(agent: Agent) -> None:
    (agent.home / "bootstrap.conf").mkdir()


def corrupt_store(agent: Agent) -> None:
    write(agent.home / "bootstrap.conf", kubeconfig({"token": TOKEN}))
    (agent.home / "pki").mkdir()
    (agent.home / "pki/kubelet-client-current.pem").write_bytes(NODE.certificate[:200])


def unreadable_kubeconfig(agent: Agent) -> None:
    write(agent.home / "bootstrap.conf", kubeconfig({"token": TOKEN}))
    (agent.home / "kubelet.conf").mkdir()


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda _: None, "--bootstrap-kubeconfig: {0}/bootstrap.conf: cannot be read: No such file or directory"),
        (half, "--bootstrap-kubeconfig: {0}/bootstrap.conf: is not YAML: line 1"),
        (other_key, "--bootstrap-kubeconfig: {0}/bootstrap.conf: client-key is not the key of client-certificate"),
        (a_directory, "--bootstrap-kubeconfig: {0}/bootstrap.conf: cannot be read: Is a directory"),
        (unreadable_kubeconfig, "--kubeconfig: {0}/kubelet.conf: cannot be read: Is a directory"),
        (corrupt_store, "--cert-dir: {0}/pki/kubelet-client-current.pem: client-certificate holds no PEM certificate"),
    ],
)
def test_a_first_start_ends_with_one_line(agent: Agent, spoil: Callable[[Agent], None], line: str) -> None:
    spoil(agent)
    [message] = agent.run_bootstrap().splitlines()
    assert message.startswith("bulkhead bootstrap: ")
    assert line.format(agent.home) in message
    assert "Traceback" not in (agent.log_dir / "bootstrap.log").read_text()


async def wait_trouble(agent: Agent, line: str) -> None:
    """Wait until a trouble contains the line."""
    agent.logged("status", "dummy runs")
    agent.logged("bootstrap", line)
    assert line in await troubles(agent)


async def test_a_plugin_that_fails_delays_nothing_and_is_asked_again(agent: Agent) -> None:
    with HttpApiServer() as api:
        write(agent.home / "bootstrap.conf", kubeconfig(plugin(agent.home / "get", "exit 7"), server=api.url))
        agent.start()
        await wait_trouble(agent, "client certificate: --bootstrap-kubeconfig:")
        plugin(agent.home / "get", exec_output({"token": TOKEN}))
        eventually(lambda: _has(agent), "the node has credentials")
        agent.logged("bootstrap", "is good again")
        assert [csr["spec"]["username"] for csr in api.do(api.signer.requests)] == [TOKEN]


async def test_what_kubeadm_wrote_out_is_taken_into_the_store_and_replaced_at_once(agent: Agent) -> None:
    pair = CA.issue(f"system:node:{_host()}", organization="system:nodes")
    with HttpApiServer() as api:
        write(agent.home / "kubelet.conf", kubeconfig(inline(pair), server=api.url))
        before = (agent.home / "kubelet.conf").read_bytes()
        agent.start()
        store = agent.home / "pki/kubelet-client-current.pem"
        eventually(lambda: len(list(store.parent.glob("kubelet-client-2*.pem"))) == 2, "two certificates")
        oldest = min(store.parent.glob("kubelet-client-2*.pem"))
        assert pair.certificate in oldest.read_bytes()
        eventually(lambda: _has(agent) and pair.certificate not in store.read_bytes(), "the new one is in use")
        assert (agent.home / "kubelet.conf").read_bytes() == before
        [request] = api.do(api.signer.requests)
        assert request["spec"]["username"] == "system:node:by-certificate"  # no token any more: it asks as itself


async def test_only_the_managed_certificate_is_used_with_rotation(agent: Agent) -> None:
    """A token of the kubeconfig asks for the first certificate, where there is no other way, and goes no further."""
    agent.args = [one for one in agent.args if "bootstrap" not in one]
    with HttpApiServer() as api:
        write(agent.home / "kubelet.conf", kubeconfig({"token": TOKEN}, server=api.url))
        agent.start()
        eventually(lambda: _has(agent), "the node has credentials")
        assert not load_credentials(agent.run_dir).token_file
        [request] = api.do(api.signer.requests)
        assert request["spec"]["username"] == TOKEN


async def test_a_server_of_another_authority_is_a_clear_line(agent: Agent) -> None:
    certificate, key = write_pair(Authority("stranger").issue("x"), agent.home, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        authority = {"certificate-authority-data": encoded(CA.pem)}
        address = f"https://127.0.0.1:{server.server_port}"
        write(agent.home / "bootstrap.conf", kubeconfig({"token": TOKEN}, server=address, **authority))
        agent.start()
        await wait_trouble(agent, "the server's certificate is refused: ")
        server.shutdown()


def _has(agent: Agent) -> bool:
    try:
        found: Any = load_credentials(agent.run_dir)
        return Path(found.client_certificate_file).exists()
    except OSError:
        return False


def _host() -> str:
    return Path("/proc/sys/kernel/hostname").read_text().strip().lower()
