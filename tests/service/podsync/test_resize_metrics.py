"""What podsync counts of resizes: requested changes, durations, those that wait, are refused or accepted later."""

import os
from pathlib import Path
from typing import Any

import pytest

from services.podsync.core.admission.resize_verdict import POD_LEVEL, SWAP
from services.podsync.core.pod.allocation import Allocation
from services.podsync.core.pod.metric_labels import infeasible, resize_operations
from shared.podspec.defaults import apply_defaults
from tests.service.podsync.stage import Stage, on_stage

PENDING, IN_PROGRESS = "kubelet_pod_pending_resizes", "kubelet_pod_in_progress_resizes"
REFUSED, ACCEPTED = "kubelet_pod_infeasible_resizes_total", "kubelet_pod_deferred_accepted_resizes_total"
DURATION = "kubelet_pod_resize_duration_milliseconds"
HUGE = "1000000"  # CPUs, more than any machine has


def a_pod(cpu: str, generation: int = 1, uid: str = "u1") -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": f"web-{uid}", "namespace": "default", "uid": uid, "generation": generation}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    apply_defaults(pod)
    return pod


async def started(stage: Stage, *pods: dict[str, Any]) -> None:
    for pod in pods:
        stage.want(pod)
    await stage.until(lambda: all(stage.running(pod["metadata"]["uid"]) for pod in pods))


def pending(stage: Stage) -> tuple[float, float]:
    """Deferred and infeasible."""
    counted = stage.counted(PENDING)
    return counted["deferred",][0], counted["infeasible",][0]


async def test_a_resize_that_is_done_is_counted_with_its_duration(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        await started(stage, a_pod("100m"))
        stage.want(a_pod("200m", 2))
        await stage.until(lambda: ("true",) in stage.counted(DURATION))
        assert sum(stage.counted(DURATION)["true",][:-1]) == 1
        assert stage.counted("kubelet_container_requested_resizes_total") == {("cpu", "requests", "increase"): [1.0]}
        await stage.until(lambda: stage.counted(IN_PROGRESS) == {(): [0.0]})
        assert pending(stage) == (0, 0) and stage.counted(REFUSED) == stage.counted(ACCEPTED) == {}


@pytest.mark.long
async def test_an_infeasible_resize_is_counted_once_for_each_generation_whatever_restarts(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        await started(stage, a_pod("100m"))
        stage.want(a_pod(HUGE, 2))
        await stage.until(lambda: pending(stage) == (0, 1))
        assert stage.counted(REFUSED) == {("insufficient_node_allocatable",): [1.0]}
        stage.want(a_pod(HUGE, 3))
        await stage.until(lambda: stage.counted(REFUSED) == {("insufficient_node_allocatable",): [2.0]})
        await stage.restart()
        await stage.until(lambda: pending(stage) == (0, 1))
        assert stage.counted(REFUSED) == {}
        stage.want(a_pod("100m", 4))
        await stage.until(lambda: pending(stage) == (0, 0))


async def test_a_deferred_resize_is_counted_with_what_let_it_be_accepted(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        allocatable = (os.cpu_count() or 1) * 1000
        await started(stage, a_pod(f"{allocatable - 300}m", uid="u0"), a_pod("100m"))
        stage.want(a_pod("500m", 2))
        await stage.until(lambda: pending(stage) == (1, 0))
        assert stage.counted(ACCEPTED) == {}
        stage.want(a_pod("100m", 2, uid="u0"))
        await stage.until(lambda: stage.counted(ACCEPTED) == {("pod_resized",): [1.0]})  # the shrink is done
        await stage.until(lambda: pending(stage) == (0, 0))


@pytest.mark.parametrize(
    ("message", "label"),
    [
        (SWAP, "swap_limitation"),
        (POD_LEVEL, "feature_gate_off"),
        ("Node didn't have enough capacity: cpu, requested: 3, capacity: 1", "insufficient_node_allocatable"),
    ],
)
def test_the_reason_of_an_infeasible_resize_is_one_of_few(message: str, label: str) -> None:
    assert infeasible(message) == label


def test_each_change_of_a_container_is_an_operation() -> None:
    before = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    after = {"requests": {"cpu": "0.2"}, "limits": {"memory": "64Mi", "cpu": "1"}}
    same = {"requests": {"cpu": "100m"}}, {"requests": {"cpu": "0.1"}}
    operations = resize_operations(
        Allocation(containers={"c": before, "same": same[0], "gone": before}),
        Allocation(containers={"c": after, "same": same[1], "new": after}),
    )
    assert set(operations) == {
        ("cpu", "requests", "increase"),
        ("memory", "requests", "remove"),
        ("cpu", "limits", "add"),
        ("memory", "limits", "decrease"),
    }
