"""The tables of resizes by podsync itself: what the files of the pod's cgroup and the runtime have at the end."""

from pathlib import Path
from typing import Any

import pytest

from shared.model.runtime import Container, ContainerState
from shared.podspec.defaults import apply_defaults
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_resize import cgroups
from tests.unit.podsync.pod.test_resize_transitions_of_pods import CONTAINERS, RESTARTS
from tests.unit.podsync.pod.test_resize_transitions_of_sidecars import POD_LEVEL, SIDECARS
from tests.unit.podsync.resize_table import Row, listed

__all__ = ["cgroups"]

pytestmark = pytest.mark.long

# What the kernel has in a new cgroup.
NEW = {
    "cpu/cpu.cfs_quota_us": "-1",
    "cpu/cpu.cfs_period_us": "100000",
    "memory/memory.limit_in_bytes": "9223372036854771712",
    "memory/memory.usage_in_bytes": "1000",
}


def pod_directory(root: Path, controller: str) -> Path:
    return next((root / controller).rglob("podu1"))


def files(root: Path) -> tuple[int, int | None, int | None]:
    """CPU shares, quota and limit of memory of the pod's cgroup; None = no limit."""

    def number(controller: str, name: str) -> int:
        return int((pod_directory(root, controller) / name).read_text())

    quota, limit = number("cpu", "cpu.cfs_quota_us"), number("memory", "memory.limit_in_bytes")
    return number("cpu", "cpu.shares"), None if quota < 0 else quota, None if limit >= 1 << 62 else limit


async def instances(stage: Stage) -> dict[str, Container]:
    """The containers that run, by name."""
    seen = (await stage.runtime.observe("u1"))["u1"]
    return {c.name: c for c in seen.containers if c.state is ContainerState.RUNNING}


def defaulted(row: Row, generation: int) -> dict[str, Any]:
    pod = listed(row, generation)
    apply_defaults(pod)
    return pod


async def start(stage: Stage, root: Path, row: Row) -> None:
    """Run the pod without the resize."""
    stage.want(defaulted(row, 1))
    if "i" in row.before:
        await stage.until(lambda: len(stage.runtime.running_pids()) == 1 + len({"s", "i"} & row.before.keys()))
        stage.network.clock.advance(1.0)
        stage.runtime.exit_container((await instances(stage))["i"].id, 0)
        stage.seen.put("u1", stage.runtime.pods()["u1"])
    await stage.until(lambda: stage.status("u1").get("phase") == "Running")
    for name, value in NEW.items():
        controller, _, file = name.partition("/")
        path = pod_directory(root, controller) / file
        if not path.exists():
            path.write_text(value)
    for container in (await instances(stage)).values():
        usage = pod_directory(root, "memory") / container.id
        usage.mkdir()
        (usage / "memory.usage_in_bytes").write_text("1000")


@pytest.mark.parametrize("row", [*CONTAINERS, *RESTARTS, *SIDECARS, *POD_LEVEL], ids=lambda row: row.name)
async def test_the_files_after_a_resize(row: Row, tmp_path: Path, cgroups: Path) -> None:
    async with on_stage(tmp_path, cgroups_per_qos=True) as stage:
        await start(stage, cgroups, row)
        stage.want(defaulted(row, 2))
        attempts = {name: int(name in row.restarted) for name in row.containers}

        def is_resized() -> bool:
            pod = stage.runtime.pods()["u1"]
            running = {c.name: c.attempt for c in pod.containers if c.state is ContainerState.RUNNING}
            events = [event.message for event in stage.events.state.values()]
            return running == attempts and any("Pod resize completed" in message for message in events)

        await stage.until(is_resized)
        assert files(cgroups) == row.pod
        running = await instances(stage)
        given = {name: stage.runtime.resources_of(running[name].id) for name in row.containers}
        keys = ("cpu_shares", "cpu_quota", "memory_limit_in_bytes")
        assert {name: tuple(found.get(key, 0) for key in keys) for name, found in given.items()} == row.containers
