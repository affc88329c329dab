"""Has what tests of the reconciler begin with."""

import pytest

from tests.unit.volume.reconciling import World


@pytest.fixture
def world() -> World:
    return World()
