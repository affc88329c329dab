"""Answers `/debug/pprof/` and `/debug/flags/v`: each request asks every process for its part (server.md 15.2, 15.3).

All answers are text. Go's heap, block and mutex profiles have no equivalent in Python and are answered as unknown. The
text names each process that does not answer, and shows the others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.debugging import GetProfile, GetStacks, Profile, SetVerbosity, Stacks, VerbositySet
from bus.messages.streams import SERVICES
from services.frame.debugging import MAX_PROFILE_SECONDS, MAX_VERBOSITY, Debugging
from services.server.adapters.plain_answer import go_error, plain
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.go_text import parse_int64, parse_query, quote
from services.server.core.pages.collapsed_profile import collapsed_profile
from services.server.core.routes import Endpoint
from shared.time.clock import Clock

T = TypeVar("T")

TIMEOUT_SECONDS = 5.0  # that a process has to answer, besides the time of its profile
MAX_BODY_BYTES = 64
_PROFILE_SECONDS = 30
_INDEX = """/debug/pprof/

profile    where the processes spend CPU time, as collapsed stacks (?seconds=30)
goroutine  where their threads and tasks are now

?process=NAME   one of {services}; repeatable, all without it
"""


class DebugEndpoints:
    """Answers debug requests; `own` answers for this process, the others answer over the bus."""

    def __init__(self, bus: Bus, clock: Clock, own: Debugging) -> None:
        self._bus, self._clock, self._own = bus, clock, own

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {Endpoint.PPROF: self.pprof, Endpoint.DEBUG_FLAGS: self.flags}

    async def flags(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `PUT /debug/flags/v`, which sets the verbosity of each process until it ends."""
        if request.method != "PUT":
            return _line(406, "unsupported http method")
        try:
            text = await _body(request)
        except (ValueError, TimeoutError) as error:
            return _line(400, f"error reading request body: {error or 'too slow'}")
        failed = f"failed set klog.logging.verbosity {text}"
        try:
            verbosity = parse_int64(text)
            if not -MAX_VERBOSITY - 1 <= verbosity <= MAX_VERBOSITY:
                raise ValueError(f"parsing {quote(text)}: value out of range")
        except ValueError as error:
            return _line(400, f"{failed}: strconv.ParseInt: {error}")
        answers = await self._from(SERVICES, SetVerbosity(verbosity=verbosity), VerbositySet, self._own.set_verbosity)
        missing = [process for process, answer in answers.items() if isinstance(answer, str)]
        if missing:
            return _line(500, f"{failed}: no answer of {', '.join(missing)}")
        return _line(200, f"successfully set klog.logging.verbosity to {text}")

    async def pprof(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /debug/pprof/` and the profiles below it."""
        name, query = parameters[0], parse_query(request.rel_url.raw_query_string)
        if name == "":
            return plain(200, _INDEX.format(services=", ".join(SERVICES)))
        if name not in ("profile", "goroutine"):
            refused = go_error(404, "Unknown profile")
            refused.headers["X-Go-Pprof"] = "1"
            return refused
        named = query.get("process", list(SERVICES))
        for process in named:
            if process not in SERVICES:
                return go_error(400, f"unknown value {quote(process)}: it is one of {', '.join(SERVICES)}")
        processes = [process for process in SERVICES if process in named]
        if name == "goroutine":
            return await self._stacks(processes)
        seconds = _seconds(query.get("seconds", [""])[0])
        if seconds > MAX_PROFILE_SECONDS:
            return go_error(400, f"profile duration exceeds {MAX_PROFILE_SECONDS:.0f} s")
        return await self._profile(processes, seconds)

    async def _stacks(self, processes: list[str]) -> web.StreamResponse:
        answers = await self._from(processes, GetStacks(), Stacks, self._own.stacks)
        parts = []
        for process, answer in answers.items():
            text = f"{answer}\n" if isinstance(answer, str) else f"{answer.threads}{answer.tasks}"
            parts.append(f"== {process} ==\n{text}\n")
        return plain(200, "".join(parts))

    async def _profile(self, processes: list[str], seconds: int) -> web.StreamResponse:
        answers = await self._from(processes, GetProfile(seconds=seconds), Profile, self._own.profile, seconds)
        if all(isinstance(answer, str) for answer in answers.values()):
            errors = "; ".join(f"{process}: {answer}" for process, answer in answers.items())
            return go_error(500, f"Could not enable CPU profiling: {errors}")
        return plain(200, await asyncio.to_thread(collapsed_profile, answers))

    async def _from(
        self,
        processes: list[str] | tuple[str, ...],
        question: Any,
        answer: type[T],
        own: Callable[[Any], Awaitable[T]],
        seconds: float = 0,
    ) -> dict[str, T | str]:
        """Ask these processes at the same time. Where one fails, its answer is a line with the error."""

        async def ask_process(process: str) -> T | str:
            try:
                if process == self._bus.service:
                    return await own(question)
                return await self._bus.ask(process, question, answer, seconds + TIMEOUT_SECONDS)
            except (NoAnswerError, RequestRefusedError) as error:
                return str(error)

        return dict(zip(processes, await asyncio.gather(*map(ask_process, processes)), strict=True))


def _seconds(text: str) -> int:
    """Return the seconds of a profile. As in Go, what is no positive number counts as 30."""
    try:
        seconds = parse_int64(text)
    except ValueError:
        return _PROFILE_SECONDS
    return seconds if seconds > 0 else _PROFILE_SECONDS


def _line(status: int, text: str) -> web.Response:
    response = plain(status, text)
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


async def _body(request: web.BaseRequest) -> str:
    """Return the content of the request. Raises ValueError where it is too long, TimeoutError where it is late."""
    content = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        if request.headers.get("Expect", "").lower() == "100-continue":  # the client sends the content after this
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # lets aiohttp begin the answer, of which nothing is sent yet
        while piece := await request.content.read(MAX_BODY_BYTES):
            content += piece
            if len(content) > MAX_BODY_BYTES:
                raise ValueError(f"more than {MAX_BODY_BYTES} bytes")
    return content.decode("utf-8", "replace")
