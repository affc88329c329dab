"""The files of one pod do not keep those of another one from being measured."""

import asyncio
import threading
from pathlib import Path

import pytest

from bus.messages.usage import FilesystemUsage, PodUsage
from services.pleg.adapters import disk_usage
from services.pleg.adapters.usage_source import HostUsage
from shared.config.effective import EffectiveConfig
from shared.time.clock import SystemClock

DEADLINE = 60.0  # seconds


def pod(uid: str) -> PodUsage:
    return PodUsage(uid=uid, name=uid, namespace="ns", created_at=1, read_at=1.0, containers=())


async def test_a_pod_whose_mount_does_not_answer_takes_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def read_filesystem(path: str, wall: float) -> FilesystemUsage:
        if "hung" in path:
            answers.wait(2 * DEADLINE)
        return FilesystemUsage(time=wall)

    monkeypatch.setattr(disk_usage, "read_filesystem", read_filesystem)
    uids = [*(f"hung{number}" for number in range(15)), "other"]
    for uid in uids:
        (tmp_path / "pods" / uid / "volumes/kubernetes.io~empty-dir/v").mkdir(parents=True)
    config = EffectiveConfig(
        node_name="node1",
        root_dir=str(tmp_path),
        run_dir=str(tmp_path),
        log_dir=str(tmp_path),
        cert_dir=str(tmp_path),
        container_runtime_endpoint="unix:///run/fake.sock",
    )
    usage = HostUsage(config, SystemClock())
    counts = [usage.count_files(pod(uid), volumes=True) for uid in uids]
    *hung, other = [asyncio.create_task(count.count(DEADLINE)) for count in counts]
    try:
        async with asyncio.timeout(DEADLINE):
            assert await other
            assert [volume.name for volume in counts[-1].sum_up().volumes] == ["v"]
        assert not any(task.done() for task in hung)
        answers.set()
        async with asyncio.timeout(DEADLINE):
            assert all(await asyncio.gather(*hung))
    finally:
        answers.set()
        usage.close()
