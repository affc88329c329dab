"""The services share what they have imported, however often they are killed."""

from pathlib import Path

import pytest

from bus.messages.streams import SERVICES
from tests.support.agents.world import ExecutedWorld

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

SHARED_AT_LEAST = 20 * 1024  # KiB; an interpreter of its own shares nothing that it has written


async def test_every_service_shares_its_modules_with_supervisord_also_after_a_kill() -> None:
    async with ExecutedWorld() as world:
        assert {service: shared_kib(world.pid_of(service)) > SHARED_AT_LEAST for service in SERVICES} == dict.fromkeys(
            SERVICES, True
        )
        pid = world.kill("podsync")
        await world.wait_back("podsync", pid)
        assert shared_kib(world.pid_of("podsync")) > SHARED_AT_LEAST
        assert Path(f"/proc/{world.pid_of('podsync')}/comm").read_text() == "bulkhead-podsyn\n"


def shared_kib(pid: int) -> int:
    """Pages that were written and that another process has, too."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Shared_Dirty:"))
