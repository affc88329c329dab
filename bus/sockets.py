"""Has the sockets of a service: for what it publishes, what it follows, and the requests that it answers.

`Inlet` reads what a socket receives in the event loop, message by message; the loop is woken once for all of them. A
future for each message (`zmq.asyncio`) would cost three turns of the loop and ten times the processor time."""

import asyncio
import errno
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import zmq

from bus import codec, frames
from bus.answers import Answer, Answers
from bus.context import Context, Socket, bind, new_socket, reconnect_quickly, send_now
from bus.exchange import Unread
from bus.frames import Frames, Joiner, RequestHead, cut
from bus.measured import DropCounters

MAX_BURST_MESSAGES = 100  # handled before other tasks get a turn
# As plain numbers: an operation of pyzmq's enumerations takes as long as the call.
_EVENTS, _POLLIN, _DONTWAIT = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.DONTWAIT)
SUBSCRIBE = b"\1"  # the first byte of a subscription message
LINGER_MS = 1000  # an answer that was computed may delay the exit for a second
MAX_CONNECTIONS = 256  # whose unread bytes are known: those that sent something last


class Inlet:
    """Passes every message of a socket to `take`, from `open` to `close`. An exception in `take` costs only that
    message."""

    def __init__(self, socket: Socket, take: Callable[[list[bytes]], None]) -> None:
        self._socket, self._take = socket, take
        self._loop: asyncio.AbstractEventLoop | None = None  # None = not open
        self._descriptor = -1
        self._due: asyncio.Handle | None = None

    def open(self) -> None:
        """Begin to read, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._drain)
        self.look_again()  # the descriptor does not report messages that arrived before

    def look_again(self) -> None:
        """Look for messages. Call it after every send on the same socket: its descriptor becomes readable once for a
        new message, and a send may have reset it."""
        if self._loop is not None and self._due is None:
            self._due = self._loop.call_soon(self._drain_again)

    def close(self) -> None:
        """Stop reading, before the socket is closed."""
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _drain_again(self) -> None:
        self._due = None
        self._drain()

    def _drain(self) -> None:
        """Receive until the socket is empty, because only then its descriptor becomes readable again."""
        for _ in range(MAX_BURST_MESSAGES):
            if self._loop is None or not int(self._socket.getsockopt(_EVENTS)) & _POLLIN:
                return
            message = self._socket.recv_multipart(_DONTWAIT)
            try:
                self._take(message)
            except BaseException:
                self.look_again()
                raise
        self.look_again()


class Publisher:
    """Publishes to the subscribers. At most 1000 messages of 32 KiB wait for a slow one; it loses further messages,
    which their numbers show."""

    def __init__(self, context: Context, on_subscribed: Callable[[], None], drops: DropCounters) -> None:
        self._socket = new_socket(context, zmq.XPUB, linger=0)
        # Without this option a second follower of a topic, or one that reconnects beside another, would not cause a
        # subscription message.
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._on_subscribed = on_subscribed
        self._drops = drops
        self._inlet = Inlet(self._socket, self._take_subscription)

    def bind(self, address: str) -> None:
        """Begin to publish at this ipc address, and to receive subscriptions; hold the service's lock."""
        bind(self._socket, address)
        self._inlet.open()

    def send(self, frames: Frames) -> None:
        """Send the frames now."""
        for piece in cut(frames):
            if (error := send_now(self._socket, piece)) is not None:
                self._drops.drop("publication", error)
        self._inlet.look_again()

    def close(self) -> None:
        """Close the socket, and drop what is unsent."""
        self._inlet.close()
        self._socket.close()

    def _take_subscription(self, message: list[bytes]) -> None:
        if message[0][:1] == SUBSCRIBE:
            self._on_subscribed()


class Subscriber:
    """Passes every arriving frame to `receive`, which must not raise."""

    def __init__(self, context: Context, receive: Callable[[Sequence[bytes]], None]) -> None:
        self._socket = new_socket(context, zmq.SUB, linger=0)
        reconnect_quickly(self._socket)
        self._receive, self._joiner = receive, Joiner()
        self._inlet = Inlet(self._socket, self._take)

    def subscribe(self, topic: bytes) -> None:
        """Subscribe to this topic of every connected service."""
        self._socket.setsockopt(zmq.SUBSCRIBE, topic)

    def connect(self, address: str) -> None:
        """Connect to the service at this address, now or when it appears."""
        self._socket.connect(address)

    def open(self) -> None:
        """Begin to receive."""
        self._inlet.open()

    def close(self) -> None:
        """Close the connections."""
        self._inlet.close()
        self._socket.close()

    def _take(self, message: list[bytes]) -> None:
        if (complete := self._joiner.take(message)) is not None:
            self._receive(complete)


class Answerer:
    """Answers requests, each in its own task, so that a slow one delays no other."""

    def __init__(self, context: Context, answers: Answers, drops: DropCounters) -> None:
        self._socket = new_socket(context, zmq.ROUTER, linger=LINGER_MS)
        # Without this option an answer to a client that is gone is dropped without an error.
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._answers, self._drops = answers, drops
        self._inlet = Inlet(self._socket, self._take)
        self._unread: OrderedDict[bytes, Unread] = OrderedDict()  # by the routing frame of a connection

    def bind(self, address: str) -> None:
        """Begin to take requests at this ipc address; hold the service's lock."""
        bind(self._socket, address)
        self._inlet.open()

    async def close(self) -> None:
        """Cancel the handlers under way. Answers that were sent linger for at most a second."""
        self._inlet.close()
        await asyncio.gather(*self._answers.cancel(), return_exceptions=True)
        self._socket.close()

    def _take(self, message: list[bytes]) -> None:
        routing, *request = message
        try:
            head, body = frames.read_request(request)
        except codec.UndecodableError as error:
            self._drops.drop("request", error)
            return
        if head.taken >= 0:
            unread = self._unread.setdefault(routing, Unread(head.taken, head.taken))
            unread.note_read(head.taken)
            self._unread.move_to_end(routing)
            if len(self._unread) > MAX_CONNECTIONS:
                self._unread.popitem(last=False)
        self._answers.take(head, body, partial(self._send, routing, head))

    def _send(self, routing: bytes, head: RequestHead, answer: Answer) -> None:
        size, unread = len(answer[1]), self._unread.get(routing)
        if unread is not None and not unread.fits(size):
            # The client's next reminder reports what it has received since, and gets the kept answer, or the request
            # comes again.
            waiting = unread.sent - unread.read
            self._drops.drop("answer", f"{head.client} has {waiting} bytes of answers to read before one of {size}")
            return
        error = send_now(self._socket, (routing, *frames.write_answer(*answer)))
        self._inlet.look_again()
        if error is None:
            if unread is not None:
                unread.sent += size
        elif error.errno == errno.EHOSTUNREACH:
            self._unread.pop(routing, None)
            self._drops.drop("answer", f"{head.client} is gone before its {head.type} was answered")
        else:
            self._drops.drop("answer", f"{head.client} does not take the answer to its {head.type}: {error}")
