"""The soak in short: three minutes of churn on a real node leave nothing behind; a leak made on purpose is found."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.soak.findings import check_memory, compare
from tests.soak.plant import Plant
from tests.soak.run import Soak
from tests.soak.sampler import look_at
from tests.soak.samples import Sample
from tests.soak.schedule import schedule_of

SEED = int(os.environ.get("SOAK_SEED", "7"))
MINUTES = 3.0


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """Short enough for the sockets below it."""
    with TemporaryDirectory(prefix="sk", dir="/tmp") as directory:
        yield Path(directory)


@pytest.mark.root
@pytest.mark.night
@pytest.mark.timeout(400)
async def test_three_minutes_of_churn_leave_nothing_behind(short_directory: Path) -> None:
    lines: list[str] = []
    soak = Soak(short_directory, SEED, schedule_of(MINUTES), lines.append, None)
    assert await soak.run(), "\n".join(lines)
    assert len(soak.samples) >= 2, "there was no rest to compare with the first"


def look(plant: Plant, home: Path) -> Sample:
    process = look_at(plant.pid, home)
    assert process is not None
    return Sample(time.monotonic(), {"planted": process}, {}, {})


def test_a_planted_descriptor_is_found(tmp_path: Path) -> None:
    plant = Plant("fd")
    try:
        before = look(plant, tmp_path)
        assert compare(before, look(plant, tmp_path), deep=True) == []
        plant.grow(tmp_path)
        [finding] = compare(before, look(plant, tmp_path), deep=True)
    finally:
        plant.end()
    assert (finding.what, finding.where) == ("leak", f"planted (pid {plant.pid}) descriptors file")


def test_planted_memory_is_found(tmp_path: Path) -> None:
    plant = Plant("memory")
    try:
        samples = [look(plant, tmp_path)]
        for _ in range(2):
            plant.grow(tmp_path)
            samples.append(look(plant, tmp_path))
        assert check_memory(samples[:1] * 3) == []
        [finding] = check_memory(samples)
    finally:
        plant.end()
    assert (finding.what, finding.where) == ("memory", f"planted (pid {plant.pid})")
