"""A container gets what the plugins have answered for the devices that it was given (node.md 4.15)."""

from typing import Any

import pytest

from bus.messages.device_plugins import AllocatedDevices, DeviceMount, DeviceNode
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.container_mounts import MountedVolume
from services.podsync.core.cri.user_namespaces import Mappings
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import ContainerDevices, ContainerPlacement, PodPlacement
from shared.cri.interface import Message
from shared.podspec.exec_space import MAX_STRING_BYTES
from tests.unit.podsync.cri.container_messages import a_pod, built, env_of

GPU = AllocatedDevices(
    envs={"GPUS": "GPU-1"},
    mounts=(DeviceMount(container_path="/usr/lib/gpu", host_path="/opt/gpu", read_only=True),),
    devices=(DeviceNode(container_path="/dev/gpu0", host_path="/dev/gpu1", permissions="rw"),),
    annotations={"gpu.example/mode": "shared"},
    cdi_devices=("example.com/gpu=1",),
)


def given(**resources: AllocatedDevices | None) -> NodeFacts:
    devices = tuple(
        ContainerDevices(resource=f"example.com/{name}", ids=frozenset(("1",)), setup=setup)
        for name, setup in resources.items()
    )
    return NodeFacts(node_name="n", placement=PodPlacement(containers={"c": ContainerPlacement(devices=devices)}))


def message_with(container: dict[str, Any] | None = None, facts: NodeFacts | None = None, **changes: Any) -> Message:
    return built(a_pod(container), facts=facts or given(gpu=GPU), **changes)


def test_a_container_gets_what_the_plugin_has_answered() -> None:
    message = message_with()
    assert env_of(message) == {"GPUS": "GPU-1"}
    assert message["mounts"][0] == {"container_path": "/usr/lib/gpu", "host_path": "/opt/gpu", "readonly": True}
    assert message["devices"] == [{"container_path": "/dev/gpu0", "host_path": "/dev/gpu1", "permissions": "rw"}]
    assert list(message["CDI_devices"]) == [{"name": "example.com/gpu=1"}]
    assert message["annotations"]["gpu.example/mode"] == "shared"


def test_a_container_of_the_pod_without_devices_gets_nothing_of_them() -> None:
    facts = given(gpu=GPU)
    placement = PodPlacement(containers={"other": facts.placement.containers["c"]})
    message = message_with(facts=NodeFacts(node_name="n", placement=placement))
    assert not {"CDI_devices", "devices", "envs"} & message.keys()
    assert message == built(a_pod(), facts=NodeFacts(node_name="n"))


def test_the_variables_of_the_container_override_those_of_the_plugin_and_see_them_in_its_command() -> None:
    container = {
        "env": [{"name": "GPUS", "value": "none"}, {"name": "SEEN", "value": "$(MODE)"}],
        "command": ["run", "$(GPUS)", "$(MODE)"],
    }
    setup = AllocatedDevices(envs={"GPUS": "GPU-1", "MODE": "fast"})
    message = message_with(container, given(gpu=setup))
    # SEEN is not expanded: in the kubelet, too, the variables of the spec do not see those of plugins.
    assert env_of(message) == {"GPUS": "none", "MODE": "fast", "SEEN": "$(MODE)"}
    assert [env["key"] for env in message["envs"]] == ["MODE", "GPUS", "SEEN"]
    assert message["command"] == ["run", "none", "fast"]


def test_mounts_and_devices_of_plugins_come_before_those_of_the_spec() -> None:
    container = {
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "volumeDevices": [{"name": "disk", "devicePath": "/dev/xvda"}],
    }
    volumes = {
        "data": MountedVolume(host_path="/v/data"),
        "disk": MountedVolume(host_path="/v/disk", block=True),
    }
    message = message_with(container, volumes=volumes)
    assert [m["container_path"] for m in message["mounts"]] == [
        "/usr/lib/gpu",
        "/data",
        "/etc/hosts",
        "/dev/termination-log",
    ]
    assert [d["container_path"] for d in message["devices"]] == ["/dev/gpu0", "/dev/xvda"]


def test_the_ids_of_the_pods_user_namespace_are_in_the_mounts_of_plugins_too() -> None:
    ids = ((1 << 16, 0, 1 << 16),)
    mount = message_with(mappings=Mappings(uids=ids, gids=ids))["mounts"][0]
    assert mount["uidMappings"] == mount["gidMappings"] == [{"host_id": 1 << 16, "length": 1 << 16}]


def test_of_two_resources_that_name_the_same_thing_the_first_by_name_counts() -> None:
    other = AllocatedDevices(
        envs={"GPUS": "x", "NIC": "eth1"},
        mounts=(
            DeviceMount(container_path="/usr/lib/gpu", host_path="/other"),
            DeviceMount(container_path="/nic", host_path="/nic"),
        ),
        devices=(DeviceNode(container_path="/dev/gpu0", host_path="/dev/other"),),
        annotations={"gpu.example/mode": "x", "nic.example/mode": "y"},
        cdi_devices=("example.com/gpu=1", "example.com/nic=1"),
    )
    message = message_with(facts=given(nic=other, gpu=GPU))
    assert env_of(message) == {"GPUS": "GPU-1", "NIC": "eth1"}
    assert [(m["container_path"], m["host_path"]) for m in message["mounts"][:2]] == [
        ("/usr/lib/gpu", "/opt/gpu"),
        ("/nic", "/nic"),
    ]
    assert [d["host_path"] for d in message["devices"]] == ["/dev/gpu1"]
    assert message["annotations"]["gpu.example/mode"] == "shared"
    assert message["annotations"]["nic.example/mode"] == "y"
    assert [d["name"] for d in message["CDI_devices"]] == ["example.com/gpu=1", "example.com/nic=1"]


def test_the_annotations_that_the_agent_reads_back_are_its_own() -> None:
    setup = AllocatedDevices(annotations={"io.kubernetes.container.restartCount": "99"})
    message = message_with(facts=given(gpu=setup), restart_count=3)
    assert message["annotations"]["io.kubernetes.container.restartCount"] == "3"


def test_no_container_starts_without_the_devices_that_its_plugin_has_not_allocated_yet() -> None:
    with pytest.raises(ContainerConfigError, match=r"^the device plugin of example\.com/gpu has not allocated"):
        message_with(facts=given(gpu=None))


@pytest.mark.parametrize(
    ("value", "text"),
    [("x" * MAX_STRING_BYTES, "is too long"), ("x" * 100_000, "does not fit")],
    ids=["one", "all together"],
)
def test_variables_for_which_the_kernel_has_no_room_are_an_error_of_one_line(value: str, text: str) -> None:
    setup = AllocatedDevices(envs={f"GPU_{index}": value for index in range(30)})
    with pytest.raises(ContainerConfigError, match=f'^environment variable "GPU_[0-9]*" of a device plugin {text}'):
        message_with(facts=given(gpu=setup))
