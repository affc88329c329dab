"""What one look at the machine holds: plain data, nothing that reads or decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProcessSample:
    """One process. `handles`: kind of descriptor (`socket:tcp`, `pidfd`, …) -> how many."""

    pid: int
    handles: Mapping[str, int]
    threads: int
    watches: int  # of inotify
    children: int
    zombies: int
    rss: int  # KiB
    pss: int  # KiB
    anonymous: int  # KiB: what the process itself has written to; page cache and shared libraries left out


@dataclass(frozen=True)
class Sample:
    """The agent and what it has made on the machine. `things`: place -> the names of what is there."""

    at: float  # CLOCK_MONOTONIC, seconds
    processes: Mapping[str, ProcessSample]
    things: Mapping[str, frozenset[str]]
    amounts: Mapping[str, int] = field(default_factory=dict)  # bytes below the home, by part


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be; a line of the report."""

    what: str  # "leak", "lost", "pod", "log", "memory"
    where: str
    before: str
    after: str

    def line(self, seed: int, round_number: int) -> str:
        """What, where, before, after, and how to have it again."""
        return (
            f"{self.what}: {self.where}: before {self.before}, after {self.after} (seed {seed}, round {round_number})"
        )
