"""What the machines of one test run share."""

from pathlib import Path

import pytest

from tests.support.machines.release_build import build_release


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of this checkout, built once."""
    return build_release(tmp_path_factory.mktemp("release"))
