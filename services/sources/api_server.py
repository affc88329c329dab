"""The API server as sources meets it: one outage at a time, said once; when it is over everybody asks anew.

A watch that was open during an outage may be dead without anybody knowing: its connection can be gone on the other
side, or end at a proxy. So once anybody is answered after an outage, what was asked before counts for nothing: who
pauses is woken, a request under way is sent again, and every open watch is closed and resumed at its last version,
which is cheap and loses nothing.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from bus.interface import Bus
from services.sources.clients import Clients
from shared.clock import Clock
from shared.kube.interface import ApiError, ApiStatusError, ApiUnreachableError

_log = logging.getLogger(__name__)

OUTAGE = "API server"


class AskAgainError(Exception):
    """What was waited for was asked before the end of an outage, or may be dead: ask again now."""


@dataclass(eq=False)
class _Waiting:
    limit: asyncio.Timeout
    probe: bool
    again: bool = False

    def end(self) -> None:
        if not self.limit.expired():
            self.again = True
            self.limit.reschedule(asyncio.get_running_loop().time())


@dataclass(eq=False)
class ApiServer:
    """The clients and what is known of the way to it. `chance` gives random numbers from 0 to below 1."""

    clients: Clients
    bus: Bus
    clock: Clock
    chance: Callable[[], float] = random.random
    _away_since: float | None = field(default=None, init=False)
    _back: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _waiting: set[_Waiting] = field(default_factory=set, init=False)
    _refused: dict[str, str] = field(default_factory=dict, init=False)  # what was asked for -> trouble said

    def answered(self, what: str) -> None:
        """The API server answered a request for `what`, with success."""
        self.is_there()
        if self._refused.pop(what, None) is not None:
            _log.info("%s: read from the API server again", what)
            self.bus.trouble(_named(what), None)

    def failed(self, what: str, error: ApiError, *, may_pass: bool = False) -> None:
        """A request for `what` failed. An outage is one line in the log, however many requests it fails; a refusal one
        line for each kind of answer to each `what`, and none while it `may_pass` within moments."""
        if isinstance(error, ApiUnreachableError):
            if self._away_since is None:
                self._away_since = self.clock.monotonic()
                line = f"API server not reachable: {error}; pods run on as they are known"
                _log.warning("%s", line)
                self.bus.trouble(OUTAGE, line)
                for waiting in self._waiting:
                    if waiting.probe:
                        waiting.end()
            return
        if isinstance(error, ApiStatusError) and (error.code >= 500 or error.code == 429):
            status = "is not ready" if error.code >= 500 else "asks for fewer requests"
        else:
            self.is_there()
            status = "refuses"
        if may_pass:
            _log.debug("%s: the API server %s: %s", what, status, error)
            return
        kind = f"{what}: the API server {status}"
        if not self._refused.get(what, "").startswith(kind):
            self._refused[what] = line = f"{kind}: {error}"
            _log.warning("%s", line)
            self.bus.trouble(_named(what), line)

    def no_longer_asked(self, what: str) -> None:
        """Nobody needs `what` any more."""
        if self._refused.pop(what, None) is not None:
            self.bus.trouble(_named(what), None)

    async def pause(self, seconds: float, *, interruptible: bool) -> None:
        """Wait; if `interruptible`, at most until an outage is over."""
        back = self._back
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await (back.wait() if interruptible else asyncio.Event().wait())

    @contextlib.asynccontextmanager
    async def waiting(self, seconds: float | None = None, *, probe: bool = False) -> AsyncIterator[None]:
        """Wait in it for something from the API server, at most for so many seconds: ApiUnreachableError. Raises
        AskAgainError when an outage is over, for a `probe` also when one begins."""
        limit = asyncio.timeout(seconds)
        waiting = _Waiting(limit, probe)
        try:
            async with limit:
                self._waiting.add(waiting)
                try:
                    yield
                finally:
                    self._waiting.discard(waiting)
        except TimeoutError:
            if waiting.again:
                raise AskAgainError from None
            raise ApiUnreachableError("no answer in time") from None

    def is_there(self) -> None:
        """The API server answered somebody. Ends an outage."""
        if self._away_since is None:
            return
        _log.info("API server reachable again after %.0f s", self.clock.monotonic() - self._away_since)
        self._away_since = None
        self.bus.trouble(OUTAGE, None)
        self._back.set()
        self._back = asyncio.Event()
        for waiting in self._waiting:
            waiting.end()


def _named(what: str) -> str:
    return f"API server, {what}"
