"""A control plane that has served a test is as new for the next one."""

import json
from pathlib import Path

import pytest

from shared.kube import paths
from shared.model.objects import Object
from tests.support.clusters.control_plane import ControlPlane
from tests.support.clusters.shared_control_plane import control_plane

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: left, finalizers: [example.com/stays]}
spec: {nodeName: n1, containers: [{name: c, image: busybox}]}
"""
# Of these, the controllers write only the roles that are aggregated from others.
_KINDS = "namespaces,nodes,pods,services,clusterroles,clusterrolebindings,priorityclasses,csr,leases,pv"


def shown(plane: ControlPlane) -> dict[str, Object]:
    """Return what the API server shows, by kind and name."""
    found = json.loads(plane.kubectl("get", _KINDS, "--all-namespaces", "--output", "json").stdout)["items"]
    for one in found:
        del one["metadata"]["resourceVersion"]
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found if "aggregationRule" not in one}


async def test_the_next_test_finds_what_a_new_api_server_has(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with control_plane(tmp_path / "one") as plane:
        new, url = shown(plane), plane.url
        assert {"Namespace default", "ClusterRole system:node-problem-detector"} <= new.keys()
        await plane.client("n1").create(paths.NODES, {"metadata": {"name": "n1"}})
        plane.kubectl("create", "namespace", "left")
        plane.kubectl("create", "serviceaccount", "default", "--namespace", "left", check=False)  # a controller may too
        plane.kubectl("apply", "-f", "-", stdin=_POD)
        plane.kubectl("create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--group=system:nodes")
        plane.kubectl("label", "namespace", "default", "edited=yes")
        plane.kubectl("delete", "clusterrole", "system:node-problem-detector")
        assert {"Node n1", "Pod web", "ClusterRoleBinding all"} <= shown(plane).keys()
    async with control_plane(tmp_path / "two") as plane:
        assert plane.url == url
        assert shown(plane) == new
        assert plane.kubeconfig.is_relative_to(tmp_path / "two")
