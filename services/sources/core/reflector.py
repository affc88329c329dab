"""Decides how to keep a copy of a list of the API server: list, watch, resume, or wait; pure (pods.md C).

A list is "not older than" a version, so that the API server answers it from its cache, as it does for the kubelet:
- the first one than any ("0"), that of the pods than the version of the last record of them: an older cache could lack
  a pod that runs here, and absence from a list ends pods (`services.sources.core.first_seen`);
- a later one than the newest version seen;
- only where the cache does not get there, where the store went back, and for our Node it is a quorum read: without a
  version, from the newest state. That of the Node is of one key of etcd, and shows whether the store went back.
A list of version "0" ignores `limit`; we never send one, so no list comes in parts, and each is bounded by the client.
Such a list is the beginning of its watch (`sendInitialEvents`) where the API server can do that (1.34 and later): one
request less, and neither side has the whole answer in memory. A quorum read stays a list, because the watch would wait
for a sign of progress of etcd. Where such a watch fails, a list follows. Where the server answers that it is busy, the
watch is tried again first, MAX_BUSY_WATCHES times in a row.

A watch that ends or breaks resumes at the last version seen, bookmarks included, also after an outage. Another list
follows only
- an expired version (410), or one that the API server has not reached, as it reports, or keeps refusing;
- a store that went back (restored or emptied): the API server sends nothing on a watch from a version that it never
  reaches. So the watch of our Node, when its connection broke, begins with a list of that one object, whose version is
  compared with the newest seen (`services.sources.controllers.api_server`).
A slow or throttled request is no outage: its watch pauses, for the error's `retry_after` at least, and resumes from its
version.

In an outage the list of our Node is the one request that this process sends, after the pauses of PROBES. All nodes of a
cluster see the same outage at the same time: what they send meanwhile must not keep an API server from its start, and
what they send after its return must not come at once. PROBES grows quickly and half of each pause is by chance, so the
agents notice the return at different times, over as long as the outage has lasted and MAX_PROBE_PAUSE_SECONDS at most.
That spreads everything they send then, and is as long as an agent may be out of step after the return.
A node whose pods may run from a record (`offlinePods`), because the API server has not listed them since the start, has
the pauses of PROMPT_PROBES instead: it may run pods that are elsewhere by now. Only nodes that booted in the outage are
so, and each sends one request of a connection.
- The kernel breaks a connection on which nothing is confirmed after about ten seconds; one that survives a shorter
  outage delivers what was held back.
- The first failed request of any kind makes our Node be listed at once, so one lost connection is no outage for long.
- The first answer wakes every reflector, each after a random part of SPREAD_SECONDS.
- Node and pods have a client of their own, so no other request is before them in the queue of its rate limit.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from services.sources.core.api_objects import is_older
from shared.kube.interface import ApiError, ApiMalformedError, ApiStatusError, ApiUnansweredError, ApiUnreachableError
from shared.model.frozen_copy import replace
from shared.time.backoff import Backoff

# Each pause is between half and all of these, at least 0.8 s.
PAUSES = Backoff(initial=1.6, cap=30.0, reset_after=120.0)
# The pauses of the list of our Node while the API server cannot be reached; each is prolonged at random, up to twofold.
PROBES = Backoff(initial=2.0, cap=36.0, factor=3.0)
MAX_PROBE_PAUSE_SECONDS = 2 * PROBES.cap
PROMPT_PROBES = Backoff(initial=2.5, cap=2.5)  # the same of a node whose pods may run from a record
MAX_PROMPT_PROBE_PAUSE_SECONDS = 2 * PROMPT_PROBES.cap
SPREAD_SECONDS = 1.0  # over which requests after an outage are spread
FORBIDDEN_PAUSE_SECONDS = 0.2  # the first pause: the authorizer learns soon that a pod of this node needs the object
MAX_PROMPT_PAUSE_SECONDS = 3.0  # of Node and pods, on which all others depend, while the network works
MAX_BUSY_PAUSE_SECONDS = 10.0  # in place of a shorter longest pause, while the API server answers 429 or 5xx
ANSWER_TIMEOUT_SECONDS = 5.0  # until the answer to a list, or the head of a watch
# An API server that queues requests takes longer, up to its own limit, so each timeout doubles the next one.
MAX_ANSWER_SECONDS = 60.0
MIN_WATCH_SECONDS = 300.0  # a watch ends after one to two times this, so that not all nodes reconnect at once
HASTY_SECONDS = 1.0  # a watch that ended sooner and without an event counts as a failure
EARLY_SECONDS = 5.0  # by which a watch may end before the agreed time
MAX_BUSY_WATCHES = 3  # that were to begin with all objects, and failed with 429 or 5xx, before a list
MAX_REFUSED_SECONDS = 300.0  # of nothing but 5xx for one version, after which that version is given up


FROM_CACHE, NEWEST = "0", ""  # versions of a list: any version in the API server's cache; the newest state


class ListAll(Struct, frozen=True):
    """Read the list as it was at version `oldest` or later, or FROM_CACHE, or NEWEST."""

    oldest: str = FROM_CACHE


class WatchFrom(Struct, frozen=True):
    """Watch the changes after `version`; the server is to end the watch after `timeout` seconds."""

    version: str
    timeout: float


class WatchAll(Struct, frozen=True):
    """Watch from the present objects on, as they were at version `oldest` or later, or FROM_CACHE."""

    oldest: str
    timeout: float


class Pause(Struct, frozen=True):
    """Do nothing for `seconds`. `interruptible`: at most until the API server answers a request after an outage."""

    seconds: float
    interruptible: bool = True


Step = ListAll | WatchAll | WatchFrom | Pause


@dataclass
class Reflector:
    """The state of one list and watch. Report the result of each step, then call `next_step`."""

    longest_pause: float = PAUSES.cap
    longest_answer_timeout: float = MAX_ANSWER_SECONDS
    shortest_watch: float = MIN_WATCH_SECONDS
    oldest: str = FROM_CACHE  # that the next list may be: a version, FROM_CACHE or NEWEST
    # True for our Node, whose list is also sent during an outage. After a watch that broke early it lists the newest
    # state, to detect that the store went back.
    probes: bool = False
    prompt: bool = False  # True for our Node while pods may run from a record
    streams: bool = False  # the API server lists by a watch
    answer_timeout: float = field(default=ANSWER_TIMEOUT_SECONDS, init=False)  # seconds to wait for the next answer
    version: str = field(default="", init=False)  # of the newest object or bookmark; "" = list first
    _pause: Pause | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _failed_at: float = field(default=float("-inf"), init=False)
    _outages: int = field(default=0, init=False)  # requests since the last list that failed because of the network
    _proven: bool = field(default=False, init=False)  # a watch from the last list worked
    _refused: int = field(default=0, init=False)  # watches refused in a row
    _unserved_since: float | None = field(default=None, init=False)  # watches failed with 5xx in a row
    _agreed: float = field(default=0.0, init=False)  # seconds after which the server is to end the present watch
    _is_streamed: bool = field(default=False, init=False)  # the last step was a WatchAll
    _must_list: bool = field(default=False, init=False)  # a WatchAll failed, and a ListAll follows

    def next_step(self, chance: float) -> Step:
        """Return what to do now. `chance`: a random number in [0, 1)."""
        if self._pause is not None:
            pause, self._pause = self._pause, None
            return pause
        oldest = NEWEST if self.probes else self.oldest
        self._is_streamed = not self.version and self.streams and oldest != NEWEST and not self._must_list
        if not self.version and not self._is_streamed:
            return ListAll(oldest)
        self._agreed = self.shortest_watch * (1 + chance)
        return WatchAll(oldest, self._agreed) if self._is_streamed else WatchFrom(self.version, self._agreed)

    def listed(self, version: str) -> None:
        """Note that the list was read."""
        self.version = self.oldest = version
        self._proven, self._must_list, self._outages = False, False, 0
        self.answer_timeout, self._unserved_since = ANSWER_TIMEOUT_SECONDS, None

    def watch_opened(self) -> None:
        """Note that the head of a watch arrived."""
        self.answer_timeout, self._unserved_since = ANSWER_TIMEOUT_SECONDS, None

    def woken(self) -> None:
        """Note that an outage is over. If the next step fails, its pauses begin short again."""
        self._failures, self._must_list = 0, False

    def went_back(self) -> None:
        """List the newest state next, because the API server's store has, or may have, another history."""
        self.version, self.oldest = "", NEWEST

    def saw(self, version: str) -> None:
        """Note the version of an object or bookmark of the watch; "" = it had none. A version that goes back belongs to
        another history, so the newest state is listed next."""
        if is_older(version, self.version):
            self.went_back()
        elif version:
            self.version = self.oldest = version
        self._proven, self._refused = True, 0

    def watch_ended(self, *, lasted: float, events: int, now: float, chance: float) -> None:
        """Note that the server ended the watch after `lasted` seconds, as agreed or because it shuts down."""
        if self.probes and lasted < self._agreed - EARLY_SECONDS:
            self.version = ""
        if lasted < HASTY_SECONDS and not events:
            self._pause = Pause(self._back_off(PAUSES.initial, self.longest_pause, now, chance))
            return
        self._proven, self._refused = True, 0

    def list_failed(self, error: ApiError | None, *, now: float, chance: float) -> bool:
        """Note that the list could not be read; None = the answer was no list. Return whether it is read at once in
        another way: from the newest state, where the API server does not accept the version or its cache does not reach
        it, and by a list, where a watch was to begin with all objects and did not."""
        status = error.code if isinstance(error, ApiStatusError) else 0
        is_put_off = status in (410, 429) or status >= 500
        if self._is_streamed and (not is_put_off or self._failures >= MAX_BUSY_WATCHES):
            self._must_list = True
            if isinstance(error, ApiMalformedError) or not (is_put_off or status in (0, 401, 403)):
                return True
        untaken = isinstance(error, ApiStatusError) and (error.gone or error.too_large_version or error.code == 400)
        if untaken and self.oldest != NEWEST:
            self.oldest = NEWEST
            return not self.probes
        self._adapt_timeout(error)
        self._fail(error, now, chance)
        return False

    def watch_failed(self, error: ApiError, *, now: float, chance: float, opened: bool = False) -> None:
        """Note that the watch was refused or could not be opened, or that it was `opened` and broke."""
        if not opened:
            self._adapt_timeout(error)
        status = error if isinstance(error, ApiStatusError) else None
        if isinstance(error, ApiUnreachableError) and error.is_outage and self.probes:
            self.version = ""
        if opened and isinstance(error, ApiMalformedError):
            self.version = ""  # the same event would come again
        if status is not None and status.gone:
            self.version = ""
            if not self._proven:  # it expired right after the list, so the next one would probably expire, too
                self._fail(error, now, chance)
            return
        if status is not None and self._is_given_up(status, now):
            self.went_back()
            self._refused, self._unserved_since = 0, None
        self._fail(error, now, chance)

    def _adapt_timeout(self, error: ApiError | None) -> None:
        if isinstance(error, ApiUnansweredError):
            longer = Backoff(ANSWER_TIMEOUT_SECONDS, self.longest_answer_timeout)
            self.answer_timeout = longer.next_delay(self.answer_timeout)

    def _is_given_up(self, status: ApiStatusError, now: float) -> bool:
        """Return whether the API server will probably never accept this version, as after a restore of etcd."""
        if status.too_large_version:
            return True
        if status.code >= 500:
            if self._unserved_since is None:
                self._unserved_since = now
            return now - self._unserved_since >= MAX_REFUSED_SECONDS
        if status.code not in (401, 403, 429):
            self._refused += 1
        return self._refused > 1

    def _fail(self, error: ApiError | None, now: float, chance: float) -> None:
        if self.probes and isinstance(error, ApiUnreachableError) and error.is_outage:
            self._outages += 1
            pauses = PROMPT_PROBES if self.prompt else PROBES
            self._pause = Pause(pauses.delay(self._outages, jitter=chance))
            return
        status = error if isinstance(error, ApiStatusError) else None
        busy = status is not None and (status.code == 429 or status.code >= 500)
        longest_busy = MAX_PROMPT_PROBE_PAUSE_SECONDS if self.prompt else MAX_BUSY_PAUSE_SECONDS
        seconds = self._back_off(
            FORBIDDEN_PAUSE_SECONDS if status is not None and status.forbidden else PAUSES.initial,
            max(self.longest_pause, longest_busy) if busy else self.longest_pause,
            now,
            chance,
        )
        if status is None or status.retry_after is None:
            self._pause = Pause(seconds)
        else:
            retry_after = max(0.0, status.retry_after) * (1 + chance / 4)
            self._pause = Pause(max(retry_after, seconds), interruptible=False)

    def _back_off(self, first: float, longest: float, now: float, chance: float) -> float:
        """Return the seconds of the next pause, which doubles and half of which is random."""
        if PAUSES.is_reset(self._failed_at, now):
            self._failures = 0
        self._failures, self._failed_at = self._failures + 1, now
        return replace(PAUSES, initial=first, cap=longest).delay(self._failures, jitter=(chance - 1) / 2)
