"""Answers `/statusz` and `/flagz` (server.md 15.4)."""

import platform
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import orjson
from aiohttp import web

from services.frame.generation import supervisor_process
from services.server.adapters.plain_answer import plain
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.pages import zpages
from services.server.core.pages.zpages import Page, Representation
from services.server.core.routes import Endpoint
from shared.config.flag_lines import flag_texts
from shared.model.objects import Object
from shared.process.identity import started_at
from shared.time.clock import Clock
from shared.version import release_tag

_RUNTIME = f"none (Python {platform.python_version()})"
_OLD = (
    f'299 - "{zpages.GROUP}/{zpages.OLD_VERSION} is deprecated and will be removed in a future release; use '
    f'{zpages.GROUP}/{zpages.VERSION}"'
)


class ZPagesEndpoints:
    """Answers requests for both pages. `given_flags` are the flags in force, `paths` the paths that /statusz names;
    `emulated` is the major.minor version of Kubernetes whose behaviour is kept."""

    def __init__(
        self, given_flags: Callable[[], dict[str, str]], clock: Clock, paths: Iterable[str], emulated: str
    ) -> None:
        self._given_flags, self._clock, self._paths = given_flags, clock, tuple(paths)
        self._release = release_tag(emulated).removeprefix("v")
        self._started = datetime.fromtimestamp(started_at(supervisor_process()) or clock.wall(), UTC)

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """Return the handler of each endpoint."""
        return {Endpoint.STATUSZ: self.statusz, Endpoint.FLAGZ: self.flagz}

    async def statusz(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /statusz`."""
        now = datetime.fromtimestamp(self._clock.wall(), UTC)
        wanted = _representation(request, Page.STATUSZ)
        if wanted is None:
            return plain(406, zpages.not_acceptable(Page.STATUSZ))
        facts = self._started, now, _RUNTIME, self._release, self._paths
        if wanted.version:
            return _structured(zpages.statusz_object(*facts, wanted.version), wanted)
        return plain(200, zpages.statusz_text(*facts, _mark()))

    async def flagz(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /flagz` with every flag and its value; the value of a secret is `CLASSIFIED`."""
        wanted = _representation(request, Page.FLAGZ)
        if wanted is None:
            return plain(406, zpages.not_acceptable(Page.FLAGZ))
        flags = flag_texts(self._given_flags())
        if wanted.version:
            return _structured(zpages.flagz_object(flags, wanted.version), wanted)
        return plain(200, zpages.flagz_text(flags, _mark()))


def _representation(request: web.BaseRequest, page: Page) -> Representation | None:
    return zpages.representation(",".join(request.headers.getall("Accept", ())), page)


def _mark() -> str:
    return random.choice(zpages.DELIMITERS)


def _structured(page: Object, wanted: Representation) -> web.Response:
    """Return the page as JSON, which is also valid YAML."""
    headers = {"Content-Type": wanted.content_type}
    if wanted.version == zpages.OLD_VERSION:
        headers["Warning"] = _OLD
    return web.Response(body=orjson.dumps(page) + b"\n", headers=headers)
