"""podsync follows logind on a real D-Bus: it delays a shutdown until its pods have stopped (node.md 3)."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bus.messages.status import ShutdownReported
from shared.logind import max_delay
from shared.logind.connection import LogindConnection
from tests.fakes.logind import FakeLogind, a_logind
from tests.service.podsync.stage import cleared
from tests.service.podsync.test_node_shutdown import ShuttingStage, boot_again
from tests.service.podsync.test_podsync_service import a_pod


@asynccontextmanager
async def with_logind(directory: Path) -> AsyncIterator[tuple[ShuttingStage, FakeLogind]]:
    """A stage whose podsync holds its lock, and has logind wait for as long as the pods and their statuses have."""
    async with a_logind() as logind:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(max_delay, "DROP_IN", logind.drop_in)
            stage = ShuttingStage(directory)
            stage.system_bus = logind.address
            async with cleared(stage):
                await stage.until(lambda: logind.locks == 1 and logind.max_delay_seconds == 185)
                yield stage, logind


@pytest.mark.long
async def test_the_machine_goes_on_when_the_pods_have_stopped(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        assert logind.reasons == ["Kubelet needs time to handle node shutdown"]
        await stage.pods_that_run(low=0, high=1000)
        hung = stage.runtime.hang("StopContainer")
        await logind.announce()
        await stage.until(hung.reached.is_set)
        assert (logind.locks, stage.stopped()) == (1, ["low"])
        hung.release.set()
        await stage.until(lambda: logind.locks == 0)
        assert (stage.stopped(), stage.runs(), stage.shown().over) == (["low", "high"], [], True)


@pytest.mark.long
async def test_the_lock_of_another_program_gives_no_pod_more_time(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        other = await LogindConnection.open(logind.address)
        lock = await other.inhibit("a backup")
        await stage.pods_that_run(low=0, high=1000)
        await logind.announce()
        await stage.until(lambda: logind.locks == 1)
        assert (stage.stopped(), stage.runs(), stage.shown().over) == (["low", "high"], [], True)
        os.close(lock)
        await stage.until(lambda: logind.locks == 0)
        await other.close()


async def test_where_status_says_nothing_the_machine_goes_on_after_five_seconds(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        stage.status_reports = False  # it was killed in the shutdown, and has no lock any more
        await logind.announce()
        await stage.until(lambda: stage.shown().over)
        stage.network.clock.advance(4.9)
        stage.signal()  # so that it decides again
        await stage.network.settle()
        await asyncio.sleep(0.05)
        assert logind.locks == 1
        stage.network.clock.advance(0.1)
        stage.signal()
        await stage.until(lambda: logind.locks == 0)


@pytest.mark.long
async def test_when_status_has_written_all_the_machine_goes_on(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        stage.status_reports = False
        await logind.announce()
        await stage.until(lambda: stage.shown().over)
        stage.reported.put("node", ShutdownReported(began="2020-01-01T00:00:00Z"))  # of an earlier shutdown
        await stage.network.settle()
        await asyncio.sleep(0.05)
        assert logind.locks == 1
        stage.status_reports = True
        stage.report()
        await stage.until(lambda: logind.locks == 0)


async def test_a_cancellation_while_the_end_is_saved_costs_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        sequence, held, reached = stage.podsync.shutdown, asyncio.Event(), asyncio.Event()
        save = sequence._save

        async def save_later(record: dict[str, Any]) -> str:
            if record.get("ended"):
                reached.set()
                await held.wait()  # the disk is busy
            return await save(record)

        monkeypatch.setattr(sequence, "_save", save_later)
        await logind.announce()
        await stage.until(reached.is_set)
        await logind.announce(begins=False)
        await stage.until(lambda: sequence._signalled is False)
        held.set()
        await stage.until(lambda: not stage.shown().in_progress)
        await asyncio.sleep(0.05)
        assert logind.locks == 1


@pytest.mark.long
async def test_after_a_soft_reboot_pods_run_again_as_after_a_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel goes on, and so its boot id; all programs are started anew, also those of pods whose turn had not
    come, and logind says that no shutdown is in progress."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def systemd_begins(microseconds: int) -> None:
        (tmp_path / "systemctl").write_text(f"#!/bin/sh\necho {microseconds}\n")
        (tmp_path / "systemctl").chmod(0o755)

    systemd_begins(1544504)
    async with with_logind(tmp_path) as (stage, logind):
        for uid, priority in (("low", 0), ("high", 1000)):
            pod = a_pod(uid, priority=priority, restartPolicy="Never")
            stage.want({**pod, "metadata": {**pod["metadata"], "name": uid}}, "api")
        await stage.until(lambda: stage.running("low") and stage.running("high"))
        hung = stage.runtime.hang("StopContainer")
        await logind.announce()
        await stage.until(hung.reached.is_set)
        systemd_begins(171492958)
        logind.shuts_down = False
        await boot_again(stage, same_boot=True)
        await stage.until(lambda: all(stage.restarts(uid) == 1 and stage.running(uid) for uid in ("low", "high")))
        await stage.until(lambda: logind.locks == 1)
        assert stage.shutdown_events() == [], "it was not cancelled"
        assert not stage.shown().in_progress and stage.shown().began


@pytest.mark.long
async def test_a_shutdown_that_begins_right_after_a_cancelled_one_goes_on(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await logind.announce()
        await stage.until(lambda: logind.locks == 0)
        sequence = stage.podsync.shutdown
        turn, held, reached = sequence._turn, asyncio.Event(), asyncio.Event()

        async def turn_later() -> None:
            reached.set()
            await held.wait()
            await turn()

        sequence._turn = turn_later  # type: ignore[method-assign]
        stage.signal()
        await stage.until(reached.is_set)
        await logind.announce(begins=False)
        await stage.until(lambda: logind.locks == 1)
        await logind.announce()
        await stage.until(lambda: sequence._signalled)
        held.set()
        await stage.until(lambda: logind.locks == 0)


async def test_a_shutdown_that_begins_before_podsync_knows_that_the_last_one_was_cancelled_goes_on(
    tmp_path: Path,
) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await logind.announce()
        await stage.until(lambda: logind.locks == 0)
        logind.answers_locks.clear()
        await logind.announce(begins=False)
        await stage.until(lambda: logind.locks == 1)
        await logind.announce()
        logind.answers_locks.set()
        await stage.until(lambda: logind.locks == 0)


@pytest.mark.long
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


@pytest.mark.long
async def test_a_shutdown_that_began_while_podsync_was_dead_is_followed(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await stage.pods_that_run(low=0)
        await stage.kill()
        await logind.announce()
        await stage.start()
        stage.observed()
        await stage.until(lambda: stage.shown().over)
        assert stage.runs() == []


@pytest.mark.long
async def test_a_cancelled_shutdown_is_noticed_after_a_restart_too(tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await stage.pods_that_run(low=0)
        await logind.announce()
        await stage.until(lambda: logind.locks == 0 and stage.shown().over)
        await stage.kill()
        await logind.announce(begins=False)
        await stage.start()
        stage.observed()
        await stage.until(lambda: stage.running("low") and logind.locks == 1)
        assert not stage.shown().in_progress


@pytest.mark.long
@pytest.mark.parametrize("source", ["api", "file"])
async def test_a_new_pod_is_admitted_after_a_soft_reboot(source: str, tmp_path: Path) -> None:
    async with with_logind(tmp_path) as (stage, logind):
        await logind.announce()
        await stage.until(lambda: logind.locks == 0 and stage.shown().over)
        await stage.kill()
        await logind.announce(begins=False)  # userspace boots again, and the boot id stays
        uid = stage.want(a_pod(), source)
        await stage.start()
        await stage.until(lambda: stage.running(uid))


@pytest.mark.long
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
