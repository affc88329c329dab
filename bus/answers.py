"""Requests to this service: finds the handler, answers a repeated request once, turns failures into one line.

Knows no socket: `answerer` and `memory` hand it requests and send what it returns.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from bus import codec
from bus.frames import AnswerHead, RequestHead
from bus.interface import RequestRefusedError
from bus.messages.snapshot import Snapshot

RECENT_ANSWERS = 256
RECENT_ANSWER_CAP = 64 * 1024  # bytes; a larger answer is not kept but computed again, handlers are safe to repeat

_LOG = logging.getLogger(__name__)

Answer = tuple[AnswerHead, bytes]
Handler = Callable[[Any], Awaitable[Any]]


class Answers:
    """The handlers of one service by request type, and its recent answers by (client, id)."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._handlers: dict[str, tuple[type[Any], Handler]] = {}
        self._recent: OrderedDict[tuple[str, int], Answer] = OrderedDict()
        self._running: dict[tuple[str, int], asyncio.Task[Answer]] = {}

    def register(self, request: type[Any], handler: Handler) -> None:
        """Answer requests of this type, known on the wire by its class name. ValueError when it is taken."""
        if request.__name__ in self._handlers:
            raise ValueError(f"{self._service} answers {request.__name__} already")
        self._handlers[request.__name__] = request, handler

    async def answer(self, head: RequestHead, body: bytes) -> Answer:
        """The answer to one copy of a request. A copy of a request under way waits for the same answer."""
        name = head.client, head.id
        if name in self._recent:
            self._recent.move_to_end(name)
            return self._recent[name]
        task = self._running.get(name)
        if task is None:
            task = asyncio.create_task(self._compute(head, body), name=f"answer {head.type}")
            self._running[name] = task
            task.add_done_callback(lambda _: self._running.pop(name, None))
        return await asyncio.shield(task)

    def cancel(self) -> None:
        """Give up what is under way: the process ends."""
        for task in list(self._running.values()):
            task.cancel()

    async def _compute(self, head: RequestHead, body: bytes) -> Answer:
        answer = await self._handle(head, body)
        if len(answer[1]) <= RECENT_ANSWER_CAP:
            self._recent[head.client, head.id] = answer
            while len(self._recent) > RECENT_ANSWERS:
                self._recent.popitem(last=False)
        return answer

    async def _handle(self, head: RequestHead, body: bytes) -> Answer:
        known = self._handlers.get(head.type)
        if known is None:
            return _refusal(head, f"{self._service} does not answer {head.type}")
        request_type, handler = known
        try:
            result = await handler(codec.decode(body, request_type))
            return AnswerHead(v=codec.PROTOCOL_VERSION, id=head.id, type=type(result).__name__), _encode(result)
        except codec.MessageTooLargeError as error:
            _LOG.error("bus: answer to %s of %s not sent: %s", head.type, head.client, error)
            return _refusal(head, str(error))
        except (RequestRefusedError, codec.UndecodableError) as error:
            return _refusal(head, str(error))
        except Exception as error:
            _LOG.exception("bus: answering %s of %s failed", head.type, head.client)
            return _refusal(head, f"{self._service} failed to answer {head.type}: {type(error).__name__}")


def _encode(result: Any) -> bytes:
    what = f"answer {type(result).__name__}"
    return codec.encode_uncapped(result, what) if isinstance(result, Snapshot) else codec.encode(result, what)


def _refusal(head: RequestHead, line: str) -> Answer:
    return AnswerHead(v=codec.PROTOCOL_VERSION, id=head.id, error=" ".join(line.split()) or "refused"), b""
