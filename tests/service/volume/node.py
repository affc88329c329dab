"""A node with volume at work on the in-memory bus and a real root directory; podsync is played."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.beat import Beat
from bus.messages.podsync import PodState, PodVolumes
from bus.messages.streams import (
    CLAIMS_PREPARED,
    DEVICES_RESOURCES,
    PLUGINS_REGISTERED,
    PODS_VOLUMES,
    VOLUMES_MOUNTED,
    events_of,
)
from bus.messages.volume import VolumeState
from services.frame.launch import Context
from services.volume.adapters import root_dir
from services.volume.controllers.device_plugins import DevicePlugins
from services.volume.core.mounting import orphans
from services.volume.plugins.registry import PLUGINS
from services.volume.service import Volume
from shared.config.effective import EffectiveConfig
from shared.metrics.registry import Registry, Series
from shared.process.deadlines import Deadlines
from shared.time.clock import SystemClock
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.running_service import running_service
from tests.support.waits.deadline import WAIT_SECONDS

TIMEOUT = 60.0  # seconds, for what a beat or a stream reports

VOLUMES: list[dict[str, Any]] = [
    {"name": "cache", "emptyDir": {}},
    {"name": "logs", "emptyDir": {}},
    {"name": "key", "rbd": {"image": "i"}},
]


class Node:
    """One root directory, the streams of podsync, and processes of volume one after the other."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "root"
        self.network = MemoryNetwork()
        self.volumes = [*VOLUMES, {"name": "host", "hostPath": {"path": str(tmp_path / "host"), "type": "Directory"}}]
        self.host = tmp_path / "host"
        self.plugins = PLUGINS
        self.volume_plugin_dir = tmp_path / "drivers"  # of FlexVolume
        self.controller_attach_detach = True
        self.kubeconfig = ""  # else there is an API server
        self.deadlines = Deadlines()  # of the newest volume
        self._next_podsync()

    def _next_podsync(self) -> None:
        self.podsync = self.network.bus("podsync")
        self.admitted = self.podsync.own(PODS_VOLUMES)
        self.mounted = FollowedStream(self.podsync, VOLUMES_MOUNTED)
        self.events = FollowedStream(self.podsync, events_of("volume"))
        self.registered = FollowedStream(self.podsync, PLUGINS_REGISTERED)
        self.resources = FollowedStream(self.podsync, DEVICES_RESOURCES)
        self.claims = FollowedStream(self.podsync, CLAIMS_PREPARED)
        self.troubles: tuple[str, ...] = ()  # of volume, in its newest beat
        self._beaten = asyncio.Event()
        self.podsync.on_beat(self._on_beat)

    def _on_beat(self, beat: Beat) -> None:
        if beat.service == "volume":
            self.troubles = beat.troubles
            self._beaten.set()

    async def until_troubles(self, *texts: str) -> None:
        """Until each of volume's troubles contains the text in its place, and there is no other."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.troubles) != len(texts) or any(
                t not in s for t, s in zip(texts, self.troubles, strict=True)
            ):
                self._beaten.clear()
                await self._beaten.wait()

    async def podsync_restarts(self) -> None:
        """A killed podsync is back, and has nothing of any pod."""
        self.network.kill("podsync")
        self._next_podsync()
        await self.podsync.start()

    def admit(self, uid: str, *volumes: str, state: PodState = PodState.SYNC) -> None:
        pod = {"metadata": {"uid": uid}, "spec": {"volumes": self.volumes}}
        admitted = PodVolumes(uid=uid, name="web", namespace="default", state=state, pod=pod, volumes=volumes)
        self.admitted.put(uid, admitted)

    def directory(self, uid: str) -> Path:
        return self.root / "pods" / uid

    def empty_dir(self, uid: str, name: str) -> Path:
        return self.directory(uid) / "volumes" / "kubernetes.io~empty-dir" / name

    @contextlib.asynccontextmanager
    async def volume(self) -> AsyncIterator[None]:
        config = EffectiveConfig(
            node_name="n", root_dir=str(self.root), run_dir="", log_dir="", cert_dir="",
            controller_attach_detach=self.controller_attach_detach, volume_plugin_dir=str(self.volume_plugin_dir),
            kubeconfig=self.kubeconfig,
        )  # fmt: skip
        bus = self.network.bus("volume")
        # Retries and graces run on the machine's clock here; the waits themselves are tested in the core.
        self.deadlines = Deadlines()
        self.metrics = Registry("volume")
        context = Context("volume", config, bus, SystemClock(), asyncio.Event(), self.deadlines, self.metrics)
        volume = Volume(context, self.plugins)
        async with running_service(self.network, bus, volume):
            yield

    def counted(self, name: str) -> Series:
        """The series of a metric of the newest volume."""
        return next(series for family, series in self.metrics.collect() if family.name == name)

    async def until_gone(self, uid: str) -> None:
        """Until `pods/<uid>` is removed, which no stream reports."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.directory(uid).exists():
                await asyncio.sleep(0)


def without_device_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep device plugins from registering: their socket has a path that is too long in the directories of most
    tests."""

    async def wait(_: DevicePlugins) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(DevicePlugins, "run", wait)


def mounted(node: Node, uid: str) -> bool:
    """Return whether each volume of the pod is mounted."""
    shown = node.mounted.state.get(uid)
    return shown is not None and all(v.state is VolumeState.MOUNTED for v in shown.volumes.values())


async def started_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, device_plugins: bool = False) -> Node:
    """Start a node with podsync running, without mounts, with a short grace for orphans, and with device plugins where
    required."""

    def without_mounts(path: str) -> None:
        Path(path).mkdir(exist_ok=True)

    monkeypatch.setattr(root_dir, "prepare", without_mounts)
    if not device_plugins:
        without_device_plugins(monkeypatch)
    monkeypatch.setattr(orphans, "ORPHAN_GRACE_SECONDS", 0.05)
    node = Node(tmp_path)
    await node.podsync.start()
    return node
