"""Which notifications of memory are requested from the kernel: what is written into the files of a cgroup v1."""

import asyncio
from pathlib import Path

from services.pleg.adapters.memory_notifications import MemoryNotifications


async def test_a_threshold_that_changes_is_requested_again_and_one_that_stays_is_not(tmp_path: Path) -> None:
    (tmp_path / "memory.usage_in_bytes").write_text("0")
    control = tmp_path / "cgroup.event_control"
    notifications = MemoryNotifications(asyncio.get_running_loop(), lambda: None)
    try:
        notifications.watch_usage(tmp_path, {"hard": 100})
        assert control.read_text().split()[2] == "100"
        control.write_text("")
        notifications.watch_usage(tmp_path, {"hard": 100})
        assert control.read_text() == ""
        notifications.watch_usage(tmp_path, {"hard": 70})
        assert control.read_text().split()[2] == "70"
    finally:
        notifications.close()
