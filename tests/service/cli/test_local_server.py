"""The answers of server over the local socket, where it is stopped or killed while it answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.cli.agent import local_server
from services.cli.agent.local_server import open_answer
from shared.agent.places import LOCAL_SOCKET
from shared.errors import OperatorError

_REFUSAL = b"HTTP/1.1 404 Not Found\r\n"


@contextmanager
def server(run_dir: Path, sent: bytes, *, ends: bool) -> Iterator[None]:
    """Answers one request with `sent`. `ends`: closes the connection then; otherwise it stays silent."""
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(run_dir / LOCAL_SOCKET))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(sent)
                if not ends:
                    done.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def refusal(run_dir: Path) -> str:
    with pytest.raises(OperatorError) as raised, open_answer(str(run_dir), "/x", ()):
        pass
    return str(raised.value)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked\r\n\r\n40\r\nno", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_a_refusal_that_breaks_off_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, *, ends: bool
) -> None:
    if not ends:  # the head has to come within this time, also where the machine is busy
        monkeypatch.setattr(local_server, "MAX_ANSWER_SECONDS", 2.0)
    with server(tmp_path, _REFUSAL + head, ends=ends):
        error = refusal(tmp_path)
    assert error.startswith(f"{tmp_path / LOCAL_SOCKET}: the answer broke off")


def test_a_refusal_is_the_text_of_the_server(tmp_path: Path) -> None:
    sent = _REFUSAL + b"Content-Length: 8\r\n\r\nno pod x"
    with server(tmp_path, sent, ends=True):
        assert refusal(tmp_path) == "no pod x"


def test_a_refusal_without_a_text_is_shown_as_its_status(tmp_path: Path) -> None:
    with server(tmp_path, _REFUSAL + b"Content-Length: 0\r\n\r\n", ends=True):
        assert refusal(tmp_path).startswith(f"{tmp_path / LOCAL_SOCKET}: server answers 404 without a text (")
