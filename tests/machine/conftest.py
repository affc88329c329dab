"""What the machines of one test run share: a root, the package, and a node of the tests' API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.machine.joined import MachineCluster
from tests.machine.root import Root, build_for_machines, cached_root

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the shared node last: its machine has its memory until the last of them has ended. The purge of
    its package comes after all."""

    def order(item: pytest.Item) -> tuple[bool, bool]:
        of_the_node = item.path.parent == _HERE and "cluster" in getattr(item, "fixturenames", ())
        return of_the_node, of_the_node and item.path.name == "test_purge.py"

    items.sort(key=order)


@pytest.fixture(scope="session")
def installed_root() -> Root:
    """The root `install`. Where it cannot be had, that is known before anything else is built or started."""
    return cached_root("install")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of this checkout, built once."""
    return build_for_machines(tmp_path_factory.mktemp("release"))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def cluster(
    installed_root: Root, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MachineCluster]:
    """A machine that has joined the tests' API server. A test leaves no pod in it."""
    async with MachineCluster(tmp_path_factory.mktemp("joined"), root=installed_root, package=package) as running:
        try:
            yield running
        finally:
            print(running.machine.last_lines())
