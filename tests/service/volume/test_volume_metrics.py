"""What volume counts: volumes by plugin, desired and actual, and the operations on them."""

from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from tests.service.volume.node import Node, started_node

TOTAL, OPERATIONS = "volume_manager_total_volumes", "storage_operation_duration_seconds"
EMPTY_DIR, HOST_PATH = "kubernetes.io/empty-dir", "kubernetes.io/host-path"
DESIRED, ACTUAL = "desired_state_of_world", "actual_state_of_world"


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return await started_node(tmp_path, monkeypatch)


async def test_volumes_and_operations_are_counted_by_plugin(node: Node) -> None:
    node.admit("u", "cache", "logs", "host")
    node.admitted.mark_complete()
    async with node.volume():
        ends = {"cache": VolumeState.MOUNTED, "logs": VolumeState.MOUNTED, "host": VolumeState.ERROR}
        await node.mounted.until(
            lambda state: "u" in state and {name: v.state for name, v in state["u"].volumes.items()} == ends
        )
        total = node.counted(TOTAL)
        assert (total[EMPTY_DIR, DESIRED], total[EMPTY_DIR, ACTUAL], total[HOST_PATH, DESIRED]) == ([2.0], [2.0], [1.0])
        timed = node.counted(OPERATIONS)
        assert sum(timed[EMPTY_DIR, "volume_mount", "success", "false"][:-1]) == 2
        assert sum(timed[HOST_PATH, "volume_mount", "fail-unknown", "false"][:-1]) >= 1
        node.admit("u", state=PodState.TERMINATED)
        await node.mounted.until(lambda state: not state)
        assert sum(node.counted(OPERATIONS)[EMPTY_DIR, "volume_unmount", "success", "false"][:-1]) == 2
        assert node.counted(TOTAL) == {}
