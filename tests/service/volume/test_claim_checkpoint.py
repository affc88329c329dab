"""The Go kubelet's checkpoint of resource claims: what another kubelet has prepared is taken over from it, and it is
kept in step with the record, whenever volume is killed (node.md 4.14)."""

import asyncio
import errno
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from services.volume.adapters import claim_files
from services.volume.controllers import claim_checkpoint, specification_watch
from services.volume.controllers.claim_checkpoint import ClaimCheckpoint
from services.volume.core.resource_claims import shown_claims
from services.volume.core.resource_claims.dra_state import (
    FILE_NAME,
    ClaimDevice,
    PreparedClaim,
    read_dra_state,
    write_dra_state,
)
from shared.files.atomic import write_atomically
from shared.go_checkpoints.checksums import CheckpointError
from tests.programs.dra_driver import PREPARE, UNPREPARE
from tests.service.volume.claim_node import GPU, ClaimNode, until
from tests.support.waits.deadline import WAIT_SECONDS


def checkpoint_of(node: ClaimNode) -> Path:
    return node.root / FILE_NAME


def listed(node: ClaimNode) -> dict[str, PreparedClaim]:
    """What the checkpoint has, by the names of the claims."""
    path = checkpoint_of(node)
    return {claim.name: claim for claim in read_dra_state(path.read_bytes())} if path.exists() else {}


def prepared_claim(name: str, *pods: str) -> PreparedClaim:
    device = ClaimDevice(pool="node", device=name, cdi_ids=(f"{GPU}/claim=uid-of-{name}",))
    return PreparedClaim(
        uid=f"uid-of-{name}", name=name, namespace="shop", pod_uids=frozenset(pods), drivers={GPU: (device,)}
    )


def take_over(node: ClaimNode, *claims: PreparedClaim) -> None:
    """Leave what a Go kubelet has left."""
    checkpoint_of(node).write_bytes(write_dra_state(claims))


@pytest.mark.long
async def test_the_checkpoint_has_the_claims_with_their_devices_and_loses_them_with_their_pods(node: ClaimNode) -> None:
    node.started_driver()
    node.put("gpu", "u", "v")
    node.admit("u", "gpu")
    node.admit("v", "gpu")
    async with node.node.volume():
        assert not checkpoint_of(node).exists()
        await node.until_prepared("u")
        await node.until_prepared("v")
        await until(lambda: listed(node) == {"gpu": prepared_claim("gpu", "u", "v")})
        node.end("v")
        await until(lambda: listed(node)["gpu"].pod_uids == {"u"})
        node.end("u")
        await until(lambda: listed(node) == {})
    assert checkpoint_of(node).exists()


async def test_a_stop_leaves_the_checkpoint_with_all_claims(node: ClaimNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_checkpoint, "MIN_SECONDS", 3600.0)  # between two writes, so that the second is at the end
    node.started_driver()
    async with node.node.volume():
        for pod, claim in (("u", "first"), ("v", "second")):
            node.put(claim, pod)
            node.admit(pod, claim)
            await node.until_prepared(pod)
            await until(lambda: "first" in listed(node))
        assert listed(node).keys() == {"first"}
    assert listed(node) == {"first": prepared_claim("first", "u"), "second": prepared_claim("second", "v")}


async def test_a_node_without_claims_has_no_checkpoint(node: ClaimNode) -> None:
    async with node.node.volume():
        node.admit("u")
        await node.node.claims.until_complete()
    assert not checkpoint_of(node).exists()


async def test_a_running_pod_of_a_go_kubelet_keeps_its_claim_without_the_api_server(node: ClaimNode) -> None:
    """The driver is called again, for the checkpoint does not tell whether the machine has booted since."""
    driver = node.started_driver()
    take_over(node, prepared_claim("gpu", "u"))
    node.silent = True
    node.admit("u", "template:gpu", resourceClaimStatuses=[{"name": "of-gpu", "resourceClaimName": "gpu"}])
    async with node.node.volume():
        [claim] = await node.until_prepared("u")
        assert (claim.name, claim.claim, claim.uid) == ("of-gpu", "gpu", "uid-of-gpu")
        assert (driver.calls(PREPARE), node.read["gpu"]) == ([["gpu"]], 0)
        node.end("u")
        await node.until_gone("u")
        assert driver.prepared() == {}


@pytest.mark.long
async def test_what_a_go_kubelet_prepared_for_a_pod_that_is_gone_is_unprepared_once_every_pod_is_known(
    node: ClaimNode,
) -> None:
    driver = node.started_driver()
    take_over(node, prepared_claim("gone", "u"), prepared_claim("kept", "v"))
    await node.node.podsync_restarts()
    node.admit("v", "kept")
    async with node.node.volume():
        await node.until_prepared("v")
        assert driver.calls(UNPREPARE) == []
        node.node.admitted.mark_complete()
        await until(lambda: driver.calls(UNPREPARE) == [["gone"]])
        await until(lambda: listed(node).keys() == {"kept"})


async def test_a_claim_of_no_pod_whose_driver_is_away_is_named_in_the_log_and_later_as_a_trouble(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take_over(node, prepared_claim("gpu"))
    error = f"DRA driver {GPU} is not registered"
    async with node.node.volume():
        await until(lambda: f"resource claim shop/gpu of no pod is not unprepared: {error}" in caplog.text)
        monkeypatch.setattr(shown_claims, "MAX_UNPREPARE_SECONDS", 0.0)
        text = f"ResourceClaim gpu: unprepare dynamic resources: {error} (start the driver)"
        await node.node.until_troubles(text)
        assert caplog.text.count("resource claim shop/gpu of no pod") == 1
        driver = node.started_driver()
        await until(lambda: driver.calls(UNPREPARE) == [["gpu"]])
        await node.node.until_troubles()


@pytest.mark.long
async def test_what_a_go_kubelet_prepared_since_the_node_was_given_back_to_it_is_taken_over_too(
    node: ClaimNode,
) -> None:
    driver = node.started_driver()
    node.put("own", "u")
    node.admit("u", "own")
    async with node.node.volume():
        await node.until_prepared("u")
    take_over(node, prepared_claim("own", "u"), prepared_claim("its", "v"))
    async with node.node.volume():
        await until(lambda: driver.calls(UNPREPARE) == [["its"]])
        await node.until_prepared("u")
        await until(lambda: listed(node).keys() == {"own"})
    assert driver.calls(PREPARE) == [["own"]]


@pytest.mark.parametrize("ends", [False, True])
async def test_a_kill_between_the_record_and_the_checkpoint_is_made_up_for_at_the_next_start(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """`ends`: the kill comes when the claim was unprepared."""
    driver = node.started_driver()
    reached = asyncio.Event()

    def kill(name: str) -> None:
        assert name == "volume.claim.recorded"
        reached.set()
        raise asyncio.CancelledError

    node.put("gpu", "u")
    node.admit("u", "gpu")
    if ends:
        async with node.node.volume():
            await node.until_prepared("u")
            await until(lambda: listed(node).keys() == {"gpu"})
        node.end("u")
    with monkeypatch.context() as killed:
        killed.setattr(claim_checkpoint, "crash_point", kill)
        killed.setattr(ClaimCheckpoint, "close", lambda _: None)  # a killed process writes nothing at its end
        async with node.node.volume():
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
            if ends:
                await node.until_gone("u")
            else:
                await node.until_prepared("u")
    assert listed(node).keys() == ({"gpu"} if ends else set())
    node.silent = True
    async with node.node.volume():
        if ends:
            await until(lambda: listed(node) == {})
        else:
            await until(lambda: listed(node) == {"gpu": prepared_claim("gpu", "u")})
            await node.until_prepared("u")
    assert driver.prepared() == ({} if ends else {"uid-of-gpu": "gpu"})


@pytest.mark.parametrize("content", [b"", b"{", b"{}", write_dra_state((prepared_claim("old", "w"),))[:-3] + b"0}"])
async def test_a_damaged_checkpoint_is_one_line_that_names_the_remedy_and_no_pod_waits(
    node: ClaimNode, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    driver = node.started_driver()
    checkpoint_of(node).write_bytes(content)
    async with node.node.volume():
        await node.node.claims.until_complete()
        [line] = [record.getMessage() for record in caplog.records if str(checkpoint_of(node)) in record.getMessage()]
        assert "cannot be used: " in line and "until their drivers restart" in line and "\n" not in line
        assert checkpoint_of(node).read_bytes() == content
        node.put("gpu", "u")
        node.admit("u", "gpu")
        await node.until_prepared("u")
        await until(lambda: listed_or_nothing(node) == {"gpu"})
    assert driver.calls(UNPREPARE) == []


def listed_or_nothing(node: ClaimNode) -> set[str]:
    try:
        return set(listed(node))
    except CheckpointError:
        return set()


@pytest.mark.long
async def test_a_damaged_record_loses_no_claim_that_the_checkpoint_has(node: ClaimNode) -> None:
    driver = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
        await until(lambda: listed(node).keys() == {"gpu"})
    node.record.write_bytes(b"{")
    node.end("u")
    async with node.node.volume():
        await until(lambda: driver.prepared() == {})
        await until(lambda: listed(node) == {})


@pytest.mark.long
async def test_a_checkpoint_that_cannot_be_written_is_a_trouble_and_pods_get_their_claims(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.started_driver()
    node.put("gpu", "u")
    node.put("other", "v")
    node.admit("u", "gpu")

    def full(path: Path, content: bytes, mode: int = 0o600) -> None:
        if path.name == FILE_NAME:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomically(path, content, mode)

    async with node.node.volume():
        with monkeypatch.context() as disk:
            disk.setattr(claim_files, "write_atomically", full)
            await node.until_prepared("u")
            await node.node.until_troubles(f"{checkpoint_of(node)}: cannot be written: No space left on device")
        node.admit("v", "other", state=PodState.SYNC)
        await node.until_prepared("v")
        await until(lambda: listed(node).keys() == {"gpu", "other"})
        await node.node.until_troubles()


async def test_a_stop_writes_the_checkpoint_whose_write_has_failed_before(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    failed: list[bytes] = []

    def full(path: Path, content: bytes, mode: int = 0o600) -> None:
        if path == checkpoint_of(node):
            failed.append(content)
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomically(path, content, mode)

    monkeypatch.setattr(claim_checkpoint, "RETRY_SECONDS", 3600.0)
    async with node.node.volume():
        with monkeypatch.context() as disk:
            disk.setattr(claim_files, "write_atomically", full)
            await node.until_prepared("u")
            await until(lambda: any(b"claim=uid-of-gpu" in content for content in failed))
            await node.node.until_troubles(f"{checkpoint_of(node)}: cannot be written: No space left on device")
    assert listed(node) == {"gpu": prepared_claim("gpu", "u")}


@pytest.mark.long
@pytest.mark.parametrize("lost", [False, True], ids=["after a takeover", "after its specifications are lost"])
async def test_a_driver_that_fails_to_prepare_again_leaves_the_devices_of_a_running_pod_in_the_checkpoint(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """A Go kubelet that gets the node back prepares nothing for a pod that has a sandbox: it needs the devices."""
    monkeypatch.setattr(specification_watch, "LOOK_SECONDS", 0.05)
    driver = node.started_driver(specified=True)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    if not lost:
        take_over(node, prepared_claim("gpu", "u"))
        driver.fault(PREPARE, "error")
    async with node.node.volume():
        if lost:
            await node.until_prepared("u")
            driver.fault(PREPARE, "error")
            driver.lose_cdi()
        await node.until_error("u")
    assert listed(node) == {"gpu": prepared_claim("gpu", "u")}
