"""Drivers of dynamic resource allocation register below `plugins_registry`: which of their services is called, and
which of several sockets of one driver (node.md 4.16)."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.volume.adapters import dra_drivers
from services.volume.adapters.dra_drivers import CalledClaim
from services.volume.core.resource_claims.driver_checks import Device
from shared.plugin_grpc.connection import PluginCallError
from tests.programs.dra_driver import PREPARE, UNPREPARE, V1, V1BETA1, DraDriver
from tests.service.volume.node import Node, started_node
from tests.support.waits.deadline import WAIT_SECONDS

GPU = "gpu.example.com"
KEY = f"DRAPlugin/{GPU}"
CLAIM = CalledClaim(namespace="shop", uid="c1", name="web-gpu")


@pytest.fixture
def root() -> Iterator[Path]:
    """The path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dra") as directory:
        yield Path(directory)


@pytest.fixture
async def node(root: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = await started_node(root, monkeypatch)
    (node.root / "plugins_registry").mkdir(parents=True)
    return node


async def until_answered(driver: DraDriver) -> tuple[bool, str]:
    async with asyncio.timeout(WAIT_SECONDS):
        while not driver.statuses:
            await asyncio.sleep(0.01)
    return driver.statuses[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("services", "used"),
    [
        ((V1, V1BETA1), V1),
        ((V1BETA1, V1), V1BETA1),
        (("v1alpha4.Node", V1BETA1, "v1alpha1.DRAResourceHealth"), V1BETA1),
    ],
)
async def test_the_first_service_of_a_driver_that_the_agent_knows_is_used(
    node: Node, services: tuple[str, ...], used: str
) -> None:
    driver = DraDriver(node.root, GPU, services=services)
    driver.start()
    try:
        async with node.volume():
            registered = await node.registered.until(lambda state: KEY in state)
            assert (registered[KEY].version, registered[KEY].endpoint) == (used, str(driver.socket))
            assert await until_answered(driver) == (True, "")
    finally:
        driver.stop()


@pytest.mark.parametrize(
    ("name", "services", "text"),
    [
        (GPU, (), f"invalid versions of plugin {GPU}: empty list of supported gRPC services (aka supported versions)"),
        (
            GPU,
            ("v1alpha4.Node", "v2.DRAPlugin"),
            'by the plugin (["v1alpha4.Node" "v2.DRAPlugin"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1',
        ),
        (GPU, ("v" * 5000,), "the list of supported gRPC services is too long"),
        ("Gpu_", (V1,), "the name must be a DNS subdomain of at most 63 characters"),
    ],
)
async def test_a_driver_that_cannot_be_used_receives_the_reason(
    node: Node, name: str, services: tuple[str, ...], text: str
) -> None:
    driver = DraDriver(node.root, name, services=services)
    driver.start()
    try:
        async with node.volume():
            registered, error = await until_answered(driver)
            assert not registered and text in error
            await node.registered.until_complete()
            assert node.registered.state == {}
    finally:
        driver.stop()


@pytest.mark.long
async def test_the_socket_that_registered_last_is_used_until_it_is_gone(node: Node) -> None:
    old, new = (
        DraDriver(node.root, GPU, services=(V1BETA1,), socket="z.sock"),
        DraDriver(node.root, GPU, socket="a.sock"),
    )
    old.start()
    try:
        async with node.volume():
            await node.registered.until(lambda state: KEY in state)
            new.start()
            state = await node.registered.until(lambda state: state[KEY].endpoint == str(new.socket))
            assert state[KEY].version == V1
            new.remove()
            state = await node.registered.until(lambda state: state[KEY].endpoint == str(old.socket))
            assert state[KEY].version == V1BETA1
            old.remove()
            await node.registered.until(lambda state: KEY not in state)
    finally:
        old.stop()
        new.stop()


@pytest.mark.parametrize("service", [V1, V1BETA1])
async def test_a_call_reaches_the_driver_in_both_versions_and_its_devices_are_read(root: Path, service: str) -> None:
    driver = DraDriver(root, GPU, services=(service,))
    shared = {
        "pool_name": "p",
        "device_name": "d",
        "share_id": "s",
        "request_names": ["r"],
        "cdi_device_ids": ["v/c=d"],
    }
    driver.set_devices("web-gpu", [shared, {"pool_name": "p", "device_name": "e"}])
    driver.start()
    try:
        answers = await dra_drivers.prepare(str(driver.socket), service, [CLAIM])
        assert answers["c1"].devices == (
            Device(pool="p", device="d", share_id="s", requests=("r",), cdi_devices=("v/c=d",)),
            Device(pool="p", device="e"),
        )
        assert driver.prepared() == {"c1": "web-gpu"}
        answers = await dra_drivers.unprepare(str(driver.socket), service, [CLAIM])
        assert (answers["c1"].error, driver.prepared()) == ("", {})
        assert driver.versions() == [service, service]
        assert (driver.calls(PREPARE), driver.calls(UNPREPARE)) == ([["web-gpu"]], [["web-gpu"]])
    finally:
        driver.stop()


async def test_a_service_that_the_driver_does_not_serve_is_an_error(root: Path) -> None:
    driver = DraDriver(root, GPU, services=(V1BETA1,))
    driver.start()
    try:
        with pytest.raises(PluginCallError, match="code = Unimplemented"):
            await dra_drivers.prepare(str(driver.socket), V1, [CLAIM])
    finally:
        driver.stop()
