"""A real bootstrap that is killed on the way to its first certificate: one request, one key, and it gets there.

tests/service/bootstrap/test_csr_kills.py kills between any two steps, without processes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.bootstrap.adapters.certificate_forms import CertificateForms
from shared.kube.credentials import load_credentials
from tests.fakes.api_http import HttpApiServer
from tests.process.supervised import Agent, eventually
from tests.unit.bootstrap.kubeconfigs import kubeconfig, write

TOKEN = "system:bootstrap:abcdef"  # the double takes a token for the user's name


@pytest.fixture(scope="module")
def api() -> Iterator[HttpApiServer]:
    with HttpApiServer() as api:
        yield api


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory, api: HttpApiServer) -> Iterator[Agent]:
    api.do(api.signer.delete_all)
    api.signs = True
    agent = Agent(tmp_path_factory.mktemp("c"))
    write(agent.home / "bootstrap.conf", kubeconfig({"token": TOKEN}, server=api.url))
    for flag in ("kubeconfig", "bootstrap-kubeconfig", "cert-dir"):
        name = {"kubeconfig": "node/kubelet.conf", "bootstrap-kubeconfig": "bootstrap.conf", "cert-dir": "pki"}[flag]
        agent.args += [f"--{flag}", str(agent.home / name)]
    yield agent
    agent.clean_up()


def joined(agent: Agent) -> bool:
    """The services have the certificate of the store."""
    try:
        found = load_credentials(agent.run_dir)
        certificate = Path(found.client_certificate_file).read_text()
        key = Path(found.client_key_file).read_text()
        return certificate == key == (agent.home / "pki/kubelet-client-current.pem").read_text()
    except OSError:
        return False


def test_a_kill_on_the_way_to_the_first_certificate(agent: Agent, api: HttpApiServer) -> None:
    agent.configure("rotateCertificates: true\n")
    crash = agent.home / "crash"
    agent.environment["CRASH_AT"] = f"@{crash}"
    crash.write_text("bootstrap.kubeconfig.written")
    agent.start()
    eventually(lambda: joined(agent) and not crash.exists(), "the node has credentials")
    agent.logged("status", "dummy runs")
    requests = api.do(api.signer.requests)
    assert len(requests) == 1
    text = (agent.home / "pki/kubelet-client-current.pem").read_text()
    assert CertificateForms().inspect(text, text).facts.organizations == ("system:nodes",)
    left = {path.name for path in (agent.home / "pki").iterdir()} - {"kubelet.crt", "kubelet.key"}
    eventually(lambda: not (agent.run_dir / "client-certificate.pending").exists(), "nothing is pending")
    eventually(lambda: not (agent.run_dir / "requesting").exists(), "no other credentials are left")
    assert "kubelet-client-current.pem" in left
    assert not {"kubelet-client-updated.pem", "kubelet-client.key.tmp"} & left
    assert (agent.home / "node/kubelet.conf").exists()
    log = agent.logged("bootstrap", "")
    assert "Traceback" not in log
    assert "PRIVATE" not in log


def test_what_stands_in_until_there_is_a_certificate_is_private_and_then_gone(agent: Agent, api: HttpApiServer) -> None:
    api.signs = False
    agent.configure("rotateCertificates: true\n")
    agent.start()
    pending = agent.run_dir / "client-certificate.pending"
    eventually(pending.exists, "a request is pending")
    assert pending.stat().st_mode & 0o077 == 0
    api.signs = True
    eventually(lambda: joined(agent), "the node has credentials")
    eventually(lambda: not (agent.run_dir / "requesting").exists(), "the other credentials are gone")
