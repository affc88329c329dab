"""Device plugins register at the agent's socket: what is published of their devices, what a bad one is answered, and
what a hung, lying or dead one costs the others (node.md 4.15)."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from bus.messages.device_plugins import Device, DeviceResource
from bus.messages.streams import DEVICES_RESOURCES
from services.frame import restarted
from services.volume.adapters import device_plugins as device_plugin_calls
from services.volume.adapters.device_plugins import decode_devices
from services.volume.adapters.threads import Threads
from services.volume.controllers import device_plugin_lists, device_plugins
from services.volume.controllers.device_plugins import DevicePlugins
from services.volume.core.device_plugins import device_resources
from services.volume.core.device_plugins.device_resources import DeviceResources, PluginSocket
from shared.metrics.registry import Registry
from tests.fakes.memory_bus import MemoryNetwork
from tests.programs.device_plugin import devices_of
from tests.service.volume.device_plugins import GPU, NIC, Plugins, healthy
from tests.support.waits.deadline import WAIT_SECONDS


async def test_a_plugin_is_published_with_its_options_and_the_health_and_numa_nodes_of_its_devices(
    plugins: Plugins,
) -> None:
    devices = {"b": ("Healthy", (1, 0)), "a": ("Unhealthy", ())}
    plugin = plugins.plugin(devices=devices, pre_start=True, preferred=True)
    async with plugins.node.volume():
        assert await plugins.register(plugin) == ""
        gpu = await plugins.until(lambda gpu: gpu.connected)
        assert gpu == DeviceResource(
            resource=GPU,
            connected=True,
            since=gpu.since,
            pre_start_required=True,
            preferred_allocation=True,
            devices=(Device(id="a", healthy=False), Device(id="b", healthy=True, nodes=(0, 1))),
        )
        assert abs(gpu.since - time.time()) < WAIT_SECONDS
        series = plugins.node.counted("kubelet_device_plugin_registration_total")
        assert series == {(GPU,): [1.0]}


async def test_a_registration_before_the_record_is_read_stays_and_so_do_those_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / device_plugins.RECORD
    record.parent.mkdir(parents=True)
    sockets = {GPU: {"endpoint": "/old.sock", "registry": ""}, NIC: {"endpoint": "/nic.sock", "registry": ""}}
    record.write_text(json.dumps(sockets))
    (tmp_path / "device-plugins").mkdir()
    disk = asyncio.Event()

    class SlowThreads(Threads):
        async def call(self, work: Any, *arguments: Any) -> Any:  # type: ignore[override]
            await disk.wait()
            return await super().call(work, *arguments)

    monkeypatch.setattr(device_plugins, "Threads", SlowThreads)
    network = MemoryNetwork()
    bus = network.bus("volume")
    of_node = DevicePlugins(bus, network.clock, tmp_path, bus.own(DEVICES_RESOURCES), Registry("volume"))
    running = asyncio.create_task(of_node.run())
    try:
        registered = asyncio.create_task(of_node.register(GPU, PluginSocket("/new.sock")))
        for _ in range(20):
            await asyncio.sleep(0)
        disk.set()
        await registered
        assert json.loads(record.read_text()) == {**sockets, GPU: {"endpoint": "/new.sock", "registry": ""}}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_each_list_of_a_plugin_replaces_the_one_before(plugins: Plugins) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: healthy(gpu) == ["a", "b"])
        plugin.set_devices({**devices_of("b", health="Unhealthy"), **devices_of("c")})
        gpu = await plugins.until(lambda gpu: healthy(gpu) == ["c"])
        assert [device.id for device in gpu.devices] == ["b", "c"]


async def test_the_devices_of_a_plugin_that_dies_are_unhealthy_until_it_registers_again(plugins: Plugins) -> None:
    first = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(first)
        await plugins.until(lambda gpu: gpu.connected)
        first.stop()
        gone = await plugins.until(lambda gpu: not gpu.connected)
        assert [device.id for device in gone.devices] == ["a", "b"] and healthy(gone) == []
        assert gone.error.startswith("rpc error: code = ") and not gone.dropped
        second = plugins.plugin(socket="second.sock")
        await plugins.register(second)
        await plugins.until(lambda gpu: gpu.connected and healthy(gpu) == ["a", "b"] and gpu.error == "")


async def test_a_plugin_that_serves_again_without_a_registration_is_connected_again(plugins: Plugins) -> None:
    first = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(first)
        await plugins.until(lambda gpu: gpu.connected)
        first.stop()
        await plugins.until(lambda gpu: not gpu.connected)
        plugins.plugin().start()
        await plugins.until(lambda gpu: gpu.connected)


async def test_a_resource_is_dropped_when_its_plugin_does_not_come_back_within_the_grace(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: gpu.connected)
        with monkeypatch.context() as soon:  # and not while one connects, for which a busy machine may take longer
            soon.setattr(device_resources, "GRACE_SECONDS", 0.3)
            plugin.stop()
            dropped = await plugins.until(lambda gpu: gpu.dropped)
        assert (dropped.connected, dropped.devices) == (False, ())
        await plugins.register(plugins.plugin())
        await plugins.until(lambda gpu: gpu.connected and not gpu.dropped)


@pytest.mark.parametrize(
    ("details", "text"),
    [
        (
            {"version": "v1alpha1"},
            'requested API version "v1alpha1" is not supported by kubelet. Supported version is ["v1beta1"]',
        ),
        ({"resource": "cpu"}, 'the ResourceName "cpu" is invalid'),
        ({"resource": "kubernetes.io/gpu"}, 'the ResourceName "kubernetes.io/gpu" is invalid'),
        ({"endpoint": "../../run/other.sock"}, 'the endpoint "../../run/other.sock" is no name of a socket below '),
    ],
)
async def test_a_registration_that_cannot_be_used_is_refused_with_the_text_of_the_kubelet(
    plugins: Plugins, details: Any, text: str
) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        assert (await plugins.register(plugin, **details)).startswith(text)
        assert await plugins.register(plugin) == ""
        await plugins.until(lambda gpu: gpu.connected)
        assert plugins.resources.state.keys() == {GPU}


async def test_a_plugin_whose_socket_is_a_directory_or_absent_is_known_and_not_connected(plugins: Plugins) -> None:
    plugin, other = plugins.plugin(), plugins.plugin(NIC)
    (plugins.directory / "directory").mkdir()
    async with plugins.node.volume():
        assert await plugins.register(plugin, endpoint="directory") == ""
        assert await plugins.register(other, endpoint="absent.sock") == ""
        for resource in (GPU, NIC):
            found = await plugins.until(lambda each: each.error.startswith("rpc error: code = Unavailable"), resource)
            assert not found.connected and "\n" not in found.error


_FAILURES = {
    ("GetDevicePluginOptions", "hang"): "rpc error: code = DeadlineExceeded",
    ("GetDevicePluginOptions", "die"): "rpc error: code = ",
    ("GetDevicePluginOptions", "garbage"): "rpc error: code = Internal",
    ("GetDevicePluginOptions", "INTERNAL"): "rpc error: code = Internal",
    ("ListAndWatch", "hang"): "it has listed no devices for 0.5 s",
    ("ListAndWatch", "die"): "rpc error: code = ",
    ("ListAndWatch", "lie"): "it lists a device with the id",
    ("ListAndWatch", "garbage"): "rpc error: code = Internal",
    ("ListAndWatch", "INTERNAL"): "rpc error: code = Internal",
}


@pytest.mark.share(4)
@pytest.mark.parametrize(("method", "fault"), _FAILURES)
async def test_a_plugin_that_fails_is_not_connected_until_it_serves_and_delays_no_other(
    plugins: Plugins, method: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_plugin_calls, "MAX_CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(device_plugin_lists, "MAX_FIRST_LIST_SECONDS", 0.5)
    bad, good = plugins.plugin(), plugins.plugin(NIC)
    bad.fault(method, fault)
    async with plugins.node.volume():
        await plugins.register(bad)
        await plugins.register(good)
        await plugins.until(lambda nic: nic.connected, NIC)
        found = await plugins.until(lambda gpu: gpu.error.startswith(_FAILURES[method, fault]))
        assert not found.connected and found.devices == () and "\n" not in found.error
        bad.fault(method)
        bad.start()
        await plugins.until(lambda gpu: healthy(gpu) == ["a", "b"] and gpu.error == "")


async def test_a_plugin_that_answers_and_lists_nothing_delays_nobody_who_waits_for_the_resources(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_plugin_lists, "MAX_FIRST_LIST_SECONDS", 0.5)
    plugin = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: gpu.connected)
    plugin.fault("ListAndWatch", "hang")
    plugins.resources.changes.clear()
    async with plugins.node.volume():
        async with asyncio.timeout(WAIT_SECONDS):
            while not plugins.resources.complete:
                await asyncio.sleep(0.01)
        await plugins.until(lambda gpu: gpu.error == "it has listed no devices for 0.5 s")
        plugin.fault("ListAndWatch")
        await plugins.until(lambda gpu: gpu.connected)


async def test_plugins_are_registered_and_followed_after_an_unexpected_failure(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarted, "RESTART_DELAY_SECONDS", 0.05)
    fail_once = iter([ZeroDivisionError("on request")])

    def drop(self: DeviceResources, now: float) -> list[str]:
        for error in fail_once:
            raise error
        return working(self, now)

    working = DeviceResources.drop
    plugin, other = plugins.plugin(), plugins.plugin(NIC)
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: gpu.connected)
        monkeypatch.setattr(DeviceResources, "drop", drop)
        plugin.set_devices(devices_of("c"))
        await plugins.node.until_troubles("device plugins failed: ZeroDivisionError; the log has more")
        await plugins.until(lambda gpu: healthy(gpu) == ["c"])
        await plugins.until_registered(other)
        await plugins.until(lambda nic: nic.connected, NIC)
    record = json.loads((plugins.node.root / device_plugins.RECORD).read_text())
    assert record.keys() == {GPU, NIC}


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("many", "it lists 10001 devices, more than 10000"),
        ("long", "code = ResourceExhausted"),
        ("nodes", "its devices list 1000000 NUMA nodes, more than 100000"),
    ],
)
async def test_a_list_beyond_the_bounds_ends_the_connection(plugins: Plugins, fault: str, text: str) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: gpu.connected)
        plugin.fault("ListAndWatch", fault)
        found = await plugins.until(lambda gpu: text in gpu.error)
        assert not found.connected and healthy(found) == []


@pytest.mark.long
async def test_a_list_of_ten_thousand_devices_is_published(plugins: Plugins) -> None:
    ids = [f"device-{number:05}" for number in range(10_000)]
    plugin = plugins.plugin(devices=devices_of(*ids, nodes=(0,)))
    async with plugins.node.volume():
        await plugins.register(plugin)
        assert healthy(await plugins.until(lambda gpu: gpu.connected)) == ids


async def test_an_id_that_is_listed_twice_is_one_device(plugins: Plugins) -> None:
    plugin = plugins.plugin()
    plugin.fault("ListAndWatch", "twice")
    async with plugins.node.volume():
        await plugins.register(plugin)
        assert healthy(await plugins.until(lambda gpu: gpu.connected)) == ["a", "b"]


async def test_a_plugin_that_sends_every_millisecond_is_published_a_few_times_and_with_its_newest_list(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_plugin_lists, "MIN_LIST_SECONDS", 0.25)
    decoded: list[bytes] = []

    def counted(message: bytes) -> Any:
        decoded.append(message)
        return decode_devices(message)

    monkeypatch.setattr(device_plugin_lists, "decode_devices", counted)
    plugin = plugins.plugin()
    plugin.fault("ListAndWatch", "every millisecond")
    async with plugins.node.volume():
        began = time.monotonic()
        await plugins.register(plugin)
        while len(decoded) < 4:
            await plugins.until(lambda gpu: gpu.connected)
            await asyncio.sleep(0.01)
        assert len(decoded) <= (time.monotonic() - began) / 0.25 + 1
        plugin.fault("ListAndWatch")
        plugin.set_devices(devices_of("newest"))
        await plugins.until(lambda gpu: healthy(gpu) == ["newest"])


@pytest.mark.long
async def test_a_plugin_that_registers_twice_is_followed_at_its_newest_socket_without_a_time_between(
    plugins: Plugins,
) -> None:
    first, second = plugins.plugin(), plugins.plugin(devices=devices_of("c"), socket="second.sock")
    async with plugins.node.volume():
        await plugins.register(first)
        await plugins.until(lambda gpu: gpu.connected)
        plugins.resources.changes.clear()
        await plugins.register(second)
        await plugins.until(lambda gpu: healthy(gpu) == ["c"])
        first.set_devices(devices_of("not any more"))
        second.set_devices(devices_of("d"))
        await plugins.until(lambda gpu: healthy(gpu) == ["d"])
        seen = [change.value for change in plugins.resources.changes if hasattr(change, "value")]
        assert all(each.connected for each in seen)
