"""Has a DEALER socket for each service that is asked. Sends a request, and reminders of it, until it is answered or
overdue.

REQ sockets are not used, because after a timeout they cannot send again."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import zmq

from bus import codec, frames
from bus.context import Context, Socket, new_socket, reconnect_quickly, send_now
from bus.exchange import REMIND_SECONDS, Exchange, Unread
from bus.frames import AnswerHead, RequestHead
from bus.interface import NoAnswerError
from bus.measured import DropCounters
from bus.sockets import Inlet
from shared.time.clock import Clock
from shared.tracing.tracer import Tracer

Answered = asyncio.Future[tuple[AnswerHead, bytes]]


@dataclass(eq=False)
class _ServiceSocket:
    socket: Socket
    inlet: Inlet
    unread: Unread = field(default_factory=Unread)  # bodies of requests
    taken: int = 0  # bytes of the bodies of all answers that were received


@dataclass(eq=False)
class _Waiting:
    exchange: Exchange
    answered: Answered
    # The position of `unread.sent` when this request was first sent since its last answer. The answer shows that all
    # before it was read.
    position: int | None = None


class Caller:
    """Asks other services on behalf of one client, "<service>/<incarnation>", which makes its ids unique."""

    def __init__(
        self,
        context: Context,
        client: str,
        addresses: Mapping[str, str],
        clock: Clock,
        drops: DropCounters,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer or Tracer()
        self._context, self._client, self._clock, self._drops = context, client, clock, drops
        self._addresses = addresses
        self._lines: dict[str, _ServiceSocket] = {}
        self._pending: dict[int, _Waiting] = {}
        self._last_id = 0

    async def exchange(self, service: str, type_name: str, body: bytes, timeout: float) -> tuple[AnswerHead, bytes]:
        """Return the answer of a service. NoAnswerError after `timeout` seconds, or for a service without an
        address."""
        line = self._line(service)
        self._last_id += 1
        head = RequestHead(
            v=codec.PROTOCOL_VERSION,
            client=self._client,
            id=self._last_id,
            type=type_name,
            deadline=self._clock.monotonic() + timeout,
            trace=self._tracer.traceparent(),
        )
        answered: Answered = asyncio.get_running_loop().create_future()
        waiting = self._pending[head.id] = _Waiting(Exchange(head, body), answered)
        try:
            async with asyncio.timeout(timeout):
                while not answered.done():
                    _send(line, waiting)
                    await asyncio.wait([answered], timeout=REMIND_SECONDS)
        except TimeoutError:
            raise NoAnswerError.within(service, type_name, timeout) from None
        finally:
            del self._pending[head.id]
        return answered.result()

    def close(self) -> None:
        """Cancel every request under way."""
        for line in self._lines.values():
            line.inlet.close()
            line.socket.close()
        self._lines.clear()
        for waiting in self._pending.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(NoAnswerError("the bus was stopped before the answer came"))

    def _line(self, service: str) -> _ServiceSocket:
        line = self._lines.get(service)
        if line is None:
            address = self._addresses.get(service)
            if address is None:
                raise NoAnswerError(f"{service} is not in the manifest of addresses")
            socket = new_socket(self._context, zmq.DEALER, linger=0)
            reconnect_quickly(socket)
            socket.connect(address)
            inlet = Inlet(socket, partial(self._receive, service))
            inlet.open()
            line = self._lines[service] = _ServiceSocket(socket, inlet)
        return line

    def _receive(self, service: str, message: list[bytes]) -> None:
        line = self._lines[service]
        line.taken += sum(map(len, message[1:]))
        try:
            head, body = frames.read_answer(message)
        except codec.UndecodableError as error:
            self._drops.drop("answer", f"{service}: {error}")
            return
        waiting = self._pending.get(head.id)
        if waiting is None or waiting.answered.done():
            return  # the answer is a second copy, or arrived too late
        if head.unknown and not waiting.exchange.unknown():
            return
        line.unread.note_read(waiting.position or 0)
        waiting.position = None
        if head.unknown:
            _send(line, waiting)
        else:
            waiting.answered.set_result((head, body))


def _send(line: _ServiceSocket, waiting: _Waiting) -> None:
    exchange = waiting.exchange
    _, *body = message = exchange.next(fits=line.unread.fits(len(exchange.body)), taken=line.taken)
    if send_now(line.socket, message) is not None:
        exchange.refused()  # a full queue means that the peer was away for long; the next turn tries again
    else:
        line.unread.sent += sum(map(len, body))
        if waiting.position is None:
            waiting.position = line.unread.sent
    line.inlet.look_again()
