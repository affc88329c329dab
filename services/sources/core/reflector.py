"""What to ask the API server next to keep a copy of a list: list, watch, resume, or wait; pure (reference pods.md C).

Always lists without a resourceVersion, so from the newest state: an answer out of an API server's old cache could lack
a pod that runs here, and absence from a list ends pods. A watch that ends resumes at the last version seen, bookmarks
included, and so does one that breaks, but for Node and pods. An expired version costs another list, and so does an API
server that was away: who answers next may have a store that was restored or emptied, and waits without a word for a
version it never reaches.

The promise: level within 10 s of the API server's return, also from an outage in which packets were dropped without a
word, so that requests and watches hang instead of failing. It rests on this:
- Our Node's list and watch probe. From anybody's first failed request on they are asked anew, each time with PATIENCE
  until the answer begins and PROMPT_PAUSE between, so they are answered at most 8 s after the return, even if all that
  was sent before it stays without an answer.
- That answer is for everybody: who pauses or waits, however long it would have, asks anew at once, and every watch that
  was open begins anew with a list, for it may be dead without anybody knowing.
- Node and pods have a client of their own, so nothing stands before them in the queue of its rate limit.
- An outage in which nobody asked anything is noticed by the client's connections: one on which nothing is confirmed
  breaks after about ten seconds, and one that lives through a shorter outage brings what it held back.
"""

from dataclasses import dataclass, field

from services.sources.core.api_objects import is_older
from shared.kube.interface import ApiError, ApiStatusError

FIRST_PAUSE = 1.6  # seconds; each pause is between half and all of it, so 0.8 s at least
FIRST_PAUSE_FORBIDDEN = 0.2  # the authorizer's graph learns within moments that a pod of this node needs the object
LONGEST_PAUSE = 30.0
# For what everything else waits for. With PATIENCE it leaves 2 s of the promised ten for the list of nodes, the list of
# pods and the reads behind it. Whoever pauses for longer is woken by the first answer that anybody gets.
PROMPT_PAUSE = 3.0
PATIENCE = 5.0  # seconds until the answer to a list, or the head of a watch
# A list out of many thousands of objects may need more than that, or would never be read at all: so each time that was
# not enough doubles it. Not for the one object by name that probes.
LONGEST_PATIENCE = 30.0
HEALTHY_AFTER = 120.0  # seconds without a failure; then pauses begin anew
SHORTEST_WATCH = 300.0  # watches end after this to twice this many seconds, so that not all nodes come back at once
HASTY = 1.0  # seconds: a watch that ended sooner and said nothing counts as a failure


@dataclass(frozen=True)
class ListAll:
    """Read the whole list."""


@dataclass(frozen=True)
class WatchFrom:
    """Watch what changes after `version`; the server is to end it after `timeout` seconds."""

    version: str
    timeout: float


@dataclass(frozen=True)
class Pause:
    """Do nothing for `seconds`. `interruptible`: until the API server answered anybody after an outage, if sooner."""

    seconds: float
    interruptible: bool = True


Step = ListAll | WatchFrom | Pause


@dataclass
class Reflector:
    """The state of one list and watch. Tell it what came of each step, then ask for the next one."""

    longest_pause: float = LONGEST_PAUSE
    longest_patience: float = LONGEST_PATIENCE
    shortest_watch: float = SHORTEST_WATCH
    lists_after_break: bool = False  # for small lists that everything rests on: a watch that broke begins with one, too
    patience: float = field(default=PATIENCE, init=False)  # seconds to wait for the next answer
    version: str = field(default="", init=False)  # of the newest object or bookmark seen; "" = list first
    _pause: Pause | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _failed_at: float = field(default=float("-inf"), init=False)
    _proven: bool = field(default=False, init=False)  # a watch from the last list worked
    _refused: int = field(default=0, init=False)  # watches refused in a row

    def next_step(self, chance: float) -> Step:
        """What to do now. `chance`: a random number from 0 to below 1."""
        if self._pause is not None:
            pause, self._pause = self._pause, None
            return pause
        if not self.version:
            return ListAll()
        return WatchFrom(self.version, self.shortest_watch * (1 + chance))

    def listed(self, version: str) -> None:
        """The list was read."""
        self.version, self._proven = version, False
        self.patience = PATIENCE

    def watch_opened(self) -> None:
        """The head of a watch came."""
        self.patience = PATIENCE

    def outage_over(self) -> None:
        """The API server answered somebody after it had been away: what it counts may have begun anew."""
        self.version = ""

    def saw(self, version: str) -> None:
        """The watch brought an object or a bookmark; "" when it had no version. One that goes back is of another
        history than ours: list."""
        self.version = "" if is_older(version, self.version) else version or self.version
        self._proven, self._refused = True, 0

    def watch_ended(self, *, lasted: float, events: int, now: float, chance: float) -> None:
        """The server ended the watch after `lasted` seconds, as agreed or because it goes away."""
        if lasted < HASTY and not events:
            self._wait(FIRST_PAUSE, now, chance)
            return
        self._proven, self._refused = True, 0

    def list_failed(self, error: ApiError | None, *, now: float, chance: float, waited: float = 0.0) -> None:
        """The list could not be read, after so many seconds; None: what came was no list."""
        self._judge_patience(waited)
        self._fail(error, now, chance)

    def watch_failed(
        self, error: ApiError, *, now: float, chance: float, waited: float = 0.0, opened: bool = False
    ) -> None:
        """The watch was refused or could not be opened, after so many seconds; or it was `opened` and broke."""
        self._judge_patience(waited)
        status = error if isinstance(error, ApiStatusError) else None
        if status is None and (self.lists_after_break or not opened):
            self.version = ""
        if status is not None and status.gone:
            self.version = ""
            if not self._proven:  # expired right after the list: no reason to hurry into the same again
                self._fail(error, now, chance)
            return
        if status is not None and status.code not in (403, 429):
            self._refused += 1
            if self._refused > 1:  # perhaps it will never accept this version: an etcd restored from a backup
                self.version, self._refused = "", 0
        self._fail(error, now, chance)

    def _judge_patience(self, waited: float) -> None:
        if waited >= self.patience:
            self.patience = min(2 * self.patience, self.longest_patience)

    def _fail(self, error: ApiError | None, now: float, chance: float) -> None:
        if isinstance(error, ApiStatusError) and error.retry_after is not None:
            self._pause = Pause(max(0.0, error.retry_after) * (1 + chance / 4), interruptible=False)
            return
        forbidden = isinstance(error, ApiStatusError) and error.forbidden
        self._wait(FIRST_PAUSE_FORBIDDEN if forbidden else FIRST_PAUSE, now, chance)

    def _wait(self, first: float, now: float, chance: float) -> None:
        if now - self._failed_at > HEALTHY_AFTER:
            self._failures = 0
        longest = min(first * 2.0 ** min(self._failures, 20), self.longest_pause)
        self._failures, self._failed_at = self._failures + 1, now
        self._pause = Pause(longest * (0.5 + chance / 2))
