"""Decides which key is worked on next: one at a time, in turn, after its back-off, none while the API server is away.

Pure; `now` is monotonic seconds. The number of keys is the bound: a key is in the queue once, however often it changed.
What is to be done for it is decided when its turn comes. One failure delays all keys of this queue, but nothing else.
"""

from collections.abc import Callable

from shared.time.backoff import Backoff

RETRIES = Backoff(initial=0.5, cap=10.0)  # the delays of a key that is refused
PROBES = Backoff(initial=0.25, cap=3.0)  # the delays of the one request that is repeated while no answer comes


class KeyQueue:
    """The keys that changed, in the order of their changes; at most `parallel` of them are under way. `retries`: the
    delays of a key that is refused; `spread`: the part of a delay by which it is prolonged at random."""

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
        """Add a key that changed. A key in its back-off is worked on when that ends, or now if the refused request
        would be another one now (`at_once`)."""
        if at_once and self._later.pop(key, None) is not None:
            self._failures.pop(key, None)
        if key in self._under_way:
            self._again.add(key)
        elif key not in self._later:
            self._ready.setdefault(key)

    def take(self, now: float) -> str | None:
        """Return the next key, None = there is none now. It is under way until `done`, `refused` or `unanswered`."""
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
        """Note that the work for a key is done. `answered`: the API server has answered a request."""
        self._failures.pop(key, None)
        if answered:
            self._probe = self._held_until = 0.0
        self._returned(key, None)

    def refused(self, key: str, now: float) -> None:
        """Note that the API server has refused a request: this key waits, and the others continue."""
        self._probe = self._held_until = 0.0
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._returned(key, now + self._retries.delay(failures, self._spread * self._chance()))

    def unanswered(self, key: str, now: float, retry_after: float = 0.0) -> None:
        """Note that the API server did not answer, or answered 429 or 5xx. Every key waits, at least `retry_after`
        seconds. This key waits longer each time, because perhaps only its request fails."""
        if now >= self._held_until:
            self._probe = PROBES.next_delay(self._probe)
            self._held_until = now + self._probe
        self._held_until = max(self._held_until, now + retry_after)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._returned(key, now + PROBES.delay(failures))

    def wake_at(self) -> float | None:
        """Return when (on the clock of `now`) `take` returns a key again; None = only after an `add`, or when a key is
        done."""
        if self._busy:
            return None
        if self._ready:
            return self._held_until
        return max(self._held_until, min(self._later.values())) if self._later else None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is under way, and nothing waits."""
        return not (self._ready or self._later or self._under_way)

    @property
    def away(self) -> bool:
        """Return whether the API server did not answer the last request."""
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
