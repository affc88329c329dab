"""Decides which of the pods that start may begin now. A pod that begins has a place until its sandbox is made, and for
at most PLACE_SECONDS: a pod that hangs keeps no place, and one that waits for an image or reads a slow volume has none.
What follows needs no place, because the calls that finish a pod go before the next sandboxes (`call_slots`).

A free place is kept for a pod of higher rank that is looked at or prepared, for at most PLACE_SECONDS. So the order
does not depend on which of many pods is ready for its sandbox a few milliseconds earlier.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from heapq import nsmallest

from msgspec import Struct

from services.podsync.core.start_order.rank import Rank

PLACE_SECONDS = 5.0


class StartState(StrEnum):
    """Says how far the start of a pod is."""

    COMING = "coming"  # it is looked at or prepared, and waits for nothing
    WAITING = "waiting"  # for its turn alone
    BEGUN = "begun"


class Start(Struct, frozen=True, kw_only=True):
    """Has what the order depends on of a pod that starts."""

    uid: str
    rank: Rank
    number: int  # in which order pods of one rank begin
    state: StartState
    since: float  # steady seconds


def who_begins(starts: Collection[Start], places: int, now: float) -> tuple[str, ...]:
    """Return the UIDs of the waiting pods that may begin now, in their order."""
    begun = [start for start in starts if start.state is StartState.BEGUN and _counts(start, now)]
    if len(begun) >= places:
        return ()
    others = [start for start in starts if start.state is not StartState.BEGUN]
    line = [start for start in others if start.state is StartState.WAITING or _counts(start, now)]
    first = nsmallest(places - len(begun), line, key=lambda start: (start.rank, start.number))
    return tuple(start.uid for start in first if start.state is StartState.WAITING)


def next_change(starts: Iterable[Start], now: float) -> float:
    """Return the moment at which a place becomes free if nothing happens before; infinity where none is held."""
    return min((start.since + PLACE_SECONDS for start in starts if _counts(start, now)), default=float("inf"))


def _counts(start: Start, now: float) -> bool:
    """Return whether a place is held by the pod, or kept for it."""
    return start.state is not StartState.WAITING and now < start.since + PLACE_SECONDS
