"""Collects what a service reports of itself every second: progress of its loops, troubles, numbers of its streams.

Decides the content of a beat and how long silence may last. The bus decides when beats are sent."""

from collections.abc import Iterable

from bus.codec import PROTOCOL_VERSION
from bus.ledger import Ledger
from bus.messages.beat import Beat

BEAT_SECONDS = 1.0
STALE_AFTER_SECONDS = 3 * BEAT_SECONDS  # without a sign of the owner after which a replica is stale
MAX_TROUBLE_CHARACTERS = 4096  # of one trouble, because each beat contains all of them


def next_beat_in(now: float) -> float:
    """Return seconds from `now` (CLOCK_MONOTONIC) to the next beat, between half of BEAT_SECONDS and one and a half.

    All processes beat at whole seconds of the machine's clock: who follows several of them is woken once, not by each.
    """
    left = BEAT_SECONDS - now % BEAT_SECONDS
    return left if left >= BEAT_SECONDS / 2 else left + BEAT_SECONDS


class BeatContent:
    """Collects the content of the next beat."""

    def __init__(self, service: str, incarnation: str, pid: int) -> None:
        self.service, self.incarnation, self.pid = service, incarnation, pid
        self._progress: dict[str, float] = {}
        self._troubles: dict[str, str] = {}

    def progress(self, loop: str, now: float) -> None:
        """Note that a working loop turned at `now` (CLOCK_MONOTONIC seconds)."""
        self._progress[loop] = now

    def trouble(self, name: str, line: str | None) -> bool:
        """Set a named trouble, or clear it with None. It becomes one line of at most MAX_TROUBLE_CHARACTERS. Return
        whether anything changed."""
        before = self._troubles.get(name)
        if line is None:
            self._troubles.pop(name, None)
        else:
            line = " ".join(line.split())[:MAX_TROUBLE_CHARACTERS]
            self._troubles[name] = line
        return before != line

    def beat(self, now: float, ledgers: Iterable[Ledger]) -> Beat:
        """Return the beat of this moment."""
        return Beat(
            service=self.service,
            incarnation=self.incarnation,
            protocol=PROTOCOL_VERSION,
            pid=self.pid,
            sent_at=now,
            streams={ledger.stream: ledger.number for ledger in ledgers},
            progress=dict(self._progress),
            troubles=tuple(self._troubles[name] for name in sorted(self._troubles)),
        )
