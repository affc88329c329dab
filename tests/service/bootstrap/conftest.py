"""One node whose bootstrap is not begun yet, as most tests of bootstrap's certificates have it."""

from pathlib import Path

import pytest

from tests.service.bootstrap.stage import Stage


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
