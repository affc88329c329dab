"""Plugins register through sockets below `plugins_registry`: what is published, what a plugin is answered, and what a
hung, broken or replaced one costs the others."""

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.interface import Deleted
from bus.messages.volume import CsiNode, RegisteredPlugin
from services.volume.controllers import plugin_registration
from shared.plugin_grpc import csi_pb2
from tests.fakes.csi_driver import CsiDriver
from tests.service.volume.node import Node, started_node
from tests.support.waits.deadline import WAIT_SECONDS

DRIVER = "hostpath.csi.k8s.io"
KEY = f"CSIPlugin/{DRIVER}"


class Plugins:
    """Drivers of one node, and what volume publishes of them."""

    def __init__(self, node: Node) -> None:
        self.node, self.stream = node, node.registered
        self._drivers: list[CsiDriver] = []

    def driver(self, name: str = DRIVER, *, state: str = "", **details: Any) -> CsiDriver:
        """A driver that does not serve yet."""
        driver = CsiDriver(self.node.root, self.node.root.parent / (state or name), name, **details)
        self._drivers.append(driver)
        return driver

    def stop(self) -> None:
        for driver in self._drivers:
            driver.stop()

    async def until(self, *names: str) -> dict[str, RegisteredPlugin]:
        """Until these drivers, and no others, are registered."""
        wanted = {f"CSIPlugin/{name}" for name in names}
        return await self.stream.until(lambda state: state.keys() == wanted)

    async def until_complete(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.stream.complete:
                await asyncio.sleep(0.01)

    async def until_answered(self, driver: CsiDriver, count: int = 1) -> list[tuple[bool, str]]:
        """Until the driver received so many registration statuses."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(driver.statuses) < count:
                await asyncio.sleep(0.01)
        return driver.statuses


@pytest.fixture
def short_path() -> Iterator[Path]:
    """The path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="csi") as directory:
        yield Path(directory)


@pytest.fixture
async def plugins(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plugins]:
    node = await started_node(short_path, monkeypatch)
    (node.root / "plugins_registry").mkdir(parents=True)
    found = Plugins(node)
    try:
        yield found
    finally:
        found.stop()


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket of a plugin that accepts connections and never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield listener


async def test_a_driver_is_published_with_its_node_info_and_receives_its_status(plugins: Plugins) -> None:
    topology = csi_pb2.Topology(segments={"topology.hostpath.csi/node": "n"})
    node = csi_pb2.NodeGetInfoResponse(node_id="id", max_volumes_per_node=7, accessible_topology=topology)
    driver = plugins.driver(node=node, versions=("0.3.0", "1.2.0", "1.10.0"))
    driver.start()
    async with plugins.node.volume():
        assert (await plugins.until(DRIVER))[KEY] == RegisteredPlugin(
            type="CSIPlugin",
            name=DRIVER,
            endpoint=str(driver.endpoint),
            version="1.10.0",
            csi=CsiNode(node_id="id", max_volumes=7, topology={"topology.hostpath.csi/node": "n"}),
        )
        assert await plugins.until_answered(driver) == [(True, "")]
        await plugins.until_complete()


async def test_a_driver_that_comes_later_is_registered_and_one_whose_socket_goes_is_deregistered(
    plugins: Plugins,
) -> None:
    async with plugins.node.volume():
        await plugins.until_complete()
        first, second = plugins.driver(), plugins.driver("other.csi.k8s.io")
        first.start()
        await plugins.until(DRIVER)
        second.start()
        await plugins.until(DRIVER, "other.csi.k8s.io")
        first.remove()
        await plugins.until("other.csi.k8s.io")


async def test_a_socket_in_a_directory_below_counts_and_a_hidden_one_does_not(plugins: Plugins) -> None:
    async with plugins.node.volume():
        below, hidden = plugins.driver(), plugins.driver("hidden.csi.k8s.io")
        below.registration = below.registration.parent / "drivers" / "reg.sock"
        hidden.registration = hidden.registration.parent / ".hidden.sock"
        hidden.start()
        below.start()
        await plugins.until(DRIVER)
        assert hidden.statuses == []


@pytest.mark.long
async def test_a_replaced_socket_is_registered_again_without_a_time_between(plugins: Plugins) -> None:
    async with plugins.node.volume():
        first = plugins.driver()
        first.start()
        await plugins.until_answered(first)
        first.stop()
        second = plugins.driver(node=csi_pb2.NodeGetInfoResponse(node_id="second"))
        second.start()
        await plugins.stream.until(lambda state: KEY in state and _node_id(state[KEY]) == "second")
        await plugins.until_answered(second)
    assert not any(isinstance(change, Deleted) for change in plugins.stream.changes)


@pytest.mark.long
async def test_a_driver_registered_by_a_killed_process_is_published_by_the_next_one(plugins: Plugins) -> None:
    driver = plugins.driver()
    driver.start()
    for count in (1, 2):
        async with plugins.node.volume():
            await plugins.until(DRIVER)
            await plugins.until_answered(driver, count)
    assert driver.statuses == [(True, "")] * 2


@pytest.mark.parametrize("point", ["volume.plugin.answered", "volume.plugin.published"])
async def test_a_process_killed_beside_a_registration_leaves_it_to_the_next(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    reached = asyncio.Event()

    def end_there(name: str) -> None:
        if name == point:
            reached.set()
            raise asyncio.CancelledError

    driver = plugins.driver()
    driver.start()
    with monkeypatch.context() as killed:
        killed.setattr(plugin_registration, "crash_point", end_there)
        async with plugins.node.volume():
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
    assert driver.statuses == []
    async with plugins.node.volume():
        await plugins.until(DRIVER)
        assert await plugins.until_answered(driver) == [(True, "")]


async def test_the_same_driver_at_a_second_socket_is_refused_while_the_first_one_is_there(plugins: Plugins) -> None:
    async with plugins.node.volume():
        first, second = plugins.driver(), plugins.driver(state="second")
        first.start()
        await plugins.until_answered(first)
        second.registration = second.registration.with_name("second-reg.sock")
        second.endpoint = second.endpoint.with_name("second.sock")
        second.start()
        registered, error = (await plugins.until_answered(second))[0]
        assert not registered
        assert error == (
            "RegisterPlugin error -- plugin validation failed with err: validation failed for CSI Driver "
            f'{DRIVER} at endpoint {second.endpoint}: ValidatePlugin for CSI driver "{DRIVER}" failed. Another driver '
            'with the same name is already registered with a higher supported version: "1.0.0"'
        )
        first.remove()
        state = await plugins.stream.until(lambda state: KEY in state and state[KEY].endpoint == str(second.endpoint))
        assert list(state) == [KEY]


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"kind": "GpuPlugin"}, "no handler registered for plugin type: GpuPlugin at socket "),
        ({"versions": ()}, "Plugin returned an empty list for supported versions"),
        ({"versions": ("0.3.0", "2.0.0")}, 'None of the versions specified ["0.3.0" "2.0.0"] are supported. err='),
        ({"versions": ("1.0.0" * 2000,)}, "The list of supported versions is too long"),
    ],
)
async def test_a_plugin_that_cannot_be_used_receives_the_reason(plugins: Plugins, details: Any, text: str) -> None:
    driver = plugins.driver(**details)
    driver.start()
    async with plugins.node.volume():
        registered, error = (await plugins.until_answered(driver))[0]
        assert not registered and text in error
        await plugins.until_complete()  # it is refused for good: the list of plugins is known
        assert plugins.stream.state == {}


async def test_a_name_that_leads_out_of_its_directory_is_refused(plugins: Plugins) -> None:
    driver = plugins.driver()
    driver.name = "../../etc"
    driver.start()
    async with plugins.node.volume():
        _, error = (await plugins.until_answered(driver))[0]
    assert "The name is invalid: a lowercase RFC 1123 subdomain must consist of" in error


async def test_a_driver_that_answers_nonsense_about_the_node_is_tried_again(plugins: Plugins) -> None:
    driver = plugins.driver(node=csi_pb2.NodeGetInfoResponse(node_id=""))
    driver.start()
    async with plugins.node.volume():
        _, error = (await plugins.until_answered(driver))[0]
        assert error.endswith("plugin registration failed with err: NodeGetInfo returned an empty node_id")
        driver.node = csi_pb2.NodeGetInfoResponse(node_id="id")
        await plugins.until(DRIVER)
        assert (await plugins.until_answered(driver, 2))[-1] == (True, "")


async def test_hung_sockets_and_answers_that_are_too_long_delay_no_other_plugin(plugins: Plugins) -> None:
    registry = plugins.node.root / "plugins_registry"
    long = plugins.driver("long.csi.k8s.io", versions=("1" * (5 << 20),))
    long.start()
    with contextlib.ExitStack() as open_sockets:
        for number in range(4):
            open_sockets.enter_context(listening(registry / f"hung-{number}.sock"))
        driver = plugins.driver()
        driver.start()
        async with plugins.node.volume():
            await plugins.until(DRIVER)
            assert not plugins.stream.complete  # what the others are is not known


async def test_more_sockets_than_any_node_has_are_a_trouble_and_do_no_harm(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.volume.adapters.plugin_sockets.MAX_SOCKETS", 3)
    driver = plugins.driver("a.csi.k8s.io")
    driver.start()
    with contextlib.ExitStack() as open_sockets:
        for number in range(4):
            open_sockets.enter_context(listening(plugins.node.root / "plugins_registry" / f"b-{number}.sock"))
        async with plugins.node.volume():
            await plugins.until("a.csi.k8s.io")
            await plugins.node.until_troubles("plugins_registry has more than 3 sockets")


def _node_id(plugin: RegisteredPlugin) -> str:
    return plugin.csi.node_id if plugin.csi is not None else ""
