"""`bulkhead exec` runs a command in a container over the agent's WebSocket; -t gives it a terminal."""

import asyncio
import json
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import NoReturn
from urllib.parse import quote

import aiohttp

from services.cli.agent.local_agent import local_agent
from services.cli.agent.local_server import Query
from services.cli.pods.listing import find_pod
from services.cli.pods.local_websocket import local_websocket
from services.cli.pods.logs import choose_container
from shared.errors import OperatorError
from shared.text.plain_text import is_utf8

Write = Callable[[str], None]
_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = b"\x00", 1, 2, 3, b"\x04", b"\xff"
_BLOCK_BYTES = 32 << 10  # of standard input in one message
_NO_EXIT_CODE = 1  # the exit code where the command has none


def run_in_container(
    run_dir: str,
    pod: str,
    namespace: str,
    container: str,
    command: Sequence[str],
    err: Write,
    *,
    stdin: bool,
    terminal: bool,
) -> int:
    """Run the command and return its exit code; 1 = it did not run."""
    try:
        if not all(map(is_utf8, command)):  # CRI can transport no other text; yarl would leave these bytes out
            raise OperatorError("the command is not UTF-8 text", remedy="pass it on standard input")
        with local_agent(run_dir) as agent:
            directory = agent.run_dir
            row, facts = find_pod(agent, pod, namespace)
            agent.require("server")
        chosen = choose_container(facts, container, err)
        path = "/".join(quote(part, safe="") for part in (row.namespace, row.name, chosen))
        if terminal and not sys.stdin.isatty():
            err("standard input is no terminal: -t has no effect")
            terminal = False
        wanted = {"input": stdin, "output": True, "error": not terminal, "tty": terminal}
        query = [("command", word) for word in command] + [(name, "1") for name, on in wanted.items() if on]
        # Without input, the keys still belong to this terminal: Ctrl-C then ends this command.
        with _ended_by_ctrl_c(), _raw_terminal() if terminal and stdin else nullcontext():
            status = asyncio.run(run(directory, f"/exec/{path}", query, stdin=stdin, terminal=terminal))
        code, message = outcome(status)
    except OperatorError as error:
        err(str(error))
        return _NO_EXIT_CODE
    if message:
        err(message)
    return code


def outcome(status: bytes) -> tuple[int, str]:
    """Return exit code and error line of a session from its status document; b"" = the session broke off."""
    if not status:
        return _NO_EXIT_CODE, "the connection ended before the command (bulkhead logs --service server)"
    try:
        document = json.loads(status)
        if document["status"] == "Success":
            return 0, ""
        causes = (document.get("details") or {}).get("causes") or []
        codes = [int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"]
        return (codes[0], "") if codes else (_NO_EXIT_CODE, str(document.get("message") or "failed"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return _NO_EXIT_CODE, "the end of the command cannot be read (bulkhead logs --service server)"


async def run(run_dir: str, path: str, query: Query, *, stdin: bool, terminal: bool) -> bytes:
    """Serve a session between the standard streams and `path` to its end; return its status document, b"" = it broke
    off. Raise OperatorError where it is refused."""
    status = bytearray()
    async with local_websocket(run_dir, path, query, _PROTOCOL) as socket:
        loop = asyncio.get_running_loop()
        if terminal:
            await _send_size(socket)
            loop.add_signal_handler(signal.SIGWINCH, lambda: loop.create_task(_send_size(socket)))
        if stdin:
            threading.Thread(target=_copy_input, args=(socket, loop), daemon=True).start()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == _STATUS:
                status += data
            elif channel in (_STDOUT, _STDERR):
                _write(sys.stdout.fileno() if channel == _STDOUT else sys.stderr.fileno(), data)
    return bytes(status)


def _copy_input(socket: aiohttp.ClientWebSocketResponse, loop: asyncio.AbstractEventLoop) -> None:
    """Send standard input, each block after the one before is sent, then its end. Runs in a thread that ends with the
    process."""
    descriptor = sys.stdin.fileno()
    with suppress(OSError, RuntimeError, CancelledError):  # the session has ended
        while data := os.read(descriptor, _BLOCK_BYTES):
            asyncio.run_coroutine_threadsafe(socket.send_bytes(_STDIN + data), loop).result()
        asyncio.run_coroutine_threadsafe(socket.send_bytes(_CLOSE + _STDIN), loop).result()


async def _send_size(socket: aiohttp.ClientWebSocketResponse) -> None:
    size = shutil.get_terminal_size()
    with suppress(ConnectionError):
        await socket.send_bytes(_RESIZE + json.dumps({"Width": size.columns, "Height": size.lines}).encode())


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        raise  # as with `| head`; click then ends the process without a message
    except OSError as error:
        remedy = "write it elsewhere"
        raise OperatorError(f"cannot be written: {error.strerror}", where="the output", remedy=remedy) from error


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end this process also while nobody reads its output: the handler of the event loop would only cancel
    the task that waits for it."""

    def interrupted(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else the signal is ignored
        signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass keys to the command as they are typed; restore the terminal at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
