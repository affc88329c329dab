"""Resource claims of pods are prepared before their containers start and unprepared after the last pod has ended: what
is published, what a driver is called for, and what a bad claim costs (node.md 4.16)."""

import threading
from pathlib import Path

import pytest

from bus import codec
from bus.messages.podsync import PodState
from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim
from services.volume.adapters import claim_files
from services.volume.core.resource_claims.claim import ClaimKey
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from shared.files.atomic import write_atomically
from tests.programs.dra_driver import PREPARE, UNPREPARE, V1, V1BETA1
from tests.service.volume.claim_node import GPU, NIC, ClaimNode, until
from tests.support.waits.deadline import WAIT_SECONDS


async def test_the_claim_of_a_pod_is_prepared_and_its_devices_are_published(node: ClaimNode) -> None:
    driver = node.started_driver()
    shared = {
        "pool_name": "p",
        "device_name": "d",
        "share_id": "s",
        "request_names": ["r"],
        "cdi_device_ids": ["v/c=d"],
    }
    driver.set_devices("gpu", [shared])
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        [claim] = await node.until_prepared("u")
        device = ClaimDevice(driver=GPU, pool="p", device="d", share_id="s", requests=("r",), cdi_devices=("v/c=d",))
        assert claim == PodClaim(
            name="of-gpu", claim="gpu", uid="uid-of-gpu", state=ClaimState.PREPARED, devices=(device,)
        )
        assert driver.prepared() == {"uid-of-gpu": "gpu"}


async def test_a_driver_is_called_once_for_all_claims_of_a_pod_and_each_driver_for_its_own(node: ClaimNode) -> None:
    gpu, nic = node.started_driver(GPU), node.started_driver(NIC, services=(V1BETA1,))
    node.put("a", "u")
    node.put("b", "u", drivers=(GPU, NIC))
    node.admit("u", "a", "b")
    async with node.node.volume():
        claims = await node.until_prepared("u")
        assert [[device.driver for device in claim.devices] for claim in claims] == [[GPU], [GPU, NIC]]
        assert [sorted(names) for names in gpu.calls(PREPARE)] == [["a", "b"]]
        assert nic.calls(PREPARE) == [["b"]] and nic.versions() == [V1BETA1] and gpu.versions() == [V1]


@pytest.mark.long
async def test_claims_are_unprepared_once_the_containers_are_gone_and_not_while_they_end(node: ClaimNode) -> None:
    driver = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
        node.admit("u", "gpu", state=PodState.TERMINATING)
        node.put("other", "v")
        node.admit("v", "other")
        await node.until_prepared("v")
        assert driver.calls(UNPREPARE) == []
        node.end("u")
        await node.until_gone("u")
        assert (driver.prepared(), driver.calls(UNPREPARE)) == ({"uid-of-other": "other"}, [["gpu"]])


async def test_a_shared_claim_is_prepared_once_and_unprepared_after_its_last_pod(node: ClaimNode) -> None:
    driver = node.started_driver()
    node.put("gpu", "u", "v")
    node.admit("u", "gpu")
    node.admit("v", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
        await node.until_prepared("v")
        node.end("u")
        await node.until_gone("u")
        assert (driver.calls(PREPARE), driver.calls(UNPREPARE)) == ([["gpu"]], [])
        node.end("v")
        await node.until_gone("v")
        assert (driver.calls(UNPREPARE), driver.prepared()) == ([["gpu"]], {})


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"status": {}}, "pod web-u (u) is not allowed to use ResourceClaim gpu (uid-of-gpu)"),
        (
            {"status": {"reservedFor": [{"resource": "pods", "uid": "u"}]}},
            "claim shop/gpu: not allocated",
        ),
        (
            None,
            'failed to fetch ResourceClaim gpu referenced by pod web-u: resourceclaims.resource.k8s.io "gpu" not found',
        ),
    ],
)
async def test_a_claim_that_the_pod_cannot_have_is_an_error_until_it_can(
    node: ClaimNode, change: dict[str, object] | None, text: str
) -> None:
    driver = node.started_driver()
    node.put("gpu", "u")
    whole = node.objects.pop("gpu")
    if change is not None:
        node.objects["gpu"] = {**whole, **change}
    node.admit("u", "gpu")
    async with node.node.volume():
        claim = await node.until_error("u")
        assert (claim.error, driver.calls(PREPARE)) == (f"prepare dynamic resources: {text}", [])
        node.objects["gpu"] = whole
        await node.until_prepared("u")


async def test_the_claim_of_a_template_is_waited_for_and_must_be_the_pods_own(node: ClaimNode) -> None:
    node.started_driver()
    node.admit("u", "template:gpu")
    async with node.node.volume():
        claim = await node.until_error("u")
        assert claim.error == 'prepare dynamic resources: pod "shop/web-u": ResourceClaim not created yet'
        node.put("web-gpu", "u", owner="another")
        statuses = [{"name": "of-gpu", "resourceClaimName": "web-gpu"}]
        node.admit("u", "template:gpu", resourceClaimStatuses=statuses)
        await node.until_error("u", "ResourceClaim shop/web-gpu was not created for pod shop/web-u (pod is not owner)")
        node.put("web-gpu", "u", owner="u")
        [claim] = await node.until_prepared("u")
        assert (claim.name, claim.claim) == ("of-gpu", "web-gpu")


async def test_a_template_that_needs_no_claim_is_none(node: ClaimNode) -> None:
    node.started_driver()
    node.put("b", "u")
    node.admit("u", "template:a", "b", resourceClaimStatuses=[{"name": "of-a"}])
    async with node.node.volume():
        assert [claim.name for claim in await node.until_prepared("u")] == ["of-b"]


async def test_the_claim_of_extended_resources_shows_which_containers_have_which_requests(node: ClaimNode) -> None:
    driver = node.started_driver()
    node.put("extended", "u", owner="u")
    node.admit_extended("u", "extended", ("c", "r0"), ("c", "r1"), ("d", "r2"))
    async with node.node.volume():
        [claim] = await node.until_prepared("u")
        assert (claim.name, claim.containers) == ("", {"c": ("r0", "r1"), "d": ("r2",)})
        node.end("u")
        await node.until_gone("u")
        assert driver.prepared() == {}


async def test_a_claim_made_again_under_its_name_waits_until_the_old_one_is_unprepared(node: ClaimNode) -> None:
    driver = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
        node.put("gpu", "v", uid="second")
        node.admit("v", "gpu")
        await node.until_error(
            "v",
            "prepare dynamic resources: old ResourceClaim with same name gpu and different UID uid-of-gpu still exists "
            "(previous pod force-deleted?!)",
        )
        node.end("u")
        await node.until_prepared("v")
        assert driver.prepared() == {"second": "gpu"}


@pytest.mark.long
async def test_a_claim_that_is_deleted_or_reserved_for_others_stays_with_a_pod_that_has_it(node: ClaimNode) -> None:
    driver = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
    del node.objects["gpu"]
    async with node.node.volume():
        await node.until_prepared("u")
        node.admit("u", "gpu")
        node.put("other", "v")
        node.admit("v", "other")
        await node.until_prepared("v")
        assert driver.calls(PREPARE) == [["gpu"], ["other"]] and node.read["gpu"] == 1


async def test_a_failure_right_after_a_pod_was_begun_leaves_no_pod_that_is_never_prepared(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    find_due = ClaimsOfNode.claims_due
    failures: list[float] = []

    def claims_due(claims: ClaimsOfNode, now: float) -> list[ClaimKey]:
        if claims.pods_due(now) and not failures:
            failures.append(now)
            raise RuntimeError("a failure of the turn")
        return find_due(claims, now)

    monkeypatch.setattr(ClaimsOfNode, "claims_due", claims_due)
    async with node.node.volume():
        await node.until_prepared("u")
    assert failures != []


async def test_a_pod_whose_devices_are_too_large_for_a_message_delays_no_other(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(codec, "MAX_MESSAGE_BYTES", 100_000)
    driver = node.started_driver()
    names = [f"gpu{number}" for number in range(3)]
    for name in names:
        node.put(name, "u")
        driver.set_devices(
            name, [{"pool_name": "node", "device_name": "d" * 1000, "cdi_device_ids": [f"v/c={'d' * 900}"] * 50}]
        )
    node.admit("u", *names)
    async with node.node.volume():
        await until(lambda: "claims.prepared u is too large for the bus" in caplog.text)
        node.put("other", "v")
        node.admit("v", "other")
        await node.until_prepared("v")
        node.end("u")
        await until(lambda: driver.prepared() == {"uid-of-other": "other"})


async def test_pods_that_start_together_share_the_writes_of_the_record(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    written: list[bytes] = []

    def write(path: Path, content: bytes, mode: int = 0o600) -> None:
        if path == node.record:
            written.append(content)
            began.set()
            may_end.wait(WAIT_SECONDS)
        write_atomically(path, content, mode)

    monkeypatch.setattr(claim_files, "write_atomically", write)
    driver = node.started_driver()
    uids = [f"u{number}" for number in range(30)]
    for uid in uids:
        node.put(f"gpu-{uid}", uid)
    node.admit(uids[0], f"gpu-{uids[0]}")
    async with node.node.volume():
        try:
            await until(began.is_set)
            for uid in uids[1:]:
                node.admit(uid, f"gpu-{uid}")
            await until(lambda: sum(node.read.values()) == 30)
            node.admit("w", "unknown")
            await node.until_error("w")  # by then the others wait to be saved, too
        finally:
            may_end.set()
        for uid in uids:
            await node.until_prepared(uid)
    assert sum(b'"state":"prepared"' not in content for content in written) < 15
    assert len(driver.calls(PREPARE)) == 30


async def test_operations_and_calls_are_measured_and_claims_counted_under_the_kubelets_names(node: ClaimNode) -> None:
    driver = node.started_driver()
    driver.fault(PREPARE, "INTERNAL")
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_error("u")
        driver.fault(PREPARE)
        await node.until_prepared("u")
        assert node.node.counted("dra_resource_claims_in_use") == {(GPU,): [1.0], ("<any>",): [1.0]}
        node.end("u")
        await node.until_gone("u")
        operations = node.node.counted("dra_operations_duration_seconds").keys()
        expected = {("PrepareResources", "true"), ("PrepareResources", "false"), ("UnprepareResources", "false")}
        assert operations == expected
        service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
        calls = node.node.counted("dra_grpc_operations_duration_seconds").keys()
        outcomes = [(PREPARE, "Internal"), (PREPARE, "OK"), (UNPREPARE, "OK")]
        assert calls == {(GPU, f"{service}/{method}", code) for method, code in outcomes}
        assert node.node.counted("dra_resource_claims_in_use") == {("<any>",): [0.0]}
