"""The handler of `/bulkhead/`: the node page, its files, the state of the node as JSON, and the stream of changes.

While pages are open, the state is read every two seconds, and a change is encoded once for all of them. A page that is
slower than the changes gets the complete state next; so no page has more than one event waiting.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from aiohttp import web

from services.frame.launch import Context
from services.report.document import document
from services.server.adapters.listener import SERVER_NAME
from services.server.adapters.node_history_file import NodeHistoryFile
from services.server.adapters.plain_answer import plain
from services.server.controllers.node_machine import USAGE_SECONDS
from services.server.controllers.node_state import NodeState
from services.server.controllers.pod_streams import PodStreams
from services.server.controllers.request_handler import USER, EndpointHandler
from services.server.core.client_address import group_of
from services.server.core.log_interval import LogInterval
from services.server.core.node_history import until_next
from services.server.core.page_feed import PageFeed
from services.server.core.routes import PAGE_NOT_FOUND, Endpoint, is_of_another_site
from services.server.core.shares import Shares

log = logging.getLogger(__name__)

TICK = 2.0  # seconds between two readings while a page is open
SAVED_EVERY = 6  # samples: what a killed process loses of the charts is a minute
MAX_PAGES = 64  # open streams; a client opens one only while it has fewer than are free
HEARTBEAT = 10.0  # seconds without a change, until a page gets an event all the same
SLOWEST = 30.0  # seconds in which a page takes an event, or the end of its stream
MAX_STREAM_SECONDS = 600.0  # seconds of one stream: the page then connects again, and its right is reviewed again
_BEGIN = b"retry: 1000\n\n"  # milliseconds until a browser connects again
_UNCHANGED = b"event: unchanged\ndata: {}\n\n"  # a browser shows no comments to a page

_FILES = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "texts.js": ("texts.js", "text/javascript"),
    "charts.js": ("charts.js", "text/javascript"),
    "machine.js": ("machine.js", "text/javascript"),
    "story.js": ("story.js", "text/javascript"),
    "page.js": ("page.js", "text/javascript"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Server": SERVER_NAME,
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class NodePage:
    """The handler and its loops. Without an open page only the history is sampled. `state`: what pages show."""

    def __init__(self, context: Context, streams: PodStreams) -> None:
        self._clock = context.clock
        self.state, self._feed = NodeState(context, streams), PageFeed()
        self._saved = NodeHistoryFile(Path(context.config.run_dir))
        directory = Path(__file__).parents[1] / "page"
        self._files = {name: ((directory / file).read_bytes(), kind) for name, (file, kind) in _FILES.items()}
        self._version = hashlib.sha256(b"".join(content for content, _ in self._files.values())).hexdigest()[:16]
        self._log = LogInterval()
        self._pages = Shares(MAX_PAGES)
        self._closed = False
        self._read_at = float("-inf")  # CLOCK_MONOTONIC
        self._reading = asyncio.Lock()
        self._changed = asyncio.Event()  # replaced at each change
        self._opened = asyncio.Event()  # a page is open

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """By endpoint."""
        return {Endpoint.NODE_PAGE: self.answer}

    @property
    def pages(self) -> int:
        """How many streams are open."""
        return self._pages.total

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Continue the history of an earlier process, and add the loops to `tasks`."""
        self.state.history.restore(self._saved.read(), self._clock.wall())
        tasks.create_task(self._sample(), name="node-history")
        tasks.create_task(self._follow(), name="node-page")
        tasks.create_task(self._follow_pods(), name="node-page-pods")

    def close(self) -> None:
        """End the open streams: the pages connect to the successor of this process."""
        self._closed = True
        self._changed.set()

    async def answer(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """GET /bulkhead/ and below it its files, state, events. A page of another site may link to it, no more: it
        could not read an answer, but keep the event streams of this process busy."""
        if is_of_another_site(request.headers):
            return plain(403, "the node page answers no other site\n")
        match parameters[0] if parameters else "":
            case "events":
                return await self._events(request)
            case "state":
                await self._read()
                headers = {**_HEADERS, "Content-Type": "application/json", "Cache-Control": "no-store"}
                return web.Response(body=self._feed.complete(), headers=headers)
            case name if name in self._files:
                return self._file(request, name)
        return plain(404, PAGE_NOT_FOUND)

    def _file(self, request: web.BaseRequest, name: str) -> web.Response:
        content, kind = self._files[name]
        tag = f'"{self._version}"'
        headers = {**_HEADERS, "Cache-Control": "no-cache", "ETag": tag}
        if tag in request.headers.get("If-None-Match", ""):  # perhaps one of several, or W/"…" by a proxy
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._closed:
            return _refusal("this process ends, and another one takes its place\n")
        client = request.get(USER) or group_of(request.remote or "")
        if not self._pages.take(client):
            of_client, total = self._pages.of(client), self._pages.total
            return _refusal(f"{of_client} node pages of {client} are open already, {total} in all\n")
        with self._page(client):
            await self._read()
            headers = {**_HEADERS, "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            await self._send(request, response)
        return response

    async def _send(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Send events until the page is to connect again, or is too slow. No write is cancelled and followed by another
        one: aiohttp would close the connection, and keep what it has not sent."""
        number, clock = 0, asyncio.get_running_loop()
        ends = clock.time() + MAX_STREAM_SECONDS
        await response.write(_BEGIN)
        while not self._closed and (left := ends - clock.time()) > 0:
            changed = self._changed
            event = self._feed.since(number) if number != self._feed.number else _UNCHANGED
            number = self._feed.number
            if not await _is_taken(request, response.write(event)):
                return
            if number != self._feed.number:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(min(HEARTBEAT, left)):
                    await changed.wait()
        if request.transport is not None and not request.transport.is_closing():
            await _is_taken(request, response.write_eof())

    @contextmanager
    def _page(self, client: str) -> Iterator[None]:
        self._opened.set()
        try:
            yield
        finally:
            self._pages.give_back(client)
            if not self._pages.total:
                self._opened.clear()

    async def _read(self) -> None:
        """Bring the feed up to date, where it is older than a tick."""
        async with self._reading:
            if self._clock.monotonic() - self._read_at < TICK / 2 and self._feed.number:
                return
            self._read_at = self._clock.monotonic()
            report = await self.state.report()
            newest = document(
                report,
                version=self._version,
                cpu=self.state.cpu,
                pods=self.state.pods(),
                history=self.state.history.data(),
                sections=self.state.machine.sections(self.state.requested()),
            )
            if self._feed.put(newest):
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()

    async def _follow(self) -> None:
        while True:
            await self._opened.wait()
            await self._unless_it_fails(self._read())
            await asyncio.sleep(TICK)

    async def _follow_pods(self) -> None:
        """Read what the pods use while a page is open, apart from the state, which must not wait for pleg."""
        while True:
            await self._opened.wait()
            await self._unless_it_fails(self.state.machine.read_pods())
            await asyncio.sleep(USAGE_SECONDS)
            if not self._opened.is_set():
                self.state.machine.forget_pods()

    async def _sample(self) -> None:
        """At multiples of ten seconds of the monotonic clock, when the beats wake this process anyway."""
        for number in count(1):
            await asyncio.sleep(until_next(self._clock.monotonic()))
            await self._unless_it_fails(self.state.sample())
            if number % SAVED_EVERY == 0 and not self._closed:  # else the successor writes it
                await self._unless_it_fails(asyncio.to_thread(self._saved.write, self.state.history.data()))

    async def _unless_it_fails(self, work: Awaitable[None]) -> None:
        """A bug of the page must not end this process, and the streams of containers with it."""
        try:
            await work
        except Exception:
            if failures := self._log.count("page", self._clock.monotonic()):
                log.exception("the state of the node page cannot be read or saved (%d since the last line)", failures)


def _refusal(text: str) -> web.Response:
    refused = plain(503, text)
    refused.headers["Retry-After"] = "30"
    return refused


async def _is_taken(request: web.BaseRequest, write: Awaitable[None]) -> bool:
    """Write; where the page takes too long, end its connection."""
    try:
        async with asyncio.timeout(SLOWEST):
            await write
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        return False
    return True
