"""Who may read what of a pod on the node: cgroups, directories and logs have the kubelet's modes, also where the agent
was started with another umask."""

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.host import cgroup_layout
from tests.support.agents.behaviour import Node, container, pod_of
from tools import leftovers

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

PODS = {
    "modes": pod_of(
        "modes",
        container("c", "sleep 1000", volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}]),
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    yield
    await node.take_away(PODS)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


async def test_monitoring_without_root_reads_cgroups_and_log_directories(node: Node) -> None:
    pod = await node.wait_static("modes", lambda pod: pod["status"].get("phase") == "Running", "to run")
    uid = pod["metadata"]["uid"]
    tops = cgroup_layout.find_hierarchies().roots()
    found = [place for top in tops for place in leftovers.directories_below(top) if f"pod{uid}" in place.name]
    for place in found:
        while "kubepods" in str(place):
            assert mode(place) == "0o755", place
            place = place.parent
    assert found
    (logs,) = (node.agent.home.log_dir / "pods").glob(f"*_modes-*_{uid}")
    assert {mode(path) for path in (logs, *(each for each in logs.iterdir() if each.is_dir()))} == {"0o755"}
    directory = next(node.agent.home.path.glob(f"*/pods/{uid}"))
    assert [mode(directory), mode(directory / "volumes")] == ["0o750", "0o750"]
    assert mode(directory / "volumes/kubernetes.io~empty-dir/scratch") == "0o777"
