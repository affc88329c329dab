"""podsync with pods that have resource claims: volume, played by the test, says how far each is (node.md 4.16)."""

from pathlib import Path
from typing import Any

from bus.messages.podsync import PodState
from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_podsync_service import a_pod

DRIVER = "gpu.example.com"


def with_claim(**spec: Any) -> dict[str, Any]:
    pod = a_pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpus"}], **spec)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu", "request": "r0"}]}
    pod["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu"}]}
    return pod


def put_claim(stage: Stage, uid: str, state: ClaimState, **fields: Any) -> None:
    devices = tuple(
        ClaimDevice(
            driver=DRIVER, pool="node1", device=name, requests=(name,), cdi_devices=(f"example.com/gpu={name}",)
        )
        for name in ("r0", "r1")
    )
    claim = PodClaim(name="gpu", claim="web-gpu", state=state, devices=devices, **fields)
    stage.claims.put(uid, PodClaims(uid=uid, claims=(claim,)), "changed")


def created(stage: Stage) -> list[list[dict[str, Any]]]:
    """The CDI devices of each container that was created."""
    return [list(request["config"].get("CDI_devices", ())) for request in stage.runtime.requests("CreateContainer")]


def condition(stage: Stage, uid: str) -> dict[str, Any]:
    listed = stage.status(uid).get("conditions") or ()
    return next((c for c in listed if c["type"] == "PodReadyToStartContainers"), {})


async def test_a_container_is_created_with_its_devices_once_the_claim_is_prepared(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(with_claim(), source="api")
        await stage.until(lambda: uid in stage.volumes.state)
        wanted = stage.volumes.state[uid].pod
        assert wanted["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
        assert wanted["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": "web-gpu"}]
        error = f"prepare dynamic resources: DRA driver {DRIVER} is not registered"
        put_claim(stage, uid, ClaimState.ERROR, error=error, since=1.0)
        await stage.until(lambda: condition(stage, uid).get("reason") == "ResourceClaimNotPrepared")
        assert condition(stage, uid)["message"].endswith(f"not prepared since 1970-01-01T00:00:01Z: {error}")
        assert stage.runtime.requests("RunPodSandbox") == []
        put_claim(stage, uid, ClaimState.PREPARED)
        await stage.until(lambda: stage.running(uid))
        assert created(stage) == [[{"name": "example.com/gpu=r0"}]]


async def test_the_end_of_a_pod_waits_until_its_claim_is_unprepared_also_after_a_restart(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(with_claim(restartPolicy="Never"), source="api")
        put_claim(stage, uid, ClaimState.PREPARED)
        await stage.until(lambda: stage.running(uid))
        stage.desired.delete(uid)
        await stage.until(lambda: stage.volumes.state[uid].state is PodState.TERMINATED)
        put_claim(stage, uid, ClaimState.UNPREPARING)
        await stage.restart()
        await stage.until(lambda: uid in stage.volumes.state)
        assert stage.volumes.state[uid].state is PodState.TERMINATED
        assert stage.status(uid).get("phase") in (None, "Running")
        stage.claims.delete(uid, "unprepared")
        await stage.until(lambda: stage.volumes.state[uid].finished)
