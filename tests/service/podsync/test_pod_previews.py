"""GetPodPreview: the answer is that of admission, and nothing of podsync changes for it."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from bus.messages.pleg import NodeObserved
from bus.messages.pod_preview import GetPodPreview, PodPreview
from bus.messages.sources import NodeObject
from shared.podspec.defaults import apply_defaults
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, on_stage
from tests.unit.podsync.invariants import checkpoint_of
from tests.unit.podsync.pods import a_container, a_pod

NODE = {"metadata": {"name": "node1", "labels": {"kubernetes.io/os": "linux"}}, "spec": {}, "status": {}}


def static(uid: str = "w1", name: str = "web", **spec: Any) -> dict[str, Any]:
    """A static pod, as sources publishes it."""
    pod = a_pod(uid, name, **spec)
    pod["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
    apply_defaults(pod)
    return pod


def wanting(name: str, amount: str, **fields: Any) -> list[dict[str, Any]]:
    """One container with this request."""
    return [a_container("c", resources={"requests": {name: amount}}, **fields)]


async def asked(stage: Stage, pod: dict[str, Any], source: str = "file") -> PodPreview:
    """podsync's answer."""
    request = GetPodPreview(source=source, pod=pod)
    asking = asyncio.create_task(stage.buses["server"].ask("podsync", request, PodPreview, 5.0))
    await stage.until(asking.done)
    return asking.result()


def everything(stage: Stage) -> Any:
    """What podsync has in memory, on disk and on the bus, and the calls that change the runtime."""
    streams = (stage.admitted, stage.volumes, stage.statuses, stage.events)
    files = sorted(str(path) for path in Path(stage.config.root_dir).rglob("*"))
    counts = [
        (family.name, str(series))
        for family, series in stage.metrics.collect()
        # What the runtime lacks is learned by the first read of its configuration.
        if family.name.startswith("kube") and family.name != "kubelet_cri_losing_support"
    ]
    calls = [call for call in stage.runtime.calls if call.method not in ("RuntimeConfig", "ImageStatus")]  # reads
    published = [dict(one.state) for one in streams]
    return copy.deepcopy((checkpoint_of(stage.podsync.core), published, files, counts, calls))


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (static(), ""),
        (static(containers=wanting("cpu", "1000000")), "UnexpectedAdmissionError"),  # critical, and nothing to preempt
        (static(nodeSelector={"disk": "ssd"}), "NodeAffinity"),
        (static(os={"name": "windows"}), "PodOSNotSupported"),
        (static(containers=[a_container(f"c{number}") for number in range(1000)]), "PodFeatureUnsupported"),
    ],
    ids=["fits", "cpu", "labels", "os", "large"],
)
async def test_the_answer_is_the_verdict_on_the_same_pod_and_changes_nothing(
    tmp_path: Path, pod: dict[str, Any], reason: str
) -> None:
    async with on_stage(tmp_path) as stage:
        before = everything(stage)
        found = await asked(stage, pod)
        assert (found.waits_for, found.reason) == ("", reason)
        assert everything(stage) == before
        uid = stage.want(pod)
        await stage.until(lambda: uid in stage.admitted.state)
        assert stage.admitted.state[uid].rejected == found.reason
        if reason:
            await stage.until(lambda: stage.status(uid).get("reason"))
            assert stage.status(uid)["message"].endswith(found.message)


async def test_a_critical_pod_names_the_pods_that_it_preempts_and_they_keep_running(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.node_object.put("node", NodeObject(node=NODE))
        cpu = stage.podsync.core.node_state.admissions.facts.allocatable["cpu"]
        small = a_pod("s1", "batch", containers=wanting("cpu", cpu))
        small["metadata"]["annotations"] = {"kubernetes.io/config.source": "api"}
        stage.want(small, "api")
        await stage.until(lambda: "s1" in stage.admitted.state)
        found = await asked(stage, static(containers=wanting("cpu", "1m")))
        assert [(one.uid, one.name) for one in found.preempted] == [("s1", "batch")]
        assert stage.admitted.state["s1"].state == "sync"
        assert (await asked(stage, static(containers=wanting("cpu", "1m")), "file")).reason == ""


async def test_a_port_that_another_pod_has_is_named_with_it_but_not_that_of_the_pod_it_replaces(tmp_path: Path) -> None:
    ports = [a_container("c", ports=[{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}])]
    async with on_stage(tmp_path) as stage:
        stage.want(static("p1", "first", containers=ports))
        await stage.until(lambda: "p1" in stage.admitted.state)
        found = await asked(stage, static("p2", "second", containers=ports))
        assert (found.reason, found.host_ports[0].pods) == ("NodePorts", ("default/first",))
        replacing = await asked(stage, static("p3", "first", containers=ports))
        assert (replacing.reason, replacing.host_ports[0].pods) == ("", ())


async def test_images_are_those_of_the_runtime(tmp_path: Path) -> None:
    containers = [
        a_container("a"),
        a_container("b", image="registry.example/web:2"),
        a_container("c", image="registry.example/web:3", imagePullPolicy="Never"),
        a_container("d", image="NOT AN IMAGE"),
    ]
    async with on_stage(tmp_path, FakeRuntime(images=["busybox:1"])) as stage:
        found = await asked(stage, static(containers=containers))
        assert found.reason == ""
        assert [one.present for one in found.images] == [True, False, False, None]
        assert [one.problem.partition(":")[0] for one in found.images] == [
            "",
            "",
            "ErrImageNeverPull",
            "InvalidImageName",
        ]


async def test_without_the_runtime_the_answer_names_what_admission_waits_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path, FakeRuntime(images=[]))
    for bus in stage.buses.values():
        await bus.start()
    stage.node.put("node", NodeObserved(observed_at=1.0, runtime_reachable=False))
    await stage.start()
    try:
        assert (await asked(stage, static())).waits_for == "the runtime"
    finally:
        await stage.kill()
        for bus in stage.buses.values():
            await bus.stop()


async def test_the_network_that_is_not_ready_keeps_the_pod_from_running_but_not_from_being_admitted(
    tmp_path: Path,
) -> None:
    async with on_stage(tmp_path) as stage:
        down = NodeObserved(
            observed_at=2.0, runtime_reachable=True, runtime_ready=True, network_ready=False, network_message="no CNI"
        )
        stage.node.put("node", down)
        await stage.network.settle()
        found = await asked(stage, static())
        assert (found.reason, found.problems) == ("", ("network is not ready: no CNI",))
        assert (await asked(stage, static(hostNetwork=True))).problems == ()
