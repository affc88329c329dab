"""Puts still facts in the place of what services read of the machine: memory, cgroups, host files, inotify, mounts."""

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from bus.messages.podsync import NodeResources
from bus.messages.volume import RegisteredPlugin
from services.pleg.core.probe_memory import ProbeMemory
from services.podsync.adapters import node_facts_reader
from services.podsync.adapters.story import StoryFiles
from services.volume.controllers.device_plugins import DevicePlugins
from services.volume.controllers.plugin_registration import PluginRegistration
from shared.config.effective import EffectiveConfig
from shared.host import cgroup_layout
from shared.model.frozen_copy import replace
from tests.simulation.claim_driver import DRIVER, SimulatedDriver
from tests.simulation.device_plugin import SimulatedPlugin
from tests.simulation.placement import AMOUNTS, MACHINE

_watches: list["ManifestWatch"] = []


class ManifestWatch:
    """In place of sources' inotify: the simulated user reports its writes."""

    def __init__(self, path: str, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._context = contextvars.copy_context()
        _watches.append(self)

    def arm(self) -> str | None:
        """Report from now on."""
        return None

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.Event().wait()

    def close(self) -> None:
        """Report no more."""

    def changed(self) -> None:
        """A file was written or removed."""
        asyncio.get_running_loop().call_later(0.001, self._on_change, context=self._context)


def manifests_changed() -> None:
    """A user wrote or removed a manifest."""
    for watch in _watches:
        watch.changed()


class ProbeCounts:
    """In place of pleg's ProbeFiles: kept for one run, over all kills."""

    def __init__(self, kept: dict[str, list[ProbeMemory]]) -> None:
        self.kept = kept

    def load(self) -> dict[str, list[ProbeMemory]]:
        """As saved."""
        return dict(self.kept)

    def save(self, uid: str, memories: Iterable[ProbeMemory]) -> None:
        """Replace the pod's."""
        self.kept[uid] = list(memories)

    def forget(self, uid: str) -> None:
        """Drop the pod's."""
        self.kept.pop(uid, None)


_hierarchies = functools.cache(cgroup_layout.find_hierarchies)


class _Once:
    """One value for all configurations of this process."""

    def __init__(self, read: Callable[[EffectiveConfig], Any]) -> None:
        self._read = read
        self._value: Any = None

    def __call__(self, config: EffectiveConfig, *_: Any, **__: Any) -> Any:
        if self._value is None:
            self._value = self._read(config)
        return self._value


_RESOURCES = _Once(node_facts_reader.read_node_resources)
_FACTS = _Once(
    lambda c: replace(node_facts_reader.read_node_facts(c, _RESOURCES(c), cgroup_v2=False), node_ips=("192.0.2.7",))
)
_MACHINE = _Once(lambda c: node_facts_reader.read_machine_facts(c, _RESOURCES(c)))


async def _wait(_: PluginRegistration | DevicePlugins) -> None:
    """No plugin has a socket on the simulated node."""
    await asyncio.Event().wait()


def _placed_resources(config: EffectiveConfig) -> NodeResources:
    known: NodeResources = _RESOURCES(config)
    amounts = {"cpu": str(len(MACHINE.all_cpus)), "memory": "32Gi"}
    return replace(known, capacity=known.capacity | amounts, allocatable=known.allocatable | AMOUNTS)


@contextlib.contextmanager
def with_placement(plugin: SimulatedPlugin) -> Iterator[None]:
    """For the time of one run on the node of `placement`, with its device plugin."""
    volume, podsync = "services.volume.controllers", "services.podsync"
    with (
        mock.patch(f"{podsync}.service.read_node_resources", _placed_resources),
        mock.patch(
            f"{podsync}.service.read_machine_facts",
            lambda config, resources: replace(_MACHINE(config), allocatable=resources.allocatable),
        ),
        mock.patch(f"{podsync}.adapters.node_placer.read_machine_topology", lambda _: MACHINE),
        mock.patch(f"{volume}.device_plugins.registration_server", plugin.registration_server),
        mock.patch(f"{volume}.device_plugins.socket_below", "{}/{}".format),
        mock.patch(f"{volume}.device_plugin_lists.connected_plugin", plugin.connected),
        mock.patch(f"{volume}.device_requests.connected_plugin", plugin.connected),
    ):
        yield


def without_placement() -> Any:
    """For the time of one run on a node without device plugins and static policies."""
    return mock.patch.object(DevicePlugins, "run", _wait)


@contextlib.contextmanager
def with_claims(driver: SimulatedDriver, boot_id: Callable[[], str]) -> Iterator[None]:
    """For the time of one run on a node with a driver of resource claims, without CDI specifications."""
    volume = "services.volume.adapters"

    async def run(registration: PluginRegistration) -> None:
        await driver.registered(registration)

    def endpoints(_: PluginRegistration, kind: str, name: str) -> list[RegisteredPlugin]:
        return driver.endpoints(kind, name)

    def registered(_: PluginRegistration, kind: str) -> dict[str, RegisteredPlugin]:
        return {plugin.name: plugin for plugin in driver.endpoints(kind, DRIVER)}

    with (
        mock.patch.object(PluginRegistration, "run", run),
        mock.patch.object(PluginRegistration, "endpoints", endpoints),
        mock.patch.object(PluginRegistration, "registered", registered),
        mock.patch.object(PluginRegistration, "sockets", lambda *_: []),  # no connection is kept to them
        mock.patch.object(PluginRegistration, "complete", True),
        mock.patch(f"{volume}.dra_drivers.prepare", driver.prepare),
        mock.patch(f"{volume}.dra_drivers.unprepare", driver.unprepare),
        mock.patch(f"{volume}.claim_files.boot_id", boot_id),
        mock.patch(f"{volume}.cdi_specifications.DIRECTORIES", ()),
    ):
        yield


def without_claims() -> Any:
    """For the time of one run on a node without a driver of resource claims."""
    return mock.patch.object(PluginRegistration, "run", _wait)


@contextlib.contextmanager
def machine() -> Iterator[None]:
    """For the time of one run."""
    _watches.clear()
    counts = ProbeCounts({})
    with (
        mock.patch("services.pleg.controllers.prober.ProbeFiles", lambda directory: counts),
        mock.patch.object(StoryFiles, "add", lambda *_: None),
        mock.patch.object(StoryFiles, "add_wait", lambda *_: None),
        mock.patch.object(StoryFiles, "keep_newest", lambda *_: None),
        mock.patch("services.podsync.service.read_node_resources", _RESOURCES),
        mock.patch("services.podsync.service.read_machine_facts", _MACHINE),
        mock.patch("services.podsync.service.read_node_facts", _FACTS),
        mock.patch("shared.host.cgroup_layout.find_hierarchies", _hierarchies),
        mock.patch("services.sources.controllers.static_pods.ManifestWatch", ManifestWatch),
        mock.patch("services.volume.adapters.root_dir.prepare", lambda _: None),
    ):
        yield
