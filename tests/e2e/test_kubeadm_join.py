"""`kubeadm join` as the agent sees it: a unit, a bootstrap kubeconfig, and an API server that signs."""

import re
import shutil
import stat
from pathlib import Path

import pytest

from tests.process.supervised import alive
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.clusters.control_plane import ControlPlane
from tests.support.clusters.control_plane_bootstrap import let_nodes_bootstrap, requests
from tests.support.kubeadm.world import WorldOfKubeadm

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


async def test_kubeadms_unit_joins_the_cluster_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    def kubeconfig(plane: ControlPlane) -> Path:
        return let_nodes_bootstrap(plane, approve=True)

    config = {"rotateCertificates": True}
    async with Cluster(tmp_path, config=config, kubeconfig=kubeconfig, start=False, world=WorldOfKubeadm) as cluster:
        assert isinstance(cluster.agent, WorldOfKubeadm)
        home = cluster.agent.home.path
        shutil.copy(tmp_path / "plane/bootstrap.kubeconfig", home / "bootstrap-kubelet.conf")
        await cluster.agent.start()
        await cluster.wait_node_ready()
        [request] = requests(cluster.plane)
        assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
        assert stat.S_IMODE((home / "kubelet.conf").stat().st_mode) == 0o600
        assert "kubelet-client-current.pem" in (home / "kubelet.conf").read_text()
        node = await cluster.node()
        assert (node["metadata"]["name"], node["metadata"]["labels"]["made-by"]) == (NODE, "kubeadm")
        await cluster.create(cluster.pod("web"))
        await cluster.wait_ready("web")
        [web] = (await cluster.agent.runtime.observe()).values()
        lines = cluster.agent.stderr.read_text().splitlines()
        assert [line for line in lines if re.match(r"I\d{4} .*\] .*certificate", line)]
        assert not [line for line in lines if "Traceback" in line or "BEGIN" in line or "0123456789abcdef" in line]
        assert await cluster.agent.stop_supervisord() == 0
        assert alive(web.containers[0].pid)
