"""What volume reports to the watchdog: its own standstill is overdue, also at its start; a slow disk is not."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.threads import Threads
from services.volume.controllers import reconciliation
from shared.process.deadlines import MAX_STALL_SECONDS, Deadlines
from tests.service.volume.node import Node, started_node
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return await started_node(tmp_path, monkeypatch)


def pass_time(deadlines: Deadlines, seconds: float) -> None:
    for _ in range(int(deadlines.in_ticks(seconds))):
        deadlines.tick()


async def test_a_start_that_waits_for_nothing_outside_is_overdue(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def hang(threads: Threads, *call: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Threads, "call", hang)
    async with node.volume():
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        pass_time(node.deadlines, MAX_STALL_SECONDS)
        assert node.deadlines.overdue() is None
        node.deadlines.tick()
        assert node.deadlines.overdue() == f"reconciliation has made no progress for {MAX_STALL_SECONDS:.0f} s"


@pytest.mark.parametrize("listing", [1, 2], ids=["at the start", "in a sweep"])
async def test_a_directory_that_is_listed_slowly_is_waited_for(
    node: Node, monkeypatch: pytest.MonkeyPatch, listing: int
) -> None:
    listings, entered, released, uids = 0, threading.Event(), threading.Event(), PodDirectories.uids

    def slow(directories: PodDirectories) -> list[str]:
        nonlocal listings
        listings += 1
        if listings == listing:
            entered.set()
            assert released.wait(WAIT_SECONDS)
        return uids(directories)

    monkeypatch.setattr(PodDirectories, "uids", slow)
    monkeypatch.setattr(reconciliation, "SWEEP_SECONDS", 0.0)
    async with node.volume():
        assert await asyncio.to_thread(entered.wait, WAIT_SECONDS)
        pass_time(node.deadlines, 10 * MAX_STALL_SECONDS)
        assert node.deadlines.overdue() is None
        node.admit("u", "cache")
        released.set()
        await node.mounted.until(lambda state: "u" in state)
