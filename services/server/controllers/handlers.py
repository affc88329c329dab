"""Joins the handlers of all endpoints. Those that need the pods wait for them right after the start."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from aiohttp import web

from services.server.controllers.request_handler import EndpointHandler
from services.server.core.routes import Endpoint


class Handling(Protocol):
    """A class that answers the requests to some endpoints."""

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        ...


def join_handlers(
    need_pods: Iterable[Handling], others: Iterable[Handling], known: asyncio.Event
) -> dict[Endpoint, EndpointHandler]:
    """Return the handler of each endpoint. Those of `need_pods`, except /configz, wait for `known`: otherwise a running
    pod would be answered with 404."""
    handlers: dict[Endpoint, EndpointHandler] = {}
    for part in need_pods:
        for endpoint, handler in part.handlers.items():
            handlers[endpoint] = handler if endpoint is Endpoint.CONFIGZ else _once(known, handler)
    for part in others:
        handlers |= part.handlers
    return handlers


def _once(known: asyncio.Event, handler: EndpointHandler) -> EndpointHandler:
    async def answer(request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        await known.wait()
        return await handler(request, parameters)

    return answer
