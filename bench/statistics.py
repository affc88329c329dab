"""Computes median, p90 and max of samples, ratios, and whether a goal is met. Pure.

For figures where more is better, p90 and max are counted from the bad side: what nine of ten reach, and the least.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Stat = Literal["p50", "p90", "max"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Summary:
    """The statistics of the samples of one figure and one agent; `count` is their number."""

    count: int
    p50: float
    p90: float
    max: float

    def stat(self, name: Stat) -> float:
        """Return the statistic with this name."""
        return {"p50": self.p50, "p90": self.p90, "max": self.max}[name]


def summarize(samples: Sequence[float], better: Better = "lower") -> Summary:
    """Return the statistics. Raises ValueError without samples, and for a sample that is negative, infinite or not a
    number."""
    if not samples:
        raise ValueError("no sample")
    if wrong := [sample for sample in samples if not math.isfinite(sample) or sample < 0]:
        raise ValueError(f"{wrong[0]} is no figure")
    ordered = sorted(samples, reverse=better == "higher")
    return Summary(len(ordered), statistics.median(ordered), _reached_by(ordered, 0.9), ordered[-1])


def _reached_by(ordered: Sequence[float], share: float) -> float:
    """Return the smallest sample that this share of the ordered samples does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratio(of: float, to: float) -> float | None:
    """Return the ratio of the first value to `to`; None where `to` is 0."""
    return of / to if to > 0 else None


@dataclass(frozen=True)
class Goal:
    """A limit for one statistic of Bulkhead's samples.

    `ratio`: times the Go kubelet's; `value`: in the figure's unit; `floor`: that much above the median of figure `of`.
    For `ratio` and figures where more is better the limit is the least that is wanted.
    """

    stat: Stat
    kind: Literal["ratio", "value", "floor"]
    limit: float
    of: str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether a goal was met; `met`: None = unknown. `measured`: the value that was compared with the limit."""

    goal: Goal
    met: bool | None
    measured: float | None


def verdict_of(
    goal: Goal, ours: Summary | None, theirs: Summary | None, floors: Mapping[str, Summary], better: Better
) -> Verdict:
    """Compare our figure with the goal."""
    measured: float | None = None
    if ours is not None:
        value = ours.stat(goal.stat)
        if goal.kind == "value":
            measured = value
        elif goal.kind == "ratio" and theirs is not None:
            measured = ratio(value, theirs.stat(goal.stat))
        elif goal.kind == "floor" and goal.of in floors:
            measured = value - floors[goal.of].p50
    if measured is None:
        return Verdict(goal, None, None)
    return Verdict(goal, measured <= goal.limit if better == "lower" else measured >= goal.limit, measured)
