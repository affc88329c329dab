"""podsync counts a pod that gets CPUs alone once, with its verdict."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.podsync import service
from services.podsync.adapters.node_placer import read_node_placer
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_podsync_service import a_pod
from tests.support.machines.numa import NumaMachine

CPU_MANAGER, TOPOLOGY_MANAGER = "kubelet_cpu_manager_pinning", "kubelet_topology_manager_admission"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let podsync read a machine of four CPUs, whatever this one has."""
    root = NumaMachine(threads=1).write(tmp_path / "machine")
    monkeypatch.setattr(service, "read_node_placer", partial(read_node_placer, root=root))
    yield


def guaranteed(uid: str, cpus: str) -> dict[str, Any]:
    pod = a_pod(uid)
    pod["metadata"]["name"] = uid
    amounts = {"cpu": cpus, "memory": "32Mi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return pod


def counted(stage: Stage) -> list[float]:
    """Return the counts of pods, of containers that requested CPUs, and of those that could not get them."""
    names = (f"{TOPOLOGY_MANAGER}_requests_total", f"{CPU_MANAGER}_requests_total", f"{CPU_MANAGER}_errors_total")
    return [stage.counted(name)[()][0] for name in names]


@pytest.mark.long
async def test_a_pod_is_counted_with_its_verdict_and_not_again_after_a_restart(tmp_path: Path) -> None:
    async with on_stage(tmp_path, cpu_manager_policy="static", kube_reserved={"cpu": "500m"}) as stage:
        assert counted(stage) == [0, 0, 0]
        await stage.run_pod(guaranteed("u1", "1"))
        assert counted(stage) == [1, 1, 0]
        stage.want(guaranteed("u2", "3"))  # two CPUs are left
        await stage.until(lambda: counted(stage) == [2, 2, 1])
        await stage.restart()
        stage.want(guaranteed("u3", "1"))
        await stage.until(lambda: counted(stage) == [1, 1, 0])
