"""Answers a request with a file or directory of the node's logs, as Go's file server does (server.md 14.1)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from services.server.adapters.listener import SERVER_NAME
from services.server.adapters.plain_answer import go_error
from services.server.adapters.system_log_files import OpenedLog, open_below
from services.server.core.go_text import redirect_location
from services.server.core.logs.served_file import (
    SNIFFED_BYTES,
    BadRangeError,
    content_type,
    http_date,
    listing,
    part_of,
    precondition,
    slash_redirect,
)

T = TypeVar("T")

_BLOCK_BYTES = 256 << 10  # read and written at a time


class FileAnswers:
    """Answers requests with files below `root`, which are read in `threads`."""

    def __init__(self, root: Path, threads: ThreadPoolExecutor) -> None:
        self._root, self._threads = root, threads

    async def answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Answer with the file or directory at `path`, which begins with /."""
        if (target := slash_redirect(path, directory=path.endswith("/"))) is not None:
            return _redirect(target, request)
        try:
            opened = await self.open(path)
        except FileNotFoundError:
            return go_error(404, "404 page not found")
        except PermissionError:
            return go_error(403, "403 Forbidden")
        except OSError:
            return go_error(500, "500 Internal Server Error")
        try:
            return await self._opened(request, path, opened)
        finally:
            opened.close()

    async def _opened(self, request: web.BaseRequest, path: str, opened: OpenedLog) -> web.StreamResponse:
        if (target := slash_redirect(path, directory=opened.is_directory)) is not None:
            return _redirect(target, request)
        if opened.is_directory:
            try:
                index = await self.open(f"{path}index.html")
            except OSError:
                return await self._directory(request, opened)
            try:
                if not index.is_directory:
                    return await self._file(request, "index.html", index)
            finally:
                index.close()
            return await self._directory(request, opened)
        return await self._file(request, path.rpartition("/")[2], opened)

    async def _directory(self, request: web.BaseRequest, opened: OpenedLog) -> web.StreamResponse:
        headers = {"Last-Modified": http_date(opened.status.st_mtime)}
        since = request.headers.get("If-Modified-Since", "")
        if precondition(opened.status.st_mtime, since, "") is not None:
            return web.Response(status=304, headers=headers)
        try:
            entries = await self._in_thread(opened.entries)
        except OSError:
            return go_error(500, "Error reading directory")
        body = listing(entries).encode("utf-8", "surrogateescape")
        return web.Response(body=body, headers=headers | {"Content-Type": "text/html; charset=utf-8"})

    async def _file(self, request: web.BaseRequest, name: str, opened: OpenedLog) -> web.StreamResponse:
        given, size, changed = request.headers, opened.status.st_size, opened.status.st_mtime
        headers = {"Last-Modified": http_date(changed), "Accept-Ranges": "bytes"}
        since, before = given.get("If-Modified-Since", ""), given.get("If-Unmodified-Since", "")
        if (status := precondition(changed, since, before)) is not None:
            return web.Response(status=status, headers=headers)
        try:
            part = part_of(size, changed, given.get("Range", ""), given.get("If-Range", ""))
        except BadRangeError as error:
            refused = go_error(416, str(error))
            refused.headers["Content-Range"] = f"bytes */{size}"
            return refused
        head = await self.read(opened, 0, SNIFFED_BYTES)
        headers |= {
            "Content-Type": content_type(name, head),
            "Content-Length": str(part.count),
            "Server": SERVER_NAME,
        }
        if part.partial:
            headers["Content-Range"] = f"bytes {part.start}-{part.start + part.count - 1}/{size}"
        response = web.StreamResponse(status=206 if part.partial else 200, headers=headers)
        await response.prepare(request)
        at, end = part.start, part.start + part.count
        while at < end:
            block = await self.read(opened, at, min(_BLOCK_BYTES, end - at))
            # The file was truncated while it was sent: only a broken connection shows the client that bytes are
            # missing.
            if not block:
                raise ConnectionAbortedError(f"{name} became shorter")
            await response.write(block)
            at += len(block)
        await response.write_eof()
        return response

    async def open(self, path: str) -> OpenedLog:
        """Open the file or directory at `path`, which begins with /. Raises OSError."""
        opening = self._threads.submit(open_below, self._root, path)
        try:
            return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise

    async def read(self, opened: OpenedLog, start: int, count: int) -> bytes:
        """Return at most `count` bytes from `start`. Raises OSError."""
        return await self._in_thread(lambda: opened.read(start, count))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _redirect(target: str, request: web.BaseRequest) -> web.Response:
    return web.Response(status=301, headers={"Location": redirect_location(target, request.rel_url.raw_query_string)})


def _close_opened(opening: Future[OpenedLog]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
