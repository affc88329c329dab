"""status.volumesInUse of the Node: written at once when volume publishes it, and reported back as the Node has it."""

import pytest

from bus.messages.volume import VolumesInUse
from tests.service.status.node_stage import NODE, NodeStage

pytestmark = pytest.mark.virtual_time

A, B = "kubernetes.io/csi/d^a", "kubernetes.io/csi/d^b"


def in_use(stage: NodeStage) -> list[str]:
    return list(stage.node.get("status", {}).get("volumesInUse", []))


async def until_reported(stage: NodeStage, generation: str) -> None:
    def is_reported() -> bool:
        state = stage.reported.state
        return "node" in state and state["node"].generation == generation

    await stage.until(is_reported, within=30)


async def test_volumes_in_use_are_written_at_once_and_reported_with_the_version_of_the_node(stage: NodeStage) -> None:
    await stage.start()
    await stage.until(stage.ready, within=10)
    for number, names in enumerate([(A,), (A, B), (B,), ()]):
        stage.volumes_in_use.put("node", VolumesInUse(generation=f"t.{number}", volumes=names))
        await until_reported(stage, f"t.{number}")
        assert in_use(stage) == list(names)
        assert stage.reported.state["node"].volumes == names
        assert int(stage.reported.state["node"].resource_version) <= int(stage.node["metadata"]["resourceVersion"])


async def test_the_node_keeps_its_volumes_in_use_until_volume_knows_them(stage: NodeStage) -> None:
    stage.api.put(NODE, {"metadata": {}, "status": {"volumesInUse": [A]}})
    await stage.start()
    await stage.pass_time(30)
    assert stage.ready()
    assert in_use(stage) == [A]
    assert not stage.reported.state


async def test_a_new_process_reports_what_the_api_server_has_and_not_an_older_copy(stage: NodeStage) -> None:
    stage.volumes_in_use.put("node", VolumesInUse(generation="t.1", volumes=(A,)))
    await stage.start()
    await stage.until(lambda: in_use(stage) == [A], within=30)
    stage.watching = False
    await stage.kill()
    node = stage.node
    stage.api.put(NODE, {**node, "status": {**node["status"], "volumesInUse": []}})
    stage.volumes_in_use.put("node", VolumesInUse(generation="t.2", volumes=(A,)))
    await stage.start()
    await until_reported(stage, "t.2")
    assert in_use(stage) == [A]


async def test_after_etcd_was_restored_the_volumes_in_use_are_written_again(stage: NodeStage) -> None:
    await stage.start()
    await stage.until(stage.ready, within=10)
    backup = stage.api.store.backup()
    stage.volumes_in_use.put("node", VolumesInUse(generation="t.1", volumes=(A,)))
    await until_reported(stage, "t.1")
    await stage.pass_time(5)
    stage.watching = False  # the watch breaks, and never shows the last write
    stage.volumes_in_use.put("node", VolumesInUse(generation="t.2", volumes=(A, B)))
    await until_reported(stage, "t.2")
    stage.api.store.restore(backup)
    assert in_use(stage) == []
    stage.watching = True
    stage.api.drop_watches()
    await stage.until(lambda: in_use(stage) == [A, B], within=20)
