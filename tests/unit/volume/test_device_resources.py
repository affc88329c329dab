"""Which resources the node has as device plugins register, list, end and come back (node.md 4.15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages.device_plugins import MAX_RESOURCES, Device, DeviceResource
from services.volume.core.device_plugins.device_resources import (
    GRACE_SECONDS,
    DeviceResources,
    PluginOptions,
    PluginSocket,
)
from services.volume.core.device_plugins.plugin_checks import UnusableDevicesError
from shared.model.frozen_copy import replace

GPU = "example.com/gpu"
TWO = (Device(id="a", healthy=True), Device(id="b", healthy=False))
NO_OPTIONS = PluginOptions()


def connected(devices: tuple[Device, ...] = TWO) -> DeviceResources:
    resources = DeviceResources()
    number = resources.registered(GPU, PluginSocket("/d/gpu.sock"), 0.0, 1000.0)
    resources.listed(GPU, number, NO_OPTIONS, devices, 1001.0)
    return resources


def gpu(resources: DeviceResources) -> DeviceResource:
    return resources.shown()[GPU]


def test_a_plugin_is_connected_once_it_has_listed_its_devices() -> None:
    resources = DeviceResources()
    number = resources.registered(GPU, PluginSocket("/d/gpu.sock"), 0.0, 1000.0)
    assert (gpu(resources).connected, gpu(resources).devices) == (False, ())
    options = PluginOptions(pre_start_required=True, preferred_allocation=True)
    resources.listed(GPU, number, options, TWO, 1001.0)
    assert gpu(resources) == DeviceResource(
        resource=GPU, connected=True, since=1001.0, pre_start_required=True, preferred_allocation=True, devices=TWO
    )


def test_each_list_replaces_the_whole_set_and_leaves_the_moment_of_the_connection() -> None:
    resources = connected()
    resources.listed(GPU, resources.registration(GPU), NO_OPTIONS, TWO[:1], 1050.0)
    assert (gpu(resources).devices, gpu(resources).since) == (TWO[:1], 1001.0)


def test_each_device_has_the_moment_since_when_it_is_healthy_or_is_not() -> None:
    def since(resources: DeviceResources) -> dict[str, float]:
        return {device.id: device.since for device in gpu(resources).devices}

    resources = connected()
    number = resources.registration(GPU)
    assert since(resources) == {"a": 1001.0, "b": 1001.0}
    resources.listed(GPU, number, NO_OPTIONS, (*TWO[:1], Device(id="b", healthy=True)), 1050.0)
    assert since(resources) == {"a": 1001.0, "b": 1050.0}
    resources.listed(GPU, number, NO_OPTIONS, TWO, 1060.0)
    resources.ended(GPU, number, "rpc error: code = Unavailable", 10.0, 1070.0)
    assert since(resources) == {"a": 1070.0, "b": 1060.0}


def test_the_devices_of_a_plugin_that_ends_are_unhealthy_for_five_minutes_and_then_none() -> None:
    resources = connected()
    resources.ended(GPU, resources.registration(GPU), "rpc error: code = Unavailable", 10.0, 1010.0)
    ended = gpu(resources)
    assert (ended.connected, ended.since, ended.error) == (False, 1010.0, "rpc error: code = Unavailable")
    assert ended.devices == tuple(replace(device, healthy=False) for device in TWO)
    assert resources.next_drop() == 10.0 + GRACE_SECONDS
    assert resources.drop(10.0 + GRACE_SECONDS - 1) == []
    assert resources.drop(10.0 + GRACE_SECONDS) == [GPU]
    assert (gpu(resources).dropped, gpu(resources).devices, resources.next_drop()) == (True, (), None)
    assert resources.sockets() == {}


def test_devices_of_a_plugin_whose_successor_lists_none_are_unhealthy_until_it_does() -> None:
    resources = connected()
    number = resources.registered(GPU, PluginSocket("/d/gpu-2.sock"), 5.0, 1005.0)
    resources.ended(GPU, number, "it has listed no devices", 15.0, 1015.0)
    assert not gpu(resources).connected and [device.healthy for device in gpu(resources).devices] == [False, False]
    resources.listed(GPU, number, NO_OPTIONS, TWO, 1020.0)
    assert gpu(resources) == DeviceResource(resource=GPU, connected=True, since=1020.0, devices=TWO)


def test_a_plugin_that_comes_back_within_the_grace_has_its_devices_again() -> None:
    resources = connected()
    resources.ended(GPU, resources.registration(GPU), "gone", 10.0, 1010.0)
    number = resources.registered(GPU, PluginSocket("/d/gpu-2.sock"), 250.0, 1250.0)
    assert resources.drop(10.0 + GRACE_SECONDS) == []
    assert [device.healthy for device in gpu(resources).devices] == [False, False]
    resources.listed(GPU, number, NO_OPTIONS, TWO, 1251.0)
    assert gpu(resources) == DeviceResource(resource=GPU, connected=True, since=1251.0, devices=TWO)


def test_a_plugin_that_comes_back_after_the_grace_is_used_again() -> None:
    resources = connected()
    resources.ended(GPU, resources.registration(GPU), "gone", 10.0, 1010.0)
    resources.drop(1000.0)
    number = resources.registered(GPU, PluginSocket("/d/gpu.sock"), 2000.0, 3000.0)
    assert not gpu(resources).dropped and resources.next_drop() == 2000.0 + GRACE_SECONDS
    resources.listed(GPU, number, NO_OPTIONS, TWO, 3001.0)
    assert gpu(resources).devices == TWO


def test_a_plugin_that_registers_twice_keeps_its_devices_until_the_new_one_has_listed_its_own() -> None:
    resources = connected()
    first = resources.registration(GPU)
    second = resources.registered(GPU, PluginSocket("/d/gpu-2.sock"), 5.0, 1005.0)
    assert gpu(resources).devices == TWO and resources.sockets() == {GPU: PluginSocket("/d/gpu-2.sock")}
    resources.ended(GPU, first, "the old stream", 6.0, 1006.0)
    resources.listed(GPU, first, NO_OPTIONS, (), 1006.0)
    assert gpu(resources).connected and gpu(resources).devices == TWO
    resources.listed(GPU, second, NO_OPTIONS, TWO[1:], 1007.0)
    assert gpu(resources).devices == TWO[1:]


def test_a_socket_that_is_removed_from_plugins_registry_ends_the_registration_that_it_made_and_no_later_one() -> None:
    resources = connected()
    assert resources.deregistered(GPU, "/other.sock", 5.0, 1005.0) is False
    assert gpu(resources).connected
    assert resources.deregistered(GPU, "/d/gpu.sock", 5.0, 1005.0) is True
    assert not gpu(resources).connected and resources.sockets() == {GPU: PluginSocket("")}


def test_resources_of_an_earlier_process_are_known_and_complete_once_each_has_an_outcome() -> None:
    resources = DeviceResources()
    sockets = {GPU: "/d/gpu.sock", "example.com/nic": "/d/nic.sock", "example.com/fpga": ""}
    resources.restored({name: PluginSocket(endpoint) for name, endpoint in sockets.items()}, 0.0, 1000.0)
    seen = [resources.complete]
    resources.listed(GPU, resources.registration(GPU), NO_OPTIONS, TWO, 1001.0)
    seen.append(resources.complete)
    resources.ended("example.com/nic", resources.registration("example.com/nic"), "no such file", 1.0, 1001.0)
    assert [*seen, resources.complete] == [False, False, True]
    assert {name: item.connected for name, item in resources.shown().items()} == {
        GPU: True,
        "example.com/nic": False,
        "example.com/fpga": False,
    }
    assert sorted(resources.drop(GRACE_SECONDS)) == ["example.com/fpga", "example.com/nic"]


def test_more_resources_than_any_node_has_are_refused_until_one_of_them_has_been_dropped() -> None:
    resources = DeviceResources()
    for number in range(MAX_RESOURCES):
        resources.registered(f"example.com/r{number}", PluginSocket(f"/d/{number}"), float(number), 0.0)
    with pytest.raises(UnusableDevicesError, match="64 resources have device plugins"):
        resources.registered(GPU, PluginSocket("/d/gpu.sock"), 100.0, 0.0)
    resources.drop(GRACE_SECONDS + 1)  # those of the first two seconds
    resources.registered(GPU, PluginSocket("/d/gpu.sock"), 400.0, 0.0)
    assert GPU in resources.shown() and "example.com/r0" not in resources.shown()
    assert len(resources.shown()) == MAX_RESOURCES


_STEPS = st.lists(
    st.tuples(st.sampled_from(["register", "list", "end", "old", "wait"]), st.integers(0, 400)), max_size=30
)


@pytest.mark.long
@given(steps=_STEPS)
def test_healthy_devices_exist_only_while_the_newest_plugin_is_connected(steps: list[tuple[str, int]]) -> None:
    """The oracle keeps the three facts of node.md 4.15: connected, when the connection ended, and what was listed."""
    resources, now = DeviceResources(), 0.0
    number, is_connected, ended, listed = 0, False, 0.0, 0
    for step, amount in steps:
        match step:
            case "register":
                number = resources.registered(GPU, PluginSocket("/d/gpu.sock"), now, now)
                ended = now
            case "list" if resources.registration(GPU):
                devices = tuple(Device(id=f"{each:03}", healthy=True) for each in range(amount % 5))
                resources.listed(GPU, number, NO_OPTIONS, devices, now)
                is_connected, listed = True, len(devices)
            case "end" if resources.registration(GPU):
                resources.ended(GPU, number, "gone", now, now)
                ended = now if is_connected else ended
                is_connected = False
            case "old":
                resources.ended(GPU, number - 1, "an old stream", now, now)
            case "wait":
                now += amount
                resources.drop(now)
                if not is_connected and now - ended >= GRACE_SECONDS:
                    listed = 0
        if GPU in resources.shown():
            assert gpu(resources).connected == is_connected
            assert sum(device.healthy for device in gpu(resources).devices) == (listed if is_connected else 0)
            assert len(gpu(resources).devices) == listed
