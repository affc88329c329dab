"""The ResourceSlices of drivers that have left the node are deleted, through restarts and outages; those of others and
of other nodes stay (node.md 4.16)."""

from pathlib import Path

import pytest

from bus.messages.volume import RegisteredPlugin
from services.status.controllers.resource_slices import TROUBLE
from services.status.core.slice_removals import GRACE_SECONDS
from shared.kube import paths
from tests.fakes.api_resources import V1_20
from tests.service.status.node_stage import NAME, NodeStage, node_stage

pytestmark = pytest.mark.virtual_time

GPU, NIC = "gpu.example.com", "nic.example.com"


def register(stage: NodeStage, driver: str, *, connected: bool = True) -> None:
    plugin = RegisteredPlugin(type="DRAPlugin", name=driver, endpoint="/e", version="v1.DRAPlugin", connected=connected)
    stage.plugins.put(f"DRAPlugin/{driver}", plugin)


def deregister(stage: NodeStage, driver: str) -> None:
    stage.plugins.delete(f"DRAPlugin/{driver}")


def put_slice(stage: NodeStage, name: str, driver: str, node: str = NAME) -> None:
    stage.api.put(f"{paths.RESOURCE_SLICES}/{name}", {"spec": {"driver": driver, "nodeName": node}})


def slices(stage: NodeStage) -> set[str]:
    names = ("of-gpu", "of-nic", "more-of-gpu", "elsewhere")
    return {name for name in names if stage.api.get(f"{paths.RESOURCE_SLICES}/{name}") is not None}


def deletions(stage: NodeStage) -> list[str]:
    sent = (request for request in stage.api.received if request.path == paths.RESOURCE_SLICES)
    return [request.query["fieldSelector"] for request in sent if request.method == "DELETE"]


async def start_with_slices(stage: NodeStage, **drivers: str) -> None:
    """Start status beside these drivers, each named by the slices that it has, and wait until nothing follows."""
    await stage.start()
    for driver in dict.fromkeys(drivers.values()):
        register(stage, driver)
    stage.plugins.mark_complete()
    for name, driver in drivers.items():
        put_slice(stage, name.replace("_", "-"), driver)
    await stage.pass_time(60)


@pytest.mark.long
async def test_the_slices_of_a_driver_go_30_s_after_it_and_stay_where_it_returns(stage: NodeStage) -> None:
    put_slice(stage, "elsewhere", GPU, node="n2")
    await start_with_slices(stage, of_gpu=GPU, more_of_gpu=GPU, of_nic=NIC)
    assert len(slices(stage)) == 4
    for driver in (GPU, NIC):
        deregister(stage, driver)
    await stage.pass_time(GRACE_SECONDS - 5)
    assert len(slices(stage)) == 4
    register(stage, NIC)
    await stage.until(lambda: slices(stage) == {"of-nic", "elsewhere"}, within=10)
    await stage.pass_time(300)
    assert slices(stage) == {"of-nic", "elsewhere"}
    swept = f"spec.driver!={GPU},spec.driver!={NIC},spec.nodeName={NAME}"
    assert deletions(stage) == [swept, f"spec.driver={GPU},spec.nodeName={NAME}"]


@pytest.mark.long
async def test_a_driver_that_registers_while_the_slices_of_another_one_are_deleted_keeps_its_own(
    stage: NodeStage,
) -> None:
    await start_with_slices(stage, of_gpu=GPU, of_nic=NIC)
    stage.api.slow(lambda received: 5.0 if received.method == "DELETE" else 0.0)
    for driver in (GPU, NIC):
        deregister(stage, driver)
    await stage.pass_time(GRACE_SECONDS + 2)
    assert slices(stage) == {"of-gpu", "of-nic"}, "the request for the first driver is under way"
    register(stage, NIC)
    await stage.pass_time(300)
    assert slices(stage) == {"of-nic"}


async def test_the_slices_of_a_driver_that_returns_and_goes_during_its_request_are_deleted_later(
    stage: NodeStage,
) -> None:
    await start_with_slices(stage, of_gpu=GPU)
    stage.api.slow(lambda received: 5.0 if received.method == "DELETE" else 0.0)
    deregister(stage, GPU)
    await stage.pass_time(GRACE_SECONDS + 2)
    assert slices(stage) == {"of-gpu"}, "the request is under way"
    register(stage, GPU)
    await stage.pass_time(1)
    deregister(stage, GPU)
    await stage.pass_time(5)
    put_slice(stage, "more-of-gpu", GPU)
    await stage.pass_time(300)
    assert slices(stage) == set()


async def test_the_slices_of_a_driver_that_does_not_listen_any_more_go_too(stage: NodeStage) -> None:
    """It was killed, and its socket is still there."""
    await start_with_slices(stage, of_gpu=GPU, of_nic=NIC)
    for driver in (GPU, NIC):
        register(stage, driver, connected=False)
    await stage.pass_time(GRACE_SECONDS - 5)
    register(stage, NIC)
    await stage.until(lambda: slices(stage) == {"of-nic"}, within=10)
    await stage.pass_time(300)
    assert slices(stage) == {"of-nic"}
    await stage.kill()
    register(stage, NIC, connected=False)
    await stage.start()
    await stage.until(lambda: slices(stage) == set(), within=60)


@pytest.mark.long
async def test_a_restart_deletes_no_slice_of_a_driver_that_is_there_and_those_of_one_that_went_meanwhile(
    stage: NodeStage,
) -> None:
    """The kubelet deletes all slices of the node whenever it starts."""
    await start_with_slices(stage, of_gpu=GPU, of_nic=NIC)
    await stage.kill()
    deregister(stage, GPU)
    await stage.start()
    await stage.until(lambda: slices(stage) == {"of-nic"}, within=60)
    await stage.kill()
    await stage.start("g2")
    await stage.pass_time(300)
    assert slices(stage) == {"of-nic"}


@pytest.mark.long
async def test_no_slice_is_deleted_while_a_driver_may_be_about_to_register(stage: NodeStage) -> None:
    put_slice(stage, "of-gpu", GPU)
    await stage.start()
    await stage.pass_time(300)
    assert slices(stage) == {"of-gpu"}
    register(stage, GPU)
    stage.plugins.mark_complete()
    await stage.pass_time(300)
    assert slices(stage) == {"of-gpu"}
    deregister(stage, GPU)
    stage.network.kill("volume")
    await stage.pass_time(300)
    assert slices(stage) == {"of-gpu"}, "no process tells whether the driver has come back"


@pytest.mark.long
async def test_an_outage_and_refusals_delay_the_deletion_and_are_a_trouble_that_names_the_driver(
    stage: NodeStage,
) -> None:
    await start_with_slices(stage, of_gpu=GPU)
    stage.api.down()
    deregister(stage, GPU)
    await stage.until(lambda: any(f"ResourceSlices of DRA driver {GPU} are" in t for t in troubles(stage)), within=60)
    stage.api.up()
    await stage.until(lambda: slices(stage) == set(), within=600)
    await stage.until(lambda: not any(TROUBLE in trouble for trouble in troubles(stage)), within=10)


def troubles(stage: NodeStage) -> tuple[str, ...]:
    return stage.beats["status"].troubles


async def test_an_outage_is_no_trouble_on_a_node_without_drivers_and_slices_go_after_it(stage: NodeStage) -> None:
    await stage.start()
    put_slice(stage, "of-gpu", GPU)
    stage.plugins.mark_complete()
    await stage.pass_time(GRACE_SECONDS - 1)
    stage.api.down()
    await stage.pass_time(60)
    assert slices(stage) == {"of-gpu"} and not any(TROUBLE in trouble for trouble in troubles(stage))
    stage.api.up()
    await stage.until(lambda: slices(stage) == set(), within=600)


@pytest.mark.long
async def test_an_api_server_without_slices_is_asked_once_and_is_no_trouble(tmp_path: Path) -> None:
    async with node_stage(tmp_path, drops=V1_20) as stage:
        await stage.start()
        stage.plugins.mark_complete()
        await stage.pass_time(600)
        assert deletions(stage) == [f"spec.nodeName={NAME}"]
        assert not any(TROUBLE in trouble for trouble in troubles(stage))


async def test_an_api_server_that_forbids_them_is_no_trouble_on_a_node_without_drivers(stage: NodeStage) -> None:
    """One that does not have them forbids them to a node before it looks for them."""
    await stage.start()
    stage.plugins.mark_complete()
    await stage.pass_time(GRACE_SECONDS - 1)
    stage.api.refuse(0, 403)
    await stage.until(lambda: deletions(stage) != [], within=10)
    assert not any(TROUBLE in trouble for trouble in troubles(stage))
    stage.api.up()
    register(stage, GPU)
    await stage.pass_time(60)
    assert len(deletions(stage)) == 1
    deregister(stage, GPU)
    await stage.pass_time(GRACE_SECONDS - 1)
    stage.api.refuse(0, 403)
    await stage.until(lambda: any(f"ResourceSlices of DRA driver {GPU} are" in t for t in troubles(stage)), within=60)
