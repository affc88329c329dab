"""A node whose Node object the attach-detach controller and status write, as they are played here."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from functools import partial
from itertools import count

from bus.messages.sources import NodeObject
from bus.messages.status import VolumesReported
from bus.messages.streams import NODE_OBJECT, VOLUMES_IN_USE, VOLUMES_REPORTED
from bus.messages.volume import VolumesInUse, VolumeState
from tests.fakes.followed import FollowedStream
from tests.service.volume.node import Node
from tests.support.waits.deadline import WAIT_SECONDS


class Stage:
    """A node whose pods have an attachable disk; sources and status are played."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._sources, self._status = node.network.bus("sources"), node.network.bus("status")
        self._objects, self._reported = self._sources.own(NODE_OBJECT), self._status.own(VOLUMES_REPORTED)
        self.in_use = FollowedStream(self._status, VOLUMES_IN_USE)

    async def start(self) -> None:
        await self._sources.start()
        await self._status.start()
        self.attached("1")

    def attached(self, version: str, *names: str, device: str = "") -> None:
        """The Node as the attach-detach controller writes it."""
        volumes = [{"name": name, "devicePath": device} for name in names]
        metadata = {"name": "n", "resourceVersion": version}
        self._objects.put("node", NodeObject(node={"metadata": metadata, "status": {"volumesAttached": volumes}}))

    async def until_in_use(self, *names: str) -> str:
        """The generation that names these volumes."""
        state = await self.in_use.until(lambda state: "node" in state and state["node"].volumes == names)
        return state["node"].generation

    def report(self, generation: str, version: str, *names: str) -> None:
        """The Node's status is written."""
        reported = VolumesReported(generation=generation, volumes=names, resource_version=version)
        self._reported.put("node", reported)

    @property
    def is_mounted(self) -> bool:
        """Whether the device is."""
        return (self.node.root / "plugins" / "kubernetes.io" / "disk" / "data" / "globalmount").is_symlink()

    async def until_mounted(self, uid: str) -> None:
        await self.node.mounted.until(
            lambda state: uid in state and state[uid].volumes["v"].state is VolumeState.MOUNTED
        )

    async def until_removed(self, uid: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while os.path.lexists(self.node.directory(uid)):
                await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def controller(self, device: str) -> AsyncIterator[None]:
        """Report and attach at once what is in use, as this device."""
        attaching = asyncio.create_task(self._attach(device))
        try:
            yield
        finally:
            attaching.cancel()

    async def _attach(self, device: str) -> None:
        generation = ""
        for version in count(2):
            now = (await self.in_use.until(partial(_is_newer, generation)))["node"]
            generation = now.generation
            self.report(generation, str(version), *now.volumes)
            self.attached(str(version), *now.volumes, device=device)


def _is_newer(generation: str, state: Mapping[str, VolumesInUse]) -> bool:
    return "node" in state and state["node"].generation != generation
