"""The files of one pod do not keep those of another one from being measured."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from bus.messages.usage import PodUsage
from services.pleg.adapters import usage_source
from services.pleg.adapters.usage_source import HostUsage
from services.pleg.core.pod_files import DiskUse, PodFiles
from shared.clock import SystemClock
from shared.config.effective import EffectiveConfig

DEADLINE = 60.0  # seconds
FILES = PodFiles(time=1.0, logs={}, volumes=(), other=DiskUse())


def pod(uid: str) -> PodUsage:
    return PodUsage(uid=uid, name=uid, namespace="ns", created_at=1, read_at=1.0, containers=())


async def test_a_pod_whose_mount_does_not_answer_takes_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def measure(root_dir: str, logs: Path, uid: str, wall: float, **_: Any) -> PodFiles:
        if uid.startswith("hung"):
            answers.wait(2 * DEADLINE)
        return FILES

    monkeypatch.setattr(usage_source, "measure_pod", measure)
    config = EffectiveConfig(
        node_name="node1",
        root_dir=str(tmp_path),
        run_dir=str(tmp_path),
        log_dir=str(tmp_path),
        cert_dir=str(tmp_path),
        container_runtime_endpoint="unix:///run/fake.sock",
    )
    usage = HostUsage(config, SystemClock())
    hung = [asyncio.create_task(usage.measure(pod(f"hung{number}"), volumes=True)) for number in range(15)]
    try:
        async with asyncio.timeout(DEADLINE):
            await asyncio.sleep(0)
            assert await usage.measure(pod("other"), volumes=True) == FILES
        assert not any(task.done() for task in hung)
        answers.set()
        async with asyncio.timeout(DEADLINE):
            assert await asyncio.gather(*hung) == [FILES] * len(hung)
    finally:
        answers.set()
        usage.close()
