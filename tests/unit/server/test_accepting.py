"""Which connection is accepted and begun next, and what an error of accept() means."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from typing import cast

import pytest

from services.server.adapters.accepting import Acceptor, _Accepted
from services.server.adapters.connections import Connections
from services.server.adapters.http_limits import LimitedServer


class Listening:
    """A listening socket whose accept() raises these errors in turn, and then has nothing more."""

    def __init__(self, *errors: OSError) -> None:
        self.errors = list(errors)
        self._descriptor, self._other = socket.socketpair()

    def fileno(self) -> int:
        return self._descriptor.fileno()

    def setblocking(self, blocking: bool) -> None:
        self._descriptor.setblocking(blocking)

    def accept(self) -> None:
        raise self.errors.pop(0) if self.errors else BlockingIOError()

    def close(self) -> None:
        self._descriptor.close()
        self._other.close()


@pytest.fixture
def listening() -> Iterator[Listening]:
    listening = Listening()
    yield listening
    listening.close()


def acceptor_of(listening: Listening) -> Acceptor:
    unused = cast(LimitedServer, None), cast(Connections, None)
    return Acceptor(cast(socket.socket, listening), *unused, None)


@pytest.mark.parametrize(("number", "paused"), [(errno.ECONNABORTED, False), (errno.EMFILE, True)])
async def test_a_client_that_leaves_at_once_pauses_nothing_and_a_shortage_does(
    listening: Listening, number: int, paused: bool
) -> None:
    acceptor = acceptor_of(listening)
    acceptor.start()
    listening.errors = [OSError(number, os.strerror(number))]
    acceptor._accept()
    assert (acceptor._pause is not None, listening.errors) == (paused, [])
    await acceptor.stop()


async def test_of_the_handshakes_of_an_address_the_newest_begins_first_and_addresses_take_turns(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    acceptor, begun = acceptor_of(listening), list[_Accepted]()

    def begin(accepted: _Accepted) -> None:
        begun.append(accepted)
        acceptor._forget(accepted)

    monkeypatch.setattr(acceptor, "_begin", begin)
    with socket.socket() as sock:
        crowd = [_Accepted(sock, "10.0.0.1") for _ in range(3)]
        single = _Accepted(sock, "10.0.0.2")
        for accepted in [*crowd, single]:
            acceptor._waiting.add(accepted)
            acceptor._came(accepted)
        while acceptor.pending:
            await asyncio.sleep(0)
    assert begun == [crowd[2], single, crowd[1], crowd[0]]
