"""Devices pass from the Go kubelet's file to placements, and from placements to a file that the Go kubelet reads."""

from pathlib import Path

import pytest

from bus.messages.device_plugins import (
    MAX_DEVICES,
    MAX_RESOURCES,
    AllocatedDevices,
    Device,
    DeviceMount,
    DeviceNode,
    DeviceResource,
)
from services.podsync.adapters.allocation_bytes import read_answer, write_answer
from services.podsync.adapters.inherited_placements import read_inherited_placements
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.device_state import ContainerDevices as Entry
from services.podsync.core.checkpoints.device_state import DeviceState, read_device_state
from services.podsync.core.checkpoints.device_takeover import device_state_of, devices_of
from services.podsync.core.checkpoints.takeover import placements_of
from services.podsync.core.placement.pod_placement import ContainerDevices, ContainerPlacement, PodPlacement
from services.podsync.core.pod.devices_format import plain_devices, read_devices
from shared.config.effective import EffectiveConfig

GPU, NIC = "example.com/gpu", "example.com/nic"
CONFIG = EffectiveConfig(node_name="n1", root_dir="/r", run_dir="/u", log_dir="/l", cert_dir="/c")
SETUP = AllocatedDevices(
    envs={"VISIBLE": "a,b", "MODE": "x"},
    mounts=(DeviceMount(container_path="/lib/gpu", host_path="/opt/gpu", read_only=True),),
    devices=(DeviceNode(container_path="/dev/gpu0", host_path="/dev/null", permissions="rw"),),
    annotations={"example.com/devices": "a,b"},
    cdi_devices=("example.com/gpu=a",),
)
NULL_DEVICE = b"\x1a\x1a\x0a\x09/dev/null\x12\x09/dev/null\x1a\x02rw"  # a DeviceSpec as Go's protobuf writes it


def given(*ids: str, resource: str = GPU, setup: AllocatedDevices | None = SETUP) -> ContainerDevices:
    return ContainerDevices(resource=resource, ids=frozenset(ids), setup=setup)


def placed(*devices: ContainerDevices) -> PodPlacement:
    return PodPlacement(containers={"c": ContainerPlacement(devices=devices)})


def listed(*devices: Device, resource: str = GPU, connected: bool = True, dropped: bool = False) -> DeviceResource:
    return DeviceResource(resource=resource, connected=connected, since=1.0, dropped=dropped, devices=devices)


RESOURCES = {
    GPU: listed(
        Device(id="a", healthy=True, nodes=(0, 1)),
        Device(id="b", healthy=True),
        Device(id="c", healthy=False, nodes=(1,)),
    ),
    NIC: listed(resource=NIC, dropped=True),
}


def test_the_devices_of_the_pods_are_in_the_file_by_numa_node_and_only_healthy_ones_are_registered() -> None:
    state = device_state_of({"u": placed(given("a", "b", "c"))}, RESOURCES, write_answer)
    [entry] = state.allocated
    assert (entry.pod_uid, entry.container, entry.resource) == ("u", "c", GPU)
    assert entry.devices == {-1: ("b",), 0: ("a",), 1: ("a", "c")}
    assert state.registered == {GPU: ("a", "b")}


def test_devices_that_the_plugin_has_not_prepared_are_not_in_the_file() -> None:
    state = device_state_of({"u": placed(given("a", setup=None))}, RESOURCES, write_answer)
    assert state == DeviceState(registered={GPU: ("a", "b")})


def test_what_is_written_is_read_as_the_same_placements(tmp_path: Path) -> None:
    placements = {"u": placed(given("a", "b"), given("n", resource=NIC, setup=AllocatedDevices())), "v": placed()}
    (tmp_path / "device-plugins").mkdir()
    PlacementFiles(tmp_path).write_devices(device_state_of(placements, RESOURCES, write_answer))
    assert read_inherited_placements(CONFIG, None, PlacementFiles(tmp_path)) == {"u": placements["u"]}


def test_the_answer_of_the_go_kubelets_file_is_what_its_plugin_sent() -> None:
    answer = read_answer(NULL_DEVICE)
    node = DeviceNode(container_path="/dev/null", host_path="/dev/null", permissions="rw")
    assert answer == AllocatedDevices(devices=(node,))
    assert write_answer(answer) == NULL_DEVICE
    assert read_answer(b"\xff\xff") is None


def test_devices_whose_answer_is_damaged_are_prepared_again() -> None:
    state = device_state_of({"u": placed(given("a"))}, RESOURCES, lambda answer: b"\xff\xff")
    assert placements_of(None, None, devices_of(state, read_answer)[0]) == {"u": placed(given("a", setup=None))}


def test_a_file_that_cannot_be_used_is_one_line_and_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    file.parent.mkdir()
    file.write_bytes(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}')
    files = PlacementFiles(tmp_path)
    assert files.read_devices() is None
    [line] = caplog.messages
    assert str(file) in line and "checkpoint is corrupted" in line and "\n" not in line
    files.write_devices(device_state_of({}, RESOURCES, write_answer))
    assert read_device_state(file.read_bytes()).registered == {GPU: ("a", "b")}


def test_a_node_without_device_plugins_gets_no_file_and_an_existing_one_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    files = PlacementFiles(tmp_path)
    files.write_devices(DeviceState())
    assert files.read_devices() is None
    files.write_devices(DeviceState(registered={GPU: ("a",)}))
    files.write_devices(DeviceState())
    assert files.read_devices() == DeviceState()


def test_an_entry_that_no_record_can_have_is_left_out_and_the_others_are_taken_over() -> None:
    """A record with it could not be read again, so the next process would forget the pod."""
    many = tuple(str(number) for number in range(MAX_DEVICES + 1))
    resources = [f"example.com/r{number:02}" for number in range(MAX_RESOURCES + 1)]
    entries = [Entry(pod_uid="u", container="c", resource=name, devices={-1: ("a",)}) for name in resources]
    entries.append(Entry(pod_uid="u", container="d", resource=GPU, devices={-1: many}))
    entries.append(Entry(pod_uid="u", container="d", resource=NIC, devices={-1: ("a",)}))
    found, refused = devices_of(DeviceState(allocated=tuple(entries), registered={}), read_answer)
    assert len(refused) == 2 and "'d' of pod 'u' has 10001 devices" in refused[1]
    assert [each.resource for each in found["u"]["c"]] == resources[:-1]
    assert [each.resource for each in found["u"]["d"]] == [NIC]
    for devices in found["u"].values():
        assert read_devices(plain_devices(devices)) == devices
