"""Which key is worked on next: each once at a time, in turn, after its back-off, none while the API server is away.

Pure; `now` is monotonic seconds. Bounded by the keys: a key is here once, however often it changed. What to do for it
is decided when its turn comes. Only here does one failure hold back all keys: other services do not share this queue.
"""

from collections.abc import Callable

from shared.time.backoff import Backoff

RETRIES = Backoff(initial=0.5, cap=10.0)  # of a key that is refused
PROBES = Backoff(initial=0.25, cap=3.0)  # while the API server does not answer: one request tries again, all follow


class KeyQueue:
    """Keys that changed, in the order in which they did; at most `parallel` of them are under way. `retries`: of a key
    that is refused; `spread`: the share of a delay by which chance prolongs it."""

    def __init__(
        self,
        parallel: int,
        retries: Backoff = RETRIES,
        *,
        spread: float = 0.0,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._parallel, self._retries, self._spread, self._chance = parallel, retries, spread, chance
        self._ready: dict[str, None] = {}
        self._later: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._under_way: set[str] = set()
        self._again: set[str] = set()
        self._held_until = 0.0
        self._probe = 0.0  # seconds to the next probe; 0 = the API server answers

    def add(self, key: str, *, at_once: bool = False) -> None:
        """The key changed. One in its back-off is worked on when that ends, unless what was refused is another thing
        now (`at_once`)."""
        if at_once and self._later.pop(key, None) is not None:
            self._failures.pop(key, None)
        if key in self._under_way:
            self._again.add(key)
        elif key not in self._later:
            self._ready.setdefault(key)

    def take(self, now: float) -> str | None:
        """The next key; it is under way until `done`, `refused` or `unanswered`."""
        if self._busy or now < self._held_until:
            return None
        for key in [key for key, when in self._later.items() if when <= now]:
            del self._later[key]
            self._ready.setdefault(key)
        if not self._ready:
            return None
        key = next(iter(self._ready))
        del self._ready[key]
        self._under_way.add(key)
        return key

    def done(self, key: str, *, answered: bool = True) -> None:
        """`answered`: the API server was asked, so it is there."""
        self._failures.pop(key, None)
        if answered:
            self._probe = self._held_until = 0.0
        self._returned(key, None)

    def refused(self, key: str, now: float) -> None:
        """The API server answers, and will not have it: this key waits, the others go on."""
        self._probe = self._held_until = 0.0
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._returned(key, now + self._retries.delay(failures, self._spread * self._chance()))

    def unanswered(self, key: str, now: float, retry_after: float = 0.0) -> None:
        """The API server did not answer, or answered 429 or 5xx: it did not do the request. Every key waits, at least
        `retry_after` seconds. This key waits longer each time: the API server may fail at this request alone."""
        if now >= self._held_until:
            self._probe = PROBES.next_delay(self._probe)
            self._held_until = now + self._probe
        self._held_until = max(self._held_until, now + retry_after)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._returned(key, now + PROBES.delay(failures))

    def wake_at(self) -> float | None:
        """When (the clock of `now`) `take` has something again without an `add`; None = not before one, or `done`."""
        if self._busy:
            return None
        if self._ready:
            return self._held_until
        return max(self._held_until, min(self._later.values())) if self._later else None

    @property
    def away(self) -> bool:
        """The API server did not answer when it was last asked."""
        return bool(self._probe)

    @property
    def _busy(self) -> bool:
        return len(self._under_way) >= (1 if self._probe else self._parallel)

    def _returned(self, key: str, later: float | None) -> None:
        self._under_way.discard(key)
        again = key in self._again
        self._again.discard(key)
        if later is not None:
            self._later[key] = later
        elif again:
            self._ready.setdefault(key)
