"""podsync keeps what an earlier kubelet wrote into the file of exclusive CPUs, and writes there for the next one. A pod
that gets some is counted once, with its verdict."""

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.podsync import service
from services.podsync.adapters.node_placer import read_node_placer
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.controllers import placement_checkpoints
from services.podsync.controllers.placement_checkpoints import PlacementCheckpoints
from services.podsync.core.checkpoints.cpu_state import CpuState, read_cpu_state, write_cpu_state
from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, cleared, on_stage
from tests.service.podsync.test_podsync_service import a_pod
from tests.support.machines.numa import NumaMachine
from tests.support.waits.deadline import WAIT_SECONDS

CPU_MANAGER, TOPOLOGY_MANAGER = "kubelet_cpu_manager_pinning", "kubelet_topology_manager_admission"
STATIC: dict[str, Any] = {"cpu_manager_policy": "static", "kube_reserved": {"cpu": "500m"}}
GIVEN = frozenset({3})
LEFT_BY_GO = CpuState(policy="static", shared_pool=frozenset({0, 1, 2}), containers={"u1": {"c": GIVEN}})


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let podsync read a machine of four CPUs, whatever this one has."""
    root = NumaMachine(threads=1).write(tmp_path / "machine")
    monkeypatch.setattr(service, "read_node_placer", partial(read_node_placer, root=root))
    yield


def guaranteed(uid: str, cpus: str = "1") -> dict[str, Any]:
    pod = a_pod(uid)
    pod["metadata"]["name"] = uid
    amounts = {"cpu": cpus, "memory": "32Mi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return pod


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "root/cpu_manager_state"


def written(tmp_path: Path) -> CpuState | None:
    return read_cpu_state(file_of(tmp_path).read_bytes()) if file_of(tmp_path).exists() else None


async def test_what_a_pod_is_given_is_in_the_file_until_it_has_ended(tmp_path: Path) -> None:
    empty = CpuState(policy="static", shared_pool=frozenset(range(4)))
    async with on_stage(tmp_path, **STATIC) as stage:
        await stage.until(lambda: written(tmp_path) == empty)
        uid = stage.want(guaranteed("u1"))
        held = CpuState(policy="static", shared_pool=frozenset({0, 2, 3}), containers={uid: {"c": frozenset({1})}})
        await stage.until(lambda: written(tmp_path) == held)
        await stage.until(lambda: stage.running(uid))
        await stage.kill()
        file_of(tmp_path).unlink()
        await stage.start()
        await stage.until(lambda: written(tmp_path) == held)
        stage.desired.delete(uid)
        await stage.until(lambda: written(tmp_path) == empty)


@pytest.mark.long
async def test_a_pod_of_the_go_kubelet_keeps_its_cpus_and_another_one_leaves_them(tmp_path: Path) -> None:
    file_of(tmp_path).parent.mkdir()
    file_of(tmp_path).write_bytes(write_cpu_state(LEFT_BY_GO))
    stage = Stage(tmp_path, FakeRuntime(images=["busybox:1"]), **STATIC)
    stage.want(a_pod("u2"))
    stage.want(guaranteed("u1"))
    async with cleared(stage):
        await stage.until(lambda: stage.running("u1") and stage.running("u2"))
        requests = stage.runtime.requests("CreateContainer")
        created = {str(one["config"]["linux"]["resources"]["cpuset_cpus"]) for one in requests}
        assert created == {"0-2", "3"}
        assert written(tmp_path) == LEFT_BY_GO


async def test_podsync_does_not_start_with_a_file_of_another_policy(tmp_path: Path) -> None:
    file_of(tmp_path).parent.mkdir()
    file_of(tmp_path).write_bytes(write_cpu_state(LEFT_BY_GO))
    stage = Stage(tmp_path, FakeRuntime(images=["busybox:1"]))
    with pytest.raises(OperatorError, match='configured policy "none" differs from state checkpoint policy "static"'):
        await stage.start()


async def test_a_machine_that_changes_while_the_agent_runs_keeps_podsync_from_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "supervisor_generation", lambda: "boot/100/7")
    async with on_stage(tmp_path, **STATIC) as stage:
        uid = await stage.run_pod(guaranteed("u1"))
        await stage.kill()
        shutil.rmtree(tmp_path / "machine")
        NumaMachine(threads=1, offline=frozenset({1})).write(tmp_path / "machine")
        await stage.start()
        await stage.run_pod(a_pod("u2"))
        left = CpuState(policy="static", shared_pool=frozenset({0, 2, 3}), containers={uid: {"c": frozenset({1})}})
        await stage.until(lambda: written(tmp_path) == left)
        assert stage.running(uid)
        trouble = stage.podsync.bus._beat_content._troubles["changed machine"]  # type: ignore[attr-defined]
        assert "the machine has changed since the agent started" in trouble and 'bring the CPUs "1" online' in trouble
        await stage.kill()
        monkeypatch.setattr(service, "supervisor_generation", lambda: "boot/100/7/2")
        with pytest.raises(OperatorError, match="doesn't match with CPUs in state"):
            await stage.start()


async def test_a_write_that_fails_is_a_trouble_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_checkpoints, "RETRY_SECONDS", 0.0)
    config = EffectiveConfig(node_name="n1", root_dir="/r", run_dir="/u", log_dir="/l", cert_dir="/c", **STATIC)
    placer = read_node_placer(config, tmp_path / "machine")
    root = tmp_path / "root"
    placements = {"u1": PodPlacement(containers={"c": ContainerPlacement(cpus=GIVEN)})}
    troubles: asyncio.Queue[str | None] = asyncio.Queue()
    writing = PlacementCheckpoints(
        placer, PlacementFiles(root), lambda: placements, dict, lambda name, line: troubles.put_nowait(line)
    )
    writing.pods_changed()
    task = asyncio.create_task(writing.run())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            line = await troubles.get()
            assert line is not None and str(root) in line
            root.mkdir()
            while await troubles.get() is not None:
                pass
        assert written(tmp_path) == LEFT_BY_GO
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def counted(stage: Stage) -> list[float]:
    """Return the counts of pods, of containers that requested CPUs, and of those that could not get them."""
    names = (f"{TOPOLOGY_MANAGER}_requests_total", f"{CPU_MANAGER}_requests_total", f"{CPU_MANAGER}_errors_total")
    return [stage.counted(name)[()][0] for name in names]


@pytest.mark.long
async def test_a_pod_is_counted_with_its_verdict_and_not_again_after_a_restart(tmp_path: Path) -> None:
    async with on_stage(tmp_path, **STATIC) as stage:
        assert counted(stage) == [0, 0, 0]
        await stage.run_pod(guaranteed("u1"))
        assert counted(stage) == [1, 1, 0]
        stage.want(guaranteed("u2", "3"))  # two CPUs are left
        await stage.until(lambda: counted(stage) == [2, 2, 1])
        await stage.restart()
        stage.want(guaranteed("u3"))
        await stage.until(lambda: counted(stage) == [1, 1, 0])
