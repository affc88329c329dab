"""Random sequences of pods that come and go, and of restarts, keep the promises of CPU, memory and topology manager."""

import random

import pytest

from services.podsync.core.placement.merging import TopologyPolicy
from tests.unit.podsync.placement.machines import MACHINES
from tests.unit.podsync.placement.placing_world import World, draw_settings

_STEPS = 14
_SEQUENCES = {"some": 8, "many": 1000}


@pytest.mark.share(4)
@pytest.mark.parametrize("policy", [*TopologyPolicy])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("amount", ["some", pytest.param("many", marks=[pytest.mark.night, pytest.mark.timeout(1800)])])
def test_no_cpu_is_given_twice_and_every_pod_is_aligned_as_promised(
    machine: str, policy: TopologyPolicy, amount: str
) -> None:
    admitted = rejected = 0
    for seed in range(_SEQUENCES[amount]):
        chance = random.Random(f"{machine} {policy} {seed}")
        world = World(MACHINES[machine], draw_settings(policy, MACHINES[machine], chance), chance)
        for step in range(_STEPS):
            world.take_step(step)
        admitted += world.admitted
        rejected += world.rejected
    assert admitted > _SEQUENCES[amount] and rejected > 0
