"""Has the fixture that tests of device plugins share."""

from collections.abc import AsyncIterator

import pytest

from tests.service.volume.device_plugins import Plugins, running_plugins


@pytest.fixture
async def plugins(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plugins]:
    async with running_plugins(monkeypatch) as found:
        yield found
