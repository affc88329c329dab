"""Keeps the state of the API server for sources: reports each outage once, and wakes waiting requests at its end.

An outage is a failure of the network: refused, reset, no answer at the socket. A request that is answered late, or with
429 or 5xx, is no outage: it fails alone, and no watch is disturbed. Open watches continue through an outage as long as
their connections do (the kernel breaks dead ones), and resume from their versions.

A store that was restored or emptied shows in its versions: if a list of the newest state is older than the newest
version that was seen before the request, the store has another history, and everything is listed again. Versions of
resources that an API server keeps in different stores cannot be compared; then lists are only repeated too often, or
too late as in any client.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Flag, auto

from bus.interface import Bus
from services.sources.adapters.clients import Clients
from services.sources.core.api_objects import is_older
from shared.kube.interface import ApiError, ApiStatusError, ApiUnreachableError
from shared.time.clock import Clock

log = logging.getLogger(__name__)

OUTAGE = "API server"


class RetryRequestError(Exception):
    """The wait has ended early: the request is to be sent again now."""


class WaitEnd(Flag):
    """The events that end a wait for the API server early."""

    FAILURE = auto()  # the first request that failed
    OUTAGE = auto()  # the network failed
    OUTAGE_OVER = auto()  # the API server answered a request after an outage
    WENT_BACK = auto()  # its store was restored or emptied


@dataclass(eq=False)
class _Waiting:
    limit: asyncio.Timeout
    until: WaitEnd


@dataclass(eq=False)
class ApiServer:
    """Keeps whether the API server answers, and the clients. `chance` returns random numbers in [0, 1)."""

    clients: Clients
    bus: Bus
    clock: Clock
    chance: Callable[[], float] = random.random
    may_stream_lists: bool = False  # the feature gate WatchListClient
    streams_lists: bool = field(init=False)  # the API server lists by a watch, as far as is known
    newest: str = field(default="", init=False)  # the newest version that was seen; "" = none
    history: int = field(default=0, init=False)  # how often the store went back
    outages: int = field(default=0, init=False)  # the number of outages
    away: str = field(default="", init=False)  # why no request is answered; "" = requests are answered
    _away_since: float | None = field(default=None, init=False)
    is_outage: bool = field(default=False, init=False)  # the network failed; False while it only does not answer
    _back: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _waiting: set[_Waiting] = field(default_factory=set, init=False)
    _refused: dict[str, str] = field(default_factory=dict, init=False)  # what was requested -> the reported trouble

    def __post_init__(self) -> None:
        self.streams_lists = self.may_stream_lists

    def answered(self, what: str) -> None:
        """Note that a request for `what` succeeded."""
        self.is_there()
        if self._refused.pop(what, None) is not None:
            log.info("%s: read from the API server again", what)
            self.bus.trouble(_named(what), None)

    def failed(self, what: str, error: ApiError, *, may_pass: bool = False) -> None:
        """Note that a request for `what` failed. An outage is one line in the log, however many requests fail; a
        refusal is one line for each kind of answer to each `what`, and none while it `may_pass` within moments."""
        if isinstance(error, ApiUnreachableError):
            self._is_away(error)
            return
        if isinstance(error, ApiStatusError) and (error.code >= 500 or error.code == 429):
            status = "is not ready" if error.code >= 500 else "asks for fewer requests"
        else:
            self.is_there()
            status = "refuses"
        if may_pass:
            log.debug("%s: the API server %s: %s", what, status, error)
            return
        kind = f"{what}: the API server {status}"
        if not self._refused.get(what, "").startswith(kind):
            self._refused[what] = line = f"{kind}: {error}"
            log.warning("%s", line)
            self.bus.trouble(_named(what), line)

    def refuses(self, what: str) -> bool:
        """Return whether the API server answers requests for `what` with a refusal, and is not merely not ready."""
        return self._refused.get(what, "").startswith(f"{what}: the API server refuses")

    def is_answered_with_error(self, what: str) -> bool:
        """Return whether the last request for `what` was answered with an error."""
        return what in self._refused

    def _is_away(self, error: ApiUnreachableError) -> None:
        first, turned = self._away_since is None, error.is_outage and not self.is_outage
        if not (first or turned):
            return
        if first:
            self._away_since = self.clock.monotonic()
        self.is_outage = error.is_outage
        self.outages += error.is_outage
        status = "not reachable" if error.is_outage else "does not answer"
        self.away = f"API server {status}: {error}"
        line = f"{self.away}; pods run on as they are known"
        log.warning("%s", line)
        self.bus.trouble(OUTAGE, line)
        self._end(WaitEnd.FAILURE)
        if error.is_outage:
            self._end(WaitEnd.OUTAGE)

    def forget(self, what: str) -> None:
        """Forget the troubles with `what`, which is not requested any more."""
        if self._refused.pop(what, None) is not None:
            self.bus.trouble(_named(what), None)

    def saw(self, version: str) -> None:
        """Note that a list or a watch brought this version."""
        if not self.newest or is_older(self.newest, version):
            self.newest = version

    def compare_history(self, version: str, newest_before: str) -> int:
        """Compare the version of a list of the newest state with the newest one that was seen before the request, and
        return the number of the history that the list belongs to."""
        if is_older(version, newest_before):
            log.warning("the API server's store went back from version %s to %s: reading all", newest_before, version)
            self.newest = version
            self.history += 1
            self._end(WaitEnd.WENT_BACK)
        return self.history

    async def pause(self, seconds: float | None, *, interruptible: bool, spread: float = 0.0) -> bool:
        """Wait for some seconds, None = forever. If `interruptible`, wait at most until an outage is over, and then for
        a random part of `spread` seconds. Return whether the end of an outage ended the wait."""
        back = self._back
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await (back.wait() if interruptible else asyncio.Event().wait())
        if not (interruptible and back.is_set()):
            return False
        await asyncio.sleep(spread * self.chance())
        return True

    @contextlib.asynccontextmanager
    async def waiting(self, until: WaitEnd) -> AsyncIterator[None]:
        """Wait for the API server in its body. Raises RetryRequestError when one of `until` happens."""
        limit = asyncio.timeout(None)
        waiting = _Waiting(limit, until)
        try:
            async with limit:
                self._waiting.add(waiting)
                try:
                    yield
                finally:
                    self._waiting.discard(waiting)
        except TimeoutError:
            raise RetryRequestError from None

    def is_there(self) -> None:
        """Note that the API server answered a request, which ends an outage."""
        if self._away_since is None:
            return
        log.info("API server reachable again after %.0f s", self.clock.monotonic() - self._away_since)
        was_outage, self.is_outage, self._away_since = self.is_outage, False, None
        self.away = ""
        self.bus.trouble(OUTAGE, None)
        self._back.set()
        self._back = asyncio.Event()
        if was_outage:  # requests that were sent before it may never be answered; a slow server answers them now
            self.streams_lists = self.may_stream_lists  # it may be a newer one now
            self._end(WaitEnd.OUTAGE_OVER)

    def _end(self, what: WaitEnd) -> None:
        for waiting in self._waiting:
            if what in waiting.until and not waiting.limit.expired():
                waiting.limit.reschedule(asyncio.get_running_loop().time())


def _named(what: str) -> str:
    return f"API server, {what}"
