"""The addresses in a container's environment are those of its pod's status: both come from the Node."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.sources import NodeObject
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_podsync_service import a_pod

ADDRESSES = [
    {"type": "Hostname", "address": "node1"},
    {"type": "ExternalIP", "address": "198.51.100.9"},
    {"type": "InternalIP", "address": "2001:db8::9"},
    {"type": "InternalIP", "address": "192.0.2.9"},
]
FIELDS = ("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")


def asking(**spec: Any) -> dict[str, Any]:
    pod = a_pod(**spec)
    pod["spec"]["containers"][0]["env"] = [
        {"name": path, "valueFrom": {"fieldRef": {"fieldPath": path}}} for path in FIELDS
    ]
    return pod


def shown(stage: Stage, uid: str) -> dict[str, str]:
    """The status's addresses as an environment has them."""
    status = stage.status(uid)
    lists = {f"status.{name}": ",".join(entry["ip"] for entry in status[name]) for name in ("hostIPs", "podIPs")}
    return {"status.hostIP": status["hostIP"], "status.podIP": status["podIP"], **lists}


def environment(stage: Stage) -> dict[str, str]:
    request = stage.runtime.requests("CreateContainer")[-1]
    return {entry["key"]: entry.get("value", "") for entry in request["config"]["envs"]}


@pytest.mark.long
@pytest.mark.parametrize("host_network", [False, True])
async def test_the_environment_has_the_addresses_of_the_status(tmp_path: Path, host_network: bool) -> None:
    async with on_stage(tmp_path) as stage:
        stage.node_object.put(
            "node", NodeObject(node={"metadata": {"name": "node1"}, "status": {"addresses": ADDRESSES}})
        )
        await stage.network.settle()
        uid = await stage.run_pod(asking(hostNetwork=host_network))
        assert environment(stage) == shown(stage, uid)
        assert shown(stage, uid)["status.hostIPs"] == "2001:db8::9,192.0.2.9"


@pytest.mark.long
async def test_a_host_network_pod_that_showed_an_address_keeps_it_in_its_next_environment(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.node_object.put(
            "node", NodeObject(node={"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}})
        )
        uid = await stage.run_pod(asking(hostNetwork=True))
        stage.node_object.put(
            "node", NodeObject(node={"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.8"}]}})
        )
        await stage.until(lambda: stage.status(uid)["hostIP"] == "192.0.2.8")
        stage.network.clock.advance(1.0)
        (container,) = (await stage.runtime.observe(uid))[uid].containers
        stage.runtime.exit_container(container.id, 1)
        stage.seen.put(uid, (await stage.runtime.observe(uid))[uid])
        await stage.until(lambda: stage.running(uid) and stage.status(uid)["containerStatuses"][0]["restartCount"])
        assert environment(stage) == shown(stage, uid)
        assert shown(stage, uid)["status.podIP"] == "192.0.2.9"
