"""The fake runtime keeps the contract, and does to its callers what a test asks for."""

import asyncio
from pathlib import Path

import pytest

from shared.cri.interface import RuntimeCallError, RuntimeEvent
from shared.model.runtime import Container, ContainerState, SandboxState
from tests.fakes.runtime import FakeRuntime
from tests.support.runtime.contract_world import World, look, started
from tests.unit.cri.left_tasks_contract import LeftTasksContract
from tests.unit.cri.runtime_contract import RuntimeContract

IMAGE = "localhost/busybox:1"


class FakeWorld(World):
    """A fake, and its exit control."""

    image = IMAGE

    def __init__(self, directory: Path) -> None:
        self.runtime: FakeRuntime = FakeRuntime(images=[IMAGE], events=True)
        self.runtime.stop_exit_code = 7
        self.directory = directory

    def leave_task(self, container_id: str) -> None:
        self.runtime.left_tasks.add(container_id)

    def kill(self, container: Container) -> None:
        self.runtime.exit_container(container.id, 137)


@pytest.fixture
def world(tmp_path: Path) -> FakeWorld:
    return FakeWorld(tmp_path)


class TestFakeRuntime(RuntimeContract, LeftTasksContract):
    """The contract, and the controls."""

    async def test_a_fault_before_leaves_nothing_and_a_fault_after_leaves_the_effect(self, world: FakeWorld) -> None:
        pod = world.new_pod()
        world.runtime.fail("RunPodSandbox", "Unavailable", "gone")
        with pytest.raises(RuntimeCallError, match="rpc error: code = Unavailable desc = gone"):
            await world.runtime.run_pod_sandbox(pod, "")
        assert await world.runtime.observe() == {}
        world.runtime.fail("RunPodSandbox", "DeadlineExceeded", after=True)
        with pytest.raises(RuntimeCallError):
            await world.runtime.run_pod_sandbox(pod, "")
        assert (await look(world, pod)).sandboxes[0].state is SandboxState.READY
        assert world.runtime.methods() == ["RunPodSandbox", "RunPodSandbox"]
        assert world.runtime.requests("RunPodSandbox") == [{"config": pod}, {"config": pod}]

    async def test_a_hung_call_goes_on_when_it_is_released(self, world: FakeWorld) -> None:
        pod = world.new_pod()
        fault = world.runtime.hang("RunPodSandbox")
        call = asyncio.create_task(world.runtime.run_pod_sandbox(pod, ""))
        await fault.reached.wait()
        assert await world.runtime.observe() == {}
        fault.release.set()
        sandbox_id = await call
        assert (await look(world, pod)).sandboxes[0].id == sandbox_id

    async def test_the_kernel_can_report_an_exit_before_the_runtime_does(self, world: FakeWorld) -> None:
        pod = world.new_pod()
        _, container = await started(world, pod)
        pid = (await look(world, pod)).containers[0].pid
        ended: list[int] = []
        world.runtime.on_exit.append(ended.append)
        world.runtime.exit_container(container, 3, settled=False)
        assert ended == [pid]
        assert (await look(world, pod)).containers[0].state is ContainerState.RUNNING
        world.runtime.settle_exits()
        assert (await look(world, pod)).containers[0].exit_code == 3

    async def test_events_report_what_happens_and_what_a_test_makes_up(self, world: FakeWorld) -> None:
        stream = world.runtime.events()
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        made_up = RuntimeEvent(pod_uid="x", container_id="y", type="STOPPED")
        world.runtime.emit(made_up)
        assert await first == made_up
        world.runtime.break_events()
        with pytest.raises(RuntimeCallError):
            await anext(stream)
        assert world.runtime.event_readers == 0

    async def test_an_unreachable_runtime_refuses_every_call(self, world: FakeWorld) -> None:
        world.runtime.reachable = False
        with pytest.raises(RuntimeCallError, match="connection refused"):
            await world.runtime.version()
        with pytest.raises(RuntimeCallError, match="connection refused"):
            await world.runtime.observe()
