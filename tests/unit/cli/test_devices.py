"""`bulkhead devices` shows which devices the node has, and which containers have them, as tables and as data."""

from typing import Any

import pytest
from msgspec import to_builtins

from services.cli.agent.devices import Health, device_lines, device_report
from shared.time.timestamps import local_text

GPU, NIC = "example.com/gpu", "example.com/nic"
T1, T2 = local_text(2e9), local_text(2e9 + 60)


def device(name: str, healthy: bool = True, *nodes: int) -> dict[str, Any]:
    return {"id": name, "healthy": healthy, "nodes": list(nodes), "since": 2e9 if healthy else 2e9 + 60}


def resource(name: str, *devices: dict[str, Any], connected: bool = True, **more: Any) -> dict[str, Any]:
    return {"resource": name, "connected": connected, "since": 2e9, "devices": list(devices), **more}


def admitted(name: str, devices: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    given = {
        container: [{"resource": each, "ids": ids} for each, ids in held.items()] for container, held in devices.items()
    }
    return {"uid": f"u-{name}", "name": name, "namespace": "shop", "devices": given}


GPUS = resource(GPU, device("b", False, 1), device("a", True, 0, 1), device("c"))
WEB = admitted("web", {"init": {GPU: ["a"]}, "app": {GPU: ["a"], NIC: ["eth0"]}})


def test_each_device_has_its_health_its_nodes_and_its_containers() -> None:
    gone = resource(NIC, connected=False, dropped=True, error="the plugin has ended")
    lines = device_lines(device_report([gone, GPUS], [admitted("lone", {}), WEB], {}), 0)
    assert lines == [
        "RESOURCE         CAPACITY  ALLOCATABLE  USED  PLUGIN     SINCE",
        f"example.com/gpu  3         2            1     connected  {T1}",
        f"example.com/nic  0         0            1     dropped    {T1}",
        "example.com/nic: the plugin has ended",
        "",
        "RESOURCE         DEVICE  HEALTH      SINCE                NUMA  CONTAINERS",
        f"example.com/gpu  a       Healthy     {T1}  0,1   shop/web/init, shop/web/app",
        f"example.com/gpu  b       Unhealthy   {T2}  1",
        f"example.com/gpu  c       Healthy     {T1}  -",
        "example.com/nic  eth0    not listed  -                    -     shop/web/app",
    ]


def test_the_devices_of_claims_are_listed_by_pod_with_their_health_and_those_of_unknown_pods_are_not() -> None:
    sick = {
        "driver": "nic.example.com",
        "pool": "n1",
        "device": "nic-0",
        "health": "Unhealthy",
        "message": "no\x1blink",
    }
    well = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    held = {"name": "net", "claim": "web-net", "state": "prepared", "devices": [well, sick]}
    waiting = {"name": "late", "claim": "late", "state": "pending"}
    claims: dict[str, dict[str, Any]] = {
        "u-web": {"uid": "u-web", "claims": [held, waiting]},
        "gone": {"uid": "gone", "claims": [held]},
    }
    report = device_report([], [admitted("web", {})], claims)
    assert device_lines(report, 0) == [
        "no device plugin has registered",
        "",
        "CLAIM         DRIVER           POOL  DEVICE  HEALTH     POD",
        "shop/web-net  gpu.example.com  n1    gpu-0   -          shop/web",
        "shop/web-net  nic.example.com  n1    nic-0   Unhealthy  shop/web",
    ]
    assert [(row.uid, row.device, row.health, row.message) for row in report.claims] == [
        ("u-web", "gpu-0", "", ""),
        ("u-web", "nic-0", "Unhealthy", "no\x1blink"),
    ]


def test_a_plugin_within_its_grace_is_not_connected_and_its_reason_is_one_line() -> None:
    away = resource(GPU, device("a", False), connected=False, error="rpc error\x1b[31m: code = Unavailable")
    lines = device_lines(device_report([away], [], {}), 0)
    assert lines[1].split()[:6] == [GPU, "1", "0", "0", "not", "connected"]
    assert lines[2].startswith(f"{GPU}: rpc error") and "\x1b" not in lines[2]


def test_the_device_of_a_resource_that_no_plugin_has_any_more_is_shown_with_its_container() -> None:
    report = device_report([], [WEB], {})
    assert report.resources == ()
    assert [(row.resource, row.device, row.health) for row in report.devices] == [
        (GPU, "a", Health.NOT_LISTED),
        (NIC, "eth0", Health.NOT_LISTED),
    ]


def test_the_data_has_moments_as_kubernetes_writes_them() -> None:
    data = to_builtins(device_report([GPUS], [WEB], {}))
    assert data["resources"][0] == {
        "resource": GPU,
        "connected": True,
        "since": "2033-05-18T03:33:20Z",
        "dropped": False,
        "error": "",
        "capacity": 3,
        "allocatable": 2,
        "used": 1,
    }
    assert data["devices"][1] == {
        "resource": GPU,
        "device": "b",
        "health": "Unhealthy",
        "since": "2033-05-18T03:34:20Z",
        "numa_nodes": (1,),
        "containers": (),
    }


@pytest.mark.parametrize("pods", [[], [admitted("lone", {})], [{"uid": "u", "name": "n", "namespace": "d"}]])
def test_a_node_without_device_plugins_says_so(pods: list[dict[str, Any]]) -> None:
    assert device_lines(device_report([], pods, {}), 0) == ["no device plugin has registered"]


def test_an_earlier_volume_sends_no_moment_for_a_device() -> None:
    old = resource(GPU, {"id": "a", "healthy": True, "nodes": []})
    [row] = device_report([old], [], {}).devices
    assert (row.since, row.health) == (None, Health.HEALTHY)
