"""memory.high of an earlier configuration is taken from running containers where none is throttled any more."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.controllers import memory_throttles
from services.podsync.controllers.memory_throttles import MemoryThrottles, Running
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import Message, RuntimeCallError
from shared.metrics.registry import Registry
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.podsync.cgroups.test_node_cgroups import Clock
from tests.unit.podsync.cgroups.test_node_cgroups import Runtime as RuntimeOfDriver
from tests.unit.podsync.cgroups.test_v2_tree import PODS, tree
from tests.unit.podsync.status.status_shapes import instance

POD = PODS[1]  # burstable, of 2 to 3 Gi


def throttled_at(request: int, limit: int) -> str:
    """Return what a factor of 0.9 writes to memory.high for this request and limit in GiB."""
    return str(int((request << 30) + 0.9 * ((limit - request) << 30)) // 4096 * 4096)


HIGH = throttled_at(2, 3)
IDS = ("aa1", "bb2", "cc3")
UNTHROTTLED = {"unified": {"memory.high": "max"}}


class Runtime(RuntimeOfDriver):
    """Writes what it is asked to; refuses for the containers in `refuses`."""

    def __init__(self, pod: Path) -> None:
        super().__init__(driver="cgroupfs")
        self._pod = pod
        self.asked_for: list[str] = []
        self.refuses: set[str] = set()
        self.then: Callable[[], object] = lambda: None  # after each request

    async def update_container_resources(self, container_id: str, resources: Message) -> None:
        self.asked_for.append(container_id)
        refused = container_id in self.refuses
        self.then()
        if refused:
            raise RuntimeCallError("UpdateContainerResources", "Unavailable", "no socket")
        assert resources == UNTHROTTLED
        (self._pod / container_id / "memory.high").write_text("max\n")


class Stage:
    """A container in three instances, of which the first two are throttled; each has a conmon of CRI-O beside it."""

    def __init__(self, root: Path, **facts: Any) -> None:
        self.directory = root / "kubepods/burstable/podb-1"
        for container_id, high in zip(IDS, (HIGH, HIGH, "max"), strict=True):
            for name in (f"a-conmon-{container_id}", container_id, f"z-conmon-{container_id}"):
                (self.directory / name).mkdir(parents=True)
            (self.directory / container_id / "memory.high").write_text(f"{high}\n")
        self.runtime = Runtime(self.directory)
        self.running = [Running(POD, instance("c", id=container_id), None) for container_id in IDS]
        node = NodeFacts(node_name="n", **facts)
        cgroups = PodCgroups(node, tree(root), self.runtime, Clock(), Registry())  # type: ignore[arg-type]
        self.throttles = MemoryThrottles(cgroups, self.runtime, lambda: self.running)  # type: ignore[arg-type]

    async def run_until(self, high: list[str], all_observed: asyncio.Event) -> None:
        """Run until the containers have these values."""
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(WAIT_SECONDS):
            run = tasks.create_task(self.throttles.run(all_observed))
            while self.high() != high:
                await asyncio.sleep(0.01)
            run.cancel()

    def high(self) -> list[str]:
        return [(self.directory / container_id / "memory.high").read_text().strip() for container_id in IDS]


@pytest.mark.parametrize(
    "facts",
    [{"memory_qos": True, "memory_throttling_factor": 0.0}, {"resets_memory_qos": True}],
    ids=["no factor", "gate off"],
)
async def test_running_containers_are_throttled_no_more_and_looked_at_once(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    stage = Stage(tmp_path, **facts)
    stage.runtime.refuses = {"aa1"}
    await stage.throttles.take_back()
    assert stage.high() == [HIGH, "max", "max"]
    stage.runtime.refuses = set()
    await stage.throttles.take_back()
    assert stage.high() == ["max", "max", "max"]
    stage.runtime.asked_for = []
    (stage.directory / "bb2/memory.high").write_text(HIGH)  # an administrator's
    await stage.throttles.take_back()
    assert stage.runtime.asked_for == []


async def test_containers_that_are_observed_after_the_start_are_looked_at_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, memory_qos=True, memory_throttling_factor=0.0)
    all_observed = asyncio.Event()
    late = stage.running.pop(1)

    def become_observed() -> None:
        stage.running.append(late)
        all_observed.set()

    stage.runtime.then = become_observed  # in the first look
    await stage.run_until(["max", "max", "max"], all_observed)
    assert stage.runtime.asked_for == ["aa1", "bb2"]


async def test_containers_are_looked_at_again_also_while_not_all_are_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_throttles, "LOOP_SECONDS", 0.01)
    stage = Stage(tmp_path, memory_qos=True, memory_throttling_factor=0.0)
    stage.runtime.refuses = {"aa1"}

    def answer_once_more() -> None:
        if stage.runtime.asked_for[-1] == "aa1":
            stage.runtime.refuses.clear()

    stage.runtime.then = answer_once_more
    await stage.run_until(["max", "max", "max"], asyncio.Event())


async def test_a_container_that_is_gone_is_no_reason_to_ask_the_runtime(tmp_path: Path) -> None:
    stage = Stage(tmp_path, memory_qos=True, memory_throttling_factor=0.0)
    stage.running = [Running(POD, instance("c", id="dd4"), None), Running(PODS[2], instance("c", id="aa1"), None)]
    await stage.throttles.take_back()
    assert stage.runtime.asked_for == [] and stage.high()[0] == HIGH


async def test_a_container_whose_resize_is_under_way_is_throttled_no_more(tmp_path: Path) -> None:
    """The container's cgroup may have what the resources before the resize give, those after it, or a mixture."""
    stage = Stage(tmp_path, memory_qos=True, memory_throttling_factor=0.0)
    values = [throttled_at(*sizes) for sizes in ((1, 2), (2, 3), (2, 4))]
    for container_id, high in zip(IDS, values, strict=True):
        (stage.directory / container_id / "memory.high").write_text(high)
    given = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}, {"limits": {"memory": "4Gi"}}
    stage.running = [
        Running(POD, instance("c", id=container_id), resources)
        for container_id, resources in zip(IDS, (given[0], given[0], given[1]), strict=True)
    ]
    await stage.throttles.take_back()
    assert stage.high() == ["max", "max", "max"]


async def test_a_container_that_was_given_the_limit_of_its_pod_is_throttled_no_more(tmp_path: Path) -> None:
    """memory.high follows from the container's own limit, and without one from the memory that the node has for
    pods."""
    stage = Stage(tmp_path, memory_qos=True, memory_throttling_factor=0.0, enforced_memory=8 << 30)
    (stage.directory / "aa1/memory.high").write_text(throttled_at(1, 8))
    pod = {**POD, "spec": {**POD["spec"], "resources": {"limits": {"memory": "3Gi"}}}}
    given = {"requests": {"memory": "1Gi"}, "limits": {"memory": "3Gi"}}
    stage.running = [Running(pod, instance("c", id="aa1"), given)]
    await stage.throttles.take_back()
    assert stage.high()[0] == "max"


@pytest.mark.parametrize(("factor", "asked_for"), [(0.9, []), (0.5, ["aa1"])])
async def test_what_the_agent_has_not_set_stays_such_as_that_of_an_nri_plugin(
    tmp_path: Path, factor: float, asked_for: list[str]
) -> None:
    stage = Stage(tmp_path, resets_memory_qos=True, memory_throttling_factor=factor)
    (stage.directory / "aa1/memory.high").write_text(str((2 << 30) + (1 << 29)))
    stage.running = stage.running[:1]
    await stage.throttles.take_back()
    assert stage.runtime.asked_for == asked_for


@pytest.mark.parametrize("facts", [{"memory_qos": True, "memory_throttling_factor": 0.9}, {}], ids=["factor", "1.36"])
async def test_what_the_configuration_in_force_throttles_stays(tmp_path: Path, facts: dict[str, Any]) -> None:
    stage = Stage(tmp_path, **facts)
    await stage.throttles.run(asyncio.Event())  # ends: there is nothing to take back
    assert stage.high() == [HIGH, HIGH, "max"] and stage.runtime.asked_for == []
