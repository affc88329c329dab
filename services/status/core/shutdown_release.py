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
    over_since: float | None  # when podsync was found to say that all pods have stopped; None = it does not
    written_since: float | None  # since when the API server has all; None = it has not


def may_release(given: ReleaseInputs) -> bool:
    """Return whether the machine may go on: the API server has all, or the time for that is over."""
    return is_reported(given) or given.now >= _limit(given)


def is_reported(given: ReleaseInputs) -> bool:
    """Return whether the API server has what the shutdown has changed."""
    if given.over_since is None or given.written_since is None:
        return False
    return given.now - given.written_since >= SETTLE_SECONDS


def next_look(given: ReleaseInputs) -> float:
    """Return after how many seconds to look again, where nothing is released yet."""
    left = _limit(given) - given.now
    return left if given.over_since is None else min(left, LOOK_SECONDS)


def _limit(given: ReleaseInputs) -> float:
    """Return until when to wait at most: some seconds from the moment on at which the pods had stopped, or at which
    their time was over."""
    pods_end = given.began + given.pods_seconds
    return MAX_STATUS_SECONDS + (pods_end if given.over_since is None else min(pods_end, given.over_since))
