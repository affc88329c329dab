"""Many seeds: whatever fails on the way, a node comes to the end of its undisturbed run."""

import pytest

from tests.simulation.seeds import work

SEEDS = 60  # `make night` runs all, and 10000 more
# When these were chosen, one of them or a test of make quick reached each line and branch that the 60 reach.
IN_TEST = frozenset({0, 2, 7, 14, 20, 23, 33, 38, 41, 47, 50, 52})


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [seed if seed in IN_TEST else pytest.param(seed, marks=pytest.mark.night) for seed in range(SEEDS)]
)
def test_a_disturbed_node_ends_as_an_undisturbed_one(seed: int) -> None:
    _, text, failed = work(seed)
    assert not failed, text
