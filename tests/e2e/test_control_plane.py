"""The control plane that other tests start: bound tokens, pauses, counted requests, and nothing left behind."""

import asyncio
import time
from pathlib import Path

import pytest

from shared.kube import paths
from shared.kube.interface import ApiUnreachableError
from tests.support.clusters.control_plane import ControlPlane
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
_GATE = "BoundServiceAccountTokenVolume"
_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: busybox}]}
"""


def _processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


async def test_a_control_plane_from_its_start_to_its_end(tmp_path: Path) -> None:
    async with ControlPlane(tmp_path, feature_gates={_GATE: True}, audit=True) as cluster:
        node = cluster.client("n1")
        await node.create(paths.NODES, {"metadata": {"name": "n1"}})
        cluster.kubectl("apply", "-f", "-", stdin=_POD)
        pod = await node.get(paths.pod("default", "web"))
        (volume,) = pod["spec"]["volumes"]
        assert "serviceAccountToken" in volume["projected"]["sources"][0]

        # A line of the audit log may be written after the answer was sent.
        deadline = time.monotonic() + WAIT_SECONDS
        while (counts := cluster.requests_by_user().get("system:node:n1")) != {"create nodes": 1, "get pods": 1}:
            assert time.monotonic() < deadline, counts
            await asyncio.sleep(0.05)
        cluster.forget_requests()
        assert "system:node:n1" not in cluster.requests_by_user()

        cluster.pause()
        with pytest.raises(ApiUnreachableError):
            await node.get(paths.node("n1"), timeout=0.5)
        cluster.resume()
        assert (await node.get(paths.node("n1")))["metadata"]["name"] == "n1"

        strangers = cluster.kubeconfig_with_token("stranger's")
        assert "stranger's" in strangers.read_text() and strangers.stat().st_mode & 0o077 == 0
        assert cluster.kubeconfig_for_node("n1").exists()
        assert _processes_with(str(tmp_path))
    assert not _processes_with(str(tmp_path))
