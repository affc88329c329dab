"""A mistake in what pleg makes of one pod costs that pod only."""

import pytest

from services.pleg.controllers.prober import Prober
from shared.model.runtime import RuntimePod
from tests.fakes.runtime import FakeRuntime
from tests.service.pleg.world import PlegWorld

pytestmark = pytest.mark.virtual_time


async def test_a_mistake_with_the_probes_of_one_pod_keeps_no_pod_from_being_seen() -> None:
    observed = Prober.observed

    def mistaken(prober: Prober, uid: str, pod: RuntimePod | None) -> None:
        if uid == "bad":
            raise KeyError("of a shape that is not known")
        observed(prober, uid, pod)

    world = PlegWorld()
    await world.run_pod("bad")
    await world.run_pod("good")
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Prober, "observed", mistaken)
        async with world:
            assert set(world.pods.state) == {"bad", "good"}
            await world.pass_time(2.0)
            assert world.beats["pleg"].troubles == (
                "the observation of pod bad failed: KeyError; it is tried again, the log has more",
            )


async def test_a_look_that_fails_by_a_mistake_of_ours_is_done_again() -> None:
    observe = FakeRuntime.observe
    failures = 3

    async def mistaken(runtime: FakeRuntime, uid: str | None = None) -> dict[str, RuntimePod]:
        nonlocal failures
        if uid == "a" and failures:
            failures -= 1
            raise KeyError("of a shape that is not known")
        return await observe(runtime, uid)

    async with PlegWorld() as world:
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(FakeRuntime, "observe", mistaken)
            _, container = await world.run_pod("a")
            world.publish_status("a", container)
            await world.until(lambda: "a" in world.pods.state)
            await world.pass_time(120.0)
    assert not failures or "a" in world.pods.state
