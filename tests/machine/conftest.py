"""What the machines of one test run share: the package, and a node of the tests' API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.machine.joined import MachineCluster
from tests.support.machines.release_build import build_release


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of this checkout, built once."""
    return build_release(tmp_path_factory.mktemp("release"))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def cluster(package: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MachineCluster]:
    """A machine that has joined the tests' API server. A test leaves no pod in it."""
    async with MachineCluster(tmp_path_factory.mktemp("joined"), package=package) as running:
        try:
            yield running
        finally:
            print(running.machine.last_lines())
