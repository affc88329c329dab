"""Device plugins and their registrations outlive a restart of volume, and a socket that cannot be opened (node.md
4.15)."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from services.volume.adapters import device_plugin_files
from services.volume.controllers import device_plugins
from services.volume.core.device_plugins.device_resources import DeviceResources, PluginSocket
from shared.files.atomic import write_atomically
from shared.plugin_grpc import serving
from tests.service.volume.device_plugins import GPU, NIC, Plugins, healthy
from tests.support.waits.deadline import WAIT_SECONDS


async def test_a_plugin_is_connected_again_by_the_next_process_without_registering(plugins: Plugins) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: gpu.connected)
    plugins.resources.changes.clear()
    async with plugins.node.volume():
        async with asyncio.timeout(WAIT_SECONDS):
            while not (plugins.resources.complete and plugins.resources.state[GPU].connected):
                await asyncio.sleep(0.01)
        assert healthy(plugins.resources.state[GPU]) == ["a", "b"]


async def test_a_process_killed_before_it_answers_a_registration_leaves_it_to_the_next(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    def end_there(name: str) -> None:
        assert name == "volume.device_plugin.saved"
        reached.set()
        raise asyncio.CancelledError

    plugin = plugins.plugin()
    with monkeypatch.context() as killed:
        killed.setattr(device_plugins, "crash_point", end_there)
        async with plugins.node.volume():
            registering = asyncio.create_task(plugins.register(plugin))
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
        assert await registering != ""
    async with plugins.node.volume():
        await plugins.until(lambda gpu: gpu.connected)


async def test_a_plugin_that_registers_again_while_another_one_is_being_saved_is_registered_once_the_record_has_it(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed after the answer would otherwise leave the socket of the other one to the next process."""
    registered = DeviceResources.registered
    accepted: list[str] = []
    writing, may_end = threading.Event(), threading.Event()

    def note(resources: DeviceResources, resource: str, socket: PluginSocket, now: float, wall: float) -> int:
        accepted.append(socket.endpoint)
        return registered(resources, resource, socket, now, wall)

    def write(path: Path, content: bytes, mode: int = 0o600) -> None:
        if path.name == "device_plugins.json" and b"second.sock" in content:
            writing.set()
            may_end.wait(WAIT_SECONDS)
        write_atomically(path, content, mode)

    first, second = plugins.plugin(), plugins.plugin(socket="second.sock")
    record = plugins.node.root / device_plugins.RECORD
    async with plugins.node.volume():
        await plugins.register(first)
        await plugins.until(lambda gpu: gpu.connected)
        monkeypatch.setattr(DeviceResources, "registered", note)
        monkeypatch.setattr(device_plugin_files, "write_atomically", write)
        try:
            registering = asyncio.create_task(plugins.register(second))
            assert await asyncio.to_thread(writing.wait, WAIT_SECONDS)
            again = asyncio.create_task(asyncio.to_thread(first.register))
            async with asyncio.timeout(WAIT_SECONDS):
                while str(first.socket) not in accepted:
                    await asyncio.sleep(0.01)
            await asyncio.wait([again], timeout=1.0)
            assert not again.done(), "its registration counts, and is not on disk"
        finally:
            may_end.set()
        await again
        assert json.loads(record.read_text())[GPU]["endpoint"] == str(first.socket)
        assert await registering == ""


async def test_a_plugin_that_is_away_after_a_restart_is_known_as_not_connected(plugins: Plugins) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: gpu.connected)
    plugin.stop()
    async with plugins.node.volume():
        async with asyncio.timeout(WAIT_SECONDS):
            while not plugins.resources.complete:
                await asyncio.sleep(0.01)
        gone = await plugins.until(lambda gpu: gpu.error.startswith("rpc error"))
        assert (gone.connected, gone.devices) == (False, ())


async def test_sockets_of_plugins_that_are_not_known_are_removed_at_the_start_and_other_files_stay(
    plugins: Plugins,
) -> None:
    known, stranger = plugins.plugin(), plugins.plugin(NIC)
    async with plugins.node.volume():
        await plugins.register(known)
        await plugins.until(lambda gpu: gpu.connected)
        stranger.start()
    (plugins.directory / "kubelet_internal_checkpoint").write_text("{}")
    async with plugins.node.volume():
        async with asyncio.timeout(WAIT_SECONDS):
            while stranger.socket.exists():
                await asyncio.sleep(0.01)
        await plugins.until(lambda gpu: gpu.connected)
    assert known.socket.exists() and (plugins.directory / "kubelet_internal_checkpoint").exists()


async def test_a_record_that_is_damaged_costs_no_more_than_new_registrations(plugins: Plugins) -> None:
    record = plugins.node.root / device_plugins.RECORD
    record.parent.mkdir(parents=True)
    record.write_text('{"example.com/gpu": ')
    async with plugins.node.volume():
        await plugins.register(plugins.plugin(socket="again.sock"))
        await plugins.until(lambda gpu: gpu.connected)
    assert json.loads(record.read_text()) == {GPU: {"endpoint": f"{plugins.directory}/again.sock", "registry": ""}}


async def test_a_plugin_of_the_kubelet_before_is_awaited_until_it_registers(plugins: Plugins) -> None:
    checkpoint = plugins.directory / "kubelet_internal_checkpoint"
    checkpoint.write_text(
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"example.com/gpu":["a"]}},"Checksum":1}'
    )
    async with plugins.node.volume():
        known = await plugins.until(lambda gpu: not gpu.connected)
        assert (known.dropped, known.devices, plugins.resources.complete) == (False, (), True)
        await plugins.until_registered(plugins.plugin())
        await plugins.until(lambda gpu: gpu.connected)


async def test_a_registration_socket_that_cannot_be_opened_is_a_trouble_until_it_can(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "RETRY_SECONDS", 0.05)
    plugins.socket.mkdir()
    async with plugins.node.volume():
        await plugins.node.until_troubles("kubelet.sock: cannot listen: Is a directory (repair its directory")
        plugins.socket.rmdir()
        await plugins.node.until_troubles()
        await plugins.register(plugins.plugin())
        await plugins.until(lambda gpu: gpu.connected)


async def test_a_plugin_may_register_below_plugins_registry_and_leaves_with_its_socket(plugins: Plugins) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        registration = await plugins.connect_below_registry(plugin)
        registered = await plugins.node.registered.until(lambda state: f"DevicePlugin/{GPU}" in state)
        assert registered[f"DevicePlugin/{GPU}"].endpoint == str(plugin.socket)
        registration.unlink()
        gone = await plugins.until(lambda gpu: not gpu.connected)
        assert gone.error == "its socket below plugins_registry is gone"


@pytest.mark.long
@pytest.mark.parametrize("gone", ["while volume runs", "while volume is away"])
async def test_a_plugin_that_has_left_plugins_registry_is_not_connected_by_the_next_process(
    plugins: Plugins, gone: str
) -> None:
    plugin = plugins.plugin()
    async with plugins.node.volume():
        registration = await plugins.connect_below_registry(plugin)
        if gone == "while volume runs":
            registration.unlink()
            await plugins.until(lambda gpu: not gpu.connected)
            async with asyncio.timeout(WAIT_SECONDS):
                while json.loads((plugins.node.root / device_plugins.RECORD).read_text())[GPU]["endpoint"]:
                    await asyncio.sleep(0.01)
    registration.unlink(missing_ok=True)
    async with plugins.node.volume():
        await plugins.until_registered(plugins.plugin(NIC))
        await plugins.until(lambda nic: nic.connected, NIC)
        assert not plugins.resources.state[GPU].connected
        assert len(plugin.calls("GetDevicePluginOptions")) == 1
        await plugins.until_registered(plugins.plugin(socket="again.sock"))
        await plugins.until(lambda gpu: gpu.connected)
