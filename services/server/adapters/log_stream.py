"""Streams one container's log to one client: headers at once, then blocks, then what is written while it follows.

Decides nothing about content; waits for new bytes, and closes everything when the client leaves.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiohttp import web
from msgspec import Struct

from services.server.adapters.directory_watch import DirectoryWatch
from services.server.adapters.listener import SERVER_NAME
from services.server.adapters.log_files import LogReader, LogReadError
from services.server.adapters.log_opening import LogFile
from services.server.core.logs.log_format import LogDecoder, LogFilter, UnsupportedLogFormatError

log = logging.getLogger(__name__)

RECHECK_SECONDS = 1.0  # a follower looks again this often, even when nothing wakes it
MAX_STREAM_SECONDS = 4 * 3600.0  # the kubelet's write timeout (server.md 1)


class LogStream(Struct, frozen=True):
    """What to stream. `running` returns whether the instance may still write; `wake` is set when that may change."""

    log: LogFile
    wanted: LogFilter
    tail_lines: int | None
    follow: bool
    running: Callable[[], bool]
    wake: asyncio.Event


async def stream_log(
    request: web.BaseRequest, stream: LogStream, threads: ThreadPoolExecutor, watch: DirectoryWatch
) -> web.StreamResponse:
    """Answer the request with the log. Errors after the headers become text in the body, as the kubelet's do."""
    response = await begin(request)
    reader = LogReader(stream.log, threads)
    try:
        async with asyncio.timeout(MAX_STREAM_SECONDS):
            await reader.open(stream.tail_lines)
            if stream.follow:
                with watch.waking(stream.wake, str(Path(reader.path).parent)):
                    await _follow(response, stream, reader)
            else:
                await _read(response, stream, reader)
    except (LogReadError, UnsupportedLogFormatError) as error:
        await response.write(str(error).encode("utf-8", "surrogateescape"))
    except TimeoutError:
        log.info("log stream of %s ended after %d h", stream.log.path, MAX_STREAM_SECONDS // 3600)
    finally:
        reader.close()
    await response.write_eof()
    return response


async def begin(request: web.BaseRequest) -> web.StreamResponse:
    """Send status 200 and the headers now, so that a follower of a silent container is not left waiting for them."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8", "Server": SERVER_NAME})
    await response.prepare(request)
    return response


async def _read(response: web.StreamResponse, stream: LogStream, reader: LogReader) -> None:
    decoder = LogDecoder(stream.wanted)
    at_end = False
    while not (at_end or decoder.finished):
        output, at_end = await reader.advance(decoder)
        if at_end:
            output = decoder.finish()
        if output:
            await response.write(output)


async def _follow(response: web.StreamResponse, stream: LogStream, reader: LogReader) -> None:
    decoder = LogDecoder(stream.wanted)
    ended = False
    while not decoder.finished:
        stream.wake.clear()
        output, at_end = await reader.advance(decoder)
        if output:
            await response.write(output)
        if not at_end:
            continue
        if ended:
            return
        if not stream.running():
            ended = True  # what was written before the instance ended is read once more
            continue
        try:
            async with asyncio.timeout(RECHECK_SECONDS):  # before Python 3.12 wait_for may lose a cancellation
                await stream.wake.wait()
        except TimeoutError:
            continue
