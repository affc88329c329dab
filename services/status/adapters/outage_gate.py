"""Lets the requests of status fail at once in an outage of the API server, except those of the heartbeat.

The lease and the node's status are written every ten seconds whatever happens, as by the kubelet. They detect when the
API server is back, so no other request has to try. An outage is a failure of the network, not a slow answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from services.status.adapters.clients import Clients
from services.status.core.outage import Outage
from shared.kube.interface import ApiClient, ApiStatusError, ApiUnreachableError, PatchType, WatchEvent
from shared.model.frozen_copy import replace
from shared.model.objects import Object

T = TypeVar("T")


def gate_clients(clients: Clients) -> Clients:
    """Return the clients behind a gate: in an outage that the heartbeat client has noticed, the others fail at once
    with its error."""
    outage = Outage()

    def behind(client: ApiClient) -> GatedClient:
        return GatedClient(client, outage)

    return replace(
        clients,
        heartbeat=GatedClient(clients.heartbeat, outage, is_heartbeat=True),
        kube=behind(clients.kube),
        tokens=behind(clients.tokens),
        reviews=behind(clients.reviews),
        token_reviews=behind(clients.token_reviews),
        events=behind(clients.events),
    )


class GatedClient:
    """An `ApiClient` that notes whether requests reach the API server. In an outage it sends only those of the
    heartbeat."""

    def __init__(self, client: ApiClient, outage: Outage, *, is_heartbeat: bool = False) -> None:
        self._client, self._outage, self._is_heartbeat = client, outage, is_heartbeat

    @property
    def shares_watches(self) -> bool:
        """Return whether watches share connections."""
        return self._client.shares_watches

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Object:
        """Send a GET, as `ApiClient.get` does."""
        return await self._send(lambda: self._client.get(path, query, timeout=timeout))

    async def create(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        """Send a POST, as `ApiClient.create` does."""
        return await self._send(lambda: self._client.create(path, body, timeout=timeout))

    async def update(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        """Send a PUT, as `ApiClient.update` does."""
        return await self._send(lambda: self._client.update(path, body, timeout=timeout))

    async def patch(
        self, path: str, body: Any, kind: PatchType = PatchType.STRATEGIC, *, timeout: float | None = None
    ) -> Object:
        """Send a PATCH, as `ApiClient.patch` does."""
        return await self._send(lambda: self._client.patch(path, body, kind, timeout=timeout))

    async def delete(
        self,
        path: str,
        options: Object | None = None,
        query: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Object:
        """Send a DELETE, as `ApiClient.delete` does."""
        return await self._send(lambda: self._client.delete(path, options, query, timeout=timeout))

    def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float, answer_timeout: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Watch as `ApiClient.watch` does, without a gate: status watches nothing."""
        return self._client.watch(path, query, timeout=timeout, answer_timeout=answer_timeout)

    async def drop_connections(self) -> None:
        """Use new connections from now on."""
        await self._client.drop_connections()

    async def close(self) -> None:
        """Close all connections of the client."""
        await self._client.close()

    async def _send(self, request: Callable[[], Awaitable[T]]) -> T:
        if self._outage.error and not self._is_heartbeat:
            raise ApiUnreachableError(self._outage.error)
        try:
            answer = await request()
        except ApiUnreachableError as error:
            if not error.is_outage:
                self._outage.reached()
            elif self._is_heartbeat:
                self._outage.heartbeat_failed(str(error))
            raise
        except ApiStatusError:
            self._outage.reached()
            raise
        self._outage.reached()
        return answer
