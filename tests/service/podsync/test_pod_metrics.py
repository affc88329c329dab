"""What podsync counts of its pods: starts, failures, rejections, the work of each, and how long a pod took to run."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.metric_labels import container_type, image_size, preemption, rejection
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import on_stage
from tests.service.podsync.test_podsync_service import a_pod


@pytest.mark.long
async def test_a_pod_that_starts_is_counted_once_and_its_end_is_work(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        assert stage.counted("kubelet_started_pods_total") == {(): [1.0]}
        assert stage.counted("kubelet_started_pods_errors_total") == {(): [0.0]}
        assert stage.counted("kubelet_started_containers_total") == {("pod_sandbox",): [1.0], ("container",): [1.0]}
        assert stage.counted("kubelet_started_containers_errors_total") == {}
        assert stage.counted("kubelet_working_pods") == {("sync", "desired", "true"): [1.0]}
        for name in ("kubelet_pod_start_duration_seconds", "kubelet_pod_worker_start_duration_seconds"):
            assert sum(stage.counted(name)[()][:-1]) == 1
        await stage.until(lambda: ("create",) in stage.counted("kubelet_pod_worker_duration_seconds"))
        stage.desired.delete(uid)
        await stage.until(lambda: stage.admitted.state[uid].state is PodState.FINISHED)
        await stage.until(lambda: ("terminated",) in stage.counted("kubelet_pod_worker_duration_seconds"))
        assert stage.counted("kubelet_working_pods") == {}


@pytest.mark.long
async def test_a_restart_of_podsync_counts_no_start_of_a_pod_that_runs(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        await stage.restart()
        await stage.until(lambda: stage.counted("kubelet_working_pods"))
        await stage.until(lambda: stage.running(uid))
        assert stage.counted("kubelet_started_pods_total") == {(): [0.0]}
        assert sum(stage.counted("kubelet_pod_start_duration_seconds")[()]) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "kind", "code"),
    [
        ("RunPodSandbox", "pod_sandbox", "CreatePodSandboxError"),
        ("CreateContainer", "container", "CreateContainerError"),
        ("StartContainer", "container", "RunContainerError"),
    ],
)
async def test_a_failed_start_is_counted_with_its_code(tmp_path: Path, method: str, kind: str, code: str) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    runtime.fail(method, "Unknown", "no")
    async with on_stage(tmp_path, runtime) as stage:
        stage.want(a_pod())
        await stage.until(lambda: stage.counted("kubelet_started_containers_errors_total"))
        assert stage.counted("kubelet_started_containers_errors_total") == {(kind, code): [1.0]}
        assert stage.counted("kubelet_started_containers_total")[kind,] == [1.0]
        failed_pods = float(kind == "pod_sandbox")
        assert stage.counted("kubelet_started_pods_errors_total") == {(): [failed_pods]}


@pytest.mark.long
async def test_a_pull_is_timed_by_the_size_of_the_image(tmp_path: Path) -> None:
    async with on_stage(tmp_path, FakeRuntime(pullable=["busybox:1"])) as stage:
        await stage.run_pod(a_pod())
        assert list(stage.counted("kubelet_image_pull_duration_seconds")) == [("0-10MB",)]


async def test_a_preempted_pod_is_counted_by_the_resource_that_was_short(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        cpu = stage.podsync.core.node_state.admissions.facts.allocatable["cpu"]
        image = {"name": "c", "image": "busybox:1", "imagePullPolicy": "IfNotPresent"}

        def wanting(uid: str, cpu: str, source: str) -> dict[str, Any]:
            pod = a_pod(uid, containers=[{**image, "resources": {"requests": {"cpu": cpu}}}])
            metadata = {"name": uid, "annotations": {"kubernetes.io/config.source": source}}
            return pod | {"metadata": pod["metadata"] | metadata}

        stage.want(wanting("v", cpu, "api"), source="api")
        await stage.until(lambda: stage.running("v"))
        stage.want(wanting("k", "1m", "file"))  # a static pod is critical
        await stage.until(lambda: stage.status("v").get("reason") == "Preempting")
        assert stage.counted("kubelet_preemptions") == {("cpu",): [1.0]}


@pytest.mark.parametrize(("resource", "label"), [("memory", "memory"), ("example.com/gpu", "ExtendedResources")])
def test_resources_of_preemptions_are_a_small_set(resource: str, label: str) -> None:
    assert preemption(resource) == label


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfexample.com/device", "OutOfExtendedResources"),
        ("NodeAffinity", "Other"),
        ("Evicted", "Evicted"),
    ],
)
def test_reasons_of_rejections_are_a_small_set(reason: str, label: str) -> None:
    assert rejection(reason) == label


def test_a_container_has_the_type_of_its_list() -> None:
    pod = {"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}], "ephemeralContainers": None}}
    assert [container_type(pod, name) for name in ("i", "c", "gone")] == ["init_container", "container", "container"]


@pytest.mark.parametrize(
    ("size", "label"),
    [
        (None, "N/A"),
        (0, "0-10MB"),
        (10 << 20, "0-10MB"),
        (11 << 20, "10MB-100MB"),
        (2 << 30, "1GB-5GB"),
        (1 << 40, "GT100GB"),
    ],
)
def test_sizes_of_images_are_ranges(size: int | None, label: str) -> None:
    assert image_size(size) == label
