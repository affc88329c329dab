"""What every `Runtime` must do with a task that CRI does not know of, the fake as well as a real container runtime."""

import pytest

from shared.cri.interface import RuntimeCallError
from shared.model.runtime import ContainerState
from tests.support.runtime.contract_world import World, look


class LeftTasksContract:
    """The test."""

    async def test_a_task_that_cri_does_not_know_of_keeps_its_container_until_it_is_ended(self, world: World) -> None:
        pod = world.new_pod()
        sandbox = await world.runtime.run_pod_sandbox(pod, "")
        container = await world.runtime.create_container(sandbox, world.container(pod), pod)
        await world.runtime.end_task(container)  # it has none: nothing is done
        world.leave_task(container)
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.start_container(container)
        assert refusal.value.code == "AlreadyExists" and "already exists" in refusal.value.description
        (seen,) = (await look(world, pod)).containers
        assert (seen.state, seen.started_at) == (ContainerState.EXITED, 0)
        await world.runtime.stop_container(container, 2)
        for _ in range(2):
            with pytest.raises(RuntimeCallError, match="cannot delete running task") as refusal:
                await world.runtime.remove_container(container)
            assert refusal.value.code == "FailedPrecondition"
            await world.runtime.stop_pod_sandbox(sandbox)
        await world.runtime.end_task(container)
        await world.runtime.remove_container(container)
        await world.runtime.end_task(container)
        assert (await look(world, pod)).containers == ()
