"""The request with which a follower catches up, and its answer with the whole stream. Every owner of a stream answers
it."""

import msgspec
from msgspec import Struct


class GetSnapshot(Struct, frozen=True, kw_only=True):
    """Request to the owner of a stream: everything the stream holds now."""

    stream: str  # name of the stream


class Snapshot(Struct, frozen=True, kw_only=True):
    """Answer to GetSnapshot: all entries as of update `number` of this incarnation of the owner.

    `complete` = the owner has listed everything there is; until then an absent key does not mean a deleted one.
    Values stay undecoded JSON: only a follower knows their type.
    """

    stream: str  # name of the stream
    incarnation: str  # of the owner
    number: int  # of the newest update contained; 0 = there was none
    complete: bool  # the owner has listed all items; keys that are absent here do not exist
    entries: dict[str, msgspec.Raw]  # key -> value, of the type of the stream
