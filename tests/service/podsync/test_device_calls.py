"""A container gets its devices when it is created, and their plugins are called before (node.md 4.15)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bus.messages.device_plugins import (
    AllocatedDevices,
    DeviceNode,
    DeviceResource,
    PreStartedContainer,
)
from services.podsync.adapters.device_requests import DeviceRequests
from services.podsync.core.placement.pod_placement import ContainerDevices, ContainerPlacement, PodPlacement
from services.podsync.core.pod.call_results import ContainerCreated
from services.podsync.core.pod.events import CallDone, CallFailed
from shared.model.frozen_copy import replace
from tests.service.podsync.performer import Performer, a_container, a_pod

GPU, NIC = "example.com/gpu", "example.com/nic"
SETUP = AllocatedDevices(
    envs={"GPUS": "g1"},
    devices=(DeviceNode(container_path="/dev/gpu0", host_path="/dev/null", permissions="rw"),),
    cdi_devices=("example.com/gpu=g1",),
)


class Plugins(DeviceRequests):
    """Plays volume and the device plugins for the calls."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}  # of PreStartContainer, by resource
        self.asked: list[tuple[str, tuple[str, ...], int]] = []  # resource, ids, containers created before
        self.created: Callable[[], int] = lambda: 0

    async def pre_start(self, resource: str, ids: tuple[str, ...]) -> PreStartedContainer:
        self.asked.append((resource, ids, self.created()))
        return PreStartedContainer(error=self.errors.get(resource, ""))


class Node(Performer):
    """Performs the calls for a pod whose container has two GPUs and a NIC."""

    def __init__(self, directory: Path) -> None:
        self.plugins = Plugins()
        self.plugins.created = lambda: len(self.created())
        spec = a_container(command=["run", "$(GPUS)"], terminationMessagePath="")
        super().__init__(directory, a_pod(spec, enableServiceLinks=True), devices=self.plugins)
        given = (
            ContainerDevices(resource=NIC, ids=frozenset({"n1"}), setup=AllocatedDevices()),
            ContainerDevices(resource=GPU, ids=frozenset({"g2", "g1"}), setup=SETUP),
        )
        self.placement = PodPlacement(containers={"c": ContainerPlacement(devices=given)})
        self.resources = {
            name: DeviceResource(resource=name, connected=True, since=1.0, pre_start_required=name == GPU)
            for name in (GPU, NIC)
        }

    def created(self) -> list[dict[str, Any]]:
        """Return the configurations of the containers that were created."""
        return [request["config"] for request in self.runtime.requests("CreateContainer")]


async def test_the_plugin_that_requires_it_is_called_before_the_container_is_created(tmp_path: Path) -> None:
    node = Node(tmp_path)
    outcome = await node.create()
    assert isinstance(outcome, CallDone)
    assert isinstance(outcome.result, ContainerCreated)
    assert node.plugins.asked == [(GPU, ("g1", "g2"), 0)]
    config = node.created()[0]
    assert [(env["key"], env["value"]) for env in config["envs"]] == [("GPUS", "g1")]
    assert config["command"] == ["run", "g1"]
    assert [device["host_path"] for device in config["devices"]] == ["/dev/null"]
    assert [device["name"] for device in config["CDI_devices"]] == ["example.com/gpu=g1"]


async def test_each_start_calls_the_plugin(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.create()
    await node.perform(replace(await node.creation(), attempt=1))
    assert [resource for resource, _, _ in node.plugins.asked] == [GPU, GPU]


async def test_a_plugin_that_fails_keeps_the_container_from_being_created(tmp_path: Path) -> None:
    node = Node(tmp_path)
    text = "device plugin PreStartContainer rpc failed for example.com/gpu with err: no"
    node.plugins.errors[GPU] = text
    outcome = await node.create()
    assert isinstance(outcome, CallFailed)
    assert (outcome.reason, outcome.text) == ("CreateContainerConfigError", text)
    assert node.created() == []


async def test_a_container_waits_until_it_is_known_what_its_plugin_requires(tmp_path: Path) -> None:
    node = Node(tmp_path)
    known, node.resources, node.resources_known = node.resources, {}, False
    outcome = await node.create()
    assert isinstance(outcome, CallFailed)
    assert outcome.text == "the device plugin of example.com/gpu is not known yet"
    node.resources = known
    assert isinstance(await node.create(), CallDone)
    assert len(node.plugins.asked) == 1


async def test_a_resource_that_no_plugin_has_any_more_is_not_asked_about(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.resources = {}
    assert isinstance(await node.create(), CallDone)
    assert node.plugins.asked == []


@pytest.mark.parametrize("container", ["other", "c"])
async def test_only_the_container_that_has_the_devices_gets_them(tmp_path: Path, container: str) -> None:
    node = Node(tmp_path)
    node.placement = PodPlacement(containers={container: node.placement.containers["c"]})
    await node.create()
    assert ("CDI_devices" in node.created()[0]) == (container == "c") == bool(node.plugins.asked)
