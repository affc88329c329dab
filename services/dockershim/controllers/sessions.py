"""Connects the sessions of clients with commands and first processes of Docker, and with ports of sandboxes."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from services.dockershim.adapters.engine import Engine
from services.dockershim.adapters.hijacked import STDERR, STDOUT, Hijacked
from services.dockershim.adapters.port_relay_process import PortRelay
from services.dockershim.adapters.spdy_session import CHUNK_BYTES, MAX_STREAMS, Session, Stream
from services.dockershim.adapters.streaming import (
    Attached,
    Command,
    Forwarded,
    Request,
    exited,
    wait_for_streams,
)
from services.dockershim.controllers.commands import kill_exec
from services.dockershim.core.errors import CallError

log = logging.getLogger(__name__)

Resize = Callable[[int, int], Awaitable[None]]


class Sessions:
    """Serves one session after another task's; see `StreamingServer.serve`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def serve(self, request: Request, session: Session) -> dict[str, Any] | None:
        """Serve a session to its end. Raises CallError."""
        if isinstance(request, Forwarded):
            await self._forward(request, session)
            return None
        streams = await wait_for_streams(session, ("error", *request.streams))
        if isinstance(request, Command):
            return await self._exec(request, session, streams)
        return await self._attach(request, session, streams)

    async def _exec(self, request: Command, session: Session, streams: dict[str, Stream]) -> dict[str, Any] | None:
        reads = "stdin" in request.streams
        made = await self._engine.create_exec(request.container_id, request.words, stdin=reads, tty=request.tty)
        left = False
        async with made.start() as docker:
            left = await self._join(docker, session, streams, made.resize)
        if left:
            await kill_exec(made, request.container_id)
            return None
        return exited((await made.inspect())["ExitCode"] or 0)

    async def _attach(self, request: Attached, session: Session, streams: dict[str, Stream]) -> dict[str, Any] | None:
        async def resize(width: int, height: int) -> None:
            await self._engine.resize(request.container_id, width, height)

        reads = "stdin" in request.streams
        docker = self._engine.attach(request.container_id, stdin=reads, tty=request.tty)
        async with docker:
            left = await self._join(docker, session, streams, resize)
        return None if left else exited(0)

    async def _join(self, docker: Hijacked, session: Session, streams: dict[str, Stream], resize: Resize) -> bool:
        """Copy both ways until Docker ends the streams, or the client leaves. Returns whether the client left."""

        async def output() -> None:
            targets = {STDOUT: streams.get("stdout"), STDERR: streams.get("stderr")}
            async for number, piece in docker.output():
                if (target := targets.get(number)) is not None:
                    await target.send(piece)

        async def standard_input() -> None:
            if (stdin := streams.get("stdin")) is None:
                return
            async for piece in stdin.data():
                await docker.send(piece)
            docker.end_input()

        async def sizes() -> None:
            stream = await session.wait_for("resize")
            async for piece in stream.data():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    size = json.loads(piece)
                    await resize(int(size["Width"]), int(size["Height"]))

        out = asyncio.create_task(output(), name="output")
        gone = asyncio.create_task(session.closed.wait(), name="client")
        others = [asyncio.create_task(standard_input()), asyncio.create_task(sizes())]
        try:
            await asyncio.wait({out, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not out.done():
                return True
            with contextlib.suppress(OSError):
                out.result()
                for name in streams.keys() & {"stdout", "stderr"}:
                    await streams[name].send(b"", fin=True)
                return False
            return True
        finally:
            for task in (out, gone, *others):
                task.cancel()
            await asyncio.gather(out, gone, *others, return_exceptions=True)

    async def _forward(self, request: Forwarded, session: Session) -> None:
        """Serve connections until the client leaves. Each has two streams with the same request id."""
        errors: dict[str, Stream] = {}
        connections: set[asyncio.Task[None]] = set()
        try:
            async for stream in session.opened():
                key = stream.headers.get("requestid", "") or stream.headers.get("port", "")
                if stream.name == "error" and len(errors) < MAX_STREAMS:
                    errors[key] = stream
                elif stream.name == "data" and (error := errors.pop(key, None)) is not None:
                    task = asyncio.create_task(self._connect(request.sandbox_id, session, stream, error))
                    connections.add(task)
                    task.add_done_callback(connections.discard)
        finally:
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _connect(self, sandbox_id: str, session: Session, data: Stream, error: Stream) -> None:
        try:
            try:
                text = await self._relay(sandbox_id, data)
            except (CallError, OSError) as reason:
                text = f"error forwarding port to pod {sandbox_id}: {reason}"
            if text:
                await error.send(text.encode(), fin=False)
            for stream in (data, error):
                await stream.send(b"", fin=True)
        except OSError as reason:
            log.debug("a forwarded connection ended: %s", reason)
        finally:
            session.forget(data)
            session.forget(error)

    async def _relay(self, sandbox_id: str, data: Stream) -> str:
        """Copy a connection to a port in the sandbox's network namespace to its end. Returns what went wrong."""
        port = data.headers.get("port", "")
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            return f"unable to parse port {port!r}"
        pid = (await self._engine.inspect(sandbox_id))["State"]["Pid"]
        relay = await asyncio.to_thread(PortRelay.start, pid, int(port))
        up: asyncio.Task[None] | None = None
        try:
            reader, writer = await relay.open()
            up = asyncio.create_task(_copy(data, writer), name="to port")
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(CHUNK_BYTES):
                    await data.send(piece)
            said = await relay.end()
            writer.close()
            return f"error forwarding port {port} to pod {sandbox_id}: {said}" if said else ""
        finally:
            if up is not None:
                up.cancel()
            await asyncio.to_thread(relay.kill)


async def _copy(data: Stream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        async for piece in data.data():
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
