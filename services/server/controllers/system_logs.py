"""Answers `/logs/`: files of /var/log, and queries for the logs of the node's services (server.md 14)."""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from aiohttp import web

from services.server.adapters import system_log_files
from services.server.adapters.file_answer import FileAnswers
from services.server.adapters.journal import journal_output, units
from services.server.adapters.listener import SERVER_NAME
from services.server.adapters.plain_answer import go_error
from services.server.adapters.system_log_files import OpenedLog
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.logs.node_log_query import NodeLogQuery, NodeLogQueryError, listed, parse_node_log_query
from services.server.core.routes import Endpoint

MAX_QUERY_SECONDS = 30.0  # of one query, all services together
MAX_QUERIES = 8  # that run at the same time; the wait of others counts as their time
_BLOCK_BYTES = 256 << 10


class SystemLogs:
    """Answers log requests; `queries` = enableSystemLogQuery."""

    def __init__(self, threads: ThreadPoolExecutor, *, queries: bool) -> None:
        self._root = system_log_files.SYSTEM_LOGS
        self._files, self._threads = FileAnswers(self._root, threads), threads
        self._queries = queries
        self._running = asyncio.Semaphore(MAX_QUERIES)

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {Endpoint.LOGS: self.logs}

    async def logs(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /logs/` and the paths below it."""
        path = f"/{parameters[0]}"
        if not self._queries:
            return await self._files.answer(request, path)
        try:
            raw = request.rel_url.raw_query_string  # in a thread, because compiling a pattern may take seconds
            query = await asyncio.get_running_loop().run_in_executor(self._threads, parse_node_log_query, raw)
        except NodeLogQueryError as error:
            return go_error(error.status, str(error))
        if query is None:
            return await self._files.answer(request, path)
        if path != "/":
            return go_error(406, "path not allowed in query mode")
        if query.file:
            return await self._file(request, query.file)
        return await self._services(request, query)

    async def _file(self, request: web.BaseRequest, named: str) -> web.StreamResponse:
        path = "/" + named.replace("\\", "/").lstrip("/")
        try:
            (await self._files.open(path)).close()
        except OSError as error:
            reason = f"stat {self._root}{path}: {(error.strerror or '').lower()}"
            return go_error(406, f"query: Invalid value: {listed([named])}: {reason}")
        return await self._files.answer(request, path)

    async def _services(self, request: web.BaseRequest, query: NodeLogQuery) -> web.StreamResponse:
        headers = {"Content-Type": "text/plain;charset=UTF-8", "Server": SERVER_NAME}
        packed = request.headers.get("Accept-Encoding", "") == "gzip"
        response = web.StreamResponse(headers=headers | ({"Content-Encoding": "gzip"} if packed else {}))
        await response.prepare(request)
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16) if packed else None
        with_timeout = asyncio.timeout(MAX_QUERY_SECONDS)
        try:
            async with with_timeout, self._running, aclosing(self._output(query)) as output:
                async for piece in output:
                    await response.write(packer.compress(piece) if packer else piece)
        except TimeoutError:
            pass  # the answer is what was found until now, as in the kubelet
        if packer:
            await response.write(packer.flush())
        await response.write_eof()
        return response

    async def _output(self, query: NodeLogQuery) -> AsyncGenerator[bytes, None]:
        """Yield the body: the journal's lines, or the log files of services that the journal does not have."""
        known = await units(MAX_QUERY_SECONDS)
        in_files = [service for service in query.services if f"{service}.service" not in known]
        if in_files and query.has_options:
            text = "options present and query resolved to log files for"
            yield f"\n{text} [{' '.join(in_files)}]\ntry without specifying options\n".encode()
        elif in_files:
            for service in in_files:
                async with aclosing(self._service_file(service)) as output:
                    async for piece in output:
                        yield piece
        else:
            try:
                async with aclosing(journal_output(query.journal_command())) as output:
                    async for piece in output:
                        yield piece
            except OSError:
                yield b"\nerror: journal output not available\n"

    async def _service_file(self, service: str) -> AsyncGenerator[bytes, None]:
        opened = await self._first_file(service)
        if opened is None:
            yield f"\nlog not found for {service}\n".encode()
            return
        try:
            at = 0
            while block := await self._files.read(opened, at, _BLOCK_BYTES):
                at += len(block)
                yield block
        except OSError as error:
            yield f"\nerror getting log for {service}: {error.strerror}\n".encode()
        finally:
            opened.close()

    async def _first_file(self, service: str) -> OpenedLog | None:
        for path in (f"/{service}", f"/{service}.log", f"/{service}/{service}.log"):
            try:
                opened = await self._files.open(path)
            except OSError:
                continue
            if not opened.is_directory:
                return opened
            opened.close()
        return None
