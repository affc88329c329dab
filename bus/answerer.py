"""The ROUTER socket: takes requests to this service and sends each answer to the sender of the newest copy."""

import asyncio
import errno
from collections import OrderedDict
from functools import partial

import zmq

from bus import codec, frames
from bus.answers import Answer, Answers
from bus.context import Context, bind, new_socket, send_now
from bus.drops import DropCounters
from bus.frames import RequestHead
from bus.inlet import Inlet
from bus.unread import Unread

LINGER_MS = 1000  # an answer worth computing is worth a second of the exit
MAX_CONNECTIONS = 256  # of which the unread bytes are known, those that sent something last


class Answerer:
    """Every request is a task of its own, so that a slow one holds up no other."""

    def __init__(self, context: Context, answers: Answers, drops: DropCounters) -> None:
        self._socket = new_socket(context, zmq.ROUTER, linger=LINGER_MS)
        # Without it an answer to a client that is gone vanishes silently.
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._answers, self._drops = answers, drops
        self._inlet = Inlet(self._socket, self._take)
        self._unread: OrderedDict[bytes, Unread] = OrderedDict()  # by the routing frame of a connection

    def bind(self, address: str) -> None:
        """Begin to take requests at this ipc address; hold the service's lock."""
        bind(self._socket, address)
        self._inlet.open()

    async def close(self) -> None:
        """Give up handlers under way; answers already sent linger for at most a second."""
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
            # Its next reminder reports what it has taken since, and gets the kept answer, or the request comes again.
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
