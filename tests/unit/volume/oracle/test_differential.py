"""volume begins, shows and publishes in random histories what an oracle expects that is written from the reference.

`make night` draws with another seed, which a failure names: NIGHT=1 FIRST_SEED=<seed>.
"""

import os
import random

import pytest

from tests.unit.examples import examples
from tests.unit.volume.oracle.compared_node import ComparedNode

NIGHT = bool(os.environ.get("NIGHT"))
FIRST = int(os.environ.get("FIRST_SEED", "0"))
HISTORIES = 6_000  # `make test` draws a third of them; each is compared after each of its 5 to 50 events
_PARTS = 12
# Each line and branch of the product that all parts reach is reached by one of these, or by a test of make quick.
IN_TEST = frozenset({0, 2, 5, 8})
_LONG, _NIGHT = pytest.mark.long, pytest.mark.night
PARTS = [
    part if part == 0 else pytest.param(part, marks=_LONG if part in IN_TEST else (_LONG, _NIGHT))
    for part in range(_PARTS * (50 if NIGHT else 1))
]


@pytest.mark.parametrize("part", PARTS)
def test_what_is_mounted_unmounted_shown_and_in_use_is_that_of_the_reference(part: int) -> None:
    size = HISTORIES // _PARTS
    for seed in range(FIRST + part * size, FIRST + part * size + examples(size)):
        run_history(seed)


def run_history(seed: int) -> None:
    """Let a node go through the history of this seed, and compare after each event."""
    node = ComparedNode(random.Random(seed))
    try:
        node.reconcile()
        if node.chance.random() < 0.6:
            node.warm()
        for _ in range(node.chance.choice([5, 10, 20, 30])):
            node.event()
            node.reconcile()
        node.settle()
    except Exception as error:
        error.add_note("\n".join([f"seed {seed}: {node.abilities.values()}", f"pods: {node.pods}", *node.trace]))
        raise
