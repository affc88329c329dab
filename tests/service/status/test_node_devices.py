"""The Node shows the devices that podsync publishes, also while podsync does not know them (node.md 4.15)."""

from dataclasses import replace
from pathlib import Path

from bus.messages.podsync import NodeResources
from tests.fakes.virtual_time import on_virtual_time
from tests.service.status.node_stage import NODE, RESOURCES, node_stage

STATUS = f"{NODE}/status"


@on_virtual_time
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
