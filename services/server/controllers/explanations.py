"""Answers `/bulkhead/explain` with what happened to a pod, an image or the node, as `bulkhead explain` prints it.

Reads the records on disk in threads, so that a slow disk delays no other answer.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from services.server.adapters.plain_answer import plain
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.go_text import parse_query
from services.server.core.routes import Endpoint, is_of_another_site
from shared.config.durations import parse_duration
from shared.config.effective import EffectiveConfig
from shared.story.files import directory_of, find_stories, image_lines, newest_lines, read_conditions, read_shutdown
from shared.story.text import (
    image_data,
    image_text,
    list_data,
    list_text,
    node_data,
    node_text,
    story_data,
    story_text,
)
from shared.time.clock import Clock

MAX_THREADS = 2  # of the threads, which also read the logs of containers
MAX_WAITING_REQUESTS = 30  # requests that wait for a thread

Answer = tuple[list[str], Any]  # lines of text, and the same data as JSON


class Explanations:
    """Answers requests from the records below the root directory, which are read in `threads`."""

    def __init__(self, config: EffectiveConfig, clock: Clock, threads: ThreadPoolExecutor) -> None:
        self._root, self._run_dir, self._clock, self._threads = config.root_dir, config.run_dir, clock, threads
        self._turns, self._asked = asyncio.Semaphore(MAX_THREADS), 0

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {Endpoint.EXPLAIN: self.explain}

    async def explain(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /bulkhead/explain[/{namespace}/{pod} | /node | /image?name=...]` with the parameters `output`
        (text or json) and `since`. Refuse a page of another site with 403: it could only keep the threads busy."""
        if is_of_another_site(request.headers):
            return plain(403, "explain answers no other site\n")
        query = parse_query(request.rel_url.raw_query_string)
        form, since = query.get("output", ["text"])[0], query.get("since", [""])[0]
        if form not in ("text", "json"):
            return plain(400, f"output: is {form!r}, must be text or json\n")
        try:
            begin = self._clock.wall() - parse_duration(since) if since else 0.0
        except ValueError:
            return plain(400, f"since: is {since!r}, must be a duration such as 5m\n")
        read = self._reading(parameters, query.get("name", [""])[0], begin)

        def body() -> str | None:
            """Return the text of the answer. It is made in the thread, because the records of many pods have
            megabytes."""
            if (answer := read()) is None:
                return None
            lines, data = answer
            return json.dumps(data) + "\n" if form == "json" else "".join(f"{line}\n" for line in lines)

        if self._asked >= MAX_THREADS + MAX_WAITING_REQUESTS:
            refused = plain(503, f"{self._asked} requests of explain wait already\n")
            refused.headers["Retry-After"] = "5"
            return refused
        self._asked += 1
        try:
            async with self._turns:
                text = await asyncio.get_running_loop().run_in_executor(self._threads, body)
        except OSError as error:
            return plain(500, f"the record cannot be read: {error.strerror}\n")
        finally:
            self._asked -= 1
        if text is None:
            return plain(404, f"no record of {'/'.join(parameters)}\n")
        if form == "json":
            return web.Response(body=text.encode(), headers={"Content-Type": "application/json"})
        return plain(200, text)

    def _reading(self, parameters: tuple[str, ...], name: str, begin: float) -> Callable[[], Answer | None]:
        """Return a function that reads the answer to these parameters; it returns None where there is no record."""
        match parameters:
            case ():
                return lambda: self._all(begin)
            case ("node",):
                return lambda: self._node(begin)
            case ("image",):
                return lambda: self._image(name, begin)
            case (namespace, pod):
                return lambda: self._pod(namespace, pod, begin)
        return lambda: None

    def _all(self, begin: float) -> Answer:
        stories = [story for story in newest_lines(directory_of(self._root)) if story.newest >= begin]
        return list_text(stories, self._clock.wall()), list_data(stories)

    def _node(self, begin: float) -> Answer | None:
        record = read_conditions(self._root, self._run_dir)
        data = node_data(record, begin, read_shutdown(self._root, self._run_dir))
        return (node_text(data), data) if record else None

    def _image(self, name: str, begin: float) -> Answer:
        found = image_lines(directory_of(self._root), name)
        lines = [(story, line) for story, line in found if float(line.get("at") or 0.0) >= begin]
        return image_text(lines), image_data(lines)

    def _pod(self, namespace: str, pod: str, begin: float) -> Answer | None:
        found = find_stories(directory_of(self._root), pod, namespace)
        return (story_text(found[0], begin), story_data(found[0], begin)) if found else None
