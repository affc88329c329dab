"""Sixty seeds: whatever fails on the way, a node comes to the end of its undisturbed run."""

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.pool import Pool

import pytest

from tests.simulation.run import clear_memory, in_memory
from tests.simulation.seeds import work

SEEDS = 60  # each run draws the same; `make night` draws 10000
PARTS = 12


@pytest.fixture(scope="module")
def workers() -> Iterator[Pool]:
    """One process per core for all parts: each imports the whole agent."""
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), in_memory, ("test",)) as pool:
        yield pool
    clear_memory("test")


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_a_disturbed_node_ends_as_an_undisturbed_one(workers: Pool, part: int) -> None:
    seeds = range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)
    failures = [text for _, text, failed in workers.imap_unordered(work, seeds) if failed]
    assert not failures, "\n".join(failures)
