"""Whatever is lost, late, repeated, hanging or killed: in the end the stream has what the runtime has."""

import random

import pytest

from shared.cri.interface import RuntimeEvent
from shared.model.runtime import ContainerState, SandboxState
from tests.service.pleg.world import PlegWorld

pytestmark = pytest.mark.virtual_time

STEPS = 150


async def disturb(world: PlegWorld, rng: random.Random, step: int) -> None:
    """One thing that happens: to the world, to the runtime or to pleg."""
    pods = world.runtime.pods()
    running = [c for pod in pods.values() for c in pod.containers if c.state is ContainerState.RUNNING]
    sandboxes = [s for pod in pods.values() for s in pod.sandboxes]
    match rng.randrange(12):
        case 0 | 1 | 2 if world.runtime.reachable and len(pods) < 15:
            _, container = await world.run_pod(f"pod{step}")
            if rng.random() < 0.7:
                world.publish_status(f"pod{step}", container)
        case 3 | 4 if running:
            settled = rng.random() < 0.5
            world.runtime.exit_container(rng.choice(running).id, rng.randrange(256), settled=settled)
        case 5 if sandboxes and world.runtime.reachable:
            chosen = rng.choice(sandboxes)
            if chosen.state is SandboxState.READY:
                await world.runtime.stop_pod_sandbox(chosen.id)
            else:
                await world.runtime.remove_pod_sandbox(chosen.id)
        case 6:
            world.runtime.settle_exits()
        case 7:
            world.runtime.delay("Observe", rng.random(), after=rng.random() < 0.5)
        case 8:
            world.runtime.fail("Observe", rng.choice(["Unavailable", "Internal", "DeadlineExceeded"]))
        case 9:
            for _ in range(rng.randrange(4)):
                uid = rng.choice([*pods, "unknown", ""])
                world.runtime.emit(RuntimeEvent(pod_uid=uid, container_id="x", type="STOPPED"))
        case 10 if rng.random() < 0.3:
            world.runtime.reachable = not world.runtime.reachable
        case 11 if rng.random() < 0.3:
            await world.kill_pleg()
            world.runtime.break_events()
            await world.start_pleg()
        case _:
            world.runtime.break_events()


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(10))
async def test_after_any_disturbance_the_stream_has_what_the_runtime_has(seed: int) -> None:
    rng = random.Random(seed)
    world = PlegWorld(events=seed % 2 == 1)
    async with world:
        for step in range(STEPS):
            await disturb(world, rng, step)
            await world.pass_time(rng.choice([0.0, 0.001, 0.02, 0.3, 1.0]))
            world.pleg.observer.observation.validate()
        world.runtime.reachable = True
        world.runtime.clear_faults()
        world.runtime.settle_exits()
        await world.pass_time(30)
        truth = world.runtime.pods()
        # One that was lost before a look is shown without containers while its status names some.
        shown = {uid for uid, pod in world.pods.state.items() if pod.sandboxes or pod.containers}
        assert world.pods.complete and shown == set(truth)
        for uid, pod in truth.items():
            assert world.pods.state[uid].containers == pod.containers
            assert [s.state for s in world.pods.state[uid].sandboxes] == [s.state for s in pod.sandboxes]
        assert set(world.pidfds.watched.values()) == world.runtime.running_pids()
