"""Docker Engine's API over aiodocker: each call with a deadline, and Docker's refusals as `CallError`."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, TypeVar

import aiohttp
from aiodocker import Docker
from aiodocker.exceptions import DockerError

from services.dockershim.adapters.hijacked import Hijacked
from services.dockershim.core.errors import CallError

T = TypeVar("T")
Json = dict[str, Any]

# Docker gets no longer for one request: less than the kubelet's runtimeRequestTimeout, so that a caller gets our text.
REQUEST_SECONDS = 100.0
_CANNOT_CONNECT = 900  # aiodocker's own
_CODES = {400: "InvalidArgument", 404: "NotFound", 409: "FailedPrecondition", 501: "Unimplemented"}
MAX_ERROR_BYTES = 4096  # of the text of a refusal


class Engine:
    """A connection to Docker at `endpoint`, such as `unix:///var/run/docker.sock`. Build it inside of a loop."""

    def __init__(self, endpoint: str, seconds: float = REQUEST_SECONDS) -> None:
        self.endpoint, self._seconds = endpoint, seconds
        # Without a limit: each stop with a grace, and each pull, has a connection for minutes.
        self._connector = aiohttp.UnixConnector(endpoint.removeprefix("unix://"), limit=0)
        self._docker = Docker(url="unix://localhost", connector=self._connector, api_version="auto")

    async def close(self) -> None:
        """Close the connection."""
        await self._docker.close()
        await self._connector.close()

    async def version(self) -> Json:
        """Return the versions of Docker and of its API."""
        return await self.call(self._docker.version())

    async def info(self) -> Mapping[str, Any]:
        """Return what Docker says of itself and the machine."""
        return await self.call(self._docker.system.info())

    async def containers(self, labels: Sequence[str]) -> list[Json]:
        """Return all containers, running or not, that have these labels (`name=value`)."""
        filters = json.dumps({"label": list(labels)})
        listed = await self.call(self._docker.containers.list(all="true", filters=filters))
        try:
            return [_content(item) for item in listed]
        except KeyError as error:
            raise CallError("Unknown", f"Docker at {self.endpoint} lists a container without {error}") from None

    async def inspect(self, container: str) -> Json:
        """Return a container by id or name. Raises CallError NotFound."""
        if not container:
            raise CallError("NotFound", "a container without an id does not exist")
        return await self.call(self._docker.containers.container(container).show())

    async def create(self, name: str, body: Json) -> str:
        """Create a container, and return its id."""
        return str((await self.call(self._docker.containers.create(body, name=name))).id)

    async def start(self, container: str) -> None:
        """Start a container; one that runs is no error."""
        await self.call(self._docker.containers.container(container).start())

    async def stop(self, container: str, grace: int) -> None:
        """Stop a container; `grace`: seconds until SIGKILL. One that has ended is no error."""
        stopping = self._docker.containers.container(container).stop(t=grace)
        await self.call(stopping, self._seconds + grace)

    async def remove(self, container: str) -> None:
        """Remove a container with its anonymous volumes, running or not; one that is not there is no error."""
        try:
            await self.call(self._docker.containers.container(container).delete(force=True, v=True))
        except CallError as error:
            if error.code != "NotFound" and "already in progress" not in str(error):
                raise

    async def update(self, container: str, resources: Json) -> None:
        """Give a container other resources."""
        async with self._request("POST", f"containers/{container}/update", body=resources) as answer:
            await answer.read()

    async def sizes(self) -> list[Json]:
        """Return all containers with the size of their writable layers, which Docker counts file by file."""
        async with self._request("GET", "containers/json", {"all": "true", "size": "true"}) as answer:
            found: list[Json] = await answer.json()
            return found

    async def disk_use(self) -> Json:
        """Return what Docker's images use."""
        async with self._request("GET", "system/df") as answer:
            found: Json = await answer.json()
            return found

    async def create_exec(self, container: str, command: Sequence[str], *, stdin: bool, tty: bool) -> "Exec":
        """Prepare a command in a running container."""
        made = await self.call(
            self._docker.containers.container(container).exec(list(command), stdin=stdin, tty=tty, stderr=not tty)
        )
        return Exec(self, made, tty)

    def attach(self, container: str, *, stdin: bool, tty: bool) -> Hijacked:
        """Return the streams of the container's first process."""
        query = f"stream=1&stdout=1&stderr={int(not tty)}&stdin={int(stdin)}"
        return self.hijacked(f"containers/{container}/attach?{query}", {}, tty=tty)

    def hijacked(self, path: str, body: Json, *, tty: bool) -> Hijacked:
        """Return the streams that Docker opens for a request with this path and body."""
        socket = self.endpoint.removeprefix("unix://")
        return Hijacked(socket, f"/{self._docker.api_version}/{path}", body, tty=tty)

    async def resize(self, container: str, width: int, height: int) -> None:
        """Give the terminal of a container's first process another size."""
        await self.call(self._docker.containers.container(container).resize(h=height, w=width))

    async def images(self) -> list[Json]:
        """Return all images."""
        return [dict(image) for image in await self.call(self._docker.images.list())]

    async def image(self, reference: str) -> Json | None:
        """Return an image by name, digest or id; None = it is not present."""
        try:
            return dict(await self.call(self._docker.images.inspect(reference)))
        except CallError as error:
            if error.code == "NotFound":
                return None
            raise

    async def pull(self, reference: str, auth: Json | None) -> AsyncIterator[Json]:
        """Pull an image, and yield Docker's messages of progress. Raises CallError."""
        if auth is not None and "/" not in reference:
            reference = f"docker.io/library/{reference}"  # aiodocker wants a registry's name beside credentials
        try:
            async for message in self._docker.images.pull(reference, auth=auth, stream=True):
                yield message
        except (DockerError, aiohttp.ClientError, OSError, ValueError, TypeError) as error:
            raise _call_error(error, self.endpoint) from None

    async def remove_image(self, reference: str) -> None:
        """Remove a name of an image, or the image; one that is not present is no error."""
        try:
            await self.call(self._docker.images.delete(reference))
        except CallError as error:
            if error.code != "NotFound":
                raise

    async def load(self, archive: BinaryIO) -> None:
        """Load the images of an archive, as `docker load` does."""
        await self.call(self._docker.images.import_image(archive))

    async def call(self, call: Awaitable[T], seconds: float | None = None) -> T:
        """Return the answer of a request of aiodocker, which gets this long. Raises CallError."""
        try:
            async with asyncio.timeout(seconds or self._seconds):
                return await call
        except (DockerError, aiohttp.ClientError, OSError, ValueError, TypeError) as error:
            raise _call_error(error, self.endpoint) from None

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Json | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request that aiodocker has no method for."""
        if self._docker.api_version == "auto":
            await self.version()
        url = f"http://docker/{self._docker.api_version}/{path}"
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        try:
            async with self._docker.session.request(method, url, params=query, json=body, timeout=timeout) as answer:
                if answer.status >= 400:
                    text = (await answer.content.read(MAX_ERROR_BYTES)).decode("utf-8", "replace")
                    raise DockerError(answer.status, _message_of(text))
                yield answer
        except (DockerError, aiohttp.ClientError, OSError) as error:
            raise _call_error(error, self.endpoint) from None


class Exec:
    """A command in a container."""

    def __init__(self, engine: Engine, made: Any, tty: bool) -> None:
        self._engine, self._made, self._tty = engine, made, tty

    def start(self) -> Hijacked:
        """Return the streams of the command, which starts when they are opened."""
        body = {"Detach": False, "Tty": self._tty}
        return self._engine.hijacked(f"exec/{self._made.id}/start", body, tty=self._tty)

    async def inspect(self) -> Json:
        """Return its state, with its process on the host and its exit code."""
        return await self._engine.call(self._made.inspect())

    async def resize(self, width: int, height: int) -> None:
        """Give its terminal another size."""
        await self._engine.call(self._made.resize(h=height, w=width))


def _content(item: Any) -> Json:
    return {key: item[key] for key in ("Id", "Names", "Image", "ImageID", "Created", "State", "Labels", "HostConfig")}


def _message_of(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def _call_error(error: Exception, endpoint: str) -> CallError:
    if isinstance(error, DockerError) and error.status != _CANNOT_CONNECT:
        return CallError(_CODES.get(error.status, "Unknown"), error.message)
    if isinstance(error, TimeoutError):
        return CallError("DeadlineExceeded", f"Docker at {endpoint} did not answer in time; see `journalctl -u docker`")
    if isinstance(error, ValueError | TypeError):
        return CallError("Unknown", f"Docker at {endpoint} answered what is no answer of Docker: {error}")
    return CallError("Unavailable", f"Docker at {endpoint} cannot be reached; is dockerd running? ({_reason(error)})")


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, DockerError) else str(error)
