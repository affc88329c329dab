"""What podsync sends to the runtime for a pod, from its appearance to its end, beside what a Go kubelet sent for it.

Which calls, in which order; for one pod the complete requests, but for ids and times. Reads are left out of the
recordings. Dead sandboxes go up to a minute later in both agents, so they are not awaited.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.no_cluster import NoCluster
from tests.service.podsync.stage import Stage, on_stage
from tests.support.recorded.pods import (
    NODE,
    calls,
    in_any_order,
    pod_of,
    recorded_container,
    recorded_sandbox,
    recording,
)

RUNS_UNTIL_DELETED = (
    "plain",
    "args-and-expansion",
    "dns-none",
    "host-aliases",
    "host-network",
    "ports",
    "privileged",
    "qos-burstable",
    "qos-guaranteed",
    "security-context",
    "share-process-ns",
)
ENDS_BY_ITSELF = {"run-to-completion": 0, "fails-never": 7}


def as_a_static_pod(recording: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = recording["api_pod"]
    return {**pod, "status": {}}


def methods_of(recording: dict[str, Any], *parts: str) -> list[str]:
    return [call["method"] for part in parts for call in recording[part]]


def before_garbage_collection(methods: list[str]) -> list[str]:
    """Up to the collection of the dead sandbox, which stops it once more before it removes it."""
    if "RemovePodSandbox" in methods:
        methods = methods[: methods.index("RemovePodSandbox")]
        assert methods[-1] == "StopPodSandbox"
        methods = methods[:-1]
    return methods


def mount_everything(stage: Stage, pod: dict[str, Any]) -> None:
    uid = pod["metadata"]["uid"]
    volumes = {
        volume["name"]: MountedVolume(state=VolumeState.MOUNTED, host_path=f"/mnt/{volume['name']}")
        for volume in pod["spec"].get("volumes") or []
    }
    stage.mounted.put(uid, MountedVolumes(uid=uid, volumes=volumes))


async def started(stage: Stage, recording: dict[str, Any]) -> str:
    pod = as_a_static_pod(recording)
    uid = stage.want(pod, source="api")
    mount_everything(stage, pod)
    await stage.until(lambda: "startedAt" in json.dumps(stage.status(uid)) and _all_running(stage, uid, pod))
    return uid


def _all_running(stage: Stage, uid: str, pod: dict[str, Any]) -> bool:
    statuses = stage.status(uid).get("containerStatuses") or []
    return len(statuses) == len(pod["spec"]["containers"]) and all("running" in s["state"] for s in statuses)


def images_of(recording: dict[str, Any]) -> list[str]:
    return [container["image"] for container in recording["api_pod"]["spec"]["containers"]]


OF_THIS_RUN = ("lastTransitionTime", "startTime", "startedAt", "finishedAt", "containerID", "imageID", "image", "ip")
OF_THIS_MACHINE = ("hostIP", "hostIPs", "podIP", "podIPs", "user", "resources", "allocatedResources")


def without_ids_and_times(value: Any) -> Any:
    """Return a status without what differs from run to run, and what the fake runtime and this machine don't have."""
    if isinstance(value, dict):
        skipped = (*OF_THIS_RUN, *OF_THIS_MACHINE)
        return {key: without_ids_and_times(item) for key, item in value.items() if key not in skipped}
    return [without_ids_and_times(item) for item in value] if isinstance(value, list) else value


def conditions_by_type(status: dict[str, Any]) -> dict[str, Any]:
    return status | {"conditions": {c["type"]: c for c in status["conditions"]}}


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("name", RUNS_UNTIL_DELETED)
async def test_the_calls_for_a_pod_that_runs_until_it_is_deleted_and_its_status(tmp_path: Path, name: str) -> None:
    recorded = recording(name)
    runtime = FakeRuntime(images=images_of(recorded))
    async with on_stage(tmp_path, runtime, cluster_dns=("10.96.0.10",), cluster_domain="cluster.local") as stage:
        uid = await started(stage, recorded)
        assert runtime.methods() == methods_of(recorded, "cri_until_delete")
        ours = conditions_by_type(without_ids_and_times(stage.status(uid)))
        assert ours == conditions_by_type(without_ids_and_times(recorded["api_pod"]["status"]))
        stage.desired.delete(uid)
        await stage.until(lambda: stage.admitted.state[uid].state is PodState.TERMINATED)
        stage.mounted.delete(uid)
        expected = before_garbage_collection(methods_of(recorded, "cri_until_delete", "cri_after_delete"))
        await stage.until(lambda: len(runtime.methods()) >= len(expected))
        assert runtime.methods() == expected
        graces = [int(c["request"]["timeout"]) for c in recorded["cri_after_delete"] if c["method"] == "StopContainer"]
        assert [request["timeout"] for request in runtime.requests("StopContainer")] == graces


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ENDS_BY_ITSELF))
async def test_the_calls_for_a_pod_that_ends_by_itself(tmp_path: Path, name: str) -> None:
    recorded = recording(name)
    runtime = FakeRuntime(images=images_of(recorded))
    async with on_stage(tmp_path, runtime, cluster_dns=("10.96.0.10",), cluster_domain="cluster.local") as stage:
        uid = await started(stage, recorded)
        (container,) = (await runtime.observe(uid))[uid].containers
        stage.network.clock.advance(1.0)
        runtime.exit_container(container.id, ENDS_BY_ITSELF[name])
        stage.seen.put(uid, (await runtime.observe(uid))[uid])
        expected = methods_of(recorded, "cri_until_delete", "cri_after_delete")
        await stage.until(lambda: len(runtime.methods()) >= len(expected))
        assert runtime.methods() == expected
        phase = recorded["api_pod"]["status"]["phase"] if name == "run-to-completion" else "Failed"
        await stage.until(lambda: stage.status(uid)["phase"] == phase)


def with_our_places(message: dict[str, Any], directory: Path) -> dict[str, Any]:
    """A recorded container with our root directory and the random name of our termination file."""
    mounts = []
    for mount in message["mounts"]:
        path = mount["host_path"].replace("/var/lib/kubelet", str(directory / "root"))
        if mount["container_path"] == "/dev/termination-log":
            path = str(Path(path).parent)
        mounts.append({**mount, "host_path": path})
    return {**message, "mounts": mounts}


def without_random_names(message: dict[str, Any]) -> dict[str, Any]:
    mounts = [
        {**m, "host_path": str(Path(m["host_path"]).parent)} if m["container_path"] == "/dev/termination-log" else m
        for m in message["mounts"]
    ]
    return {**in_any_order(message), "mounts": mounts}


class RecordedServices(NoCluster):
    """The variables of the one Service there was."""

    def __init__(self, envs: list[dict[str, str]]) -> None:
        self.env = {e["key"]: e["value"] for e in envs if e["key"].startswith("KUBERNETES_")}

    async def service_env(self, pod: Object, *, static: bool) -> dict[str, str]:
        return self.env


async def test_the_requests_for_the_plain_pod_are_the_recorded_ones_whole(tmp_path: Path) -> None:
    recorded = recording("plain")
    pod = pod_of(recorded)
    wanted = recorded_container(calls(recorded, "CreateContainer")[0]["config"])
    runtime = FakeRuntime(images=images_of(recorded))
    image_id = runtime.images[images_of(recorded)[0]].id
    async with on_stage(tmp_path, runtime, pod_logs_dir="/var/log/pods") as stage:
        performer = stage.podsync.calls
        performer.facts = replace(NODE, root_dir=str(tmp_path / "root"))
        performer.directories = replace(performer.directories, pod_logs_dir=tmp_path / "logs")
        (tmp_path / "resolv.conf").write_text("nameserver 10.255.255.53\n")
        performer.resolv_conf = str(tmp_path / "resolv.conf")
        performer.cluster = RecordedServices(wanted["envs"])
        uid = stage.want(pod, source="api")
        volume = pod["spec"]["volumes"][0]["name"]
        mounted = MountedVolume(
            state=VolumeState.MOUNTED,
            host_path=f"{tmp_path}/root/pods/{uid}/volumes/kubernetes.io~projected/{volume}",
        )
        stage.mounted.put(uid, MountedVolumes(uid=uid, volumes={volume: mounted}))
        await stage.until(lambda: _all_running(stage, uid, pod))
        (sandbox,), (create,) = runtime.requests("RunPodSandbox"), runtime.requests("CreateContainer")
        theirs = recorded_sandbox(calls(recorded, "RunPodSandbox")[0]["config"])
        assert sandbox["config"] == theirs
        assert create["sandbox_config"] == theirs
        expected = with_our_places(wanted, tmp_path)
        expected["image"] = {**expected["image"], "image": image_id}
        assert without_random_names(create["config"]) == in_any_order(expected)
        seen = await runtime.observe(uid)
        assert create["pod_sandbox_id"] == seen[uid].sandboxes[0].id
        assert runtime.requests("StartContainer") == [{"container_id": seen[uid].containers[0].id}]
