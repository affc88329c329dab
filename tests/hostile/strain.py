"""Measures what hostile input costs the process that reads it: stalls of its event loop, and memory.

A stall is the CPU time of the process between two turns of the loop. What other processes of the machine do is not in
it, and an extension that holds the interpreter in another thread is.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

MAX_STALL_SECONDS = 0.1
MAX_GROWTH_MIB = 32.0
TICK_SECONDS = 0.002
WARM_UP = 0.1  # share of the run after which memory counts


@dataclass
class Strain:
    """The figures of one run. `problems`: what was raised or answered that should not be."""

    inputs: int = 0
    stall_seconds: float = 0.0
    growth_mib: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def count(self, outcome: str) -> None:
        """Count one input with its outcome."""
        self.inputs += 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def within_limits(self) -> bool:
        """Return whether nothing stalled, grew or failed."""
        return not self.problems and self.stall_seconds < MAX_STALL_SECONDS and self.growth_mib < MAX_GROWTH_MIB

    def as_json(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self)


@contextlib.asynccontextmanager
async def measured(strain: Strain, seconds: float) -> AsyncIterator[float]:
    """Measure the block, which ends at the yielded time of the loop."""
    loop = asyncio.get_running_loop()
    end, warm = loop.time() + seconds, loop.time() + seconds * WARM_UP

    async def tick() -> None:
        before, first = time.process_time(), 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.process_time()
            strain.stall_seconds = max(strain.stall_seconds, now - before)
            if loop.time() >= warm:
                resident = _resident_bytes()
                first = first or resident
                strain.growth_mib = max(strain.growth_mib, (resident - first) / 2**20)
            before = time.process_time()

    ticking = asyncio.create_task(tick())
    try:
        yield end
    finally:
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
