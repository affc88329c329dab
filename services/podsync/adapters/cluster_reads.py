"""What podsync's calls need of the API server, asked of sources: what an environment refers to, handlers, our Node,
pull secrets; and of status: tokens of service accounts.

Decides nothing. A node that runs alone has no cluster to read.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.sources import REQUESTED_READ_TIMEOUT, FoundObject, FoundServices, GetObject, GetServices
from bus.messages.status import REQUESTED_WRITE_TIMEOUT, IssuedToken, RequestToken
from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.environment import ReferencedObject, References, environment_references
from services.podsync.core.cri.service_environment import service_environment
from shared.model.objects import Object, namespace
from shared.process.deadlines import waiting_for

NOTHING_TO_READ = "the node runs alone: there is no API server"
_AT_ONCE = 4  # objects of at most 1 MiB each
_MOST_KEPT = 8 << 20  # characters, twice what the base64 of the largest environment has
_SMALL = 256 << 10  # characters; every container may keep so much at the same time
_LARGE_AT_ONCE = 4  # containers that keep more than _SMALL at the same time
_DROPPED = ReferencedObject(None, error="not read: the objects before it are already larger than an environment may be")
_NOT_REACHED = ReferencedObject(None, error="not read: an object before it could not be read")
_MANY_SERVICES = 100  # whose variables are made in a thread, so that the other pods go on
SECONDS = 5.0  # for what sources has in memory; one that is being restarted is back within that


class ClusterReads(Protocol):
    """What the calls ask for."""

    def references(self, pod: Object, container: Object) -> AbstractAsyncContextManager[References]: ...
    async def service_env(self, pod: Object, *, static: bool) -> dict[str, str]: ...
    async def runtime_handler(self, pod: Object) -> str: ...
    async def node(self) -> Object | None: ...
    async def secret(self, space: str, name: str) -> ReferencedObject: ...
    async def service_account(self, space: str, name: str) -> ReferencedObject: ...
    async def token(self, space: str, service_account: str, spec: dict[str, Any]) -> IssuedToken: ...


class NoCluster:
    """The node runs alone."""

    def references(self, pod: Object, container: Object) -> AbstractAsyncContextManager[References]:
        """Nothing can be read; what is referred to is missing, with the kubelet's words for it."""
        text = "configMaps and secrets are not supported due to running kubelet in standalone mode"
        return nullcontext({wanted: ReferencedObject(None, error=text) for wanted in environment_references(container)})

    async def service_env(self, pod: Object, *, static: bool) -> dict[str, str]:
        """No Services: {}."""
        return {}

    async def runtime_handler(self, pod: Object) -> str:
        """The default handler, "". Raises SandboxConfigError for a pod that names a RuntimeClass."""
        if name := (pod.get("spec") or {}).get("runtimeClassName"):
            raise SandboxConfigError(f"failed to lookup RuntimeClass {name}: no API server to read it from")
        return ""

    async def node(self) -> Object | None:
        """There is no Node object."""
        return None

    async def secret(self, space: str, name: str) -> ReferencedObject:
        """Nothing can be read."""
        return ReferencedObject(None, error=NOTHING_TO_READ)

    async def service_account(self, space: str, name: str) -> ReferencedObject:
        """Nothing can be read."""
        return ReferencedObject(None, error=NOTHING_TO_READ)

    async def token(self, space: str, service_account: str, spec: dict[str, Any]) -> IssuedToken:
        """Without an API server there are no tokens."""
        return IssuedToken(error=NOTHING_TO_READ)


class SourcesReads:
    """Reads through sources, which alone reads the API server."""

    def __init__(self, bus: Bus, node_name: str) -> None:
        self._bus, self._node_name = bus, node_name
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)

    @asynccontextmanager
    async def references(self, pod: Object, container: Object) -> AsyncIterator[References]:
        """Every ConfigMap and Secret that the container's environment names, and of each only the keys it needs. The
        block builds the environment: only a few blocks at a time have more than 256 KiB, and one that needs more waits
        for its turn. Once there is more than any environment may have, or one could not be read, there will be no
        environment, and the rest is not read: an API server that hangs is not waited for time and again. Raises
        nothing."""
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
        """The objects, a few at a time; None = they are not small, and nothing of them is kept."""
        found, kept, failed = dict[tuple[str, str], ReferencedObject](), 0, False

        async def read(one: tuple[str, str]) -> ReferencedObject:
            nonlocal kept
            narrowed, size = _narrowed(await self._object(one[0], space, one[1]), wanted[one])
            kept += size
            return narrowed if large or kept <= _SMALL else _DROPPED

        for batch in _batches(list(wanted), _AT_ONCE):
            if failed or kept > _MOST_KEPT:
                found |= dict.fromkeys(batch, _NOT_REACHED if failed else _DROPPED)
                continue
            found |= zip(batch, await asyncio.gather(*map(read, batch)), strict=True)
            failed = any(found[one].error and not found[one].not_found for one in batch)
            if kept > _SMALL and not large:
                return None
        return found

    async def service_env(self, pod: Object, *, static: bool) -> dict[str, str]:
        """Variables of Services by name. A static pod does not wait for the API server, others raise
        ContainerConfigError."""
        spaces, links = namespace(pod), bool((pod.get("spec") or {}).get("enableServiceLinks", True))
        try:
            found = await self._bus.ask("sources", GetServices(namespace=spaces), FoundServices, SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            if static:
                return {}
            raise ContainerConfigError(f"services could not be read: {error}") from error
        if not found.synced and not static:
            raise ContainerConfigError("services have not yet been read at least once, cannot construct envvars")
        if len(found.services) > _MANY_SERVICES:
            return await asyncio.to_thread(service_environment, found.services, spaces, links=links)
        return service_environment(found.services, spaces, links=links)

    async def runtime_handler(self, pod: Object) -> str:
        """The handler that spec.runtimeClassName stands for, "" = the default one. Raises SandboxConfigError."""
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
        """Our Node as the API server has it now; None when it cannot be read."""
        return (await self._object("Node", "", self._node_name, fresh=True)).object

    async def secret(self, space: str, name: str) -> ReferencedObject:
        """A Secret that a pod of this node names. Never raises."""
        return await self._object("Secret", space, name)

    async def service_account(self, space: str, name: str) -> ReferencedObject:
        """A service account that a pod of this node runs as, as the API server has it now. Never raises."""
        return await self._object("ServiceAccount", space, name, fresh=True)

    async def token(self, space: str, service_account: str, spec: dict[str, Any]) -> IssuedToken:
        """A token by this TokenRequestSpec, or why there is none. Never raises."""
        request = RequestToken(namespace=space, service_account=service_account, spec=spec)
        try:
            return await self._bus.ask("status", request, IssuedToken, REQUESTED_WRITE_TIMEOUT)
        except (NoAnswerError, RequestRefusedError) as error:
            return IssuedToken(error=str(error))

    async def _object(self, kind: str, space: str, name: str, *, fresh: bool = False) -> ReferencedObject:
        request = GetObject(kind=kind, namespace=space, name=name, fresh=fresh)
        try:
            found = await self._bus.ask("sources", request, FoundObject, REQUESTED_READ_TIMEOUT)
        except (NoAnswerError, RequestRefusedError) as error:
            return ReferencedObject(None, error=str(error))
        return ReferencedObject(found.object, found.not_found, found.error)


class LocalReads(NoCluster):
    """The node runs alone; sources has the ConfigMaps and Secrets that were submitted to it."""

    def __init__(self, bus: Bus, node_name: str) -> None:
        self._sources = SourcesReads(bus, node_name)

    def references(self, pod: Object, container: Object) -> AbstractAsyncContextManager[References]:
        """As in a cluster."""
        return self._sources.references(pod, container)

    async def secret(self, space: str, name: str) -> ReferencedObject:
        """A Secret that was submitted. Never raises."""
        return await self._sources.secret(space, name)


def _batches(wanted: list[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]


def _narrowed(read: ReferencedObject, keys: Collection[str] | None) -> tuple[ReferencedObject, int]:
    """The object with these keys of its data alone, None = all, and how many characters that are."""
    if read.object is None:
        return read, 0
    data = read.object.get("data") or {}
    kept = {key: str(data[key]) for key in (data if keys is None else keys) if key in data}
    return ReferencedObject({"data": kept}), sum(len(key) + len(value) for key, value in kept.items())
