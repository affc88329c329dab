"""Is a process's memory flat? Robust slope over its samples at rest, and the last third against the first. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

SLOPE_LIMIT = 20.0  # KiB a minute
GROWTH_LIMIT = 2048.0  # KiB from the first third to the last: below that it is the allocator's noise
POINTS_NEEDED, MINUTES_NEEDED = 6, 20.0  # in a shorter run memory still settles
COARSE_LIMIT = 16384.0  # KiB in all, where a run was too short for a slope


@dataclass(frozen=True)
class Point:
    """One sample at rest. `minutes` since any common start."""

    minutes: float
    kib: float


@dataclass(frozen=True)
class Growth:
    """The change of memory in one run of a process."""

    slope: float  # KiB a minute, Theil-Sen: the median of the slopes between all pairs
    first: float  # KiB, median of the first third
    last: float  # KiB, median of the last third
    points: int
    minutes: float  # from the first point to the last

    @property
    def leaks(self) -> bool:
        """Both the slope and the growth are over their limits; of a short run only the growth counts."""
        grown = self.last - self.first
        if self.points < POINTS_NEEDED or self.minutes < MINUTES_NEEDED:
            return grown > COARSE_LIMIT
        return self.slope > SLOPE_LIMIT and grown > GROWTH_LIMIT


def theil_sen(points: Sequence[Point]) -> float:
    """The median of the slopes between all pairs of points, in KiB a minute; 0 for fewer than two moments."""
    slopes = [
        (later.kib - earlier.kib) / (later.minutes - earlier.minutes)
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later.minutes != earlier.minutes
    ]
    return median(slopes) if slopes else 0.0


def growth_of(points: Sequence[Point]) -> Growth:
    """Of one run of a process, oldest point first, at least one."""
    third = max(len(points) // 3, 1)
    first, last = (median(point.kib for point in part) for part in (points[:third], points[-third:]))
    return Growth(theil_sen(points), first, last, len(points), points[-1].minutes - points[0].minutes)
