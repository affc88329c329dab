"""A resize by podsync with a fake runtime and a cgroup tree of plain files: what is written, and kills on the way."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bus.messages.volume import (
    MountedVolume,
    MountedVolumes,
    ResizedMemoryVolumes,
    ResizeMemoryVolumes,
    VolumeState,
)
from services.podsync.adapters.calls import resizing
from services.podsync.controllers import pod_workers
from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies
from shared.podspec.defaults import apply_defaults
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.crashes import ending_at
from tests.service.podsync.stage import Stage, cleared, on_stage

CONTROLLERS = ("cpu", "memory", "pids", "cpuset", "cpuacct", "systemd")
SMALL = {"cpu": "100m", "memory": "64Mi"}
LARGE = {"cpu": "300m", "memory": "96Mi"}
FILES = ("cpu/{}/cpu.shares", "cpu/{}/cpu.cfs_quota_us", "memory/{}/memory.limit_in_bytes")
WRITTEN = "podsync.resize.written"
POINTS = (
    "podsync.saved.ResizePod",
    "podsync.published.ResizePod",
    "podsync.acted.ResizePod",
    *(f"{WRITTEN} {number}" for number in (1, 2, 3, 4, 5)),
)


def a_pod(amounts: dict[str, str], generation: int = 1) -> dict[str, Any]:
    """A Guaranteed pod whose two containers have these requests and limits; `b` restarts for another memory limit."""
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    both = {"requests": amounts, "limits": amounts}
    containers = [
        {"name": "a", "image": "busybox:1", "resources": both},
        {"name": "b", "image": "busybox:1", "resources": both, "resizePolicy": policy},
    ]
    metadata = {"name": "web", "namespace": "default", "uid": "u1", "generation": generation}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    apply_defaults(pod)
    return pod


@pytest.fixture(autouse=True)
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree that podsync finds: a file has what was written to it."""
    root = tmp_path / "cgroup"
    for controller in CONTROLLERS:
        (root / controller).mkdir(parents=True)
    found = Hierarchies(unified=None, by_controller={name: root / name for name in CONTROLLERS})
    monkeypatch.setattr(cgroup_layout, "find_hierarchies", lambda: found)
    return root


def state(stage: Stage, root: Path) -> dict[str, Any]:
    """What the kernel and the runtime have of the pod, and what its status shows."""
    running = {c.name: c for c in stage.runtime.pods()["u1"].containers if c.state.name == "RUNNING"}
    found: dict[str, Any] = {file: (root / file.format("kubepods/podu1")).read_text() for file in FILES}
    for name, container in running.items():
        given = stage.runtime.resources_of(container.id)
        found[name] = {key: given.get(key) for key in ("cpu_shares", "cpu_quota", "memory_limit_in_bytes")}
    shown = stage.status("u1")
    found["resources"] = {s["name"]: s.get("resources") for s in shown["containerStatuses"]}
    found["conditions"] = [c["type"] for c in shown["conditions"] if "Resize" in c["type"]]
    return found


def is_resized(stage: Stage, root: Path, amounts: dict[str, str]) -> bool:
    """The status shows it and nothing is in progress."""
    if not stage.status("u1").get("containerStatuses"):
        return False
    found = state(stage, root)
    both = {"requests": amounts, "limits": amounts}
    return found["resources"] == {"a": both, "b": both} and not found["conditions"] and {"a", "b"} <= found.keys()


async def started(stage: Stage, root: Path, amounts: dict[str, str]) -> None:
    stage.want(a_pod(amounts))
    await stage.until(lambda: len(stage.runtime.running_pids()) == 3 and is_resized(stage, root, amounts))
    usage = root / "memory/kubepods/podu1"
    for path in (usage, *(usage / c.id for c in stage.runtime.pods()["u1"].containers)):
        path.mkdir(exist_ok=True)
        (path / "memory.usage_in_bytes").write_text("1000")


@pytest.fixture(params=[(SMALL, LARGE), (LARGE, SMALL)], ids=["grow", "shrink"])
def amounts(request: pytest.FixtureRequest) -> tuple[dict[str, str], dict[str, str]]:
    before, after = request.param
    return before, after


async def undisturbed(directory: Path, root: Path, before: dict[str, str], after: dict[str, str]) -> dict[str, Any]:
    """The state after the same resize without a kill; its cgroups are removed."""
    async with on_stage(directory, cgroups_per_qos=True) as stage:
        await started(stage, root, before)
        stage.want(a_pod(after, 2))
        await stage.until(lambda: is_resized(stage, root, after))
        found = state(stage, root)
    for controller in CONTROLLERS:
        shutil.rmtree(root / controller / "kubepods", ignore_errors=True)
    return found


# By the CPU that the pod has in the end: the same for all points, and without names of files.
undisturbed_states: dict[str, dict[str, Any]] = {}


@pytest.mark.share(4)
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_this_point_ends_as_without_it(
    point: str, amounts: tuple[dict[str, str], dict[str, str]], tmp_path: Path, cgroups: Path
) -> None:
    (before, after), root = amounts, cgroups
    if after["cpu"] not in undisturbed_states:
        undisturbed_states[after["cpu"]] = await undisturbed(tmp_path / "undisturbed", root, before, after)
    async with on_stage(tmp_path, cgroups_per_qos=True) as stage:
        await started(stage, root, before)
        with ending_at(point, pod_workers, resizing) as met:
            stage.want(a_pod(after, 2))
            await stage.until(lambda: met)
            await stage.kill()
        await stage.start()
        stage.seen.put("u1", stage.runtime.pods()["u1"])
        await stage.until(lambda: is_resized(stage, root, after))
        assert state(stage, root) == undisturbed_states[after["cpu"]]


async def test_the_pod_grows_before_its_containers_and_shrinks_after_them(tmp_path: Path, cgroups: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    runtime.has_sandbox_updates = True
    root = cgroups
    seen: list[list[str]] = []
    async with on_stage(tmp_path, runtime, cgroups_per_qos=True) as stage:
        await started(stage, root, SMALL)
        for number, amounts in enumerate((LARGE, SMALL), start=2):
            runtime.calls.clear()
            stage.want(a_pod(amounts, number))
            await stage.until(partial(is_resized, stage, root, amounts))
            kinds = [call.method for call in runtime.calls if call.method.startswith("Update")]
            seen.append(["pod" if kind == "UpdatePodSandboxResources" else "container" for kind in kinds])
    assert seen[0][0] == "pod" and seen[0][-1] == "container"
    assert seen[1][0] == "container" and seen[1][-1] == "pod"


GATE = {"InPlacePodVerticalScalingMemoryBackedVolumes": True}


def with_memory(amounts: dict[str, str], size: str, generation: int) -> dict[str, Any]:
    """The pod with a volume in memory of this size, which its first container mounts."""
    pod = a_pod(amounts, generation)
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "fast", "mountPath": "/fast"}]
    pod["spec"]["volumes"] = [{"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return pod


def size_of_volume(stage: Stage) -> str:
    """What volume is told of it."""
    (volume,) = stage.volumes.state["u1"].pod["spec"]["volumes"]
    return str(volume["emptyDir"]["sizeLimit"])


async def test_volumes_in_memory_shrink_before_the_pod_and_grow_after_it(tmp_path: Path, cgroups: Path) -> None:
    """One that shrinks below what is in use is refused before anything is written, and shown, until it has room."""
    root, limit = cgroups, cgroups / "memory/kubepods/podu1/memory.limit_in_bytes"
    asked: list[tuple[bool, int, str]] = []
    error = ""

    async def answer(request: ResizeMemoryVolumes) -> ResizedMemoryVolumes:
        assert request.uid == "u1"
        asked.append((request.grow, request.sizes["fast"] >> 20, limit.read_text()))
        return ResizedMemoryVolumes(error=error)

    mebibytes = {name: str(2 * int(amounts["memory"][:-2]) << 20) for name, amounts in (("s", SMALL), ("l", LARGE))}
    stage = Stage(tmp_path, FakeRuntime(images=["busybox:1"]), cgroups_per_qos=True, feature_gates=GATE)
    stage.buses["volume"].answer(ResizeMemoryVolumes, answer)
    async with cleared(stage):
        stage.want(with_memory(SMALL, "16Mi", 1))
        volumes = {"fast": MountedVolume(state=VolumeState.MOUNTED, host_path="/fast")}
        stage.mounted.put("u1", MountedVolumes(uid="u1", volumes=volumes))
        await stage.until(lambda: len(stage.runtime.running_pids()) == 3 and is_resized(stage, root, SMALL))
        assert asked == []
        stage.want(with_memory(LARGE, "32Mi", 2))
        await stage.until(lambda: is_resized(stage, root, LARGE))
        assert asked == [(False, 32, mebibytes["s"]), (True, 32, mebibytes["l"])]
        asked.clear()
        error = 'cannot resize volume "fast": it is full'
        stage.want(with_memory(LARGE, "8Mi", 3))
        await stage.until(lambda: "it is full" in str(stage.status("u1")["conditions"]))
        assert [c["reason"] for c in stage.status("u1")["conditions"] if c["type"] == "PodResizeInProgress"] == [
            "Error"
        ]
        assert size_of_volume(stage) == "8Mi"
        error = ""
        stage.network.clock.advance(60.0)
        await stage.until(lambda: is_resized(stage, root, LARGE))
        assert {each[:2] for each in asked} == {(False, 8), (True, 8)}


async def test_without_the_gate_a_volume_in_memory_keeps_its_size_and_an_event_says_so(
    tmp_path: Path, cgroups: Path
) -> None:
    async with on_stage(tmp_path, cgroups_per_qos=True) as stage:
        stage.want(with_memory(SMALL, "16Mi", 1))
        await stage.until(lambda: stage.volumes.state.get("u1"))
        stage.want(with_memory(SMALL, "32Mi", 2))
        await stage.until(lambda: "PodResizePending" in str(stage.status("u1").get("conditions")))
        (pending,) = [c for c in stage.status("u1")["conditions"] if c["type"] == "PodResizePending"]
        assert (pending["reason"], pending["message"].split()[0]) == ("Infeasible", *GATE)
        assert size_of_volume(stage) == "16Mi"
        assert "FailedNodeDeclaredFeaturesCheck" in {event.reason for event in stage.events.state.values()}


def only(pod: dict[str, Any], generation: int, **spec: Any) -> dict[str, Any]:
    """The pod with these fields of its spec."""
    return {**pod, "metadata": {**pod["metadata"], "generation": generation}, "spec": {**pod["spec"], **spec}}


@pytest.mark.long
async def test_the_resources_of_the_pod_itself_are_resized(tmp_path: Path, cgroups: Path) -> None:
    def pod(cpu: str, generation: int) -> dict[str, Any]:
        bare = [{"name": "a", "image": "busybox:1", "imagePullPolicy": "IfNotPresent"}]
        limits = {"cpu": cpu, "memory": "64Mi"}
        return only(a_pod(SMALL), generation, containers=bare, resources={"requests": limits, "limits": limits})

    quota = cgroups / "cpu/kubepods/podu1/cpu.cfs_quota_us"
    async with on_stage(tmp_path, cgroups_per_qos=True) as stage:
        stage.want(pod("100m", 1))
        await stage.until(lambda: len(stage.runtime.running_pids()) == 2 and quota.read_text() == "10000")
        stage.want(pod("200m", 2))
        await stage.until(lambda: (stage.status("u1").get("resources") or {}).get("limits", {}).get("cpu") == "200m")
        await stage.until(lambda: not any("Resize" in c["type"] for c in stage.status("u1")["conditions"]))
        (running,) = stage.runtime.pods()["u1"].containers
        assert quota.read_text() == "20000"
        assert stage.runtime.resources_of(running.id)["cpu_quota"] == 20_000


@pytest.mark.long
async def test_an_init_container_is_resized_while_it_runs(tmp_path: Path, cgroups: Path) -> None:
    def pod(amounts: dict[str, str], generation: int) -> dict[str, Any]:
        (first, *_) = a_pod(SMALL)["spec"]["containers"]
        init = {**first, "name": "i", "resources": {"requests": amounts, "limits": amounts}}
        return only(a_pod(SMALL), generation, initContainers=[init], containers=[first])

    async with on_stage(tmp_path, cgroups_per_qos=True) as stage:
        stage.want(pod(SMALL, 1))
        await stage.until(lambda: len(stage.runtime.running_pids()) == 2)
        (running,) = stage.runtime.pods()["u1"].containers
        stage.want(pod(LARGE, 2))
        await stage.until(lambda: stage.runtime.resources_of(running.id)["cpu_quota"] == 30_000)
        stage.network.clock.advance(1.0)
        stage.runtime.exit_container(running.id, 0)
        stage.seen.put("u1", stage.runtime.pods()["u1"])
        await stage.until(lambda: len(stage.runtime.running_pids()) == 2)
        newest = stage.runtime.pods()["u1"].containers[0]
        assert (newest.name, stage.runtime.resources_of(newest.id)["cpu_quota"]) == ("a", 10_000)
