"""The main listener of a server without TLS: the same routes, handlers and authorization, and credentials of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from services.server.adapters.client_certificates import ClientCertificates
from services.server.adapters.http_limits import Connection
from services.server.adapters.listener import listen
from services.server.controllers.request_handler import AuthFilter, Authorizer, RequestHandler
from services.server.core.access.authentication import User
from services.server.core.access.authorization import Attributes
from services.server.core.listening import connections
from services.server.core.listening.connections import ConnectionTable
from shared.config.effective import EffectiveConfig
from tests.service.server.running import Node, Running, running

JANE = User("jane", ("system:authenticated",))
TOKEN = "jane's"


async def allow(_question: Attributes, _address: str) -> bool:
    """Permit everything."""
    return True


@dataclass
class MainListener:
    """The listener at `url`, and the server that it belongs to."""

    running: Running
    url: str
    connections: ConnectionTable[Connection]

    @property
    def client(self) -> aiohttp.ClientSession:
        """A client without credentials."""
        return self.running.client

    async def request(self, method: str, path: str, data: bytes = b"", /, **headers: str) -> tuple[int, str, Any]:
        """Status, body and headers; `path` is sent as it is."""
        url = URL(self.url + path, encoded=True)
        async with self.client.request(
            method, url, allow_redirects=False, headers=headers, data=data or None
        ) as response:
            return response.status, (await response.read()).decode(), response.headers


@asynccontextmanager
async def main_listener(
    config: EffectiveConfig, authorize: Authorizer = allow, node: Node | None = None, *, anonymous: bool = True
) -> AsyncIterator[MainListener]:
    """Run a server with this listener until the block ends. The token TOKEN is that of JANE; others are no user's."""

    async def review(token: str, _address: str) -> User | None:
        return JANE if token == TOKEN else None

    async with running(config, node) as server:
        auth = AuthFilter(ClientCertificates(), authorize, review, node=config.node_name, anonymous=anonymous)
        handler = RequestHandler(server.service.served, server.service.handlers, auth)
        listener = await listen("127.0.0.1", 0, handler, connections.MAIN)
        try:
            yield MainListener(server, f"http://127.0.0.1:{listener.port}", listener.connections)
        finally:
            await listener.close()
