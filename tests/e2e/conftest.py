"""What the tests with an API server share."""

from collections.abc import Iterator

import pytest

from tests.support.clusters.shared_control_plane import lending


@pytest.fixture(scope="session", autouse=True)
def _lent_control_planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lend control planes from file to file; those that are left end with the session."""
    with lending(tmp_path_factory.getbasetemp()):
        yield
