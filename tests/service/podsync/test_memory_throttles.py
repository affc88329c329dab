"""podsync takes back memory.high of an earlier configuration or of earlier resources, in a tree of plain files."""

from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.calls import resizing
from services.podsync.controllers import memory_throttles
from services.podsync.controllers.followers import Followers
from shared.host import cgroup_layout
from shared.model.frozen_copy import replace
from shared.podspec.defaults import apply_defaults
from tests.service.podsync.crashes import ending_at
from tests.service.podsync.stage import Stage, on_stage
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.podsync.cgroups.test_v2_tree import tree

THROTTLED: dict[str, Any] = {"cgroups_per_qos": True, "memory_throttling_factor": 0.9}
NEW = {"memory.max": "max", "memory.min": "0", "memory.low": "0", "cpu.max": "max 100000", "memory.current": "1000"}


@pytest.fixture(autouse=True)
def pod_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cgroup that podsync makes for the pod, in the tree that it finds."""
    root = tmp_path / "cgroup"
    root.mkdir()
    found = tree(root)
    monkeypatch.setattr(cgroup_layout, "find_hierarchies", lambda: found)
    return root / "kubepods/burstable/podu1"


def a_pod(request: int, limit: int, generation: int = 1) -> dict[str, Any]:
    """Return a Burstable pod with this request and limit of memory in MiB."""
    resources = {"requests": {"cpu": "100m", "memory": f"{request}Mi"}, "limits": {"memory": f"{limit}Mi"}}
    metadata = {"name": "web", "namespace": "default", "uid": "u1", "generation": generation}
    containers = [{"name": "a", "image": "busybox:1", "resources": resources}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    apply_defaults(pod)
    return pod


async def started(stage: Stage, directory: Path) -> Path:
    """Run the pod. Return the file memory.high of its container, which has what the runtime was given."""
    stage.want(a_pod(64, 256))
    await stage.until(lambda: stage.status("u1").get("phase") == "Running")
    (container,) = stage.runtime.pods()["u1"].containers
    for file, value in NEW.items():
        if not (directory / file).exists():
            (directory / file).write_text(value)
    own = directory / container.id
    own.mkdir()
    (own / "memory.current").write_text("1000")
    (own / "memory.high").write_text(stage.runtime.resources_of(container.id)["unified"]["memory.high"])
    return own / "memory.high"


def asked_for(stage: Stage) -> list[str]:
    """Return the values of memory.high that the runtime was asked for."""
    updates = [call.request["linux"] for call in stage.runtime.calls if call.method == "UpdateContainerResources"]
    return [update["unified"]["memory.high"] for update in updates if "memory.high" in update.get("unified", {})]


async def started_with(stage: Stage, **config: Any) -> None:
    """Kill podsync and start it with this configuration."""
    await stage.kill()
    stage.seen.put("u1", stage.runtime.pods()["u1"])  # which is older than the new process, so it looks itself
    stage.config = replace(stage.config, **config)
    await stage.start()


def throttled_at(request: int, limit: int) -> str:
    """Return what a factor of 0.9 writes for this request and limit in MiB."""
    return str(int((request << 20) + 0.9 * ((limit - request) << 20)) // 4096 * 4096)


async def test_a_container_is_looked_at_once_all_pods_are_observed_also_while_its_resize_waits(
    tmp_path: Path, pod_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_throttles, "LOOP_SECONDS", 10 * WAIT_SECONDS)
    async with on_stage(tmp_path, **THROTTLED) as stage:
        high = await started(stage, pod_directory)
        (high.parent / "memory.current").write_text(str(200 << 20))
        stage.want(a_pod(64, 128, generation=2))
        await stage.until(lambda: "below current usage" in str(stage.status("u1").get("conditions")))
        await started_with(stage, memory_throttling_factor=0.0)
        await stage.until(lambda: asked_for(stage) == ["max"])
        assert "below current usage" in str(stage.status("u1").get("conditions"))


@pytest.mark.parametrize(
    ("config", "after", "written"),
    [
        ({"memory_throttling_factor": 0.0}, (128, 512), ["max"]),
        ({"feature_gates": {"MemoryQoS": False}}, (128, 512), ["max"]),
        ({"feature_gates": {"MemoryQoS": False}, "emulated_version": "1.36"}, (128, 512), []),
        ({}, (256, 256), ["max"]),
        ({}, (128, 256), [throttled_at(128, 256)]),
    ],
    ids=["no factor", "gate off", "gate off in 1.36", "request is limit", "throttled"],
)
async def test_a_resize_takes_a_throttle_that_the_new_resources_do_not_have(
    config: dict[str, Any],
    after: tuple[int, int],
    written: list[str],
    tmp_path: Path,
    pod_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def looks_later(*_: object) -> None: ...

    monkeypatch.setattr(memory_throttles.MemoryThrottles, "run", looks_later)
    async with on_stage(tmp_path, **THROTTLED) as stage:
        high = await started(stage, pod_directory)
        assert high.read_text() == throttled_at(64, 256)
        await started_with(stage, **config)
        stage.want(a_pod(*after, generation=2))
        await stage.until(lambda: any("Pod resize completed" in each.message for each in stage.events.state.values()))
        assert asked_for(stage) == written


async def test_a_resize_that_is_killed_after_it_took_a_throttle_is_completed(
    tmp_path: Path, pod_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def looks_later(*_: object) -> None: ...

    monkeypatch.setattr(memory_throttles.MemoryThrottles, "run", looks_later)
    async with on_stage(tmp_path, **THROTTLED) as stage:
        high = await started(stage, pod_directory)
        with ending_at("podsync.resize.unthrottled", resizing) as met:
            stage.want(a_pod(256, 256, generation=2))
            await stage.until(lambda: met)
            assert asked_for(stage) == ["max"]
            high.write_text("max")
            await started_with(stage)
        await stage.until(lambda: any("Pod resize completed" in each.message for each in stage.events.state.values()))
        assert asked_for(stage) == ["max"]


async def test_the_list_of_the_sources_may_be_complete_after_all_pods_were_observed(
    tmp_path: Path, pod_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_throttles, "LOOP_SECONDS", 10 * WAIT_SECONDS)
    async with on_stage(tmp_path, **THROTTLED) as stage:
        await started(stage, pod_directory)
        held: list[Followers] = []
        complete = Followers._mark_complete

        def hold(followers: Followers) -> None:
            held.append(followers)

        monkeypatch.setattr(Followers, "_mark_complete", hold)
        await started_with(stage, memory_throttling_factor=0.0)
        await stage.until(lambda: bool(held) and stage.podsync.core.tracked["u1"].observed.since_start)
        complete(held[-1])
        await stage.until(lambda: asked_for(stage) == ["max"])
