"""Answers `/bulkhead/`: the node page, its files, the state of the node as JSON, and the stream of changes.

While pages are open, the state is read every two seconds, and each change is encoded once for all pages. A page that
falls behind gets the complete state next, so that no page has more than one event waiting."""

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
from services.server.core.listening.client_address import group_of
from services.server.core.listening.log_interval import LogInterval
from services.server.core.listening.shares import Shares
from services.server.core.pages.node_history import until_next
from services.server.core.pages.page_feed import PageFeed
from services.server.core.routes import PAGE_NOT_FOUND, Endpoint, is_of_another_site

log = logging.getLogger(__name__)

TICK_SECONDS = 2.0  # between two readings while a page is open
SAMPLES_PER_SAVE = 6  # samples between two writes: a killed process loses one minute of the charts
MAX_PAGES = 64  # open streams; a client opens another one only while it has fewer than are free
HEARTBEAT_SECONDS = 10.0  # without a change after which a page gets an event all the same
MAX_WRITE_SECONDS = 30.0  # in which a page must take an event; otherwise its stream ends
MAX_STREAM_SECONDS = 600.0  # of one stream; the page then connects again, and its authorization is reviewed again
_BEGIN = b"retry: 1000\n\n"  # milliseconds until a browser connects again
_UNCHANGED = b"event: unchanged\ndata: {}\n\n"  # an event, because browsers do not pass comments to a page

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
    """Answers the requests, and runs the loops that read the state. Without an open page only the history is sampled.
    `state`: what pages show."""

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
        self._changed = asyncio.Event()  # replaced by a new one at each change
        self._opened = asyncio.Event()  # set while a page is open

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {Endpoint.NODE_PAGE: self.answer}

    @property
    def pages(self) -> int:
        """The number of open streams."""
        return self._pages.total

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Continue the history of an earlier process, and add the loops to `tasks`."""
        self.state.history.restore(self._saved.read(), self._clock.wall())
        tasks.create_task(self._sample(), name="node-history")
        tasks.create_task(self._follow(), name="node-page")
        tasks.create_task(self._follow_pods(), name="node-page-pods")

    def close(self) -> None:
        """End the open streams: the pages then connect to the successor of this process."""
        self._closed = True
        self._changed.set()

    async def answer(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /bulkhead/`, and below it the page's files, the state and the events. Refuse a page of another
        site, except for a link to the node page: it cannot read the answers, but could keep the event streams busy."""
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
        if tag in request.headers.get("If-None-Match", ""):  # it may be one of several tags, or W/"…" from a proxy
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._closed:
            return _refusal("this process ends, and another one takes its place\n")
        client = request.get(USER) or group_of(request.remote or "")
        if not self._pages.take(client):
            of_client, total = self._pages.taken_by(client), self._pages.total
            return _refusal(f"{of_client} node pages of {client} are open already, {total} in all\n")
        with self._page(client):
            await self._read()
            headers = {**_HEADERS, "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            await self._send(request, response)
        return response

    async def _send(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Send events until the page has to connect again, or is too slow. After a cancelled write nothing more is
        written: aiohttp would close the connection but keep the unsent data."""
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
                async with asyncio.timeout(min(HEARTBEAT_SECONDS, left)):
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
        """Bring the feed up to date when it is older than one tick."""
        async with self._reading:
            if self._clock.monotonic() - self._read_at < TICK_SECONDS / 2 and self._feed.number:
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
            await asyncio.sleep(TICK_SECONDS)

    async def _follow_pods(self) -> None:
        """Read the usage of the pods while a page is open. The state is read apart from it, because it must not wait
        for pleg."""
        while True:
            await self._opened.wait()
            await self._unless_it_fails(self.state.machine.read_pods())
            await asyncio.sleep(USAGE_SECONDS)
            if not self._opened.is_set():
                self.state.machine.forget_pods()

    async def _sample(self) -> None:
        """Take a sample at multiples of ten seconds of the monotonic clock, when the beats wake this process anyway."""
        for number in count(1):
            await asyncio.sleep(until_next(self._clock.monotonic()))
            await self._unless_it_fails(self.state.sample())
            if number % SAMPLES_PER_SAVE == 0 and not self._closed:  # once closed, the successor writes the file
                await self._unless_it_fails(asyncio.to_thread(self._saved.write, self.state.history.data()))

    async def _unless_it_fails(self, work: Awaitable[None]) -> None:
        """Await the work, and log its failure: a bug of the page must not end this process and the streams of
        containers."""
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
    """Write to the page. Return False, and end its connection, when the page takes too long."""
    try:
        async with asyncio.timeout(MAX_WRITE_SECONDS):
            await write
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        return False
    return True
