"""What others see of the resource claims of a real agent: PodResources, the Go kubelet's checkpoint, the ResourceSlices
of a driver that is killed; and a claim whose CDI specification is lost (node.md 4.14, 4.16, 8.3)."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.volume.core.resource_claims.dra_state import FILE_NAME, PreparedClaim, read_dra_state
from shared.kube import paths
from shared.plugin_grpc import pod_resources_v1_pb2 as v1
from tests.e2e.test_device_plugin_containers import CDI
from tests.e2e.test_devices_of_a_node import ask
from tests.e2e.test_pods_with_resource_claims import DRIVER, ClaimStage, claim_stage, container_of
from tests.programs.dra_driver import PREPARE
from tests.support.agents.agent import NODE
from tests.support.agents.conditions import is_ready
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio, pytest.mark.timeout(300)]

SLICES = {"of-driver": DRIVER, "of-another": "absent.example.com"}


def checkpoint(root: Path) -> list[PreparedClaim]:
    path = root / FILE_NAME
    return list(read_dra_state(path.read_bytes())) if path.exists() else []


async def shown_claims(root: Path) -> list[Any]:
    """Return the claims that PodResources lists: server learns of them by itself."""
    found = await ask(root, "List", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)
    return [claim for pod in found.pod_resources for each in pod.containers for claim in each.dynamic_resources]


def put_slice(stage: ClaimStage, name: str) -> None:
    body = {"spec": {"driver": SLICES[name], "nodeName": NODE}}
    stage.api.do(partial(stage.api.server.put, f"{paths.RESOURCE_SLICES}/{name}", body))


def left_slices(stage: ClaimStage) -> set[str]:
    get = stage.api.server.get
    return {name for name in SLICES if stage.api.do(partial(get, f"{paths.RESOURCE_SLICES}/{name}")) is not None}


async def test_claims_are_shown_and_kept_in_step_and_slices_go_with_their_driver(tmp_path: Path) -> None:
    async with claim_stage(tmp_path) as stage:
        world, root = stage.world, stage.driver.directory.parents[1]
        put_slice(stage, "of-another")
        with stage.driver_process():
            stage.create("web")
            uid = stage.allocate("web")
            pod = await stage.until("web", is_ready, "to run")
            first = container_of(pod)
            put_slice(stage, "of-driver")  # which is registered: a driver that is not for 30 s has no slices

            [claim] = await world.wait_for(partial(shown_claims, root), "PodResources to have the claim")
            [device] = claim.claim_resources
            assert (claim.claim_name, claim.claim_namespace, device.driver_name) == ("web-gpu", "default", DRIVER)
            assert [cdi.name for cdi in device.cdi_devices] == [f"{DRIVER}/claim={uid}"]

            def is_listed() -> bool:
                listed = {claim.uid: set(claim.pod_uids) for claim in checkpoint(root)}
                return listed == {uid: {pod["metadata"]["uid"]}}

            await world.wait_for(is_listed, "the checkpoint to have the claim")

            (CDI / f"{uid}.json").unlink()
            await world.wait_back("volume", world.kill("volume"))
            await world.wait_for((CDI / f"{uid}.json").exists, "the driver to specify its device again")
            assert stage.driver.calls(PREPARE) == [["web-gpu"], ["web-gpu"]]
            assert container_of(await stage.until("web", is_ready, "to run")) == first

            await world.wait_for(
                lambda: left_slices(stage) == {"of-driver"}, "the slice of no driver to be deleted", 2 * WAIT_SECONDS
            )
            stage.api.do(lambda: stage.api.server.delete(paths.pod("default", "web")))
            await stage.until("web", lambda pod: not pod, "to be gone")
            await world.wait_for(lambda: not checkpoint(root), "the checkpoint to have no claim")
        assert stage.driver.registration.exists()
        await world.wait_for(
            lambda: not left_slices(stage), "the slice of the killed driver to be deleted", 2 * WAIT_SECONDS
        )
