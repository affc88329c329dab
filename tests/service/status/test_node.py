"""The Node in the API server: registered, reported, and right again after whatever happened to it or to us."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.pleg import NodeImage, NodeImages
from bus.messages.podsync import NodePressure
from shared.model.frozen_copy import replace
from tests.fakes.api_resources import V1_20
from tests.service.status.node_stage import DISK_PRESSURE, NAME, NODE, WELL, NodeStage, node_stage

pytestmark = pytest.mark.virtual_time

STATUS = f"{NODE}/status"


async def test_a_new_node_is_registered_with_labels_taints_and_status(tmp_path: Path) -> None:
    taints = ({"key": "dedicated", "value": "db", "effect": "NoSchedule"},)
    config: dict[str, Any] = {
        "node_labels": {"disk": "ssd"},
        "register_with_taints": taints,
        "provider_id": "cloud://1",
    }
    async with node_stage(tmp_path, **config) as stage:
        await stage.start()
        assert await stage.until(stage.ready, within=10) < 1
        node, status = stage.node, stage.node["status"]
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": NAME,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "disk": "ssd",
    }
    assert node["spec"]["taints"][0] == taints[0] and node["spec"]["providerID"] == "cloud://1"
    assert status["addresses"] == [
        {"type": "InternalIP", "address": "192.0.2.7"},
        {"type": "Hostname", "address": NAME},
    ]
    assert (status["capacity"]["cpu"], status["allocatable"]["cpu"]) == ("2", "1800m")
    assert status["nodeInfo"]["containerRuntimeVersion"] == "containerd://1.7.1"
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert status["images"] == [{"names": ["a:1"], "sizeBytes": 5}]
    assert status["features"] == {"supplementalGroupsPolicy": True}
    assert status["declaredFeatures"] == [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ]


async def test_a_node_that_exists_is_kept_and_set_right(stage: NodeStage) -> None:
    labels = {"kubernetes.io/hostname": "other", "team": "blue"}
    before = stage.api.put(
        NODE,
        {
            "metadata": {"labels": labels},
            "spec": {"unschedulable": True},
        },
    )
    await stage.start()
    await stage.until(stage.ready, within=10)
    node = stage.node
    assert node["metadata"]["uid"] == before["metadata"]["uid"]
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NAME
    assert node["metadata"]["labels"]["team"] == "blue"
    assert "NodeNotSchedulable" in stage.reasons()


async def test_a_node_that_is_not_to_be_registered_is_reported_once_it_is_registered(tmp_path: Path) -> None:
    async with node_stage(tmp_path, register_node=False) as stage:
        await stage.start()
        await stage.pass_time(30)
        assert stage.node == {} and ("POST", "/api/v1/nodes") not in stage.api.requests
        stage.api.put(NODE, {"metadata": {}})
        assert await stage.until(stage.ready, within=10) < 2


@pytest.mark.long
async def test_a_deleted_node_is_registered_by_the_next_start_of_the_agent_and_by_nothing_before(
    stage: NodeStage,
) -> None:
    await stage.start("g1")
    await stage.until(lambda: stage.ready() and stage.lease, within=10)
    stage.api.delete(NODE)
    await stage.pass_time(60)
    assert stage.node == {}
    await stage.kill()
    await stage.start("g1")  # a restart of status alone
    await stage.pass_time(60)
    assert stage.node == {}
    await stage.kill()
    await stage.start("g2")
    await stage.until(stage.ready, within=5)
    uid = stage.node["metadata"]["uid"]
    await stage.until(lambda: stage.lease["metadata"]["ownerReferences"][0]["uid"] == uid, within=15)
    assert len(stage.lease["metadata"]["ownerReferences"]) == 1


async def test_a_node_deleted_while_status_was_dead_stays_deleted(stage: NodeStage) -> None:
    stage.api.put(NODE, {"metadata": {}})  # found, not created
    await stage.start("g1")
    await stage.until(stage.ready, within=10)
    await stage.kill()
    stage.api.delete(NODE)
    await stage.start("g1")
    await stage.pass_time(30)
    assert stage.node == {}


async def test_a_deleted_node_is_asked_for_at_the_usual_pace_and_reported_again_once_it_is_there(
    stage: NodeStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.start()
    await stage.until(stage.ready, within=10)
    stage.api.delete(NODE)
    await stage.pass_time(1)
    asked = len(stage.api.requests)
    await stage.pass_time(60)
    assert len(stage.node_requests(asked)) <= 60
    assert sum("restart the agent to register it again" in line for line in caplog.messages) == 1
    stage.api.put(NODE, {"metadata": {}})
    await stage.until(stage.ready, within=2)


async def test_a_start_killed_before_it_registered_is_followed_by_one_that_does(stage: NodeStage) -> None:
    stage.api.down()
    await stage.start("g1")
    await stage.pass_time(20)
    await stage.kill()
    stage.api.up()
    await stage.start("g1")
    await stage.until(stage.ready, within=10)


async def test_a_node_whose_deletion_was_not_seen_yet_is_registered_at_the_start(stage: NodeStage) -> None:
    gone = stage.api.put(NODE, {"metadata": {}})
    await stage.pass_time(2)
    stage.watching = False
    stage.api.delete(NODE)
    await stage.start("g1")
    await stage.until(stage.ready, within=10)
    assert stage.node["metadata"]["uid"] != gone["metadata"]["uid"]


async def test_devices_of_an_earlier_kubelets_plugins_are_not_there(stage: NodeStage) -> None:
    lists = {"capacity": {"example.com/gpu": "8"}, "allocatable": {"example.com/gpu": "8"}}
    stage.api.put(NODE, {"metadata": {}, "status": lists})
    stage.host.device_resources = frozenset({"example.com/gpu"})
    await stage.start()
    await stage.until(stage.ready, within=10)
    status = stage.node["status"]
    assert status["capacity"]["example.com/gpu"] == status["allocatable"]["example.com/gpu"] == "0"


async def test_unhealthy_devices_of_another_kubelet_stay_zero_after_the_agent_set_zero_for_its_checkpoint(
    stage: NodeStage,
) -> None:
    await stage.start()
    await stage.until(stage.ready, within=10)
    stage.host.device_resources = frozenset({"example.com/gpu"})
    await stage.pass_time(15)
    assert stage.node["status"]["allocatable"]["example.com/gpu"] == "0"
    await stage.kill()  # a Go kubelet runs for a while, and its checkpoint is removed
    stage.host.device_resources = frozenset()
    lists = {"capacity": {"example.com/gpu": "8"}, "allocatable": {"example.com/gpu": "0"}}
    await stage.api.client().patch(f"{NODE}/status", {"status": lists})
    await stage.start("g2")
    await stage.pass_time(15)
    status = stage.node["status"]
    assert (status["capacity"]["example.com/gpu"], status["allocatable"]["example.com/gpu"]) == ("8", "0")


@pytest.mark.long
async def test_an_advertised_resource_is_allocatable_and_follows_its_capacity_also_after_a_restart(
    stage: NodeStage,
) -> None:
    await stage.start()
    await stage.until(stage.ready, within=10)
    for number, amount in enumerate(("4", "8", "2", "16")):
        await stage.api.client().patch(f"{NODE}/status", {"status": {"capacity": {"example.com/dongle": amount}}})
        if number == 2:
            await stage.kill()
            await stage.start("g2")
        await stage.pass_time(15)
        assert stage.node["status"]["allocatable"]["example.com/dongle"] == amount


@pytest.mark.long
async def test_an_idle_node_asks_nothing_between_reports(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(60)
    asked = len(stage.api.requests)
    heartbeat = stage.condition("Ready")["lastHeartbeatTime"]
    await stage.pass_time(240)
    assert stage.node_requests(asked) == []
    await stage.pass_time(70)
    assert stage.node_requests(asked) == [("PATCH", STATUS)]
    assert stage.condition("Ready")["lastHeartbeatTime"] > heartbeat


@pytest.mark.long
async def test_fields_that_an_older_server_drops_do_not_make_every_sync_a_patch(tmp_path: Path) -> None:
    async with node_stage(tmp_path, drops=V1_20) as stage:
        await stage.start()
        await stage.pass_time(30)
        asked = len(stage.api.requests)
        assert not {"features", "declaredFeatures"} & stage.node["status"].keys()
        await stage.pass_time(200)
        assert stage.node_requests(asked) == []
        stage.images.put("node", NodeImages(images=(NodeImage(id="j", names=("b:1",), size_bytes=6),)))
        await stage.pass_time(30)
        assert stage.node_requests(asked) == [("PATCH", STATUS)]
        assert stage.node["status"]["images"][0]["names"] == ["b:1"]


async def test_ready_and_pressure_are_written_at_once_with_their_events(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(33)
    before = stage.condition("DiskPressure")["lastTransitionTime"]
    stage.pressure.put("node", NodePressure(conditions=(DISK_PRESSURE,)))
    assert await stage.until(lambda: stage.condition("DiskPressure")["status"] == "True", within=10) < 1.5
    assert stage.condition("DiskPressure")["lastTransitionTime"] > before
    stage.observed.put("node", replace(WELL, network_ready=False, network_message="reason:R message:M"))
    assert await stage.until(lambda: not stage.ready(), within=10) < 1.5
    stage.observed.put("node", WELL)
    assert await stage.until(stage.ready, within=10) < 1.5
    assert stage.reasons()[-3:] == ["NodeHasDiskPressure", "NodeNotReady", "NodeReady"]


@pytest.mark.long
async def test_a_node_that_flaps_is_not_written_without_end(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(30)
    asked = len(stage.api.requests)
    for _ in range(100):
        stage.observed.put("node", replace(WELL, network_ready=False, network_message="reason:R message:M"))
        await stage.pass_time(0.3)
        stage.observed.put("node", WELL)
        await stage.pass_time(0.3)
    assert len(stage.node_requests(asked)) < 50
    assert await stage.until(stage.ready, within=11) < 11


@pytest.mark.long
async def test_after_an_outage_the_node_is_right_within_its_period(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(30)
    stage.api.down()
    await stage.pass_time(5)
    stage.pressure.put("node", NodePressure(conditions=(DISK_PRESSURE,)))
    await stage.pass_time(120)
    stage.api.up()
    took = await stage.until(lambda: stage.condition("DiskPressure")["status"] == "True", within=20)
    assert took <= 10.4


async def test_a_server_that_is_slow_or_throttles_is_written_to_all_the_same(stage: NodeStage) -> None:
    stage.api.slow(3)
    await stage.start()
    await stage.until(stage.ready, within=30)
    stage.api.refuse(3, 429, retry_after=1)
    stage.pressure.put("node", NodePressure(conditions=(DISK_PRESSURE,)))
    await stage.until(lambda: stage.condition("DiskPressure")["status"] == "True", within=30)


async def test_idle_connections_are_dropped_from_the_second_failed_try_on(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(30)
    assert stage.heartbeat.connections_dropped == 0
    stage.api.down()
    await stage.pass_time(11)
    assert stage.heartbeat.connections_dropped >= 4


@pytest.mark.long
async def test_a_killed_status_never_makes_the_node_unready(stage: NodeStage) -> None:
    await stage.start()
    await stage.until(stage.ready, within=10)
    moved = stage.condition("Ready")["lastTransitionTime"]
    versions = []
    for number in range(5):
        await stage.pass_time(7 * number)
        await stage.kill()
        stage.observed.delete("node")  # pleg went down with it
        await stage.pass_time(1.5)
        await stage.start()
        await stage.pass_time(4)
        versions.append(stage.ready())
        stage.observed.put("node", WELL)
        await stage.pass_time(3)
        versions.append(stage.ready())
    assert all(versions)
    assert stage.condition("Ready")["lastTransitionTime"] == moved
    assert "NodeNotReady" not in stage.reasons()


@pytest.mark.long
async def test_the_start_of_the_agent_is_recorded_once_under_one_supervisord(stage: NodeStage) -> None:
    for generation in ("g1", "g1", "g2"):
        await stage.start(generation)
        await stage.pass_time(5)
        await stage.kill()
    assert stage.reasons().count("Starting") == 2


async def test_a_reboot_is_recorded_once(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(5)
    await stage.kill()
    stage.host.facts = replace(stage.host.facts, boot_id="b2")
    await stage.start("g2")
    await stage.pass_time(30)
    assert stage.reasons().count("Rebooted") == 1
    assert stage.node["status"]["nodeInfo"]["bootID"] == "b2"


async def test_a_node_object_with_odd_fields_stops_nothing(stage: NodeStage) -> None:
    conditions = [{"type": "Ready"}, {"type": "Mine", "status": "True"}]
    odd = {"conditions": conditions, "capacity": None, "nodeInfo": None, "addresses": None}
    stage.api.put(NODE, {"metadata": {"labels": None}, "status": odd})
    await stage.start()
    await stage.pass_time(15)
    assert stage.ready() and stage.node["status"]["capacity"]["cpu"] == "2"
    assert stage.condition("Mine") == {"type": "Mine", "status": "True"}
