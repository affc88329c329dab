"""podsync follows logind on a real D-Bus: it delays a shutdown until its pods have stopped (node.md 3)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.logind import max_delay
from tests.fakes.logind import FakeLogind, a_logind
from tests.service.podsync.stage import cleared
from tests.service.podsync.test_node_shutdown import ShuttingStage
from tests.service.podsync.test_podsync_service import a_pod, running


@asynccontextmanager
async def with_logind(directory: Path) -> AsyncIterator[tuple[ShuttingStage, FakeLogind]]:
    """A stage whose podsync holds its lock."""
    async with a_logind() as logind:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(max_delay, "DROP_IN", logind.drop_in)
            stage = ShuttingStage(directory)
            stage.system_bus = logind.address
            async with cleared(stage):
                await stage.until(lambda: logind.locks == 1)
                yield stage, logind


async def test_the_machine_goes_on_when_the_pods_have_stopped(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        assert (logind.max_delay_seconds, logind.reasons) == (185, ["Kubelet needs time to handle node shutdown"])
        await stage.pods_that_run(low=0, high=1000)
        hung = stage.runtime.hang("StopContainer")
        await logind.announce()
        await stage.until(hung.reached.is_set)
        assert (logind.locks, stage.stopped()) == (1, ["low"])
        hung.release.set()
        await stage.until(lambda: logind.locks == 0)
        assert (stage.stopped(), stage.runs(), stage.shown().over) == (["low", "high"], [], True)


async def test_a_restarted_podsync_goes_on_without_a_lock(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await stage.pods_that_run(low=0, high=1000)
        hung = stage.runtime.hang("StopContainer")
        await logind.announce()
        await stage.until(hung.reached.is_set)
        await stage.kill()
        await stage.until(lambda: logind.locks == 0)
        await stage.start()
        stage.observed()
        await stage.until(lambda: stage.shown().over)
        assert (stage.runs(), logind.locks, len(logind.reasons)) == ([], 0, 1)
        assert stage.counted("kubelet_graceful_shutdown_end_time_seconds")[()][0] > 0


async def test_a_shutdown_that_began_while_podsync_was_dead_is_followed(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await stage.pods_that_run(low=0)
        await stage.kill()
        await logind.announce()
        await stage.start()
        stage.observed()
        await stage.until(lambda: stage.shown().over)
        assert stage.runs() == []


async def test_a_cancelled_shutdown_is_noticed_after_a_restart_too(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await stage.pods_that_run(low=0)
        await logind.announce()
        await stage.until(lambda: logind.locks == 0 and stage.shown().over)
        await stage.kill()
        await logind.announce(begins=False)
        await stage.start()
        stage.observed()
        await stage.until(lambda: running(stage, "low") and logind.locks == 1)
        assert not stage.shown().in_progress


@pytest.mark.parametrize("source", ["api", "file"])
async def test_a_new_pod_is_admitted_after_a_soft_reboot(source: str, tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await logind.announce()
        await stage.until(lambda: logind.locks == 0 and stage.shown().over)
        await stage.kill()
        await logind.announce(begins=False)  # userspace boots again, and the boot id stays
        uid = stage.want(a_pod(), source)
        await stage.start()
        await stage.until(lambda: running(stage, uid))


async def test_a_clock_that_is_set_changes_no_period(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await stage.pods_that_run(low=0, high=1000)
        hung = stage.runtime.hang("StopContainer")
        await logind.announce()
        await stage.until(hung.reached.is_set)
        stage.network.clock._wall += 86_400.0
        stage.signal()  # so that it decides again
        await stage.network.settle()
        assert (stage.stopped(), stage.shown().over) == (["low"], False)
        hung.release.set()
        await stage.until(lambda: logind.locks == 0)
        assert stage.shown().unfinished == ()
