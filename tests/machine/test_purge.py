"""The end of the package on the node of the tests' API server, after all other tests of that node."""

import asyncio

import pytest

from tests.machine.joined import MachineCluster
from tests.support.machines import package_steps
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(1800)]


async def test_a_purge_leaves_nothing_on_a_node_whose_pods_have_ended(cluster: MachineCluster) -> None:
    await cluster.create(cluster.pod("last"))
    await cluster.wait_ready("last")
    await cluster.end_pods()

    async def ended() -> bool:
        return not await asyncio.to_thread(cluster.machine.tasks)

    await cluster.wait_for(ended, "the containers to have ended", 3 * WAIT_SECONDS, every=1.0)
    await asyncio.to_thread(package_steps.purge, cluster.machine)
