"""Sends blocking requests and receives the newest beats for a command that runs some milliseconds and is no service.

It follows no stream and imports no event loop, which takes longer to load than an agent takes to answer."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil
from types import TracebackType
from typing import Any

import zmq
from msgspec import Struct

from bus import codec, frames
from bus.context import Context, Socket, new_context, new_socket, reconnect_quickly, send_now
from bus.exchange import REMIND_SECONDS, Exchange
from bus.frames import RequestHead
from bus.messages.beat import Beat
from bus.messages.manifest import Manifest


class Question(Struct, frozen=True):
    """One request to one service, and the type of its answer."""

    service: str
    request: Any
    answer: type[Any]


class Refusal(Struct, frozen=True):
    """The line with which a service refused a request, or why its answer cannot be used."""

    line: str


class Client:
    """Asks the services of one manifest. `beats`: the newest beat of each service, in order of arrival."""

    def __init__(self, manifest: Manifest) -> None:
        self.beats: dict[str, Beat] = {}
        self._addresses = manifest.addresses
        self._name = f"command-{os.getpid()}/{os.urandom(6).hex()}"
        self._context: Context = new_context()
        self._poller = zmq.Poller()
        self._lines: dict[str, Socket] = {}
        self._last_id = 0
        self._subscriber = self._open(zmq.SUB)
        self._subscriber.setsockopt(zmq.SUBSCRIBE, frames.BEATS_TOPIC)
        for address in self._addresses.values():
            self._subscriber.connect(address["pub"])

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for socket in (*self._lines.values(), self._subscriber):
            socket.close()
        self._context.term()

    def ask(self, questions: Iterable[Question], timeout: float, beats_of: Collection[str] = ()) -> dict[Question, Any]:
        """Return the answers (or `Refusal`) that arrive within `timeout` seconds; returns as soon as all are here, and
        a beat of each service in `beats_of`. A question without an answer is absent.
        """
        deadline = time.monotonic() + timeout
        pending: dict[int, tuple[Question, Exchange]] = {}
        for question in questions:
            self._last_id += 1
            head = RequestHead(
                v=codec.PROTOCOL_VERSION,
                client=self._name,
                id=self._last_id,
                type=type(question.request).__name__,
                deadline=deadline,
            )
            pending[head.id] = question, Exchange(head, codec.encode(question.request))
        answers: dict[Question, Any] = {}
        while (left := deadline - time.monotonic()) > 0:
            for question, exchange in pending.values():
                self._send(question.service, exchange)
            turn_ends = time.monotonic() + min(left, REMIND_SECONDS)
            while (wait := turn_ends - time.monotonic()) > 0:
                if not pending and set(beats_of) <= self.beats.keys():
                    return answers
                self._receive(wait, pending, answers)
        return answers

    def wait_for_beat(self, expected: Callable[[Beat], bool], timeout: float) -> Beat | None:
        """Return the next beat that `expected` accepts; None after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            before = dict(self.beats)
            self._receive(left, {}, {})
            for service, beat in self.beats.items():
                if beat is not before.get(service) and expected(beat):
                    return beat
        return None

    def _receive(
        self, wait: float, pending: dict[int, tuple[Question, Exchange]], answers: dict[Question, Any]
    ) -> None:
        for socket, _ in self._poller.poll(ceil(wait * 1000)):
            while True:
                try:
                    self._take(socket, socket.recv_multipart(zmq.DONTWAIT), pending, answers)
                except zmq.Again:
                    break
                except codec.UndecodableError:
                    continue  # The beat has another version: the service counts as one that does not answer.

    def _take(
        self,
        socket: Socket,
        message: Sequence[bytes],
        pending: dict[int, tuple[Question, Exchange]],
        answers: dict[Question, Any],
    ) -> None:
        if socket is self._subscriber:
            beat = frames.read_beat(message)
            self.beats[beat.service] = beat
        else:
            self._take_answer(message, pending, answers)

    def _take_answer(
        self, message: Sequence[bytes], pending: dict[int, tuple[Question, Exchange]], answers: dict[Question, Any]
    ) -> None:
        head, body = frames.read_answer(message)
        question, exchange = pending.get(head.id, (None, None))
        if question is None or exchange is None:
            return  # the answer is a second copy, or arrived too late
        if head.unknown:
            if exchange.unknown():
                self._send(question.service, exchange)
            return
        del pending[head.id]
        try:
            answers[question] = Refusal(head.error) if head.error else codec.decode(body, question.answer)
        except codec.UndecodableError as error:
            answers[question] = Refusal(str(error))

    def _send(self, service: str, exchange: Exchange) -> None:
        if service not in self._lines:
            socket = self._open(zmq.DEALER)
            socket.connect(self._addresses[service]["req"])
            self._lines[service] = socket
        if send_now(self._lines[service], exchange.next()) is not None:
            exchange.refused()

    def _open(self, kind: int) -> Socket:
        socket = new_socket(self._context, kind, linger=0)
        reconnect_quickly(socket)
        self._poller.register(socket, zmq.POLLIN)
        return socket
