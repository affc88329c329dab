"""Answers the requests to this service: finds the handler, computes a repeated request once, and turns failures into
one line.

Limits for each request type how many requests are under way, how large they are together, and which answers are kept.
Knows no socket: `sockets` hands it requests and sends what it returns."""

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

# These limits hold for each request type; further requests are refused at once.
MAX_PENDING_REQUESTS = 2048  # requests under way
MAX_PENDING_BYTES = 32 << 20  # of the bodies of all requests under way; one body has at most half of it
MAX_KEPT_ANSWERS = 256  # answers that are kept for repeated requests
MAX_KEPT_BYTES = 1 << 20  # of the bodies of kept answers
MAX_KEPT_ANSWER_BYTES = 64 << 10  # a larger answer is computed again, because handlers are safe to repeat

log = logging.getLogger(__name__)

Answer = tuple[AnswerHead, bytes]
Handler = Callable[[Any], Awaitable[Any]]
Send = Callable[[Answer], None]
Name = tuple[str, int]  # client and id


@dataclass(eq=False)
class _Running:
    head: RequestHead
    size: int  # bytes of the body
    send: Send  # sends to the sender of the newest copy
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> Name:
        return self.head.client, self.head.id


@dataclass(eq=False)
class _Type:
    """Has the handler of one request type, its requests under way, and its kept answers."""

    request: type[Any]
    handler: Handler
    running: dict[Name, _Running] = field(default_factory=dict)
    running_bytes: int = 0
    # Each with the deadline of its request.
    kept: OrderedDict[Name, tuple[Answer, float]] = field(default_factory=OrderedDict)
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
        while len(self.kept) > MAX_KEPT_ANSWERS or self.kept_bytes > MAX_KEPT_BYTES:
            self.forget(next(iter(self.kept)))

    def forget(self, name: Name) -> None:
        (_, body), _ = self.kept.pop(name)
        self.kept_bytes -= len(body)


class Answers:
    """Has the handlers of one service by request type, and its recent answers by (client, id)."""

    def __init__(self, service: str, clock: Clock, tracer: Tracer | None = None) -> None:
        self._service, self._clock, self._tracer = service, clock, tracer or Tracer()
        self._types: dict[str, _Type] = {}

    def register(self, request: type[Any], handler: Handler) -> None:
        """Answer requests of this type, which is sent by its class name. Raises ValueError when the type has a
        handler."""
        if request.__name__ in self._types:
            raise ValueError(f"{self._service} answers {request.__name__} already")
        self._types[request.__name__] = _Type(request, handler)

    def take(self, head: RequestHead, body: bytes | None, send: Send) -> None:
        """Take one copy of a request; `body`: None = a reminder of a request sent before. `send` gets the answer, now
        or later, or never if the deadline passes first. When several copies arrive, only the newest one's `send` gets
        it."""
        if head.deadline <= self._clock.monotonic():
            return  # queued for an earlier process of this service; its caller has given up
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
        elif len(known.running) >= MAX_PENDING_REQUESTS or known.running_bytes + len(body) > MAX_PENDING_BYTES:
            send(_refusal(head, f"{self._service} has {len(known.running)} {head.type} under way and takes no more"))
        else:
            self._begin(known, _Running(head, len(body), send), body)

    def in_progress(self) -> dict[str, int]:
        """Return the number of requests under way by type."""
        return {name: len(known.running) for name, known in self._types.items()}

    def expire(self) -> None:
        """Cancel the requests whose deadline has passed, and drop the answers kept for such requests: their callers
        have given up."""
        now = self._clock.monotonic()
        for known in self._types.values():
            for running in list(known.running.values()):
                if running.head.deadline <= now and running.task is not None:
                    running.task.cancel()
            for name in [name for name, (_, deadline) in known.kept.items() if deadline <= now]:
                known.forget(name)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel the requests under way, because the process ends. Return what to wait for."""
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
        if len(answer[1]) <= MAX_KEPT_ANSWER_BYTES:
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
