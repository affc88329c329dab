"""Requests from sources what podsync's calls need of the API server: objects that an environment refers to, runtime
handlers, our Node, pull secrets; and from status tokens of service accounts.
Decides nothing. A standalone node has no cluster to read.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.sources import REQUESTED_READ_TIMEOUT_SECONDS, FoundObject, FoundServices, GetObject, GetServices
from bus.messages.status import REQUESTED_WRITE_TIMEOUT_SECONDS, IssuedToken, RequestToken
from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.environment import ReferencedObject, References, environment_references
from services.podsync.core.cri.service_environment import service_environment
from shared.model.objects import Object, namespace
from shared.process.deadlines import waiting_for

NOTHING_TO_READ = "the node runs alone: there is no API server"
_MAX_READS = 4  # objects that are read at the same time, of at most 1 MiB each
_MAX_CHARACTERS = 8 << 20  # of all objects, twice the base64 of the largest environment
_SMALL_CHARACTERS = 256 << 10  # of all objects; every container may have so many at the same time
_MAX_LARGE = 4  # containers that have more than _SMALL_CHARACTERS at the same time
_DROPPED = ReferencedObject(None, error="not read: the objects before it are already larger than an environment may be")
_NOT_REACHED = ReferencedObject(None, error="not read: an object before it could not be read")
_MANY_SERVICES = 100  # variables of more Services are made in a thread, so that other pods go on
TIMEOUT_SECONDS = 5.0  # for what sources has in memory; a restarted sources answers within that time


class ClusterReads(Protocol):
    """Reads what the calls need of other services."""

    def references(self, pod: Object, container: Object) -> AbstractAsyncContextManager[References]: ...
    async def service_env(self, pod: Object, *, static: bool) -> dict[str, str]: ...
    async def runtime_handler(self, pod: Object) -> str: ...
    async def node(self) -> Object | None: ...
    async def secret(self, space: str, name: str) -> ReferencedObject: ...
    async def service_account(self, space: str, name: str) -> ReferencedObject: ...
    async def token(self, space: str, service_account: str, spec: dict[str, Any]) -> IssuedToken: ...


class SourcesReads:
    """Reads through sources, the only process that reads the API server."""

    def __init__(self, bus: Bus, node_name: str) -> None:
        self._bus, self._node_name = bus, node_name
        self._large = asyncio.Semaphore(_MAX_LARGE)

    @asynccontextmanager
    async def references(self, pod: Object, container: Object) -> AsyncIterator[References]:
        """Read each ConfigMap and Secret that the container's environment names, with only the keys it needs, for a
        block that builds the environment. Only a few blocks at a time have more than 256 KiB; another one waits for
        its turn. The rest is not read once there is more than any environment may have, or one object could not be
        read: there will be no environment, and each further read may hang as the last one did. Never raises."""
        wanted = environment_references(container)
        if (small := await self._read(namespace(pod), wanted, large=False)) is not None:
            yield small
            return
        with waiting_for("the containers with large environments"):
            await self._large.acquire()
        try:
            yield await self._read(namespace(pod), wanted, large=True) or {}
        finally:
            self._large.release()

    async def _read(
        self, space: str, wanted: Mapping[tuple[str, str], Collection[str] | None], *, large: bool
    ) -> References | None:
        """Read the objects, a few at a time; None = they are not small and not `large`, and none is kept."""
        objects: dict[tuple[str, str], ReferencedObject] = {}
        characters = 0
        failed = False

        async def read(key: tuple[str, str]) -> ReferencedObject:
            nonlocal characters
            kind, name = key
            narrowed, size = _narrow(await self._object(kind, space, name), wanted[key])
            characters += size
            return narrowed if large or characters <= _SMALL_CHARACTERS else _DROPPED

        keys = list(wanted)
        for start in range(0, len(keys), _MAX_READS):
            batch = keys[start : start + _MAX_READS]
            if failed or characters > _MAX_CHARACTERS:
                objects |= dict.fromkeys(batch, _NOT_REACHED if failed else _DROPPED)
                continue
            objects |= zip(batch, await asyncio.gather(*map(read, batch)), strict=True)
            failed = any(objects[key].error and not objects[key].not_found for key in batch)
            if characters > _SMALL_CHARACTERS and not large:
                return None
        return objects

    async def service_env(self, pod: Object, *, static: bool) -> dict[str, str]:
        """Return the variables of Services, by name. Raises ContainerConfigError while Services are not known, but a
        static pod then gets none."""
        space, links = namespace(pod), bool((pod.get("spec") or {}).get("enableServiceLinks", True))
        try:
            found = await self._bus.ask("sources", GetServices(namespace=space), FoundServices, TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            if static:
                return {}
            raise ContainerConfigError(f"services could not be read: {error}") from error
        if not found.synced and not static:
            raise ContainerConfigError("services have not yet been read at least once, cannot construct envvars")
        if len(found.services) > _MANY_SERVICES:
            return await asyncio.to_thread(service_environment, found.services, space, links=links)
        return service_environment(found.services, space, links=links)

    async def runtime_handler(self, pod: Object) -> str:
        """Return the handler that spec.runtimeClassName names, "" = the default one. Raises SandboxConfigError."""
        name = (pod.get("spec") or {}).get("runtimeClassName")
        if not name:
            return ""
        found = await self._object("RuntimeClass", "", str(name))
        if found.object is None:
            raise SandboxConfigError(
                found.error if found.not_found else f"failed to lookup RuntimeClass {name}: {found.error}"
            )
        return str(found.object.get("handler") or "")

    async def node(self) -> Object | None:
        """Return our Node as the API server has it now; None where it cannot be read."""
        return (await self._object("Node", "", self._node_name, fresh=True)).object

    async def secret(self, space: str, name: str) -> ReferencedObject:
        """Return a Secret that a pod of this node names. Never raises."""
        return await self._object("Secret", space, name)

    async def service_account(self, space: str, name: str) -> ReferencedObject:
        """Return the service account of a pod of this node as the API server has it now. Never raises."""
        return await self._object("ServiceAccount", space, name, fresh=True)

    async def token(self, space: str, service_account: str, spec: dict[str, Any]) -> IssuedToken:
        """Request a token by this TokenRequestSpec; the answer has the token or the error. Never raises."""
        request = RequestToken(namespace=space, service_account=service_account, spec=spec)
        try:
            return await self._bus.ask("status", request, IssuedToken, REQUESTED_WRITE_TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            return IssuedToken(error=str(error))

    async def _object(self, kind: str, space: str, name: str, *, fresh: bool = False) -> ReferencedObject:
        request = GetObject(kind=kind, namespace=space, name=name, fresh=fresh)
        try:
            found = await self._bus.ask("sources", request, FoundObject, REQUESTED_READ_TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            return ReferencedObject(None, error=str(error))
        return ReferencedObject(found.object, found.not_found, found.error)


class LocalReads:
    """Reads on a standalone node: sources has the ConfigMaps and Secrets that were applied to it."""

    def __init__(self, bus: Bus, node_name: str) -> None:
        self._sources = SourcesReads(bus, node_name)

    def references(self, pod: Object, container: Object) -> AbstractAsyncContextManager[References]:
        """Read the applied ConfigMaps and Secrets that the container's environment names. Never raises."""
        return self._sources.references(pod, container)

    async def secret(self, space: str, name: str) -> ReferencedObject:
        """Return a Secret that was applied. Never raises."""
        return await self._sources.secret(space, name)

    async def service_env(self, pod: Object, *, static: bool) -> dict[str, str]:
        """Return no variables: the node has no Services."""
        return {}

    async def runtime_handler(self, pod: Object) -> str:
        """Return the default handler, "". Raises SandboxConfigError for a pod that names a RuntimeClass."""
        if name := (pod.get("spec") or {}).get("runtimeClassName"):
            raise SandboxConfigError(f"failed to lookup RuntimeClass {name}: no API server to read it from")
        return ""

    async def node(self) -> Object | None:
        """Return None: the node has no Node object."""
        return None

    async def service_account(self, space: str, name: str) -> ReferencedObject:
        """Return the error that there is no API server."""
        return ReferencedObject(None, error=NOTHING_TO_READ)

    async def token(self, space: str, service_account: str, spec: dict[str, Any]) -> IssuedToken:
        """Return the error that there is no API server."""
        return IssuedToken(error=NOTHING_TO_READ)


def _narrow(read: ReferencedObject, keys: Collection[str] | None) -> tuple[ReferencedObject, int]:
    """Return the object with only these keys of its data (None = all), and its size in characters."""
    if read.object is None:
        return read, 0
    data = read.object.get("data") or {}
    kept = {key: str(data[key]) for key in (data if keys is None else keys) if key in data}
    return ReferencedObject({"data": kept}), sum(len(key) + len(value) for key, value in kept.items())
