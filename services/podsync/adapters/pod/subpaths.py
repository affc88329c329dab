"""Requests subpaths of mounted volumes from volume, the only process that mounts (pods.md 6.8). Decides nothing."""

import asyncio
import logging
from collections.abc import Mapping

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.volume import PreparedSubpath, PrepareSubpath, ReleaseSubpaths
from services.podsync.core.cri.config_errors import ContainerConfigError
from shared.model.objects import Object

log = logging.getLogger(__name__)

_MAX_REQUESTS = 16  # of one container at the same time
TIMEOUT_SECONDS = 5.0  # a restarted volume answers within that time


def has_subpaths(container: Object) -> bool:
    """Return whether any mount of the container has a subPath."""
    return any(mount.get("subPath") or mount.get("subPathExpr") for mount in container.get("volumeMounts") or ())


class Subpaths:
    """Requests the subpaths of containers from volume."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def prepare(self, uid: str, container: Object, wanted: Mapping[int, str]) -> dict[int, str]:
        """Return the host path of each wanted path inside its volume, by the index of its volumeMount. Raises
        ContainerConfigError."""
        mounts = container.get("volumeMounts") or ()
        name = str(container.get("name"))
        requests = [
            PrepareSubpath(uid=uid, volume=str(mounts[index].get("name")), container=name, index=index, path=path)
            for index, path in wanted.items()
        ]
        paths: list[str] = []
        for start in range(0, len(requests), _MAX_REQUESTS):
            paths += await asyncio.gather(*map(self._ask, requests[start : start + _MAX_REQUESTS]))
        return dict(zip(wanted, paths, strict=True))

    async def _ask(self, request: PrepareSubpath) -> str:
        try:
            prepared = await self._bus.ask("volume", request, PreparedSubpath, TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            raise ContainerConfigError(
                f'volume "{request.volume}": its subPath could not be prepared: {error}'
            ) from error
        if prepared.error or not prepared.host_path:
            raise ContainerConfigError(prepared.error or f'volume "{request.volume}": its subPath has no path')
        return prepared.host_path

    async def release(self, uid: str, container: Object) -> None:
        """Release the subpaths after the start of the container. Never raises: those that stay go with the pod's
        volumes."""
        if not has_subpaths(container):
            return
        request = ReleaseSubpaths(uid=uid, container=str(container.get("name")))
        try:
            await self._bus.ask("volume", request, PreparedSubpath, TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            log.warning("the subpaths of container %s of pod %s stay for now: %s", request.container, uid, error)
