"""Our CSINode, and the annotation and labels of the Node that come from CSI drivers, through restarts and outages."""

import json
from typing import Any

import pytest

from bus.messages.volume import CsiNode, RegisteredPlugin
from services.status.core.csi_node import NODE_IDS
from shared.kube import paths
from shared.model.objects import Object
from tests.service.status.node_stage import NAME, NODE, NodeStage

pytestmark = pytest.mark.virtual_time

CSI_NODE = paths.csi_node(NAME)
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
PLUGINS = (
    "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,"
    "kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
)


def plugin(name: str, node_id: str = "id", *, max_volumes: int = 0, **topology: str) -> RegisteredPlugin:
    """A registered driver; `topology`: values by the last part of their keys."""
    segments = {f"topology.{name}/{key}": value for key, value in topology.items()}
    node = CsiNode(node_id=node_id, max_volumes=max_volumes, topology=segments)
    return RegisteredPlugin(type="CSIPlugin", name=name, endpoint="/e", version="1.0.0", csi=node)


class CsiStage:
    """A stage with volume's stream of plugins."""

    def __init__(self, stage: NodeStage) -> None:
        self.stage = stage
        self.plugins = stage.plugins

    def register(self, *plugins: RegisteredPlugin) -> None:
        for each in plugins:
            self.plugins.put(f"CSIPlugin/{each.name}", each)

    def deregister(self, name: str) -> None:
        self.plugins.delete(f"CSIPlugin/{name}")

    @property
    def csi_node(self) -> Object:
        return self.stage.api.get(CSI_NODE) or {}

    def drivers(self) -> dict[str, Any]:
        return {driver["name"]: driver for driver in self.csi_node.get("spec", {}).get("drivers", [])}

    def node_ids(self) -> dict[str, str]:
        annotations = self.stage.node.get("metadata", {}).get("annotations", {})
        return dict(json.loads(annotations.get(NODE_IDS, "{}")))

    async def until_drivers(self, *names: str) -> None:
        """Until CSINode and annotation name these drivers and no others."""
        wanted = set(names)
        await self.stage.until(
            lambda: bool(self.csi_node) and self.drivers().keys() == self.node_ids().keys() == wanted, within=60
        )


@pytest.fixture
async def csi(stage: NodeStage) -> CsiStage:
    """Return the stage with a status that runs."""
    await stage.start()
    return CsiStage(stage)


async def test_the_csi_node_is_created_with_the_node_as_its_owner(csi: CsiStage, stage: NodeStage) -> None:
    await csi.until_drivers()
    owner = {"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": stage.node["metadata"]["uid"]}
    assert csi.csi_node["metadata"]["ownerReferences"] == [owner]
    assert csi.csi_node["spec"] == {"drivers": []}
    assert csi.csi_node["metadata"]["annotations"] == {MIGRATED: PLUGINS}
    assert NODE_IDS not in stage.node["metadata"].get("annotations", {})


async def test_drivers_are_in_the_csi_node_the_annotation_and_the_labels_until_they_are_deregistered(
    csi: CsiStage, stage: NodeStage
) -> None:
    csi.plugins.mark_complete()
    csi.register(plugin("b.csi", "id-b", max_volumes=5, zone="z1", host="h"), plugin("a.csi", "id-a"))
    await csi.until_drivers("a.csi", "b.csi")
    assert csi.drivers()["b.csi"] == {
        "name": "b.csi",
        "nodeID": "id-b",
        "topologyKeys": ["topology.b.csi/host", "topology.b.csi/zone"],
        "allocatable": {"count": 5},
    }
    assert csi.drivers()["a.csi"] == {"name": "a.csi", "nodeID": "id-a", "topologyKeys": None}
    assert csi.node_ids() == {"a.csi": "id-a", "b.csi": "id-b"}
    assert stage.node["metadata"]["labels"]["topology.b.csi/zone"] == "z1"
    csi.deregister("b.csi")
    await csi.until_drivers("a.csi")
    csi.register(plugin("a.csi", "id-new"))
    await stage.until(lambda: csi.drivers()["a.csi"]["nodeID"] == csi.node_ids()["a.csi"] == "id-new", within=60)
    csi.deregister("a.csi")
    await csi.until_drivers()


async def test_nothing_is_taken_away_while_the_list_of_plugins_is_not_complete(csi: CsiStage, stage: NodeStage) -> None:
    csi.register(plugin("a.csi"), plugin("b.csi"))
    await csi.until_drivers("a.csi", "b.csi")
    await stage.kill()
    csi.deregister("b.csi")
    await stage.start()
    await stage.pass_time(30)
    assert csi.drivers().keys() == {"a.csi", "b.csi"}
    csi.plugins.mark_complete()
    await csi.until_drivers("a.csi")


@pytest.mark.long
async def test_a_driver_whose_socket_is_absent_when_the_agent_starts_stays_until_it_is_deregistered(
    csi: CsiStage, stage: NodeStage
) -> None:
    """Its registrar removed the socket when it ended: the Node keeps the driver's limit and topology until its pod runs
    again, as under the kubelet."""
    csi.register(plugin("a.csi", max_volumes=5), plugin("b.csi"))
    csi.plugins.mark_complete()
    await csi.until_drivers("a.csi", "b.csi")
    await stage.kill()
    csi.deregister("a.csi")
    csi.deregister("b.csi")
    await stage.start("g2")
    await stage.pass_time(300)
    assert csi.drivers().keys() == csi.node_ids().keys() == {"a.csi", "b.csi"}
    csi.register(plugin("a.csi", max_volumes=6))
    await stage.until(lambda: csi.drivers()["a.csi"]["allocatable"]["count"] == 6, within=30)
    csi.deregister("a.csi")
    await csi.until_drivers("b.csi")


async def test_a_driver_that_is_deregistered_while_status_is_restarted_is_taken_away(
    csi: CsiStage, stage: NodeStage
) -> None:
    csi.register(plugin("a.csi"))
    csi.plugins.mark_complete()
    await csi.until_drivers("a.csi")
    await stage.kill()
    csi.deregister("a.csi")
    await stage.start()
    await csi.until_drivers()


async def test_a_csi_node_of_an_earlier_node_is_created_again(stage: NodeStage) -> None:
    csi = CsiStage(stage)
    owner = {"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": "earlier"}
    old = {"name": "old.csi", "nodeID": "x", "topologyKeys": None}
    stage.api.put(CSI_NODE, {"metadata": {"ownerReferences": [owner]}, "spec": {"drivers": [old]}})
    before = csi.csi_node["metadata"]["uid"]
    await stage.start()
    await csi.until_drivers()
    assert csi.csi_node["metadata"]["uid"] != before


async def test_a_csi_node_of_an_earlier_release_gets_the_annotation_and_keeps_others(
    csi: CsiStage, stage: NodeStage
) -> None:
    await csi.until_drivers()
    await stage.kill()
    metadata = {**csi.csi_node["metadata"], "annotations": {"own": "x", MIGRATED: "kubernetes.io/rbd"}}
    stage.api.put(CSI_NODE, {**csi.csi_node, "metadata": metadata})
    await stage.start()
    wanted = {"own": "x", MIGRATED: PLUGINS}
    await stage.until(lambda: csi.csi_node["metadata"]["annotations"] == wanted, within=60)


async def test_a_topology_that_contradicts_a_label_keeps_its_driver_out_and_no_other(
    csi: CsiStage, stage: NodeStage
) -> None:
    await csi.until_drivers()
    labels = {**stage.node["metadata"]["labels"], "topology.bad.csi/zone": "z1"}
    stage.api.put(NODE, {**stage.node, "metadata": {**stage.node["metadata"], "labels": labels}})
    csi.register(plugin("bad.csi", zone="z2"), plugin("good.csi", zone="z2"))
    await csi.until_drivers("good.csi")
    assert stage.node["metadata"]["labels"]["topology.bad.csi/zone"] == "z1"
    assert stage.node["metadata"]["labels"]["topology.good.csi/zone"] == "z2"


@pytest.mark.long
async def test_an_outage_delays_the_csi_node_and_nothing_is_lost(csi: CsiStage, stage: NodeStage) -> None:
    await csi.until_drivers()
    stage.api.down()
    csi.register(plugin("a.csi"))
    await stage.pass_time(60)
    stage.api.up()
    await csi.until_drivers("a.csi")


async def test_an_answer_that_is_lost_leads_to_the_same_csi_node(csi: CsiStage, stage: NodeStage) -> None:
    await csi.until_drivers()
    stage.api.lose_answers(2)
    csi.register(plugin("a.csi", zone="z"))
    await csi.until_drivers("a.csi")


async def test_a_restart_writes_nothing_that_is_there_already(csi: CsiStage, stage: NodeStage) -> None:
    csi.register(plugin("a.csi", zone="z"))
    csi.plugins.mark_complete()
    await csi.until_drivers("a.csi")
    version = csi.csi_node["metadata"]["resourceVersion"]
    await stage.kill()
    await stage.start()
    await stage.pass_time(30)
    assert csi.csi_node["metadata"]["resourceVersion"] == version
