"""A running agent imports nothing: files that are replaced under it cannot mix two versions in one process."""

import time
from pathlib import Path

import pytest

from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.agents.world import ExecutedWorld
from tests.support.clusters.cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

HOOK = Path(__file__).parents[1] / "programs" / "late_imports"


def probed(cluster: Cluster, name: str, **handler: object) -> Object:
    """A pod that is ready at once and probed every second; that nothing answers some of them does not matter."""
    pod = cluster.pod(name)
    pod["spec"]["containers"][0]["livenessProbe"] = {**handler, "periodSeconds": 1, "failureThreshold": 1000}
    return pod


async def test_a_running_agent_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = tmp_path / "imported"
    monkeypatch.setenv("PYTHONPATH", str(HOOK))
    monkeypatch.setenv("IMPORTS_FILE", str(imported))
    async with Cluster(tmp_path, world=ExecutedWorld) as cluster:  # only an interpreter that starts has the hook
        monkeypatch.delenv("IMPORTS_FILE")
        started = time.monotonic()
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}})
        await cluster.create(probed(cluster, "tcp", tcpSocket={"port": 1}))
        await cluster.create(probed(cluster, "http", httpGet={"port": 1, "host": "localhost"}))
        secure = {"port": cluster.agent.port, "host": "localhost", "scheme": "HTTPS"}
        await cluster.create(probed(cluster, "https", httpGet=secure))
        cluster.agent.put_manifest("grpc", probed(cluster, "grpc", grpc={"port": 1}))  # unknown to an old API server
        pod = probed(cluster, "exec", exec={"command": ["true"]})
        container = pod["spec"]["containers"][0]
        container["lifecycle"] = {"preStop": {"httpGet": secure}, "postStart": {"exec": {"command": ["true"]}}}
        container["envFrom"] = [{"configMapRef": {"name": "c"}}]
        await cluster.create(pod)
        await cluster.wait_served("tcp", "http", "https", "exec")

        def grpc_probe_failed() -> bool:
            lines = cluster.agent.log_of("status").splitlines()
            return any("reason=Unhealthy" in line and f"grpc-{NODE}" in line for line in lines)

        await cluster.agent.wait_for(grpc_probe_failed, "the grpc probe to fail")
        assert cluster.plane.kubectl("logs", "exec").returncode == 0
        assert cluster.plane.kubectl("exec", "exec", "--", "echo", "x").stdout == "x\n"
        before = cluster.agent.log_of("bootstrap")
        configuration = cluster.agent.home.path / "kubelet.yaml"
        configuration.write_text("maxPods: 7\n" + configuration.read_text())
        await cluster.agent.wait_for(lambda: cluster.agent.log_of("bootstrap") != before, "the edit to be noticed")
        await cluster.delete_pod("exec", grace=1)
        await cluster.wait_gone("exec")
        lines = [line.split() for line in imported.read_text().splitlines()]
    assert [program for _, program, _ in lines if not program.endswith("__main__.py")], "of children: it is noted"
    late = [line for line in lines if line[1].endswith("__main__.py") and float(line[0]) > started]
    assert late == []
