"""status delays a shutdown of the machine until the API server has the statuses, with logind on a real D-Bus."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.messages.podsync import NodeShutdown
from bus.messages.status import ShutdownReported
from bus.messages.streams import NODE_SHUTDOWN, SHUTDOWN_REPORTED
from services.frame.launch import Context
from services.status.controllers.shutdown_lock import ShutdownLock
from services.status.core import shutdown_release
from shared.config.effective import EffectiveConfig
from shared.model.shutdown_groups import Group, Groups
from tests.fakes.logind import FakeLogind, a_logind
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.running_service import running_service
from tests.support.waits.deadline import WAIT_SECONDS

MINUTE = (Group(priority=0, seconds=60.0),)
STOPPING, OVER = NodeShutdown(in_progress=True), NodeShutdown(in_progress=True, over=True, began="2030-01-01T00:00:00Z")


class Stage:
    """podsync as a stream, and the lock of status."""

    def __init__(self, directory: Path, logind: FakeLogind, groups: Groups) -> None:
        self.logind, self.network, self.written = logind, MemoryNetwork(), True
        self.podsync = self.network.bus("podsync")
        self.shutdown = self.podsync.own(NODE_SHUTDOWN)
        self.reported = self.podsync.follow(SHUTDOWN_REPORTED)
        self.bus = self.network.bus("status")
        config = EffectiveConfig(
            node_name="n1", root_dir=str(directory), run_dir=str(directory), log_dir="", cert_dir=""
        )
        context = Context("status", config, self.bus, self.network.clock, asyncio.Event())
        self.lock = ShutdownLock(context, groups, lambda: self.written, logind.address)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds():
                await self.network.settle()
                await asyncio.sleep(0.005)

    async def shuts_down(self) -> None:
        """logind says that a shutdown begins, and status knows it."""
        await self.logind.announce()
        await self.until(lambda: self.lock._began is not None)

    async def stops_all(self) -> None:
        """podsync says that all pods have stopped, and status knows it."""
        self.shutdown.put("node", OVER)
        await self.until(lambda: self.lock._over_since is not None)

    async def stays_locked(self) -> None:
        """Two looks later the lock is still there."""
        for _ in range(2):
            await asyncio.sleep(shutdown_release.LOOK_SECONDS)
            await self.network.settle()
        assert self.logind.locks == 1


@asynccontextmanager
async def a_stage(directory: Path, groups: Groups = MINUTE, *, shuts_down: bool = False) -> AsyncIterator[Stage]:
    async with a_logind(shuts_down=shuts_down) as logind:
        stage = Stage(directory, logind, groups)
        await stage.podsync.start()
        async with running_service(stage.network, stage.bus, stage.lock):
            await stage.until(lambda: shuts_down or logind.locks == 1)
            yield stage
        await stage.podsync.stop()


async def test_it_waits_for_the_pods_and_then_for_their_statuses(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        stage.written = False
        await stage.shuts_down()
        stage.shutdown.put("node", STOPPING)
        await stage.stays_locked()
        await stage.stops_all()
        stage.network.clock.advance(2.0)
        await stage.stays_locked()
        stage.written = True
        await stage.until(lambda: stage.lock._written_since is not None)
        await stage.stays_locked()
        stage.network.clock.advance(shutdown_release.SETTLE_SECONDS)
        await stage.until(lambda: stage.logind.locks == 0)
        await stage.until(lambda: stage.reported.state.get("node") == ShutdownReported(began=OVER.began))


async def test_started_in_the_shutdown_it_reports_what_is_written_without_a_lock(tmp_path: Path) -> None:
    async with a_stage(tmp_path, shuts_down=True) as stage:
        stage.shutdown.put("node", OVER)
        await stage.until(lambda: stage.lock._written_since is not None)
        assert stage.reported.state == {}
        stage.network.clock.advance(shutdown_release.SETTLE_SECONDS)
        await stage.until(lambda: stage.reported.state.get("node") == ShutdownReported(began=OVER.began))
        assert stage.logind.locks == 0


async def test_statuses_that_cannot_be_written_delay_the_shutdown_by_five_seconds(tmp_path: Path) -> None:
    async with a_stage(tmp_path, (Group(priority=0, seconds=600.0),)) as stage:
        stage.written = False  # the API server is away, or refuses one of them
        await stage.shuts_down()
        stage.shutdown.put("node", STOPPING)
        stage.network.clock.advance(100.0)
        await stage.stays_locked()
        await stage.stops_all()
        await stage.stays_locked()
        stage.network.clock.advance(4.0)
        await stage.stays_locked()
        stage.network.clock.advance(1.0)
        await stage.until(lambda: stage.logind.locks == 0)
        assert stage.reported.state == {}


async def test_it_waits_no_longer_than_the_pods_and_their_statuses_have_where_podsync_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown_release, "MAX_STATUS_SECONDS", 0.2)
    async with a_stage(tmp_path, (Group(priority=0, seconds=0.3),)) as stage:
        await stage.shuts_down()
        await stage.stays_locked()
        stage.network.clock.advance(0.5)
        await stage.until(lambda: stage.logind.locks == 0)


async def test_it_takes_the_lock_again_when_the_shutdown_is_cancelled(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        for number in (1, 2):
            stage.shutdown.put("node", OVER)
            await stage.logind.announce()
            await stage.until(lambda: stage.logind.shuts_down)
            async with asyncio.timeout(WAIT_SECONDS):
                while stage.logind.locks:
                    stage.network.clock.advance(shutdown_release.SETTLE_SECONDS)
                    await stage.network.settle()
                    await asyncio.sleep(0.01)
            stage.shutdown.put("node", NodeShutdown(in_progress=False))
            await stage.logind.announce(begins=False)
            await stage.until(lambda number=number: len(stage.logind.reasons) == number + 1)  # type: ignore[misc]
            await stage.until(lambda: stage.logind.locks == 1)
