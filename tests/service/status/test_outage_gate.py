"""In an outage of the API server status sends the lease and the node's status, and nothing else."""

import pytest

from bus.messages.podsync import NodePressure
from shared.kube import paths
from tests.fakes.api_server import Received
from tests.service.status.node_stage import DISK_PRESSURE, LEASE, NAME, NODE, NodeStage
from tests.service.status.test_csi_node import plugin

pytestmark = pytest.mark.virtual_time

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
async def test_events_and_the_csi_node_wait_for_a_heartbeat_that_is_answered(stage: NodeStage) -> None:
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
