"""The programs that the tests of this run use: the newest containerd, and runc or crun for the containers."""

from pathlib import Path

import pytest

from shared.config.effective import HANDLERS
from shared.kube import paths
from tests.support.agents.world import World, busybox_pod
from tests.support.clusters.cluster import Cluster
from tests.support.installed import ran_versions
from tests.support.installed.chosen_programs import KEPT_BY, chosen_handler, chosen_suite
from tests.support.installed.debian_containerd import NEWEST, find_programs
from tests.support.installed.lacking import lack

pytestmark = pytest.mark.root

_CONTAINERD = {"bookworm": "1.6.", "trixie": "1.7.", "sid": "2."}  # sid moves on


def test_the_newest_containerd_is_there() -> None:
    if find_programs(NEWEST) is None:
        lack(f"no containerd of Debian {NEWEST} in the cache, on which the tests run: make test-deps")


@pytest.mark.versions
async def test_an_agent_runs_its_pods_by_the_chosen_programs() -> None:
    async with World() as world:
        ran = dict(ran_versions.ask_containerd(world.containerd_socket))
        suite = chosen_suite()
        assert ran["containerd"].startswith(_CONTAINERD[suite]), f"containerd of {suite} is {ran['containerd']}"
        assert chosen_handler() in ran
        world.put_manifest("one", busybox_pod("one"))
        pod = await world.wait_running("one")
        kept = Path("/run/containerd/runc/k8s.io") / pod.containers[0].id
        assert (kept / KEPT_BY[chosen_handler()]).is_file()
        world.remove_manifest("one")
        await world.wait_gone("one")


@pytest.mark.versions
@pytest.mark.skipif(chosen_handler() == HANDLERS[0], reason="make night has crun beside runc")
async def test_a_pod_of_a_runtime_class_runs_by_the_other_program(tmp_path: Path) -> None:
    other = next(name for name in HANDLERS if name != chosen_handler())
    async with Cluster(tmp_path) as cluster:
        await cluster.plane.admin.create(paths.RUNTIME_CLASSES, {"metadata": {"name": other}, "handler": other})
        await cluster.create(cluster.pod("other", runtimeClassName=other))
        await cluster.wait_ready("other")
        [pod] = [pod for pod in (await cluster.agent.runtime.observe()).values() if pod.name == "other"]
        assert (Path("/run/containerd/runc/k8s.io") / pod.containers[0].id / KEPT_BY[other]).is_file()
