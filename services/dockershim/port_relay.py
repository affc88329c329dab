"""Connects standard input and output with a port of localhost: a program for the network namespace of a sandbox."""

import os
import select
import socket
import sys
import threading

_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS = 30.0


def _send(connection: socket.socket) -> None:
    """Copy standard input to the port."""
    try:
        while data := os.read(0, _CHUNK_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the port's side has ended, which the other direction sees


def _end_with_the_shim() -> None:
    """End the process when nobody has the other end of its output: a port that sends nothing would keep it."""
    end = select.poll()
    end.register(1, 0)  # the kernel reports POLLHUP in any case
    end.poll()
    os._exit(1)


def main(port: int) -> int:
    """Copy both ways until the port's side ends. Returns the exit code; the reason of a failure is on stderr."""
    threading.Thread(target=_end_with_the_shim, daemon=True).start()
    try:
        connection = socket.create_connection(("localhost", port), _CONNECT_SECONDS)
    except OSError as error:
        print(f"failed to connect to localhost:{port} inside the pod: {error.strerror or error}", file=sys.stderr)
        return 1
    connection.settimeout(None)
    threading.Thread(target=_send, args=(connection,), daemon=True).start()
    while data := connection.recv(_CHUNK_BYTES):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
