"""In an outage of the API server status sends the lease and the node's status, and nothing else."""

from pathlib import Path

import pytest

from bus.messages.podsync import NodePressure
from shared.kube import paths
from tests.fakes.api_server import Received
from tests.fakes.virtual_time import on_virtual_time
from tests.service.status.node_stage import DISK_PRESSURE, LEASE, NAME, NODE, NodeStage, node_stage
from tests.service.status.test_csi_node import plugin

HEARTBEATS = (NODE, LEASE, paths.LEASES, paths.node_status(NAME))


def others_sent(stage: NodeStage) -> list[str]:
    """What status sends from now on, heartbeats aside."""
    arrive, sent = stage.api.arrive, list[str]()

    async def counted(received: Received, timeout: float | None) -> None:
        if received.path not in (*HEARTBEATS, paths.NODES):  # the last is of the stage's own sources
            sent.append(f"{received.method} {received.path}")
        await arrive(received, timeout)

    stage.api.arrive = counted  # type: ignore[method-assign]
    return sent


@pytest.mark.long
@on_virtual_time
async def test_events_and_the_csi_node_wait_for_a_heartbeat_that_is_answered(tmp_path: Path) -> None:
    async with node_stage(tmp_path) as stage:
        await stage.start()
        await stage.pass_time(30)
        stage.api.down()
        await stage.pass_time(12)
        sent = others_sent(stage)
        stage.plugins.put("CSIPlugin/a", plugin("a"))
        stage.pressure.put("node", NodePressure(conditions=(DISK_PRESSURE,)))
        await stage.pass_time(60)
        assert sent == []
        stage.api.up()
        await stage.until(lambda: [line for line in sent if "/events" in line], within=20)
