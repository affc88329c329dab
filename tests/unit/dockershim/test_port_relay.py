"""The program that forwards a port: it copies both ways, and does not outlive the shim."""

import socket
import subprocess
import sys
from pathlib import Path

from services.dockershim import port_relay
from tests.support.waits.deadline import WAIT_SECONDS


def test_it_copies_both_ways_also_after_an_end_and_ends_with_the_shim_though_the_port_sends_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, socket.create_server(("localhost", 0)) as server:
        port = str(server.getsockname()[1])
        program = [sys.executable, "-IS", str(Path(port_relay.__file__)), port]
        with theirs:
            process = subprocess.Popen(program, stdin=theirs.fileno(), stdout=theirs.fileno())
        try:
            for end in (ours, server):
                end.settimeout(WAIT_SECONDS)
            connection, _ = server.accept()
            with connection:
                connection.settimeout(WAIT_SECONDS)
                ours.sendall(b"question")
                ours.shutdown(socket.SHUT_WR)
                assert connection.recv(100) == b"question"
                assert connection.recv(100) == b""
                connection.sendall(b"answer")
                assert ours.recv(100) == b"answer"
                assert process.poll() is None
                ours.close()
                process.wait(WAIT_SECONDS)
        finally:
            process.kill()
            process.wait()
