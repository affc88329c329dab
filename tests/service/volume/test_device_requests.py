"""What podsync is answered when it requests devices of a plugin: the plugin's answers, and one line for each failure
(node.md 4.15)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bus.messages.device_plugins import (
    AllocatedDevices,
    AllocateDevices,
    DeviceMount,
    DeviceNode,
    GetPreferredAllocation,
    PreferredAllocation,
    PreStartContainer,
    PreStartedContainer,
)
from services.volume.adapters import device_plugins as adapter
from services.volume.controllers import device_requests
from tests.programs.device_plugin import DevicePlugin
from tests.service.volume.device_plugins import GPU, NIC, Plugins
from tests.support.waits.deadline import WAIT_SECONDS

TWO = ("a", "b")


@asynccontextmanager
async def connected(plugins: Plugins, **details: Any) -> AsyncIterator[DevicePlugin]:
    """Yield a node whose volume has this plugin."""
    plugin = plugins.plugin(preferred=True, pre_start=True, **details)
    async with plugins.node.volume():
        await plugins.register(plugin)
        await plugins.until(lambda gpu: gpu.connected)
        yield plugin


async def allocate(plugins: Plugins, resource: str = GPU, devices: tuple[str, ...] = TWO) -> AllocatedDevices:
    request = AllocateDevices(resource=resource, devices=devices)
    return await plugins.node.podsync.ask("volume", request, AllocatedDevices, timeout=WAIT_SECONDS)


async def prefer(plugins: Plugins) -> PreferredAllocation:
    request = GetPreferredAllocation(resource=GPU, available=("a", "b", "c"), must_include=("b",), size=2)
    return await plugins.node.podsync.ask("volume", request, PreferredAllocation, timeout=WAIT_SECONDS)


async def pre_start(plugins: Plugins) -> PreStartedContainer:
    request = PreStartContainer(resource=GPU, devices=TWO)
    return await plugins.node.podsync.ask("volume", request, PreStartedContainer, timeout=WAIT_SECONDS)


CALLS: dict[str, Callable[[Plugins], Coroutine[Any, Any, Any]]] = {
    "GetPreferredAllocation": prefer,
    "Allocate": allocate,
    "PreStartContainer": pre_start,
}


async def test_an_allocation_has_all_that_the_plugin_returned(plugins: Plugins, tmp_path: Path) -> None:
    async with connected(plugins, cdi=tmp_path) as plugin:
        assert await allocate(plugins) == AllocatedDevices(
            envs={"GPU_IDS": "a,b"},
            mounts=(DeviceMount(container_path="/plugin", host_path=str(plugin.state), read_only=True),),
            devices=(
                DeviceNode(container_path="/dev/a", host_path="/dev/null", permissions="rw"),
                DeviceNode(container_path="/dev/b", host_path="/dev/null", permissions="rw"),
            ),
            annotations={"example.com/devices": "a,b"},
            cdi_devices=("example.com/gpu=a", "example.com/gpu=b"),
        )
        assert plugin.calls("Allocate") == [["a", "b"]]
        [series] = plugins.node.counted("kubelet_device_plugin_alloc_duration_seconds")
        assert series == (GPU,)


async def test_a_preference_is_among_what_is_available(plugins: Plugins) -> None:
    async with connected(plugins) as plugin:
        assert await prefer(plugins) == PreferredAllocation(devices=("b", "c"))
        plugin.fault("GetPreferredAllocation", "lie")
        assert await prefer(plugins) == PreferredAllocation()
        plugin.fault("GetPreferredAllocation", "empty")
        assert await prefer(plugins) == PreferredAllocation()


async def test_the_plugin_is_called_before_a_container_starts(plugins: Plugins) -> None:
    async with connected(plugins) as plugin:
        assert await pre_start(plugins) == PreStartedContainer()
        assert plugin.calls("PreStartContainer") == [["a", "b"]]


@pytest.mark.share(4)
@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("INTERNAL", r"rpc error: code = Internal desc = {method} fails\non request"),
        ("garbage", "rpc error: code = Internal desc = the answer to /v1beta1.DevicePlugin/{method} cannot be decoded"),
        ("answers twice", "rpc error: code = Internal desc = /v1beta1.DevicePlugin/{method} has two answers"),
    ],
)
async def test_a_call_that_fails_is_answered_with_one_line(
    plugins: Plugins, method: str, fault: str, text: str
) -> None:
    async with connected(plugins) as plugin:
        plugin.fault(method, fault)
        answer = await CALLS[method](plugins)
        expected = f"device plugin {method} rpc failed for {GPU} with err: {text.format(method=method)}"
        assert answer == type(answer)(error=expected)  # the plugin has refused: the caller need not ask again


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("lie", "the allocation response is longer than 65536 bytes"),
        ("empty", "the allocation response has 0 containers instead of one"),
    ],
)
async def test_an_allocation_that_cannot_be_used_is_answered_with_one_line(
    plugins: Plugins, fault: str, text: str
) -> None:
    async with connected(plugins) as plugin:
        plugin.fault("Allocate", fault)
        assert (await allocate(plugins)).error == f"device plugin Allocate rpc failed for {GPU} with err: {text}"


async def test_a_plugin_that_is_not_connected_or_dies_in_the_call_is_an_error(plugins: Plugins) -> None:
    async with connected(plugins) as plugin:
        absent = await allocate(plugins, NIC)
        assert absent.error.endswith(f"for {NIC} with err: the plugin is not connected")
        assert absent.unanswered
        plugin.fault("Allocate", "hang")
        waiting = asyncio.create_task(allocate(plugins))
        async with asyncio.timeout(WAIT_SECONDS):
            while not plugin.calls("Allocate"):
                await asyncio.sleep(0.01)
        plugin.stop()
        died = await waiting
        assert "rpc error: code = Unavailable" in died.error
        assert died.unanswered
        await plugins.until(lambda gpu: not gpu.connected)
        assert (await allocate(plugins)).error.endswith("with err: the plugin is not connected")


async def test_a_plugin_that_hangs_is_called_a_few_times_and_delays_no_other(plugins: Plugins) -> None:
    async with connected(plugins) as plugin:
        other = plugins.plugin(NIC)
        await plugins.register(other)
        await plugins.until(lambda nic: nic.connected, NIC)
        plugin.fault("Allocate", "hang")
        hanging = [asyncio.create_task(allocate(plugins)) for _ in range(device_requests.MAX_CALLS + 1)]
        async with asyncio.timeout(WAIT_SECONDS):
            while len(plugin.calls("Allocate")) < device_requests.MAX_CALLS:
                await asyncio.sleep(0.01)
        assert (await allocate(plugins, NIC)).error == ""
        assert not any(each.done() for each in hanging)
        assert len(plugin.calls("Allocate")) == device_requests.MAX_CALLS
        for each in hanging:
            each.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "limit"),
    [
        ("GetPreferredAllocation", "MAX_PREFER_SECONDS"),
        ("Allocate", "MAX_ALLOCATE_SECONDS"),
        ("PreStartContainer", "MAX_PRE_START_SECONDS"),
    ],
)
async def test_a_call_that_hangs_fails_at_its_deadline(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch, method: str, limit: str
) -> None:
    monkeypatch.setattr(adapter, limit, 0.2)
    async with connected(plugins) as plugin:
        plugin.fault(method, "hang")
        answer = await CALLS[method](plugins)
        assert answer.error.startswith(
            f"device plugin {method} rpc failed for {GPU} with err: rpc error: code = DeadlineExceeded"
        )
        if isinstance(answer, AllocatedDevices):
            assert answer.unanswered


async def test_a_slow_plugin_is_waited_for(plugins: Plugins) -> None:
    async with connected(plugins) as plugin:
        plugin.fault("Allocate", "slow")
        assert (await allocate(plugins)).envs == {"GPU_IDS": "a,b"}
