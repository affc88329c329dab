"""Dead containers: what a full disk, an eviction and the limits of the node remove, and in which order."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from shared.cri.interface import ImageStatus
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.test_eviction import HARD, MIB, PressedStage, pressed_stage
from tests.service.podsync.test_podsync_service import the_container

FREE: dict[str, Any] = {**HARD, "image_minimum_gc_age": 0.0}
REMOVALS = ("RemoveContainer", "RemovePodSandbox", "RemoveImage", "StopPodSandbox")


def in_runtime(stage: PressedStage, uid: str) -> int:
    """How many containers the runtime has of the pod."""
    pod = stage.runtime.pods().get(uid)
    return len(pod.containers) if pod is not None else 0


async def pod_that_ended(stage: PressedStage, uid: str) -> None:
    await stage.pods_that_run(uid, restartPolicy="Never")
    stage.network.clock.advance(1.0)
    stage.runtime.exit_container(await the_container(stage, uid), 0)
    stage.seen.put(uid, (await stage.runtime.observe(uid))[uid])
    await stage.until(lambda: stage.podsync.core.tracked[uid].saved.state is PodState.FINISHED)
    assert stage.status(uid)["phase"] == "Succeeded"


async def test_a_full_disk_costs_dead_containers_then_images_then_pods(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    async with pressed_stage(tmp_path, runtime, **FREE) as stage:
        await pod_that_ended(stage, "done")
        await stage.pods_that_run("runs")
        runtime.images["old:1"] = ImageStatus(id="id-old", size=500 * MIB, repo_tags=("old:1",), pinned=False)
        before = stage.status("done")
        assert in_runtime(stage, "done") == 1
        stage.disk = 50 * MIB
        begin = len(runtime.calls)
        await stage.read()
        await stage.until(lambda: stage.evicted() == ["runs"])
        await stage.until(lambda: stage.status("runs").get("phase") == "Failed")
        made = [call.method for call in runtime.calls[begin:] if call.method in REMOVALS]
        assert made.index("RemoveContainer") < made.index("RemoveImage") < made.index("StopPodSandbox")
        assert "done" not in runtime.pods()
        assert stage.status("done") == before


@pytest.mark.long
async def test_memory_pressure_leaves_dead_containers_alone(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **FREE) as stage:
        await pod_that_ended(stage, "done")
        await stage.pods_that_run("runs")
        stage.memory = 50 * MIB
        await stage.read()
        await stage.until(lambda: stage.evicted() == ["runs"])
        assert in_runtime(stage, "done") == 1


async def test_an_evicted_pod_leaves_nothing_in_the_runtime_also_across_a_restart(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("one")
        stage.memory = 50 * MIB
        hang = stage.runtime.hang("RemoveContainer", times=1)
        await stage.read()
        await stage.until(hang.reached.is_set)
        await stage.kill()
        stage.memory = 900 * MIB
        stage.runtime.clear_faults()
        await stage.start()
        await stage.until(lambda: "one" not in stage.runtime.pods())
        status = stage.status("one")
        assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
        assert status["containerStatuses"][0]["state"]["terminated"]


async def test_a_container_that_cannot_be_removed_is_an_event_of_the_node(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **FREE) as stage:
        await pod_that_ended(stage, "done")
        stage.runtime.fail("RemoveContainer", "Unknown", "device or resource busy", times=100)
        stage.disk = 50 * MIB
        await stage.read()
        await stage.until(lambda: stage.runtime.requests("RemoveContainer"))
        await stage.until(lambda: stage.podsync.core.tracked["done"].retry.removal_error)
        stage.podsync.eviction.dead_containers.collect()

        def reported() -> list[str]:
            return [event.message for event in stage.events.state.values() if event.reason == "ContainerGCFailed"]

        await stage.until(reported)
        assert "device or resource busy" in reported()[0]
        assert stage.status("done")["phase"] == "Succeeded"


@pytest.mark.long
async def test_the_limit_of_dead_containers_takes_the_oldest_of_finished_pods(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, maximum_dead_containers=1, **HARD) as stage:
        await pod_that_ended(stage, "first")
        stage.network.clock.advance(5.0)
        await pod_that_ended(stage, "second")
        assert (in_runtime(stage, "first"), in_runtime(stage, "second")) == (1, 1)
        stage.podsync.eviction.dead_containers.collect()
        await stage.until(lambda: in_runtime(stage, "first") == 0)
        assert in_runtime(stage, "second") == 1
        assert stage.status("first")["phase"] == "Succeeded"


async def test_the_next_pod_is_evicted_only_after_the_volumes_of_the_first_are_gone(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("one", "two")
        stage.pods["one"] = 300 * MIB
        scratch = MountedVolume(state=VolumeState.MOUNTED, host_path="/scratch")
        stage.mounted.put("one", MountedVolumes(uid="one", volumes={"scratch": scratch}))
        await stage.network.settle()
        stage.disk = 50 * MIB
        await stage.read()
        await stage.until(lambda: stage.podsync.core.tracked["one"].saved.state is PodState.TERMINATED)
        await stage.read()
        assert stage.evicted() == ["one"]
        stage.mounted.delete("one")
        await stage.until(lambda: stage.evicted() == ["one", "two"])
