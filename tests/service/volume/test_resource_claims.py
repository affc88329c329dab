"""Resource claims of pods are prepared before their containers start and unprepared after the last pod has ended: what
is published, what a driver is called for, and what a bad driver or claim costs (node.md 4.16)."""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus import codec
from bus.messages.podsync import PodState
from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim
from services.volume.adapters import claim_files, dra_drivers
from services.volume.core.resource_claims import claim_failures, shown_claims
from services.volume.core.resource_claims.claim import ClaimKey
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from shared.files.atomic import write_atomically
from shared.time.backoff import Backoff
from tests.programs.dra_driver import PREPARE, UNPREPARE, V1, V1BETA1
from tests.service.volume.claim_node import GPU, NIC, ClaimNode, claim_node, until
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    async with claim_node(monkeypatch) as found:
        yield found


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


async def test_a_pod_waits_for_a_driver_that_is_named_and_goes_on_when_it_comes(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_failures, "RETRIES", Backoff(initial=3600.0))  # the driver is what ends the wait
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        claim = await node.until_error("u")
        assert claim.error == f"prepare dynamic resources: DRA driver {GPU} is not registered"
        assert (claim.state, claim.uid) == (ClaimState.ERROR, "uid-of-gpu")
        assert abs(claim.since - time.time()) < WAIT_SECONDS
        events = await node.node.events.until(bool)
        [event] = events.values()
        assert (event.type, event.reason) == ("Warning", "FailedPrepareDynamicResources")
        assert event.message == f"Failed to prepare dynamic resources: {claim.error}"
        assert (event.namespace, event.name, event.uid) == ("shop", "web-u", "u")
        node.started_driver()
        [claim] = await node.until_prepared("u")
        assert (claim.error, claim.since) == ("", 0.0)


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


@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("lie", "NodePrepareResources returned result for unknown claim UID someone-else"),
        ("skip", "NodePrepareResources skipped 1 ResourceClaims"),
        ("error", "NodePrepareResources failed for ResourceClaim gpu: no such\\ndevice"),
        ("long", "NodePrepareResources failed for ResourceClaim gpu: the driver names a device with more than 1024"),
        ("garbage", "NodePrepareResources cannot be decoded"),
        ("answers twice", "NodePrepareResources has two answers"),
        ("RESOURCE_EXHAUSTED", "rpc error: code = ResourceExhausted desc = NodePrepareResources fails\\non request"),
    ],
)
async def test_what_a_driver_answers_wrongly_is_one_line_that_names_it_and_is_tried_again(
    node: ClaimNode, fault: str, text: str
) -> None:
    driver = node.started_driver()
    driver.fault(PREPARE, fault)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        claim = await node.until_error("u")
        assert claim.error.startswith(f"prepare dynamic resources: DRA driver {GPU}: ")
        assert text in claim.error and claim.error.isprintable()
        driver.fault(PREPARE)
        await node.until_prepared("u")


async def test_a_driver_that_hangs_delays_no_pod_of_another_one_and_its_call_ends(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = node.started_driver(GPU)
    hung.fault(PREPARE, "hang")
    node.started_driver(NIC)
    node.put("gpu", "u")
    node.put("nic", "v", drivers=(NIC,))
    node.admit("u", "gpu")
    async with node.node.volume():
        await until(lambda: hung.calls(PREPARE) != [])
        node.admit("v", "nic")
        await node.until_prepared("v")
        assert node.node.claims.state["u"].claims[0].state is ClaimState.PENDING
    monkeypatch.setattr(dra_drivers, "CALL_TIMEOUT_SECONDS", 0.5)
    async with node.node.volume():
        claim = await node.until_error("u")
        assert "rpc error: code = DeadlineExceeded" in claim.error


async def test_a_pod_that_ends_while_its_driver_hangs_leaves_nothing_prepared(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra_drivers, "CALL_TIMEOUT_SECONDS", 0.5)
    driver = node.started_driver()
    driver.fault(PREPARE, "hang")
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await until(lambda: driver.calls(PREPARE) != [])
        node.end("u")
        await node.until_gone("u")
        assert ["gpu"] in driver.calls(UNPREPARE)  # a slow machine may need a second call


async def test_a_pod_whose_driver_never_came_ends_without_one(node: ClaimNode) -> None:
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_error("u")
        node.end("u")
        await node.until_gone("u")


async def test_a_claim_without_devices_is_prepared_without_a_driver(node: ClaimNode) -> None:
    node.put("gpu", "u", drivers=())
    node.admit("u", "gpu")
    async with node.node.volume():
        [claim] = await node.until_prepared("u")
        assert claim.devices == ()
        node.end("u")
        await node.until_gone("u")


async def test_a_missing_driver_is_named_until_it_unprepares_and_holds_up_nothing_for_ever(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
        first.stop()
        first.remove()
        await node.node.registered.until(lambda state: not state)
        node.end("u")
        claim = await node.until_error("u")
        assert claim.state is ClaimState.UNPREPARING
        assert claim.error == f"unprepare dynamic resources: DRA driver {GPU} is not registered"
        assert not node.node.claims.state["u"].overdue
        monkeypatch.setattr(shown_claims, "MAX_UNPREPARE_SECONDS", 0.0)
        await node.until("u", lambda item: item.overdue)
        await node.node.until_troubles(f"ResourceClaim gpu: {claim.error} (start the driver)")
        second = node.started_driver(socket="second.sock")
        await node.until_gone("u")
        assert second.prepared() == {}
        await node.node.until_troubles()


async def test_of_two_sockets_of_a_driver_the_one_that_answers_is_called(node: ClaimNode) -> None:
    old = node.started_driver(socket="old.sock")
    async with node.node.volume():
        await node.node.registered.until(bool)
        new = node.started_driver(socket="new.sock")
        await node.node.registered.until(lambda state: state[f"DRAPlugin/{GPU}"].endpoint == str(new.socket))
        new.stop()
        node.put("gpu", "u")
        node.admit("u", "gpu")
        await node.until_prepared("u")
        assert old.prepared() == {"uid-of-gpu": "gpu"}


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


async def test_a_pod_that_waits_reads_nothing_again_when_a_driver_of_others_comes(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_failures, "RETRIES", Backoff(initial=3600.0))
    node.admit("u", "unknown")
    node.put("none", "v", drivers=())
    async with node.node.volume():
        await node.until_error("u")
        node.started_driver(NIC)
        await node.node.registered.until(bool)
        node.admit("v", "none")
        await node.until_prepared("v")
        assert node.read["unknown"] == 1


@pytest.mark.long
async def test_many_pods_of_one_driver_are_prepared(node: ClaimNode) -> None:
    driver = node.started_driver()
    driver.fault(PREPARE, "slow")
    uids = [f"u{number}" for number in range(30)]
    for uid in uids:
        node.put(f"gpu-{uid}", uid)
        node.admit(uid, f"gpu-{uid}")
    async with node.node.volume():
        async with asyncio.timeout(WAIT_SECONDS):
            for uid in uids:
                await node.until_prepared(uid)
        assert len(driver.prepared()) == len(driver.calls(PREPARE)) == 30


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


async def test_an_attempt_that_becomes_due_while_the_process_is_slow_is_made(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = ClaimsOfNode.pods_due

    def look_slowly(claims: ClaimsOfNode, now: float) -> list[str]:
        due, later = look(claims, now), claims.next_attempt(now)
        if not due and later < math.inf:
            time.sleep(max(0.0, later - time.monotonic()) + 0.001)
        return due

    node.started_driver()
    node.put("first", "v")
    node.admit("v", "first")
    async with node.node.volume():
        await node.until_prepared("v")  # the driver, whose coming makes a pod try again, is there
        monkeypatch.setattr(ClaimsOfNode, "pods_due", look_slowly)
        node.admit("u", "gpu")
        await node.until_error("u", "not found")
        node.put("gpu", "u")
        await node.until_prepared("u")
