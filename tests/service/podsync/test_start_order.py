"""Many pods start at once, as after a boot: as many as the machine has places for, the most important ones first."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.streams import NODE_USAGE
from bus.messages.usage import CgroupUsage, NodeUsage, Pressure, PressureShare
from services.podsync.core.pod.instructions import RunPodSandbox
from services.podsync.core.pod.step import WAITS_FOR_TURN
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, cleared
from tests.service.podsync.test_podsync_service import a_pod


def pod_of(priority: int) -> dict[str, Any]:
    uid = f"u{priority}"
    pod = a_pod(uid, priority=priority)
    return {**pod, "metadata": {**pod["metadata"], "name": uid}}


def usage_under(percent: float) -> NodeUsage:
    share = PressureShare(total=1, avg10=percent, avg60=0.0, avg300=0.0)
    root = CgroupUsage(time=0.0, cpu_pressure=Pressure(some=share, full=share))
    return NodeUsage(read_at=0.0, started_at=0.0, cgroup=root)


def uids(stage: Stage, *, waiting: bool) -> set[str]:
    tracked = stage.podsync.core.tracked.values()
    return {t.uid for t in tracked if (t.waits_for == WAITS_FOR_TURN if waiting else isinstance(t.call, RunPodSandbox))}


@pytest.mark.parametrize(("percent", "places"), [(10.0, 8), (95.0, 4)])
async def test_the_most_important_pods_start_and_fewer_at_once_under_pressure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, percent: float, places: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    runtime = FakeRuntime(images=["busybox:1"])
    runtime.hang("RunPodSandbox", times=12)
    stage = Stage(tmp_path, runtime)
    stage.buses["pleg"].own(NODE_USAGE).put("node", usage_under(percent))
    async with cleared(stage):
        wanted = [stage.want(pod_of(priority), "api") for priority in range(12)]
        await stage.until(lambda: len(uids(stage, waiting=True)) == 12 - places)
        assert uids(stage, waiting=False) == set(wanted[12 - places :])
        runtime.clear_faults()
        await stage.until(lambda: all(stage.running(uid) for uid in wanted))
