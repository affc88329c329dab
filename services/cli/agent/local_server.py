"""Sends GET requests to the agent's HTTP API over the local socket of its run directory, which needs no credentials.

It blocks, so that Ctrl-C ends a command also while nobody reads its output."""

import http.client
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from shared.agent.places import LOCAL_SOCKET
from shared.errors import OperatorError

MAX_ANSWER_SECONDS = 10.0  # until the head of an answer
_REMEDY = "bulkhead status shows the processes"
_MAX_REFUSAL_BYTES = 4096  # of a refusal that are shown
_BLOCK_BYTES = 256 << 10

Query = Sequence[tuple[str, str]]


@contextmanager
def open_answer(run_dir: str, path: str, query: Query) -> Iterator[Iterator[bytes]]:
    """Yield the blocks of the answer of the agent with this run directory, as they arrive.

    Raises OperatorError for a refusal, or if there is no complete answer."""
    where = Path(run_dir) / LOCAL_SOCKET
    try:
        connected = connect(where, MAX_ANSWER_SECONDS)
    except OSError as error:
        raise answer_error(str(where), error) from error
    url = f"{path}?{urlencode(query)}" if query else path
    with closing(connected), closing(_response(connected, str(where), url)) as response:
        if response.status != 200:
            refusal = _part(lambda: response.read(_MAX_REFUSAL_BYTES), str(where)).decode(errors="replace").strip()
            if not refusal:
                raise OperatorError(
                    f"server answers {response.status} without a text", where=str(where), remedy=_REMEDY
                )
            raise OperatorError(refusal)
        connected.settimeout(None)
        yield _blocks(response, str(where))


def connect(path: Path, timeout: float) -> socket.socket:
    """Return a connection to this Unix socket. It is named by the directory's descriptor, because a socket's address
    must be short. `timeout`: seconds of each operation on it. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
    except BaseException:
        connection.close()
        raise
    return connection


def answer_error(where: str, error: BaseException) -> OperatorError:
    """Return the error to raise where there is no answer."""
    why = "does not answer" if isinstance(error, TimeoutError) else "cannot be reached"
    return OperatorError(f"server {why}", where=where, remedy=_REMEDY)


def _response(connected: socket.socket, where: str, url: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("bulkhead")  # the host is not used on a Unix socket
    connection.sock, connection.auto_open = connected, 0
    try:
        connection.request("GET", url)
        return connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise answer_error(where, error) from error


def _blocks(response: http.client.HTTPResponse, where: str) -> Iterator[bytes]:
    while block := _part(lambda: response.read1(_BLOCK_BYTES), where):
        yield block
    if response.length:  # bytes are missing; http.client reports that only for a chunked answer
        raise _broken_off(where)


def _part(read: Callable[[], bytes], where: str) -> bytes:
    try:
        return read()
    except (OSError, http.client.HTTPException) as error:  # server was killed or stopped meanwhile
        raise _broken_off(where) from error


def _broken_off(where: str) -> OperatorError:
    return OperatorError("the answer broke off", where=where, remedy=_REMEDY)
