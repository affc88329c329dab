"""The serving certificate by request: for the addresses the API server has of the node, and when one is missing."""

import asyncio
import shutil
from pathlib import Path

import pytest

from bus.interface import OwnedStream
from bus.messages.sources import NodeObject
from bus.messages.streams import CERTIFICATES, NODE_OBJECT
from services.bootstrap.adapters.certificate_forms import CertificateForms
from services.bootstrap.controllers import certificates
from services.bootstrap.controllers.certificate_rotation import CertificateRotation
from services.bootstrap.controllers.csr_credentials import NodeCsrCredentials
from services.bootstrap.controllers.startup_credentials import StartupCredentials
from services.frame.launch import Context
from shared.config.effective import EffectiveConfig
from shared.metrics.registry import Registry
from shared.model.objects import Object
from tests.fakes.api_server import FakeApiServer
from tests.fakes.api_signer import Signer
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import pass_time, virtual_clock
from tests.service.bootstrap.stage import NODE, at_once

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(60)]
HOST, IP = {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}


class Node:
    """bootstrap with the task of the serving certificate alone; sources is played."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> None:
        self.network = MemoryNetwork(virtual_clock())
        self.server = FakeApiServer(self.network.clock)
        self.signer = Signer(self.server)
        self.directory = directory
        self._more = more

        def rotation(*arguments: object, **named: object) -> CertificateRotation:
            return CertificateRotation(*arguments, **named, forms=CertificateForms(), in_thread=at_once)  # type: ignore[arg-type]

        def credentials(*_: object) -> NodeCsrCredentials:
            return NodeCsrCredentials(directory, lambda _: self.server.client(NODE))

        monkeypatch.setattr(certificates, "CertificateRotation", rotation)
        monkeypatch.setattr(certificates, "NodeCsrCredentials", credentials)
        monkeypatch.setattr(certificates, "ClientCsrCredentials", lambda _: credentials(directory))
        self.client_changes = 0

    async def begin(self, *addresses: Object) -> None:
        config = EffectiveConfig(
            node_name="n1",
            root_dir="",
            run_dir=str(self.directory),
            log_dir="",
            cert_dir=str(self.directory / "pki"),
            server_tls_bootstrap=True,
            **self._more,  # type: ignore[arg-type]
        )
        sources, server = self.network.bus("sources"), self.network.bus("server")
        self._node: OwnedStream[NodeObject] = sources.own(NODE_OBJECT)
        self.certificates = FollowedStream(server, CERTIFICATES)
        bus = self.network.bus("bootstrap")
        self.metrics = Registry("bootstrap")
        context = Context("bootstrap", config, bus, self.network.clock, asyncio.Event(), metrics=self.metrics)
        stream = bus.own(CERTIFICATES)
        tasks = certificates.Certificates(context, StartupCredentials(self.directory), stream, self._changed)
        for one in (sources, server, bus):
            await one.start()
        self._tasks = asyncio.create_task(self._run(tasks))
        await self.has(*addresses)

    def _changed(self) -> None:
        self.client_changes += 1

    async def _run(self, tasks: certificates.Certificates) -> None:
        async with asyncio.TaskGroup() as group:
            tasks.start(group)

    async def has(self, *addresses: Object) -> None:
        """The API server's node has these addresses."""
        self._node.put("node", NodeObject(node={"status": {"addresses": list(addresses)}}))
        await pass_time(self.network, 2)

    def sans(self) -> list[str]:
        """Names and addresses of the certificate in force."""
        text = (self.directory / "pki/kubelet-server-current.pem").read_text()
        facts = CertificateForms().inspect(text, text).facts
        return [*facts.dns_names, *facts.addresses]

    async def end(self) -> None:
        self._tasks.cancel()
        await asyncio.gather(self._tasks, return_exceptions=True)


async def test_nothing_is_asked_for_before_there_is_an_address(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        node = Node(tmp_path, monkeypatch)
        await node.begin(HOST)
        assert not node.signer.open()
        await node.has(HOST, IP)
        [request] = node.signer.open()
        assert request["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
        assert request["spec"]["usages"] == ["digital signature", "server auth"]
        assert request["spec"]["username"] == NODE
        node.signer.serve()
        await pass_time(node.network, 2)
        assert node.sans() == ["n1", "10.0.0.1"]
        state = node.certificates.state["serving"]
        assert state.certificate_file == state.private_key_file == f"{tmp_path}/pki/kubelet-server-current.pem"
        assert not state.self_signed
        await node.end()


async def test_names_alone_are_enough_with_the_gate(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        node = Node(tmp_path, monkeypatch, feature_gates={"AllowDNSOnlyNodeCSR": True})
        await node.begin(HOST)
        assert node.signer.serve() == 1
        await node.end()


async def test_a_new_address_replaces_the_request_and_a_removed_one_changes_nothing(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        node, other = Node(tmp_path, monkeypatch), {"type": "ExternalIP", "address": "192.0.2.1"}
        await node.begin(HOST, IP)
        await node.has(HOST, IP, other)
        assert len(node.signer.open()) == 2
        node.signer.serve()
        await pass_time(node.network, 2)
        assert node.sans() == ["n1", "10.0.0.1", "192.0.2.1"]
        await node.has(HOST, IP)
        await pass_time(node.network, 60)
        assert not node.signer.open()
        await node.has(HOST, {"type": "InternalIP", "address": "10.0.0.2"})
        assert len(node.signer.open()) == 1
        await node.end()


async def test_a_signer_that_leaves_names_out_is_not_asked_without_end(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        node = Node(tmp_path, monkeypatch)
        node.signer.drops_names = True
        await node.begin(HOST, IP)
        for _ in range(100):
            node.signer.serve()
            await pass_time(node.network, 2)
        assert len(node.signer.requests()) == 1
        await node.end()


async def test_a_new_client_certificate_is_reported_and_one_that_was_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower may watch a directory that has been replaced."""
    node = Node(tmp_path, monkeypatch, rotate_certificates=True, kubeconfig="/kubelet.conf")
    await node.begin()
    assert node.client_changes == 0
    node.signer.serve()
    await pass_time(node.network, 2)
    assert node.client_changes == 1
    await node.end()
    (tmp_path / "again").mkdir()
    shutil.copytree(tmp_path / "pki", tmp_path / "again/pki", symlinks=True)
    again = Node(tmp_path / "again", monkeypatch, rotate_certificates=True, kubeconfig="/kubelet.conf")
    await again.begin()
    await pass_time(again.network, 60)
    assert again.client_changes == 0
    assert again.signer.requests() == []
    await again.end()


async def test_the_age_of_a_replaced_serving_certificate_is_measured(tmp_path: Path) -> None:
    def counted(name: str) -> list[float]:
        return next(series[()] for family, series in node.metrics.collect() if family.name == name)

    with pytest.MonkeyPatch.context() as monkeypatch:
        node = Node(tmp_path, monkeypatch)
        await node.begin(HOST, IP)
        node.signer.serve()
        await pass_time(node.network, 2)
        assert counted("kubelet_certificate_manager_server_ttl_seconds")[0] > 0
        assert sum(counted("kubelet_certificate_manager_server_rotation_seconds")) == 0
        await node.has(HOST, {"type": "InternalIP", "address": "10.0.0.2"})
        node.signer.serve()
        await pass_time(node.network, 2)
        assert sum(counted("kubelet_certificate_manager_server_rotation_seconds")[:-1]) == 1
        assert counted("kubelet_server_expiration_renew_errors") == [0.0]
        await node.end()
