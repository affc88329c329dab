"""Makes the ZeroMQ context of one bus, and sockets with the options that every socket of it has."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from bus.codec import MAX_MESSAGE_BYTES
from shared.errors import OperatorError

# The queue of each peer and direction. Further messages are lost, which their numbers show (bus/frames.py).
HIGH_WATER_MARK = 1000
# Of one frame; libzmq disconnects a peer that sends a larger one before it fills our memory.
MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + 64 * 1024

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]


def new_context() -> Context:
    """Return a context for one bus, with one I/O thread."""
    return zmq.Context()


def new_socket(context: Context, kind: int, *, linger: int) -> Socket:
    """Return a socket with our limits of the number and the size of messages.

    `linger`: milliseconds for which unsent messages may delay the exit.
    """
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, linger)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    return socket


def reconnect_quickly(socket: Socket) -> None:
    """Let the socket connect again every 250 ms while its peer is away: a failed connect() on a Unix socket is
    cheap."""
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 250)


@contextmanager
def _private_umask() -> Iterator[None]:
    """Set a private umask only around bind: the umask is the process's, and the directories of pods must not inherit
    it."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def bind(socket: Socket, address: str) -> None:
    """Bind an ipc path with mode 0700. The caller holds the service's lock, because a second bind raises nothing and
    splits the clients."""
    try:
        with _private_umask():
            socket.bind(address)
    except zmq.ZMQError as error:
        remedy = "make sure that the run directory exists, is writable and has a short path"
        raise OperatorError(f"cannot bind: {error.strerror}", where=address, remedy=remedy) from error


def send_now(socket: Socket, message: tuple[bytes, ...] | list[bytes]) -> zmq.ZMQError | None:
    """Hand a message to ZeroMQ within this call, and never block. Return the error that kept ZeroMQ from taking it, or
    None."""
    try:
        socket.send_multipart(message, zmq.DONTWAIT)
    except zmq.ZMQError as error:
        return error
    return None
