"""Subpaths of mounted volumes, made ready by volume, which alone mounts (pods.md 6.8). Decides nothing."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.volume import PreparedSubpath, PrepareSubpath, ReleaseSubpaths
from services.podsync.core.cri.config_errors import ContainerConfigError
from shared.model.objects import Object

log = logging.getLogger(__name__)

_AT_ONCE = 16  # requests of one container
SECONDS = 5.0  # a volume that is being restarted is back within that


class Subpaths(Protocol):
    """What the calls ask for."""

    async def prepare(self, uid: str, container: Object, wanted: Mapping[int, str]) -> dict[int, str]: ...
    async def release(self, uid: str, container: Object) -> None: ...


def has_subpaths(container: Object) -> bool:
    """Whether any mount of the container is of a part of its volume."""
    return any(mount.get("subPath") or mount.get("subPathExpr") for mount in container.get("volumeMounts") or ())


class NoSubpaths:
    """Without a volume service there are no subpaths."""

    async def prepare(self, uid: str, container: Object, wanted: Mapping[int, str]) -> dict[int, str]:
        """None can be had: the mounts that want one are refused one by one."""
        return {}

    async def release(self, uid: str, container: Object) -> None:
        """Nothing was made."""


class VolumeSubpaths:
    """Asks volume."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def prepare(self, uid: str, container: Object, wanted: Mapping[int, str]) -> dict[int, str]:
        """Index of volumeMount -> host path, for each path wanted inside its volume. Raises ContainerConfigError."""
        mounts = container.get("volumeMounts") or ()
        name = str(container.get("name"))
        requests = [
            PrepareSubpath(uid=uid, volume=str(mounts[index].get("name")), container=name, index=index, path=path)
            for index, path in wanted.items()
        ]
        paths: list[str] = []
        for start in range(0, len(requests), _AT_ONCE):
            paths += await asyncio.gather(*map(self._ask, requests[start : start + _AT_ONCE]))
        return dict(zip(wanted, paths, strict=True))

    async def _ask(self, request: PrepareSubpath) -> str:
        try:
            prepared = await self._bus.ask("volume", request, PreparedSubpath, SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            raise ContainerConfigError(
                f'volume "{request.volume}": its subPath could not be prepared: {error}'
            ) from error
        if prepared.error or not prepared.host_path:
            raise ContainerConfigError(prepared.error or f'volume "{request.volume}": its subPath has no path')
        return prepared.host_path

    async def release(self, uid: str, container: Object) -> None:
        """The start attempt has returned. Never raises: what stays goes with the pod's volumes."""
        if not has_subpaths(container):
            return
        request = ReleaseSubpaths(uid=uid, container=str(container.get("name")))
        try:
            await self._bus.ask("volume", request, PreparedSubpath, SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            log.warning("the subpaths of container %s of pod %s stay for now: %s", request.container, uid, error)
