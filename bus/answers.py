"""Requests to this service: finds the handler, answers a repeated request once, turns failures into one line.

Bounded by request type: how many are under way, how large they are together, and what is kept of answers. Knows no
socket: `sockets` hands it requests and sends what it returns.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bus import codec
from bus.frames import AnswerHead, RequestHead
from bus.interface import RequestRefusedError
from bus.messages.snapshot import Snapshot
from shared.time.clock import Clock
from shared.tracing.context import parse_traceparent
from shared.tracing.span import Kind
from shared.tracing.tracer import Tracer

# Of one request type; what is beyond is refused at once.
PENDING = 2048  # requests under way
PENDING_BYTES = 32 << 20  # of their bodies; more than any one may have
KEPT = 256  # answers
KEPT_BYTES = 1 << 20  # of their bodies
KEPT_CAP = 64 << 10  # bytes; a larger answer is not kept but computed again, handlers are safe to repeat

log = logging.getLogger(__name__)

Answer = tuple[AnswerHead, bytes]
Handler = Callable[[Any], Awaitable[Any]]
Send = Callable[[Answer], None]
Name = tuple[str, int]  # client, id


@dataclass(eq=False)
class _Running:
    head: RequestHead
    size: int  # bytes of the body
    send: Send  # to the sender of the newest copy
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> Name:
        return self.head.client, self.head.id


@dataclass(eq=False)
class _Type:
    """One request type: its handler, and what is under way and kept of it."""

    request: type[Any]
    handler: Handler
    running: dict[Name, _Running] = field(default_factory=dict)
    running_bytes: int = 0
    kept: OrderedDict[Name, tuple[Answer, float]] = field(default_factory=OrderedDict)  # and the request's deadline
    kept_bytes: int = 0

    def begin(self, running: _Running) -> None:
        self.running[running.name] = running
        self.running_bytes += running.size

    def end(self, running: _Running) -> None:
        if self.running.pop(running.name, None) is not None:
            self.running_bytes -= running.size

    def keep(self, name: Name, answer: Answer, deadline: float) -> None:
        self.kept[name] = answer, deadline
        self.kept_bytes += len(answer[1])
        while len(self.kept) > KEPT or self.kept_bytes > KEPT_BYTES:
            self.forget(next(iter(self.kept)))

    def forget(self, name: Name) -> None:
        (_, body), _ = self.kept.pop(name)
        self.kept_bytes -= len(body)


class Answers:
    """The handlers of one service by request type, and its recent answers by (client, id)."""

    def __init__(self, service: str, clock: Clock, tracer: Tracer | None = None) -> None:
        self._service, self._clock, self._tracer = service, clock, tracer or Tracer()
        self._types: dict[str, _Type] = {}

    def register(self, request: type[Any], handler: Handler) -> None:
        """Answer requests of this type, known on the wire by its class name. ValueError when it is taken."""
        if request.__name__ in self._types:
            raise ValueError(f"{self._service} answers {request.__name__} already")
        self._types[request.__name__] = _Type(request, handler)

    def take(self, head: RequestHead, body: bytes | None, send: Send) -> None:
        """One copy of a request; `body` None = a reminder of one sent before. `send` gets the answer: now, later, or
        never if the deadline passes first. Of several copies the newest one's `send` gets it, once."""
        if head.deadline <= self._clock.monotonic():
            return  # sent to an earlier process of this service and queued since; its caller has given up
        known = self._types.get(head.type)
        name = head.client, head.id
        if known is None:
            send(_refusal(head, f"{self._service} does not answer {head.type}"))
        elif name in known.kept:
            send(known.kept[name][0])
        elif name in known.running:
            known.running[name].send = send
        elif body is None:
            send((AnswerHead(v=codec.PROTOCOL_VERSION, id=head.id, unknown=True), b""))
        elif len(known.running) >= PENDING or known.running_bytes + len(body) > PENDING_BYTES:
            send(_refusal(head, f"{self._service} has {len(known.running)} {head.type} under way and takes no more"))
        else:
            self._begin(known, _Running(head, len(body), send), body)

    def in_progress(self) -> dict[str, int]:
        """Return the number of requests under way by type."""
        return {name: len(known.running) for name, known in self._types.items()}

    def expire(self) -> None:
        """Give up the requests whose deadline has passed, and drop what was kept of such: their callers are gone."""
        now = self._clock.monotonic()
        for known in self._types.values():
            for running in list(known.running.values()):
                if running.head.deadline <= now and running.task is not None:
                    running.task.cancel()
            for name in [name for name, (_, deadline) in known.kept.items() if deadline <= now]:
                known.forget(name)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Give up what is under way: the process ends. Returns what is to be waited for."""
        running = (running.task for known in self._types.values() for running in known.running.values())
        tasks = [task for task in running if task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    def _begin(self, known: _Type, running: _Running, body: bytes) -> None:
        head = running.head
        try:
            request = codec.decode(body, known.request)
        except codec.UndecodableError as error:
            running.send(_refusal(head, str(error)))
            return
        known.begin(running)
        running.task = asyncio.create_task(self._answer(known, running, request), name=f"answer {head.type}")
        running.task.add_done_callback(lambda _: known.end(running))

    async def _answer(self, known: _Type, running: _Running, request: Any) -> None:
        answer = await self._compute(known.handler, running.head, request)
        known.end(running)
        if len(answer[1]) <= KEPT_CAP:
            known.keep(running.name, answer, running.head.deadline)
        running.send(answer)

    async def _compute(self, handler: Handler, head: RequestHead, request: Any) -> Answer:
        try:
            parent = parse_traceparent(head.trace)
            with self._tracer.child(f"{self._service}/{head.type}", Kind.SERVER, parent=parent):
                result = await handler(request)
            return AnswerHead(v=codec.PROTOCOL_VERSION, id=head.id, type=type(result).__name__), _encode(result)
        except codec.MessageTooLargeError as error:
            log.error("bus: answer to %s of %s not sent: %s", head.type, head.client, error)
            return _refusal(head, str(error))
        except (RequestRefusedError, codec.UndecodableError) as error:
            return _refusal(head, str(error))
        except Exception as error:
            log.exception("bus: answering %s of %s failed", head.type, head.client)
            return _refusal(head, f"{self._service} failed to answer {head.type}: {type(error).__name__}")


def _encode(result: Any) -> bytes:
    what = f"answer {type(result).__name__}"
    return codec.encode_uncapped(result, what) if isinstance(result, Snapshot) else codec.encode(result, what)


def _refusal(head: RequestHead, line: str) -> Answer:
    return AnswerHead(v=codec.PROTOCOL_VERSION, id=head.id, error=" ".join(line.split()) or "refused"), b""
