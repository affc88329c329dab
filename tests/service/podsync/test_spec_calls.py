"""What of a pod's spec goes through other hands than the core's: ids of user namespaces, files of variables, handlers,
images as volumes; as the runtime is asked for it."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from bus.messages.pleg import NodeObserved, RuntimeHandler
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.adapters.calls import pod_operations
from services.podsync.adapters.pod.env_files import MAX_AT_ONCE
from services.podsync.core.cri.environment import EnvFile, EnvFiles
from services.podsync.core.pod.events import CallDone, CallFailed
from shared.model.objects import Object
from tests.service.podsync.performer import Performer
from tests.service.podsync.performer import a_container as performed_container
from tests.service.podsync.performer import a_pod as performed_pod
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_podsync_service import a_pod
from tests.support.waits.deadline import WAIT_SECONDS

NO_USERS = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
FIRST = [{"host_id": 65536, "length": 65536}]


def report_handlers(stage: Stage, *handlers: RuntimeHandler) -> None:
    """pleg reports the runtime's handlers."""
    observed = NodeObserved(
        observed_at=2.0, runtime_reachable=True, runtime_ready=True, network_ready=True, runtime_handlers=handlers
    )
    stage.node.put("node", observed)


def mounted(stage: Stage, uid: str, path: Path) -> None:
    """volume has mounted `v`."""
    path.mkdir(parents=True, exist_ok=True)
    volumes = {"v": MountedVolume(state=VolumeState.MOUNTED, host_path=str(path))}
    stage.mounted.put(uid, MountedVolumes(uid=uid, volumes=volumes))


def with_container(**fields: Any) -> dict[str, Any]:
    pod = a_pod(volumes=[{"name": "v", "emptyDir": {}}])
    pod["spec"]["containers"][0] |= fields
    return pod


def messages(stage: Stage) -> list[str]:
    return [event.message for event in stage.events.state.values()]


async def test_a_user_namespace_is_saved_before_the_call_to_the_runtime(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        report_handlers(stage, RuntimeHandler(name="", user_namespaces=True))
        await stage.network.settle()
        sandbox = stage.runtime.hang("RunPodSandbox")
        uid = stage.want(a_pod(hostUsers=False))
        await stage.until(sandbox.reached.is_set)
        record = json.loads((tmp_path / "root/pods" / uid / "userns").read_bytes())
        assert record["uidMappings"] == record["gidMappings"] == [{"hostId": 65536, "containerId": 0, "length": 65536}]
        sandbox.release.set()
        await stage.until(lambda: stage.running(uid))
        asked = stage.runtime.requests("RunPodSandbox")[0]["config"]["linux"]["security_context"]
        assert asked["namespace_options"]["userns_options"] == {"uids": FIRST, "gids": FIRST}
        made = stage.runtime.requests("CreateContainer")[0]["config"]
        assert made["linux"]["security_context"]["namespace_options"]["userns_options"]["uids"] == FIRST
        assert all(mount["uidMappings"] == mount["gidMappings"] == FIRST for mount in made["mounts"])


@pytest.mark.long
async def test_a_restarted_podsync_gives_no_other_pod_the_same_user_ids(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        report_handlers(stage, RuntimeHandler(name="", user_namespaces=True))
        await stage.network.settle()
        await stage.run_pod(a_pod(hostUsers=False))
        await stage.restart()
        other = a_pod("u2", hostUsers=False)
        other["metadata"]["name"] = "other-node1"
        await stage.run_pod(other)
        options = stage.runtime.requests("RunPodSandbox")[-1]["config"]["linux"]["security_context"]
        assert options["namespace_options"]["userns_options"]["uids"] == [{"host_id": 131072, "length": 65536}]


async def test_users_are_free_again_when_the_pod_has_ended(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        report_handlers(stage, RuntimeHandler(name="", user_namespaces=True))
        await stage.network.settle()
        uid = await stage.run_pod(a_pod(hostUsers=False))
        stage.desired.delete(uid)
        await stage.until(lambda: not (tmp_path / "root/pods" / uid / "userns").exists())


async def test_users_of_its_own_are_refused_where_the_runtime_has_none_and_nothing_is_given(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod(hostUsers=False))
        await stage.until(lambda: f"Failed to create pod sandbox: {NO_USERS}" in messages(stage))
        assert not (tmp_path / "root/pods" / uid / "userns").exists()
        assert stage.runtime.requests("RunPodSandbox") == []


async def test_variables_come_from_a_file_in_a_volume(tmp_path: Path) -> None:
    reference = {"volumeName": "v", "path": "a.env", "key": "A"}
    pod = with_container(env=[{"name": "E", "valueFrom": {"fileKeyRef": reference}}], volumeMounts=[
        {"name": "v", "mountPath": "/v"}])  # fmt: skip
    async with on_stage(tmp_path) as stage:
        uid = stage.want(pod)
        mounted(stage, uid, tmp_path / "v")
        (tmp_path / "v" / "a.env").write_text("A='from a file'\n")
        await stage.until(lambda: stage.running(uid))
        assert stage.runtime.requests("CreateContainer")[0]["config"]["envs"] == [{"key": "E", "value": "from a file"}]


@pytest.mark.long
async def test_files_of_variables_that_take_long_to_read_delay_no_other_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, under_way, most = threading.Event(), 0, 0
    counted = threading.Lock()

    def read(container: Object, volumes: object) -> EnvFiles:
        nonlocal under_way, most
        with counted:
            under_way += 1
            most = max(most, under_way)
        assert go_on.wait(WAIT_SECONDS)
        with counted:
            under_way -= 1
        return {("v", "a.env"): EnvFile({"A": "x"})}

    monkeypatch.setattr(pod_operations, "read_env_files", read)
    reference = {"volumeName": "v", "path": "a.env", "key": "A"}
    async with on_stage(tmp_path) as stage:
        slow = []
        for number in range(40):
            pod = with_container(env=[{"name": "E", "valueFrom": {"fileKeyRef": reference}}])
            pod["metadata"] |= {"uid": f"slow-{number}", "name": f"slow-{number}"}
            slow.append(stage.want(pod))
            mounted(stage, slow[-1], tmp_path / "v")
        try:
            await stage.until(lambda: under_way == MAX_AT_ONCE)
            await stage.run_pod(a_pod())
            assert most == MAX_AT_ONCE
        finally:
            go_on.set()
        await stage.until(lambda: all(stage.running(uid) for uid in slow))


@pytest.mark.long
async def test_a_cluster_without_a_name_server_causes_events_of_pod_and_node(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        await stage.run_pod(a_pod(dnsPolicy="ClusterFirst"))
        observed = [(e.kind, e.name) for e in stage.events.state.values() if e.reason == "MissingClusterDNS"]
        assert sorted(observed) == [("Node", "node1"), ("Pod", "web-node1")]


async def test_no_container_is_created_from_an_image_that_its_spec_names_no_longer(tmp_path: Path) -> None:
    performer = Performer(tmp_path, performed_pod(performed_container(), enableServiceLinks=False))
    call = await performer.creation()
    performer.pod = performed_pod(performed_container(image="busybox:2"), enableServiceLinks=False)
    failed = await performer.perform(call)
    assert isinstance(failed, CallFailed) and failed.interrupted
    assert performer.runtime.requests("CreateContainer") == []
    performer.pod = performed_pod(performed_container(tty=True), enableServiceLinks=False)
    assert isinstance(await performer.perform(call), CallDone)
