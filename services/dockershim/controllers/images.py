"""Images of Docker, and what they and the writable layers use on its disk."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine, Json
from services.dockershim.adapters.statuses import image_message
from services.dockershim.core.errors import CallError

MAX_INSPECTIONS = 8  # of images at the same time: each has a connection to Docker
_USE_SECONDS = 60.0  # how long what the disk holds is not counted again: Docker counts file by file


class Images:
    """Answers the calls of ImageService. `progress_seconds`: a pull without progress for so long is ended."""

    def __init__(
        self,
        engine: Engine,
        sandbox_image: str,
        progress_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._sandbox_image = engine, sandbox_image
        self._progress_seconds, self._monotonic = progress_seconds, monotonic
        self._layers: tuple[float, dict[str, int]] | None = None
        self._images: tuple[float, int] | None = None
        self._inspections = asyncio.Semaphore(MAX_INSPECTIONS)
        self._counting = asyncio.Lock()  # Docker refuses a second count beside one

    async def list(self, wanted: Any) -> Any:
        """ListImages: the one image of the filter, else all."""
        name = wanted.image.image
        wished = [name] if name else [image["Id"] for image in await self._engine.images()]
        found = await asyncio.gather(*(self._inspect(reference) for reference in wished))
        return api_pb2.ListImagesResponse(images=[self._message(image) for image in found if image is not None])

    async def _inspect(self, reference: str) -> Json | None:
        async with self._inspections:
            return await self._engine.image(reference)

    async def status(self, reference: str) -> Any:
        """ImageStatus: an empty answer for an image that is not present."""
        image = await self._engine.image(reference)
        return api_pb2.ImageStatusResponse(image=None if image is None else self._message(image))

    async def pull(self, reference: str, auth: Any) -> Any:
        """PullImage: return the id of the image, by which ImageStatus and the agent's records of who may use it name it
        as well. Raises CallError; ends a pull without progress."""
        messages = self._engine.pull(reference, _credentials(auth))
        try:
            while True:
                try:
                    async with asyncio.timeout(self._progress_seconds):
                        message = await anext(messages)
                except StopAsyncIteration:
                    break
                if "error" in message:
                    raise CallError("Unknown", str(message["error"]))
        except TimeoutError:
            seconds = f"{self._progress_seconds:g}"
            raise CallError("Unknown", f"the pull of {reference} made no progress for {seconds} s: cancelled") from None
        finally:
            await messages.aclose()  # type: ignore[attr-defined]
        image = await self._engine.image(reference)
        if image is None:
            raise CallError("Unknown", f"Docker has pulled {reference} and does not have it")
        return api_pb2.PullImageResponse(image_ref=image["Id"])

    async def remove(self, reference: str) -> None:
        """RemoveImage with all its names."""
        image = await self._engine.image(reference)
        if image is None:
            return
        for name in (*(image.get("RepoTags") or ()), *(image.get("RepoDigests") or ())):
            await self._engine.remove_image(name)
        await self._engine.remove_image(image["Id"])

    async def filesystem(self) -> Any:
        """ImageFsInfo: Docker's data directory, with the bytes of all layers of images."""
        root = str((await self._engine.info())["DockerRootDir"])
        containers = _usage(root, sum((await self.writable_layers()).values()))
        usage = _usage(root, await self._image_bytes())
        return api_pb2.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[containers])

    async def _image_bytes(self) -> int:
        """Return the bytes of all layers of images, at most a minute old where Docker counts for somebody else."""
        async with self._counting:
            now = self._monotonic()
            if self._images is None or now - self._images[0] > _USE_SECONDS:
                try:
                    self._images = (now, int((await self._engine.disk_use()).get("LayersSize") or 0))
                except CallError:
                    if self._images is None:
                        raise
            return self._images[1]

    async def writable_layers(self) -> dict[str, int]:
        """Return the bytes of the writable layer of each container by id, at most a minute old."""
        async with self._counting:
            now = self._monotonic()
            if self._layers is None or now - self._layers[0] > _USE_SECONDS:
                sizes = await self._engine.sizes()
                self._layers = (now, {listed["Id"]: int(listed.get("SizeRw") or 0) for listed in sizes})
            return self._layers[1]

    async def stats(self, container_ids: frozenset[str]) -> Any:
        """ListContainerStats of these containers: their writable layers alone; the agent reads cgroups itself."""
        root = str((await self._engine.info())["DockerRootDir"])
        stats = []
        for container_id, size in (await self.writable_layers()).items():
            if container_id in container_ids:
                entry = api_pb2.ContainerStats(writable_layer=_usage(root, size))
                entry.attributes.id = container_id
                stats.append(entry)
        return api_pb2.ListContainerStatsResponse(stats=stats)

    def _message(self, image: Json) -> Any:
        return image_message(image, str((image.get("Config") or {}).get("User") or ""), self._sandbox_image)


def _usage(root: str, used: int) -> Any:
    usage = api_pb2.FilesystemUsage(timestamp=time.time_ns())
    usage.fs_id.mountpoint = str(Path(root))
    usage.used_bytes.value = used
    return usage


def _credentials(auth: Any) -> Json | None:
    fields = {
        "username": auth.username,
        "password": auth.password,
        "auth": auth.auth,
        "serveraddress": auth.server_address,
        "identitytoken": auth.identity_token,
        "registrytoken": auth.registry_token,
    }
    given = {name: value for name, value in fields.items() if value}
    return given or None
