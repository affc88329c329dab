"""The Node shows the devices that podsync publishes, also while podsync does not know them (node.md 4.15)."""

import asyncio
from pathlib import Path

import pytest

from bus.messages.podsync import NodeResources
from shared.model.frozen_copy import replace
from tests.service.status.node_stage import NODE, RESOURCES, NodeStage, node_stage

pytestmark = pytest.mark.virtual_time

STATUS = f"{NODE}/status"


async def test_devices_are_written_as_they_change_and_stay_while_podsync_does_not_know_them(tmp_path: Path) -> None:
    gpu = "example.com/gpu"

    def resources(capacity: str, allocatable: str) -> NodeResources:
        return replace(
            RESOURCES,
            capacity={**RESOURCES.capacity, gpu: capacity},
            allocatable={**RESOURCES.allocatable, gpu: allocatable},
        )

    async with node_stage(tmp_path) as stage:

        def amounts() -> tuple[str, str]:
            status = stage.node["status"]
            return status["capacity"][gpu], status["allocatable"][gpu]

        stage.host.device_resources = frozenset({gpu})
        await stage.start()
        await stage.until(stage.ready, within=10)
        stage.resources.put("node", resources("8", "7"))
        await stage.until(lambda: amounts() == ("8", "7"), within=2)
        stage.resources.put("node", replace(RESOURCES, devices_known=False))  # podsync was restarted
        await stage.pass_time(30)
        assert amounts() == ("8", "7")
        stage.resources.put("node", resources("8", "8"))
        await stage.until(lambda: amounts() == ("8", "8"), within=2)
        stage.resources.put("node", resources("0", "0"))
        await stage.until(lambda: amounts() == ("0", "0"), within=2)


async def test_a_node_that_is_older_than_its_machine_has_no_extended_resources_until_they_are_there(
    tmp_path: Path,
) -> None:
    gpu, dongle = "example.com/gpu", "example.com/dongle"
    async with node_stage(tmp_path) as stage:

        def amounts(name: str) -> tuple[str, str]:
            status = stage.node["status"]
            return status["capacity"][name], status["allocatable"][name]

        lists = {gpu: "8", dongle: "3", "attachable-volumes-x": "39"}
        stage.api.put(NODE, {"metadata": {}, "status": {"capacity": lists, "allocatable": lists}})
        await stage.start()
        await stage.kill()  # before it has written
        await stage.start()
        await stage.until(stage.ready, within=10)
        assert (amounts(gpu), amounts(dongle)) == (("0", "0"), ("0", "0"))
        assert amounts("attachable-volumes-x") == ("39", "39")
        capacity, allocatable = RESOURCES.capacity | {gpu: "2"}, RESOURCES.allocatable | {gpu: "2"}
        stage.resources.put("node", replace(RESOURCES, capacity=capacity, allocatable=allocatable))
        await stage.until(lambda: amounts(gpu) == ("2", "2"), within=2)
        await stage.api.client().patch(STATUS, {"status": {"capacity": {dongle: "4"}}})
        await stage.until(lambda: amounts(dongle) == ("4", "4"), within=15)
        await stage.kill()
        await stage.start("g2")
        await stage.pass_time(15)
        assert (amounts(gpu), amounts(dongle)) == (("2", "2"), ("4", "4"))


async def test_extended_resources_stay_where_an_agent_of_this_machine_has_known_devices(stage: NodeStage) -> None:
    lists = {"example.com/dongle": "3"}
    stage.api.put(NODE, {"metadata": {}, "status": {"capacity": lists, "allocatable": lists}})
    stage.host.device_resources = frozenset({"example.com/gpu"})
    await stage.start()
    await stage.until(stage.ready, within=10)
    assert stage.node["status"]["allocatable"]["example.com/dongle"] == "3"


async def test_devices_that_change_while_they_are_read_are_shown_at_once(
    reported: NodeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = reported

    async def devices() -> frozenset[str]:
        found = stage.host.device_resources
        await asyncio.sleep(0.05)
        return found

    monkeypatch.setattr(stage.host, "devices", devices)
    stage.resources.put("node", replace(RESOURCES, capacity=RESOURCES.capacity | {"memory": "6Gi"}))
    await stage.pass_time(0.02)
    stage.host.device_resources = frozenset({"example.com/gpu"})
    stage.resources.put("node", replace(RESOURCES, capacity=RESOURCES.capacity | {"memory": "5Gi"}))
    assert await stage.until(lambda: "example.com/gpu" in stage.node["status"]["capacity"], within=15) < 0.5
