"""What a process follows: how its copies of streams compare with their owners, and whose beats it has received."""

from msgspec import Struct, field


class GetFollowed(Struct, frozen=True, kw_only=True):
    """Request to every service: the state of the streams that it follows, and the times of the beats it received."""


class Replicated(Struct, frozen=True, kw_only=True):
    """One followed stream: the copy of this process."""

    incarnation: str  # of the owner that the copy is of; "" = nothing was received yet
    number: int  # of the newest update that it contains
    items: int  # keys with a readable value
    complete: bool  # as of a `Snapshot`, and every value is readable
    stale: bool  # three seconds without proof of being in sync


class Followed(Struct, frozen=True, kw_only=True):
    """Answer to GetFollowed."""

    incarnation: str  # of the process that answers
    streams: dict[str, Replicated] = field(default_factory=dict)  # name -> each stream that it follows
    # service -> CLOCK_MONOTONIC seconds at which it sent the newest beat that was received here
    beats: dict[str, float] = field(default_factory=dict)
