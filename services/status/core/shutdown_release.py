"""Decides when status delays a shutdown of the machine no longer. Pure; moments are seconds of CLOCK_MONOTONIC."""

from msgspec import Struct

from shared.model.shutdown_groups import MAX_STATUS_SECONDS

SETTLE_SECONDS = 1.0  # for which nothing was left to write: a status of podsync may follow its `node.shutdown`
LOOK_SECONDS = 0.1  # between two looks whether all is written


class ReleaseInputs(Struct, frozen=True, kw_only=True):
    """Has what the release depends on."""

    now: float
    began: float  # when the shutdown was found to be in progress
    pods_seconds: float  # that all groups of pods have together
    is_over: bool  # podsync has published that the pods have stopped, or had their time
    written_since: float | None  # since when the API server has all; None = it has not


def may_release(given: ReleaseInputs) -> bool:
    """Return whether the machine may go on: the API server has all, or the time for that is over."""
    if given.now >= given.began + given.pods_seconds + MAX_STATUS_SECONDS:
        return True
    return given.is_over and given.written_since is not None and given.now - given.written_since >= SETTLE_SECONDS


def next_look(given: ReleaseInputs) -> float:
    """Return after how many seconds to look again, where nothing is released yet."""
    left = given.began + given.pods_seconds + MAX_STATUS_SECONDS - given.now
    return min(left, LOOK_SECONDS) if given.is_over else left
