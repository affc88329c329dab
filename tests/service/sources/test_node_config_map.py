"""The ConfigMap that our Node names as its configuration: only that one is read, by a watch of it alone."""

from pathlib import Path

import pytest

from shared.kube import paths
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node

pytestmark = pytest.mark.virtual_time

MAPS = "/api/v1/namespaces/default/configmaps"
KIND = "NodeConfigMap"


def name(node: ClusterNode, config_map: object) -> None:
    """Have the Node name this ConfigMap."""
    node.api.put(paths.node(NODE), {"metadata": {"name": NODE}, "spec": {"configSource": {"configMap": config_map}}})


async def test_the_named_configmap_is_followed_until_the_node_names_another_one(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, dynamic_config_dir="/d") as node:
        for each in ("a", "b"):
            node.api.put(f"{MAPS}/{each}", {"data": {"kubelet": each}})
        name(node, {"namespace": "default", "name": "a"})
        await node.start()
        assert node.asked("GET", "/configmaps") == 0
        found = await node.ask(KIND, "a")
        assert found.object is not None and found.object["data"] == {"kubelet": "a"}
        edited = node.api.put(f"{MAPS}/a", {"data": {"kubelet": "c"}})["metadata"]["resourceVersion"]
        await node.until(lambda: node.changed.state[f"{KIND}/default/a"].resource_version == edited, within=5.0)
        node.api.delete(f"{MAPS}/a")
        await node.until(lambda: node.changed.state[f"{KIND}/default/a"].resource_version == "", within=5.0)
        gone = await node.ask(KIND, "a")
        assert (gone.object, gone.not_found, gone.error) == (None, True, 'configmap "a" not found')
        name(node, {"namespace": "default", "name": "b"})
        await node.settle()
        found = await node.ask(KIND, "b")
        assert found.object is not None and found.object["data"] == {"kubelet": "b"}
        assert list(node.changed.state) == [f"{KIND}/default/b"]


async def test_no_other_configmap_is_read(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, dynamic_config_dir="/d") as node:
        node.api.put(f"{MAPS}/a", {"data": {}})
        await node.start()
        refused = "the Node does not name the ConfigMap default/a"
        for config_map in (None, "a", {}, {"namespace": "default", "name": "b"}, {"name": "a"}):
            name(node, config_map)
            await node.settle()
            assert (await node.ask(KIND, "a")).error == refused
        assert node.asked("GET", "/configmaps") == 0


async def test_without_the_directory_none_is_read(node: ClusterNode) -> None:
    name(node, {"namespace": "default", "name": "a"})
    await node.start()
    assert "are not read for other services" in (await node.ask(KIND, "a")).error
