"""Containers that podsync kills itself, on the bus and over a runtime: those of a pod outside of its cgroup."""

from pathlib import Path
from typing import Any

import pytest

from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies
from shared.model.runtime import Container
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_podsync_service import a_pod


async def instances(stage: Stage, uid: str) -> list[Container]:
    """All of them, newest first."""
    return sorted((await stage.runtime.observe(uid))[uid].containers, key=lambda c: -c.attempt)


def shown(stage: Stage, uid: str) -> dict[str, Any]:
    statuses: list[dict[str, Any]] = stage.status(uid).get("containerStatuses") or [{}]
    return statuses[0]


async def restarted(stage: Stage, uid: str, count: int) -> None:
    await stage.until(lambda: shown(stage, uid).get("restartCount") == count)


async def test_a_pod_found_outside_of_its_cgroup_is_stopped_first_and_one_inside_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = {controller: tmp_path / "cgroups" / controller for controller in ("cpu", "pids")}
    for tree in trees.values():
        tree.mkdir(parents=True)
    hierarchies = Hierarchies(unified=None, by_controller=trees)
    monkeypatch.setattr(cgroup_layout, "find_hierarchies", lambda: hierarchies)
    async with on_stage(tmp_path, cgroups_per_qos=True) as stage:
        uid, beside = (
            stage.want(a_pod()),
            stage.want(a_pod("u2") | {"metadata": {**a_pod("u2")["metadata"], "name": "b"}}),
        )
        await stage.until(lambda: stage.running(uid) and stage.running(beside))
        cgroup = trees["cpu"] / "kubepods" / "besteffort" / f"pod{uid}"
        assert cgroup.is_dir()
        await stage.kill()
        cgroup.rename(tmp_path / "elsewhere")
        stage.runtime.calls.clear()
        await stage.start()
        await restarted(stage, uid, 1)
        await stage.until(lambda: stage.running(uid))
        methods = stage.runtime.methods()
        assert methods.index("StopContainer") < methods.index("StopPodSandbox") < methods.index("RunPodSandbox")
        assert cgroup.is_dir()
        assert methods.count("StopContainer") == 1 and stage.running(beside)
        assert [c.attempt for c in await instances(stage, beside)] == [0]
