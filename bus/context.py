"""The ZeroMQ context of one bus, and the socket options every socket of it has."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from bus.codec import MESSAGE_CAP
from shared.errors import OperatorError

# Messages per peer and direction; what is beyond is lost, and found by its number (bus/frames.py).
HIGH_WATER_MARK = 1000
FRAME_LIMIT = MESSAGE_CAP + 64 * 1024  # bytes; libzmq hangs up on a larger frame before it fills our memory

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]


def new_context() -> Context:
    """Return a context of its own per bus: one I/O thread."""
    return zmq.Context()


def new_socket(context: Context, kind: int, *, linger: int) -> Socket:
    """Return a socket with explicit limits. `linger`: milliseconds unsent messages may hold up the exit."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, linger)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_LIMIT)
    return socket


def reconnect_quickly(socket: Socket) -> None:
    """A restarted peer is found within a quarter of a second; while it is gone a try costs one failed connect()."""
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 250)


@contextmanager
def _private_umask() -> Iterator[None]:
    """Only around bind: the umask is the process's, and pods' directories must not inherit it."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def bind(socket: Socket, address: str) -> None:
    """Bind an ipc path as 0700. Take the service's lock first: a second bind raises nothing and splits the clients."""
    try:
        with _private_umask():
            socket.bind(address)
    except zmq.ZMQError as error:
        remedy = "make sure that the run directory exists, is writable and has a short path"
        raise OperatorError(f"cannot bind: {error.strerror}", where=address, remedy=remedy) from error


def send_now(socket: Socket, message: tuple[bytes, ...] | list[bytes]) -> zmq.ZMQError | None:
    """Hand a message to ZeroMQ within this call; what kept it from being taken, or None. Never blocks."""
    try:
        socket.send_multipart(message, zmq.DONTWAIT)
    except zmq.ZMQError as error:
        return error
    return None
