"""Joining a real cluster with nothing but a bootstrap token, and staying in it as certificates come and go."""

import asyncio
import ssl
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from services.bootstrap.core.kubeconfig_document import written_kubeconfig
from shared.kube.credentials import load_credentials
from tests.support.agents.agent import NODE
from tests.support.agents.conditions import condition_of
from tests.support.agents.world import busybox_pod
from tests.support.clusters.cluster import Cluster
from tests.support.clusters.control_plane import ControlPlane
from tests.support.clusters.control_plane_bootstrap import let_nodes_bootstrap, requests, user_of
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.kube.tls_world import Authority

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def joining(directory: Path, *, approve: bool = True, start: bool = True, **fields: Any) -> Cluster:
    """A cluster whose agent has a bootstrap kubeconfig and no other; `plane` and `config` as for Cluster."""
    (directory / "node").mkdir(exist_ok=True)

    def kubeconfig(plane: ControlPlane) -> Path:
        assert let_nodes_bootstrap(plane, approve=approve) == bootstrap_kubeconfig(directory)
        return directory / "node/kubelet.conf"

    flags = (f"--bootstrap-kubeconfig={bootstrap_kubeconfig(directory)}", f"--cert-dir={directory}/node/pki")
    config = {"rotateCertificates": True, **fields.pop("config", {})}
    return Cluster(directory, flags=flags, config=config, kubeconfig=kubeconfig, start=start, **fields)


def bootstrap_kubeconfig(directory: Path) -> Path:
    return directory / "plane/bootstrap.kubeconfig"


def store(directory: Path, prefix: str = "kubelet-client") -> Path:
    return directory / f"node/pki/{prefix}-current.pem"


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def in_use(cluster: Cluster) -> bytes:
    """The certificate that services load now."""
    return Path(load_credentials(cluster.agent.home.run_dir).client_certificate_file).read_bytes()


async def test_a_bootstrap_token_is_enough_to_join_and_to_get_a_serving_certificate(tmp_path: Path) -> None:
    async with joining(tmp_path, config={"serverTLSBootstrap": True}) as cluster:
        assert stat.S_IMODE((tmp_path / "node/kubelet.conf").stat().st_mode) == 0o600
        document = yaml.safe_load((tmp_path / "node/kubelet.conf").read_text())
        [inner] = [one["cluster"] for one in document["clusters"]]
        assert inner == {"server": cluster.plane.url, "certificate-authority": str(cluster.plane.ca_file)}
        pair = str(store(tmp_path))
        assert user_of(tmp_path / "node/kubelet.conf") == {"client-certificate": pair, "client-key": pair}
        target = store(tmp_path).readlink()
        assert target.is_absolute()
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert target.read_text().count("BEGIN EC PRIVATE KEY") == 1
        [request] = of_signer(cluster, "kube-apiserver-client-kubelet")
        assert request["spec"]["username"] == "system:bootstrap:abcdef"
        assert request["metadata"]["name"].startswith("csr-")
        await cluster.create(cluster.pod("web"))
        await cluster.wait_ready("web")
        logs = "".join(cluster.agent.log_of(service) for service in cluster.agent.beats)
        assert "PRIVATE" not in logs
        assert "0123456789abcdef" not in logs
        await present_a_serving_certificate(cluster, store(tmp_path, "kubelet-server"))
        run_dir = cluster.agent.home.run_dir
        assert not list(run_dir.glob("*.pending"))
        await cluster.agent.wait_for(lambda: not (run_dir / "requesting").exists(), "the credentials to be dropped")


def of_signer(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Its requests, the oldest first."""
    return [csr for csr in requests(cluster.plane) if csr["spec"]["signerName"] == f"kubernetes.io/{name}"]


async def present_a_serving_certificate(cluster: Cluster, path: Path) -> None:
    """Approve what the node asks for, and wait until its port presents it and `path` has it."""
    asked = lambda: of_signer(cluster, "kubelet-serving")  # noqa: E731
    [request] = await cluster.agent.wait_for(asked, "a request for the serving certificate")
    assert request["spec"]["username"] == f"system:node:{NODE}"
    assert not (path.parent / "kubelet.crt").exists()
    cluster.plane.kubectl("certificate", "approve", request["metadata"]["name"])
    await cluster.agent.wait_for(path.exists, "the serving certificate")
    addresses = {one["address"] for one in (await cluster.node())["status"]["addresses"]}
    found = certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    sans = {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}
    assert sans == addresses

    def presented() -> bool:
        try:
            shown = ssl.get_server_certificate(("127.0.0.1", cluster.agent.port), timeout=5)
        except OSError:
            return False
        return x509.load_pem_x509_certificate(shown.encode()) == certificate(path)

    await cluster.agent.wait_for(presented, "the server to present it")


def names(cluster: Cluster) -> list[str]:
    return [csr["metadata"]["name"] for csr in requests(cluster.plane)]


async def waiting(cluster: Cluster, seconds: float = WAIT_SECONDS) -> str:
    """The name of the only request, once there is one and bootstrap has logged that it waits for approval."""

    def logged() -> str:
        found = names(cluster)
        return found[0] if found and f"{found[0]} waits for approval" in cluster.agent.log_of("bootstrap") else ""

    name: str = await cluster.agent.wait_for(logged, "a request for a certificate", seconds)
    return name


@pytest.mark.night
async def test_certificates_are_rotated_while_the_node_stays_ready(tmp_path: Path) -> None:
    plane = {"controller_manager_flags": {"cluster-signing-duration": "7m20s"}}  # which began five minutes ago
    async with joining(tmp_path, plane=plane) as cluster:
        pids = {service: beat.pid for service, beat in cluster.agent.beats.items()}
        first = store(tmp_path).read_bytes()
        taken = in_use(cluster)
        deadline = time.monotonic() + 140 + WAIT_SECONDS  # it is good for 140 s
        while store(tmp_path).read_bytes() == first or in_use(cluster) == taken:
            assert time.monotonic() < deadline
            assert condition_of(await cluster.node(), "Ready")["status"] == "True"
            await asyncio.sleep(0.5)
        assert requests(cluster.plane)[-1]["spec"]["username"] == f"system:node:{NODE}"
        assert in_use(cluster) in store(tmp_path).read_bytes()
        await cluster.create(cluster.pod("web"))
        await cluster.wait_ready("web")
        assert {service: beat.pid for service, beat in cluster.agent.beats.items()} == pids


async def test_a_denied_request_is_a_clear_line_and_killed_while_the_next_one_waits_it_takes_that_up(
    tmp_path: Path,
) -> None:
    async with joining(tmp_path, approve=False, start=False) as cluster:
        cluster.agent.put_manifest("static", busybox_pod("static"))
        await cluster.agent.start()
        await cluster.agent.wait_running("static")  # credentials or not
        denied = await waiting(cluster)
        cluster.plane.kubectl("certificate", "deny", denied)
        line = f"client certificate: {denied} was denied: KubectlDeny"

        def logged() -> bool:
            return any(line in trouble for trouble in cluster.agent.beats["bootstrap"].troubles)

        await cluster.agent.wait_for(logged, "the line")
        assert names(cluster) == [denied]
        cluster.plane.kubectl("delete", "csr", denied)
        name = await waiting(cluster)
        assert name != denied and cluster.agent.log_of("bootstrap").count(line) == 1
        pid = cluster.agent.kill("bootstrap")
        await cluster.agent.wait_back("bootstrap", pid)
        cluster.plane.kubectl("certificate", "approve", name)
        await cluster.wait_node_ready()
        assert names(cluster) == [name]
        await cluster.agent.wait_for(lambda: not cluster.agent.beats["bootstrap"].troubles, "no trouble")


async def test_without_rotation_a_kill_leads_back_to_the_same_request(tmp_path: Path) -> None:
    async with joining(tmp_path, start=False, config={"rotateCertificates": False}) as cluster:
        cluster.agent.crash_at("bootstrap.request.sent")
        await cluster.agent.start()
        await cluster.wait_node_ready()
        assert cluster.agent.crashed
        [request] = requests(cluster.plane)
        assert request["metadata"]["name"].startswith("node-csr-")
        pair = str(store(tmp_path))
        assert user_of(tmp_path / "node/kubelet.conf") == {"client-certificate": pair, "client-key": pair}
        assert not (tmp_path / "node/pki/kubelet-client.key.tmp").exists()


async def test_with_an_expired_certificate_the_node_joins_again_by_its_token(tmp_path: Path) -> None:
    async with joining(tmp_path, start=False) as cluster:
        pair = Authority().issue(f"system:node:{NODE}", organization="system:nodes", ends_in=-60)
        old = tmp_path / "node/pki/kubelet-client-2020-01-01-00-00-00.pem"
        old.parent.mkdir()
        old.write_bytes(pair.certificate + pair.key)
        store(tmp_path).symlink_to(old)
        inner = {"server": cluster.plane.url, "certificate-authority": str(cluster.plane.ca_file)}
        document = written_kubeconfig(inner, "/", str(store(tmp_path)))
        (tmp_path / "node/kubelet.conf").write_text(yaml.safe_dump(document))
        await cluster.agent.start()
        await cluster.wait_node_ready()
        assert store(tmp_path).resolve() != old
        assert old.exists()
