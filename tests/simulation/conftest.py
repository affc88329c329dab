"""The tests of a file run in a directory in memory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.run import clear_memory, in_memory


@pytest.fixture(scope="module", autouse=True)
def directory(request: pytest.FixtureRequest) -> Iterator[None]:
    before, name = Path.cwd(), Path(request.module.__file__).stem
    in_memory(name)
    yield
    os.chdir(before)
    clear_memory(name)
