"""Certificates of pods in a projected volume, with sources and status played: requested, shown, refused, killed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from bus.messages.sources import ChangedObject
from bus.messages.status import RequestedPodCertificate, RequestPodCertificate
from services.volume.core.files import pod_certificates
from services.volume.core.operations import operation_backoff
from shared.time.backoff import Backoff
from tests.service.volume.cluster import FOLDERS, Cluster, without_mounts
from tests.support.waits.deadline import WAIT_SECONDS

SOURCE = {
    "podCertificate": {
        "signerName": "example.com/ca",
        "keyType": "ECDSAP256",
        "keyPath": "key.pem",
        "certificateChainPath": "chain.pem",
    }
}
GATES = {"PodCertificateRequest": True}
CHAIN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class Signing(Cluster):
    """A cluster in which status creates certificate requests, and the test signs them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.requests: list[RequestPodCertificate] = []
        self.errors_of_status: list[str] = []
        self.objects["ServiceAccount/shop/builder"] = {"metadata": {"name": "builder", "uid": "account"}}
        self.objects["Node//n"] = {"metadata": {"name": "n", "uid": "node"}}

    async def start_status(self) -> None:
        bus = self.network.bus("status")
        bus.answer(RequestPodCertificate, self._create)
        await bus.start()

    async def _create(self, request: RequestPodCertificate) -> RequestedPodCertificate:
        if self.errors_of_status:
            return RequestedPodCertificate(error=self.errors_of_status.pop())
        self.requests.append(request)
        self._put(request, {})
        return RequestedPodCertificate()

    def _put(self, request: RequestPodCertificate, status: dict[str, Any]) -> None:
        key, version = f"PodCertificateRequest/shop/{request.name}", str(len(self.objects))
        metadata = {"name": request.name, "resourceVersion": f"{version}{'' if not status else '-signed'}"}
        self.objects[key] = {"metadata": metadata, "spec": request.spec, "status": status}
        self.changed.put(key, ChangedObject(resource_version=metadata["resourceVersion"]))

    def end(self, request: RequestPodCertificate, kind: str, **status: str) -> None:
        """Give the request its result."""
        condition = {"type": kind, "status": "True", "reason": "Because", "message": "of it"}
        self._put(request, {"conditions": [condition], **status})

    def issue(self, request: RequestPodCertificate, begin: str = "2100-01-01T00:00:00Z") -> None:
        self.end(request, "Issued", certificateChain=CHAIN, beginRefreshAt=begin, notAfter="2100-01-02T00:00:00Z")

    async def until_requested(self, count: int) -> RequestPodCertificate:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.requests) < count:
                await asyncio.sleep(0.005)
        return self.requests[count - 1]

    async def until_other_files(self, before: dict[str, str]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.read("u", "identity") == before:
                await asyncio.sleep(0.005)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signing:
    without_mounts(monkeypatch)
    monkeypatch.setitem(FOLDERS, "identity", "projected")
    cluster = Signing(tmp_path)
    await cluster.start()
    volume = {"name": "identity", "projected": {"defaultMode": 0o644, "sources": [SOURCE]}}
    pod: dict[str, Any] = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}
    pod["spec"] = {"volumes": [volume], "containers": [{"name": "c"}], "serviceAccountName": "builder"}
    admitted = PodVolumes(uid="u", name="web", namespace="shop", state=PodState.SYNC, pod=pod, volumes=("identity",))
    cluster.admitted.put("u", admitted)
    cluster.admitted.mark_complete()
    return cluster


async def test_a_certificate_is_shown_as_soon_as_it_is_issued(
    cluster: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_backoff, "RETRIES", Backoff(initial=3600.0))
    async with cluster.volume(gates=GATES):
        request = await cluster.until_requested(1)
        assert request.spec["serviceAccountUID"] == "account"
        assert (request.spec["nodeName"], request.spec["nodeUID"]) == ("n", "node")
        assert request.name.startswith("req-")
        cluster.issue(request)
        await cluster.until_mounted("u", "identity")
        shown = cluster.read("u", "identity")
        assert shown["chain.pem"] == CHAIN
        assert shown["key.pem"].startswith("-----BEGIN PRIVATE KEY-----\n")
    assert len(cluster.requests) == 1


async def test_a_restart_keeps_the_files_until_another_certificate_is_issued(cluster: Signing) -> None:
    async with cluster.volume(gates=GATES):
        cluster.issue(await cluster.until_requested(1))
        await cluster.until_mounted("u", "identity")
    before = cluster.read("u", "identity")
    async with cluster.volume(gates=GATES):
        request = await cluster.until_requested(2)
        assert request.name != cluster.requests[0].name
        assert cluster.read("u", "identity") == before
        cluster.issue(request)
        await cluster.until_other_files(before)
        assert cluster.read("u", "identity")["key.pem"] != before["key.pem"]


@pytest.mark.long
async def test_a_certificate_that_is_due_is_renewed(cluster: Signing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_certificates, "JITTER_SECONDS", 0.0)
    monkeypatch.setattr(pod_certificates, "LOOK_SECONDS", 1.0)
    async with cluster.volume(gates=GATES):
        cluster.issue(await cluster.until_requested(1), begin="2000-01-01T00:00:00Z")
        await cluster.until_mounted("u", "identity")
        before = cluster.read("u", "identity")
        cluster.issue(await cluster.until_requested(2))
        await cluster.until_other_files(before)


async def test_a_denied_request_is_an_error_an_event_and_final(cluster: Signing) -> None:
    async with cluster.volume(gates=GATES):
        cluster.end(await cluster.until_requested(1), "Denied")
        text = 'PodCertificateRequest was permanently denied: reason="Because" message="of it"'
        state = await cluster.mounted.until(lambda state: "u" in state and text in state["u"].volumes["identity"].error)
        assert state["u"].volumes["identity"].error.startswith('MountVolume.SetUp failed for volume "identity" : ')
        events = await cluster.events.until(lambda events: any(each.reason == "Denied" for each in events.values()))
        assert {"Because%!(EXTRA string=of it)"} == {e.message for e in events.values() if e.reason == "Denied"}
    assert len(cluster.requests) == 1


async def test_a_request_that_the_api_server_refuses_is_repeated(cluster: Signing) -> None:
    cluster.errors_of_status.append("the server could not find the requested resource")
    async with cluster.volume(gates=GATES):
        cluster.issue(await cluster.until_requested(1))
        await cluster.until_mounted("u", "identity")


async def test_without_the_gate_the_source_is_refused(cluster: Signing) -> None:
    async with cluster.volume():
        state = await cluster.mounted.until(lambda state: "u" in state and state["u"].volumes["identity"].error != "")
    assert state["u"].volumes["identity"].error == 'MountVolume.SetUp failed for volume "identity" : unimplemented'
    assert not cluster.requests
