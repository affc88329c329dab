"""Node pressure as podsync acts on it: readings of pleg in; conditions, events, evictions out."""

import itertools
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.streams import NODE_PRESSURE, NODE_USAGE
from bus.messages.usage import (
    CgroupUsage,
    ContainerUsage,
    FilesystemUsage,
    FoundUsage,
    GetUsage,
    NodeUsage,
    PodUsage,
    VolumeUsage,
)
from services.podsync.core.eviction import cycle
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, cleared
from tests.service.podsync.test_podsync_service import a_pod

MIB = 1 << 20


class PressedStage(Stage):
    """A stage whose pleg reads what the test sets: memory and disk that are available, and the memory of each pod."""

    def __init__(self, directory: Path, runtime: FakeRuntime | None = None, **config: Any) -> None:
        super().__init__(directory, runtime or FakeRuntime(images=["busybox:1"]), **config)
        self.memory, self.disk, self.answers = 900 * MIB, 900 * MIB, True
        self.images_apart = False  # the disk is split
        self.pods: dict[str, int] = {}
        self.readings = itertools.count()
        self.enough = 99  # evicted pods after which memory and disk are available again
        self.scratch = 0  # bytes in the emptyDir of each pod
        self.usage = self.buses["pleg"].own(NODE_USAGE)
        self.pressure = self.buses["server"].follow(NODE_PRESSURE)
        self.buses["pleg"].answer(GetUsage, self.answer)

    def node_usage(self) -> NodeUsage:
        free = len(self.evicted()) >= self.enough
        memory, disk = (900 * MIB, 900 * MIB) if free else (self.memory, self.disk)
        files = FilesystemUsage(time=0.0, capacity=1000 * MIB, available=disk, inodes=1000, inodes_free=900)
        return NodeUsage(
            read_at=self.network.clock.monotonic() + next(self.readings) / 1e6,
            started_at=0.0,
            cgroup=CgroupUsage(time=0.0, memory_available=memory),
            memory_capacity=1000 * MIB,
            nodefs=files,
            imagefs=files,
            containerfs=files,
            nodefs_device="8:1",
            imagefs_device="8:2" if self.images_apart else "8:1",
            containerfs_device="8:1",
        )

    async def answer(self, request: GetUsage) -> FoundUsage:
        pods = tuple(self.pod_usage(uid, memory) for uid, memory in self.pods.items())
        return FoundUsage(node=self.node_usage(), pods=pods, complete=self.answers)

    def pod_usage(self, uid: str, memory: int) -> PodUsage:
        cgroup = CgroupUsage(time=0.0, memory_working_set=memory)
        container = ContainerUsage(
            id="c", name="c", created_at=0, cgroup=cgroup, rootfs=FilesystemUsage(time=0.0, used=memory)
        )
        scratch = VolumeUsage(name="scratch", filesystem=FilesystemUsage(time=0.0, used=self.scratch), ephemeral=True)
        return PodUsage(
            uid=uid,
            name="",
            namespace="",
            created_at=0,
            read_at=0.0,
            cgroup=cgroup,
            containers=(container,),
            volumes=(scratch,),
        )

    async def read(self) -> None:
        """pleg reads the node."""
        self.network.clock.advance(10.0)
        self.usage.put("node", self.node_usage())
        await self.network.settle()

    async def pods_that_run(self, *uids: str, **spec: Any) -> None:
        for uid in uids:
            pod = a_pod(uid, **spec)
            pod["metadata"]["name"] = uid
            self.want(pod, "api")
            self.pods[uid] = 10 * MIB
        await self.until(lambda: all(self.running(uid) for uid in uids))

    def pressed(self) -> list[str]:
        value = self.pressure.state.get("node")
        return [c["type"] for c in value.conditions if c["status"] == "True"] if value else []

    def thresholds_met(self) -> list[str]:
        return [event.message for event in self.events.state.values() if event.reason == "EvictionThresholdMet"]

    def evicted(self) -> list[str]:
        return [event.name for event in self.events.state.values() if event.reason == "Evicted"]


def pressed_stage(
    directory: Path, runtime: FakeRuntime | None = None, **config: Any
) -> AbstractAsyncContextManager[PressedStage]:
    return cleared(PressedStage(directory, runtime, **config))


HARD: dict[str, Any] = {"eviction_hard": {"memory.available": "100Mi", "nodefs.available": "10%"}}


@pytest.mark.long
async def test_the_pod_with_the_largest_excess_is_evicted_and_ends_as_the_kubelet_shows_it(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("small", "large")
        stage.enough = 1
        stage.pods["large"] = 300 * MIB
        await stage.read()
        assert stage.pressed() == []
        stage.memory = 50 * MIB
        await stage.read()
        assert stage.pressed() == ["MemoryPressure"]
        await stage.until(lambda: stage.status("large").get("phase") == "Failed")
        status = stage.status("large")
        message = (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
            "Container c was using 300Mi, request is 0, has larger consumption of memory. "
        )
        assert (status["reason"], status["message"]) == ("Evicted", message)
        await stage.until(lambda: any(c["type"] == "DisruptionTarget" for c in stage.status("large")["conditions"]))
        (event,) = [event for event in stage.events.state.values() if event.reason == "Evicted"]
        assert (event.name, event.message, event.type) == ("large", message, "Warning")
        assert dict(event.annotations) == {
            "offending_containers": "c",
            "offending_containers_usage": "300Mi",
            "starved_resource": "memory",
        }
        thresholds = [event for event in stage.events.state.values() if event.reason == "EvictionThresholdMet"]
        assert [(event.kind, event.message) for event in thresholds] == [("Node", "Attempting to reclaim memory")]
        assert stage.counted("kubelet_evictions") == {("memory.available",): [1.0]}
        assert stage.running("small")


@pytest.mark.long
async def test_the_next_pod_is_evicted_when_the_first_has_ended_and_the_node_is_still_short(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("one", "two", "three")
        stage.pods |= {"one": 300 * MIB, "two": 200 * MIB}
        stage.memory = 50 * MIB
        stage.enough = 2
        hang = stage.runtime.hang("StopContainer")
        await stage.read()
        await stage.until(hang.reached.is_set)
        await stage.read()
        assert stage.evicted() == ["one"]
        hang.release.set()
        await stage.until(lambda: stage.evicted() == ["one", "two"])
        await stage.until(lambda: stage.admitted.state["two"].state is not PodState.TERMINATING)
        await stage.read()
        assert stage.evicted() == ["one", "two"] and stage.running("three")


@pytest.mark.long
async def test_a_killed_podsync_goes_on_with_the_eviction_and_evicts_no_second_pod_meanwhile(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("one", "two")
        stage.pods["one"] = 300 * MIB
        stage.memory = 50 * MIB
        hang = stage.runtime.hang("StopContainer")
        await stage.read()
        await stage.until(hang.reached.is_set)
        await stage.kill()  # which closes the runtime's client and with it forgets the fault
        hang = stage.runtime.hang("StopContainer")
        await stage.start()
        await stage.until(hang.reached.is_set)
        await stage.read()
        assert stage.admitted.state["one"].state is PodState.TERMINATING
        assert stage.admitted.state["two"].state is PodState.SYNC
        stage.memory = 900 * MIB
        hang.release.set()
        stage.runtime.clear_faults()
        await stage.until(lambda: stage.status("one").get("reason") == "Evicted")
        assert stage.running("two")


async def test_no_pod_is_evicted_while_what_pods_use_is_not_known(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("one")
        stage.memory, stage.answers = 50 * MIB, False
        await stage.read()
        assert stage.pressed() == ["MemoryPressure"] and stage.evicted() == []
        stage.answers = True
        await stage.read()
        await stage.until(lambda: stage.evicted() == ["one"])


@pytest.mark.long
async def test_critical_pods_are_spared(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("system", priority=2_000_000_000)
        await stage.pods_that_run("user", priority=5)
        stage.pods |= {"system": 300 * MIB, "user": 20 * MIB}
        stage.memory = 50 * MIB
        await stage.read()
        await stage.until(lambda: stage.evicted() == ["user"])
        assert stage.running("system")


@pytest.mark.long
@pytest.mark.parametrize("enough", [True, False])
async def test_a_full_disk_costs_unused_images_before_it_costs_a_pod(tmp_path: Path, enough: bool) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    async with pressed_stage(tmp_path, runtime, image_minimum_gc_age=0.0, **HARD) as stage:
        await stage.pods_that_run("one")
        for name, pinned in (("old:1", False), ("pause:1", True)):
            runtime.images[name] = ImageStatus(id=f"id-{name}", size=500 * MIB, repo_tags=(name,), pinned=pinned)
        stage.disk = 50 * MIB
        remove, evicted_before = runtime.remove_image, {}

        async def remove_image(image_id: str) -> None:
            evicted_before[image_id] = stage.evicted()
            await remove(image_id)
            stage.disk += 500 * MIB if enough else 0

        runtime.remove_image = remove_image  # type: ignore[method-assign]
        await stage.read()
        await stage.until(lambda: "old:1" not in runtime.images)
        assert evicted_before["id-old:1"] == [] and "pause:1" in runtime.images
        if enough:
            assert "busybox:1" in runtime.images
            await stage.read()
            assert stage.evicted() == [] and stage.pressed() == ["DiskPressure"]
        else:
            await stage.until(lambda: stage.evicted() == ["one"])


@pytest.mark.parametrize("largest", ["a", "b"])
async def test_on_a_split_disk_the_pod_with_the_largest_writable_layer_frees_the_root_directorys_disk(
    tmp_path: Path, largest: str
) -> None:
    runtime = FakeRuntime(images=["busybox:1", "old:1"])
    hard = {"nodefs.available": "10%"}
    async with pressed_stage(tmp_path, runtime, image_minimum_gc_age=0.0, eviction_hard=hard) as stage:
        stage.images_apart, stage.enough = True, 1
        await stage.pods_that_run("a", "b")
        stage.pods[largest] = 500 * MIB
        stage.disk = 50 * MIB
        await stage.read()
        await stage.until(stage.evicted)
        assert stage.evicted() == [largest]
        assert "old:1" in runtime.images  # images are on another disk: removing them frees nothing


@pytest.mark.long
async def test_a_pod_that_fills_its_empty_dir_beyond_the_limit_is_evicted_at_once(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        limited = {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]}
        await stage.pods_that_run("free")
        await stage.pods_that_run("limited", **limited)
        stage.scratch = 2 * MIB
        await stage.read()
        await stage.until(lambda: stage.evicted() == ["limited"])
        await stage.until(lambda: stage.status("limited").get("phase") == "Failed")
        assert stage.status("limited")["message"] == 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '
        assert not [c for c in stage.status("limited")["conditions"] if c["type"] == "DisruptionTarget"]
        assert stage.counted("kubelet_evictions") == {("emptydirfs.limit",): [1.0]}


async def test_a_soft_threshold_leaves_the_pod_its_grace_period_up_to_the_longest(tmp_path: Path) -> None:
    soft: dict[str, Any] = {
        "eviction_hard": {},
        "eviction_soft": {"memory.available": "100Mi"},
        "eviction_soft_grace_period": {"memory.available": 15.0},
        "eviction_max_pod_grace_period": 60,
    }
    async with pressed_stage(tmp_path, **soft) as stage:
        await stage.pods_that_run("one", terminationGracePeriodSeconds=40)
        stage.memory = 50 * MIB
        await stage.read()
        await stage.read()
        assert stage.evicted() == [] and stage.pressed() == ["MemoryPressure"]
        await stage.read()
        await stage.until(lambda: stage.evicted() == ["one"])
        await stage.until(lambda: stage.admitted.state["one"].grace_seconds == 40)


@pytest.mark.long
@pytest.mark.parametrize("hours", [-2, 2])
async def test_setting_the_clock_neither_shortens_nor_lengthens_the_grace_period_of_a_soft_threshold(
    tmp_path: Path, hours: int
) -> None:
    soft: dict[str, Any] = {
        "eviction_hard": {},
        "eviction_soft": {"memory.available": "100Mi"},
        "eviction_soft_grace_period": {"memory.available": 15.0},
    }
    async with pressed_stage(tmp_path, **soft) as stage:
        await stage.pods_that_run("one")
        stage.memory = 50 * MIB
        await stage.read()
        stage.network.clock._wall += hours * 3600
        await stage.read()
        assert stage.evicted() == [] and stage.running("one")
        await stage.read()
        await stage.until(lambda: stage.evicted() == ["one"])


async def test_a_best_effort_pod_is_refused_under_memory_pressure_also_right_after_a_restart(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        stage.memory = 50 * MIB
        await stage.read()
        await stage.until(lambda: stage.pressed() == ["MemoryPressure"])
        await stage.restart()
        stage.want(a_pod("late"), "api")
        await stage.until(lambda: stage.status("late").get("reason") == "Evicted")
        assert stage.status("late")["message"].endswith("The node had condition: [MemoryPressure]. ")


async def test_a_lost_reading_of_a_signal_costs_no_pod(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("one")
        usage = stage.node_usage()
        stage.usage.put("node", replace(usage, cgroup=CgroupUsage(time=0.0), nodefs=None, imagefs=None))
        await stage.network.settle()
        assert stage.pressed() == [] and stage.running("one")


async def test_a_disk_that_stays_full_without_a_pod_to_evict_is_acted_on_once_in_ten_seconds(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.until(lambda: stage.podsync.core.node_state.listed.runtime_listed)
        stage.disk = 50 * MIB
        for _ in range(3):
            stage.usage.put("node", stage.node_usage())  # as after a notification of the kernel
            await stage.network.settle()
        assert len(stage.thresholds_met()) == 1
        await stage.read()
        await stage.read()
        assert len(stage.thresholds_met()) == 3


async def test_a_pod_that_ended_for_its_limit_relieves_the_node_and_no_other_pod_is_evicted(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, **HARD) as stage:
        limited = {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]}
        await stage.pods_that_run("other")
        await stage.pods_that_run("limited", **limited)
        stage.scratch, stage.enough, stage.memory = 2 * MIB, 1, 50 * MIB
        await stage.read()
        await stage.until(lambda: stage.status("limited").get("reason") == "Evicted")
        await stage.read()
        assert stage.evicted() == ["limited"] and stage.running("other")


async def test_a_reading_that_comes_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes by the stream, and again as the answer to the question what the pods use."""
    counted: list[float] = []
    evaluate = cycle.evaluate

    def count(*arguments: Any) -> cycle.CycleResult:
        counted.append(arguments[3])
        return evaluate(*arguments)

    async with pressed_stage(tmp_path, **HARD) as stage:
        await stage.pods_that_run("one", priority=2_000_000_000)
        stage.memory = 50 * MIB
        reading = stage.node_usage()
        monkeypatch.setattr(stage, "node_usage", lambda: reading)
        monkeypatch.setattr(cycle, "evaluate", count)
        await stage.read()
        assert (stage.pressed(), len(counted)) == (["MemoryPressure"], 1)
